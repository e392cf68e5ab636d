"""I4: events are contiguous from 1, and the run's number is that of the last one."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.diagnostics import Finding, declare
from perdure.model.event import RunSubmitted
from perdure.verify.load import RunView, is_json

CONTIGUOUS_GAP = declare(
    "verify.contiguous.gap", "missing from the log, which continues with event {number}"
)
CONTIGUOUS_OUT_OF_ORDER = declare(
    "verify.contiguous.out_of_order", "comes after event {expected}: duplicated or out of order"
)
CONTIGUOUS_EMPTY = declare("verify.contiguous.empty", "the run has no events")


def contiguous(view: RunView) -> Iterator[Finding]:
    expected = 1
    for event in view.events:
        if event.number > expected:
            gap = tuple(range(expected, min(event.number, expected + 10)))
            yield view.finding("I4", CONTIGUOUS_GAP, *gap, number=event.number)
        elif event.number < expected:
            yield view.finding("I4", CONTIGUOUS_OUT_OF_ORDER, event.number, expected=expected - 1)
        expected = event.number + 1
    if not view.events:
        yield view.finding("I4", CONTIGUOUS_EMPTY)


NUMBERED = declare("verify.numbered", "the run's number is {number}, its last event is {last}")


def numbered(view: RunView) -> Iterator[Finding]:
    last = view.events[-1].number if view.events else 0
    if last != view.run.number:
        yield view.finding("I4", NUMBERED, last, number=view.run.number, last=last)


BEGINS = declare(
    "verify.begins", "{event} is event {number}, but a run is submitted once, by its first event"
)


def begins(view: RunView) -> Iterator[Finding]:
    """The log begins with the submission, and there is one of it."""
    for step in view.replay.steps:
        if isinstance(step.event, RunSubmitted) != (step.number == 1):
            yield view.finding(
                "I4", BEGINS, step.number, event=type(step.event).__name__, number=step.number
            )


AS_OLD_AS_THE_RUN = declare(
    "verify.as_old_as_the_run", "dated {at}, before the run was created at {created_at}"
)


def as_old_as_the_run(view: RunView) -> Iterator[Finding]:
    """The first event is as old as the run: another run's log is not taken for its own."""
    if view.events and view.events[0].at < view.run.created_at:
        yield view.finding(
            "I4",
            AS_OLD_AS_THE_RUN,
            view.events[0].number,
            at=view.events[0].at,
            created_at=view.run.created_at,
        )


HAS_INPUT = declare("verify.has_input", "the input of the run is missing or cannot be read")


def has_input(view: RunView) -> Iterator[Finding]:
    """What a run was submitted with is there, and can be read."""
    if view.events and not is_json(view.value_of(view.events[0])):
        yield view.finding("I1", HAS_INPUT, view.events[0].number)


VALUES_ARE_JSON = declare("verify.values_are_json", "its value cannot be read")


def values_are_json(view: RunView) -> Iterator[Finding]:
    for event in view.events[1:]:
        if event.value is not None and not is_json(view.value_of(event)):
            yield view.finding("I2", VALUES_ARE_JSON, event.number)


RULES = (contiguous, numbered, begins, as_old_as_the_run, has_input, values_are_json)
