"""I4: events are contiguous from 1, and the run's number is that of the last one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from perdure.diagnostics import Finding, declare
from perdure.model.event import RunSubmitted
from perdure.store.admission import CLOCK_STEP_MIN
from perdure.verify.load import AuditedRun, is_json

EVENT_NUMBERS_GAP = declare(
    "verify.event_numbers.gap", "missing from the log, which continues with event {number}"
)
EVENT_NUMBERS_OUT_OF_ORDER = declare(
    "verify.event_numbers.out_of_order", "comes after event {expected}: duplicated or out of order"
)
EVENT_NUMBERS_EMPTY = declare("verify.event_numbers.empty", "the run has no events")


def event_numbers(view: AuditedRun) -> Iterator[Finding]:
    expected = 1
    for event in view.events:
        if event.number > expected:
            gap = tuple(range(expected, min(event.number, expected + 10)))
            yield view.finding("I4", EVENT_NUMBERS_GAP, *gap, number=event.number)
        elif event.number < expected:
            yield view.finding(
                "I4", EVENT_NUMBERS_OUT_OF_ORDER, event.number, expected=expected - 1
            )
        expected = event.number + 1
    if not view.events:
        yield view.finding("I4", EVENT_NUMBERS_EMPTY)


RUN_NUMBER = declare("verify.run_number", "the run's number is {number}, its last event is {last}")


def run_number(view: AuditedRun) -> Iterator[Finding]:
    last = view.events[-1].number if view.events else 0
    if last != view.run.number:
        yield view.finding("I4", RUN_NUMBER, last, number=view.run.number, last=last)


SUBMITTED_FIRST = declare(
    "verify.submitted_first",
    "{event} is event {number}, but a run is submitted once, by its first event",
)


def submitted_first(view: AuditedRun) -> Iterator[Finding]:
    """The log starts with the only submission."""
    for step in view.replay.steps:
        if isinstance(step.event, RunSubmitted) != (step.number == 1):
            yield view.finding(
                "I4",
                SUBMITTED_FIRST,
                step.number,
                event=type(step.event).__name__,
                number=step.number,
            )


FIRST_EVENT_TIME = declare(
    "verify.first_event_time", "dated {at}, before the run was created at {created_at}"
)


def first_event_time(view: AuditedRun) -> Iterator[Finding]:
    """The first event is as old as the run; otherwise it belongs to another run.

    A run is dated after the one that it replaces, which may be later than its first event. It is
    not if it started when it was created: the start is never dated like this.
    """
    run = view.run
    tolerance = timedelta() if run.started_at == run.created_at else CLOCK_STEP_MIN
    if view.events and view.events[0].at < run.created_at - tolerance:
        yield view.finding(
            "I4",
            FIRST_EVENT_TIME,
            view.events[0].number,
            at=view.events[0].at,
            created_at=run.created_at,
        )


RUN_INPUT = declare("verify.run_input", "the input of the run is missing or cannot be read")


def run_input(view: AuditedRun) -> Iterator[Finding]:
    """The input of a run exists and is readable."""
    if view.events and not is_json(view.value_of(view.events[0])):
        yield view.finding("I1", RUN_INPUT, view.events[0].number)


EVENT_VALUES = declare("verify.event_values", "its value cannot be read")


def event_values(view: AuditedRun) -> Iterator[Finding]:
    for event in view.events[1:]:
        if event.value is not None and not is_json(view.value_of(event)):
            yield view.finding("I2", EVENT_VALUES, event.number)


RULES = (event_numbers, run_number, submitted_first, first_event_time, run_input, event_values)
