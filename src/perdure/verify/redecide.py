"""Decides a run's log again, to check its events and to find the waits and jobs it should have.

Each trigger is decided again with the state and values of that time. The result must equal the
logged events. The decisions also give the requested waits and jobs, which must be stored now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import Code, declare
from perdure.engine.decide import decide, fork, submit
from perdure.engine.decider import Decision, NodeJob
from perdure.errors import ValueMissing
from perdure.model import event as events
from perdure.model.event import Effects, Event, StoredEvent
from perdure.model.failure import Failure
from perdure.model.graph import Graph
from perdure.model.ids import Key, RunId
from perdure.model.payload import Codec
from perdure.model.principal import RESERVED
from perdure.model.run import NewWait
from perdure.model.times import DURATION_MAX
from perdure.model.value import Value
from perdure.store.admission import CLOCK_STEP_MIN
from perdure.verify.replay import Replay, ReplayStep, origins
from perdure.verify.triggers import NULL, EventInContext, trigger_of


class Opened(Value):
    """A wait as requested by a decision."""

    wait: NewWait
    at: datetime
    """The time of the event that opened or renewed it."""
    sooner: timedelta = timedelta(0)
    """How much earlier it may be due: reminders compensate for delays."""


VALUE_MISSING = declare(
    "verify.log_as_decided.value_missing",
    "{event} needs the value of event {needed}, which has none",
)
IMPOSSIBLE = declare("verify.log_as_decided.impossible", "{event} cannot have happened: {error}")
NOTHING_FOLLOWS = declare(
    "verify.log_as_decided.nothing_follows", "nothing follows from {event}, in the state before it"
)
OTHER_EVENT = declare(
    "verify.log_as_decided.other_event", "the rules say {decided}, the log has {stored}"
)
OTHER_VALUE = declare("verify.log_as_decided.other_value", "the rules give {event} another value")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where log and rules diverge; nothing after it was checked."""

    code: Code
    number: int
    args: Mapping[str, Any]


class Redecided:
    """The result of deciding a log again."""

    def __init__(self) -> None:
        self.fault: Difference | None = None
        self.opened: dict[str, Opened] = {}
        """The latest wait of each key."""
        self.scheduled: dict[str, NodeJob] = {}
        """The latest job of each key."""


class LogValues:
    """The values of a log, for decisions."""

    def __init__(self, stored: Sequence[StoredEvent], codec: Codec) -> None:
        self.lists: dict[str, list[bytes]] = {}
        self._stored = {event.number: event.value for event in stored}
        self._codec = codec

    def json(self, number: int) -> bytes:
        value = self._stored.get(number)
        if value is None:
            raise ValueMissing(numbers=(number,))
        return self._codec.decode(value)

    def json_or_null(self, number: int) -> bytes:
        return NULL if self._stored.get(number) is None else self.json(number)


