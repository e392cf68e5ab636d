"""A run's log, read event by event, with the state before and after each."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.engine.fold import fold
from perdure.errors import EventLogCorrupt, UnknownEvent, record_text
from perdure.model.event import Event, RunForked, StoredEvent, decode_event
from perdure.model.ids import RunId
from perdure.model.run import RunState
from perdure.model.value import Value


class ReplayStep(Value):
    """An event, with the state before and after it."""

    number: int
    event: Event
    stored: StoredEvent
    before: RunState
    after: RunState


class Replay(Value):
    """The part of the log that could be read and folded."""

    steps: tuple[ReplayStep, ...]
    state: RunState
    fault: str = ""
    """Why it stops before the end of the log."""
    fault_number: int = 0

    def state_at(self, number: int) -> RunState | None:
        if number == 0:
            return RunState()
        return self.steps[number - 1].after if number <= len(self.steps) else None


def replayed(run: RunId, events: Sequence[StoredEvent]) -> Replay:
    """Fold a log from the start. Gaps are ignored here: another rule reports them."""
    state = RunState()
    steps: list[ReplayStep] = []
    for stored in events:
        number = state.number + 1
        try:
            event = decode_event(run, stored.number, stored.data)
        except (EventLogCorrupt, UnknownEvent) as error:
            return _stopped(steps, state, stored, record_text(error))
        try:
            after = fold(state, event)
        except (KeyError, ValueError, AssertionError, IndexError, TypeError) as error:
            # The event does not fit the state: the log is inconsistent.
            fault = f"{type(event).__name__} does not fit what was before it ({error!r})"
            return _stopped(steps, state, stored, fault)
        steps.append(
            ReplayStep(number=number, event=event, stored=stored, before=state, after=after)
        )
        state = after
    return Replay(steps=tuple(steps), state=state)


def origins(run: RunId, steps: Sequence[ReplayStep]) -> list[RunId]:
    """The run that produced each event: those before a fork were copied from its origin."""
    runs = [run] * len(steps)
    for step in reversed(steps):
        if isinstance(step.event, RunForked):
            copied = min(step.event.origin.number, step.number - 1)
            runs[:copied] = [step.event.origin.run] * copied
    return runs


def _stopped(steps: list[ReplayStep], state: RunState, at: StoredEvent, fault: str) -> Replay:
    return Replay(steps=tuple(steps), state=state, fault=fault, fault_number=at.number)
