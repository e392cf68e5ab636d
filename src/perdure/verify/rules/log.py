"""I4: events are contiguous from 1, and the run's number is that of the last one."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.event import RunSubmitted
from perdure.verify.finding import Finding
from perdure.verify.load import RunView, is_json


def contiguous(view: RunView) -> Iterator[Finding]:
    expected = 1
    for event in view.events:
        if event.number > expected:
            gap = tuple(range(expected, min(event.number, expected + 10)))
            text = f"missing from the log, which goes on with {event.number}"
            yield view.finding("I4", "contiguous", text, *gap)
        elif event.number < expected:
            text = f"it comes after event {expected - 1}: it is there twice, or out of order"
            yield view.finding("I4", "contiguous", text, event.number)
        expected = event.number + 1
    if not view.events:
        yield view.finding("I4", "contiguous", "the run has no events at all")


def numbered(view: RunView) -> Iterator[Finding]:
    last = view.events[-1].number if view.events else 0
    if last != view.run.number:
        text = f"the run's number is {view.run.number}, its last event is {last}"
        yield view.finding("I4", "numbered", text, last)


def begins(view: RunView) -> Iterator[Finding]:
    """The log begins with the submission, and there is one of it."""
    for step in view.replay.steps:
        if isinstance(step.event, RunSubmitted) != (step.number == 1):
            text = f"{type(step.event).__name__} is event {step.number}; a run is submitted once"
            yield view.finding("I4", "begins", f"{text}, by its first event", step.number)


def as_old_as_the_run(view: RunView) -> Iterator[Finding]:
    """The first event is as old as the run: another run's log is not taken for its own."""
    if view.events and view.events[0].at < view.run.created_at:
        text = f"it is of {view.events[0].at}, before the run was made at {view.run.created_at}"
        yield view.finding("I4", "as_old_as_the_run", text, view.events[0].number)


def has_input(view: RunView) -> Iterator[Finding]:
    """What a run was submitted with is there, and can be read."""
    if view.events and not is_json(view.value_of(view.events[0])):
        text = "the input that it was submitted with is not there, or cannot be read"
        yield view.finding("I1", "has_input", text, view.events[0].number)


def values_are_json(view: RunView) -> Iterator[Finding]:
    for event in view.events[1:]:
        if event.value is not None and not is_json(view.value_of(event)):
            yield view.finding("I2", "values_are_json", "its value cannot be read", event.number)


RULES = (contiguous, numbered, begins, as_old_as_the_run, has_input, values_are_json)