class Redeciding:
    def __init__(
        self, run: RunId, replay: Replay, graphs: dict[str, Graph], values: LogValues
    ) -> None:
        self._steps = replay.steps
        self._is_cut = bool(replay.fault)
        self._runs = origins(run, replay.steps)
        self._graphs = graphs
        self._values = values
        self._found = Redecided()

    def redecided(self) -> Redecided:
        place = 0
        while place < len(self._steps) and self._found.fault is None:
            step = self._steps[place]
            try:
                decision = self._decision_at(place)
            except ValueMissing as error:
                self._part(VALUE_MISSING, step, needed=error.numbers)
            except Exception as error:  # a corrupt log may raise anything
                self._part(IMPOSSIBLE, step, error=f"{type(error).__name__}: {error}")
            else:
                place = self._compared(place, decision)
        return self._found

    def _decision_at(self, place: int) -> Decision | None:
        """The decision that starts with an event; None if its version is unknown."""
        step = self._steps[place]
        event, values, run = step.event, self._values, self._runs[place]
        version = getattr(event, "version", "") or step.before.version
        graph = self._graphs.get(version)
        if graph is None:
            return None
        if isinstance(event, events.RunSubmitted):
            decision, _ = submit(
                graph,
                run,
                values.json(1),
                values,
                aging_ms=event.aging_ms,
                parent=event.parent,
                replaced=event.replaced,
                settings=event.settings,
                priority=event.priority,
                map_window=event.map_window,
                gathered_max_bytes=event.gathered_max_bytes,
                first_items=event.first_items,
            )
            return self._unless_skipped(decision)
        if isinstance(event, events.OutputChanged | events.RunForked):
            return self._fork_at(place, graph)
        trigger = trigger_of(EventInContext(graph, step, values.json_or_null(step.number)))
        if trigger is None:
            raise ValueError("nothing that happens to a run leads to it by itself")
        decision, _ = decide(graph, run, step.before, trigger, values)
        return decision

    def _unless_skipped(self, decision: Decision) -> Decision:
        """A run skipped by its flow's cooldown: the store removes its effects.

        The log of a fork may end before the event that says so.
        """
        first = self._steps[0].event
        second = self._steps[1].event if len(self._steps) > 1 else None
        is_cut = self._ends_at(1) and getattr(first, "effects", None) == events.NOTHING
        if not is_cut and not isinstance(second, events.RunSkipped):
            return decision
        skipped = Decision()
        event, value = decision.events[0]
        assert isinstance(event, events.RunSubmitted)
        skipped.events = [(replace(event, effects=events.NOTHING), value)]
        if isinstance(second, events.RunSkipped):
            skipped.events.append((second, None))
        return skipped

    def _fork_at(self, place: int, graph: Graph) -> Decision:
        patch: dict[str, bytes] = {}
        for step in self._steps[place:]:
            if isinstance(step.event, events.OutputChanged):
                key = Key(node=step.event.node, iteration=step.event.iteration)
                patch[key.text] = self._values.json(step.number)
            elif isinstance(step.event, events.RunForked):
                self._values.lists.clear()
                self._found.opened.clear()
                self._found.scheduled.clear()
                before = self._steps[place].before
                run, origin = self._runs[place], step.event.origin
                decision, _ = fork(
                    graph, run, before, origin, patch, self._values, is_late=step.event.is_late
                )
                return decision
            else:
                break
        raise ValueError("outputs are changed by a fork, and there is none")

    def _compared(self, place: int, decision: Decision | None) -> int:
        """The index at which the next decision starts."""
        first = self._steps[place]
        if decision is None:
            return place + 1
        if not decision.events:
            self._part(NOTHING_FOLLOWS, first)
        for event, value in decision.events:
            if place >= first.number and self._ends_at(place):
                break
            step = self._steps[place] if place < len(self._steps) else None
            if step is None or not _is_same(step.event, event):
                stored = "nothing" if step is None else _summary_of(step.event)
                number = len(self._steps) if step is None else step.number
                args = {"decided": _summary_of(event), "stored": stored}
                self._found.fault = Difference(OTHER_EVENT, number, args)
                return place
            if not self._has_value(step, value):
                self._part(OTHER_VALUE, step)
                return place
            place += 1
        self._take(first, decision)
        return place

    def _ends_at(self, place: int) -> bool:
        """Whether the log ends there, because of a fork or an unreadable rest."""
        if place == len(self._steps):
            return self._is_cut
        event = self._steps[place].event
        is_fork = isinstance(event, events.OutputChanged | events.RunForked)
        return is_fork and self._runs[place] != self._runs[place - 1]

    def _has_value(self, step: ReplayStep, value: bytes | None) -> bool:
        if step.stored.value is None or value is None:
            return step.stored.value is None and value is None
        stored = self._values.json(step.number)
        return stored == value or msgspec.json.decode(stored) == msgspec.json.decode(value)

    def _take(self, first: ReplayStep, decision: Decision) -> None:
        sooner = timedelta(0)
        if isinstance(first.event, events.ApprovalReminded | events.ApprovalEscalated):
            sooner = self._lateness(f"remind:{first.event.node}", first.stored.at)
        for wait in decision.waits:
            opened = Opened(wait=wait, at=first.stored.at, sooner=sooner)
            self._found.opened[wait.key] = opened
        for schedule in decision.schedules:
            self._found.scheduled[schedule.key.text] = schedule

    def _lateness(self, key: str, now: datetime) -> timedelta:
        """How late a reminder was at most."""
        before = self._found.opened.get(key)
        if before is None or before.wait.delay is None:
            return timedelta(0)
        late = now - (before.at + before.wait.delay - before.sooner)
        if late < -CLOCK_STEP_MIN:  # the clock was set back after a worker had found it due
            return DURATION_MAX
        return max(timedelta(0), late)

    def _part(self, code: Code, step: ReplayStep, **args: Any) -> None:
        self._found.fault = Difference(
            code, step.number, {"event": _summary_of(step.event), **args}
        )


def _is_same(stored: Event, decided: Event) -> bool:
    return stored == decided or _plain(stored) == _plain(decided)


def _plain(event: Event) -> Event:
    """Normalize for comparison: drop what differs by version, and sort."""
    changes: dict[str, Any] = {}
    if isinstance(event, events.ApprovalReminded | events.ApprovalEscalated):
        event = events.ApprovalReminded(
            node=event.node, number=0, deciders=event.deciders, effects=event.effects
        )
    elif isinstance(event, events.NodeRetried):
        changes["is_snoozed"] = False
    elif isinstance(event, events.ItemCompleted):
        changes["size_bytes"] = 0
    elif isinstance(event, events.NodeReported):
        changes["is_poll"] = event.is_poll or event.by in RESERVED
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, Effects):
            changes[name] = _in_order(value)
        elif isinstance(value, Failure):
            changes[name] = Failure(type=value.type, message="")
    if isinstance(event, events.NodeSkipped):
        changes["reason"] = ""
    return replace(event, **changes) if changes else event


def _in_order(effects: Effects) -> Effects:
    parts = {name: getattr(effects, name) for name in effects.__struct_fields__}
    return Effects(**{name: tuple(sorted(each, key=repr)) for name, each in parts.items()})


def _summary_of(event: Event) -> str:
    """A short description of an event."""
    place = getattr(event, "key", "") or getattr(event, "node", "")
    effects = getattr(event, "effects", events.NOTHING)
    what = f"{type(event).__name__}{f' of {place!r}' if place else ''}"
    if ref := getattr(event, "ref", 0):
        what += f" with the value of event {ref}"
    if started := [*effects.started, *effects.waiting, *(key for key, _ in effects.children)]:
        what += f", then {', '.join(started[:5])}"
    return what
