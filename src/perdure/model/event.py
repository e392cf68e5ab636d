"""Events: what happened in a run, append-only and numbered from 1 without gaps.

An event carries its effects, so that folding events needs nothing but them. Values (inputs,
outputs, payloads of signals) are kept beside the event; ``ref`` is the number of the event whose
value is meant where it is not the event's own.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from perdure.errors import EventLogCorrupt, UnknownEvent
from perdure.model.failure import Failure
from perdure.model.ids import RunId
from perdure.model.value import Value


class EdgeCounts(Value, array_like=True):
    """How many of a node's incoming edges are decided by now, while others are not."""

    node: str
    decided: int
    active: int
    blocked: int = 0


class Effects(Value, omit_defaults=True):
    """What follows from an event at once. All are texts of keys, or ids of nodes."""

    started: tuple[str, ...] = ()
    """Jobs to execute."""
    waiting: tuple[str, ...] = ()
    children: tuple[tuple[str, RunId], ...] = ()
    """Runs started for a key."""
    mapped: tuple[tuple[str, int], ...] = ()
    """Maps begun, with the number of their items."""
    skipped: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    """Will not run, because something before them failed."""
    edge_counts: tuple[EdgeCounts, ...] = msgspec.field(default=(), name="arrived")


NOTHING = Effects()


class Origin(Value, omit_defaults=True):
    """The point of another run that a fork goes on from, and who forked it."""

    run: RunId
    number: int
    by: str | None = None


class Parent(Value):
    """The run, and the key in it, that a child run belongs to."""

    run: RunId
    key: str


class _Event(Value, omit_defaults=True, rename={"effects": "then"}):
    """Stored with its tag as ``type``, and its effects as ``then``.

    Tags never change, so that old logs read; classes may be renamed.
    """


class RunSubmitted(_Event, tag="RunSubmitted"):
    """Its value is the run's input."""

    flow: str
    version: str
    aging_ms: int
    effects: Effects = NOTHING
    parent: Parent | None = None
    replaced: bool = False
    """An earlier run of this id was ended to make room for it."""


class NodeCompleted(_Event, tag="NodeCompleted"):
    node: str
    port: str = ""
    iteration: int = 0
    cause: str = ""
    """Empty for a job; else timer, timeout, signal, child, items, approval."""
    ref: int = 0
    """0: the value is the event's own."""
    effects: Effects = NOTHING
    warnings: tuple[str, ...] = ()
    """What an advisory check found."""


class ItemCompleted(_Event, tag="ItemCompleted"):
    key: str
    effects: Effects = NOTHING


class IterationCompleted(_Event, tag="IterationCompleted"):
    """A loop goes round again, or asks whether it should."""

    key: str
    effects: Effects = NOTHING


class NodeRetried(_Event, tag="NodeRetried"):
    """One attempt failed, and another will be made."""

    key: str
    attempt: int
    failure: Failure
    restarts: bool = False
    """It failed because of what was reported: the outside work is begun again."""


class NodeFailed(_Event, tag="NodeFailed"):
    """``handled`` says how the run goes on: "continue", or the port; empty if it does not."""

    key: str
    failure: Failure
    handled: str = ""
    cause: str = ""
    effects: Effects = NOTHING


class NodeSkipped(_Event, tag="NodeSkipped"):
    """It was reached and did not want to run, or lacked an input: as if no edge had led to it."""

    node: str
    reason: str = ""
    effects: Effects = NOTHING


class NodePaused(_Event, tag="NodePaused"):
    """A body stopped to wait for somebody outside; its value is the checkpoint."""

    key: str
    name: str = ""
    """Of the pause, where a body has several."""
    poll_ms: int | None = None
    """How often the outside party is asked if it does not report."""
    effects: Effects = NOTHING


class NodeReported(_Event, tag="NodeReported"):
    """The outside party spoke; its value is the report. ``status`` progress is not the last one."""

    key: str
    status: str
    token: str = ""
    """By which a report that is repeated is recognised."""
    by: str | None = None
    has_progress: bool = False
    """It says how far the work has come, for another try to go on from."""
    effects: Effects = NOTHING


class NodePollStarted(_Event, tag="NodeAsked"):
    """The outside party has been silent: a job asks it how the work is going."""

    key: str
    effects: Effects


class NodePolled(_Event, tag="NodePolled"):
    """The outside party was asked, and had nothing new; ``failure``: it could not be asked."""

    key: str
    failure: Failure | None = None
    effects: Effects = NOTHING


class ReportIgnored(_Event, tag="ReportIgnored"):
    """A last report that came after another one: the first counts, this one is only noted."""

    key: str
    status: str
    port: str = ""
    by: str | None = None


class ApprovalAnswered(_Event, tag="ApprovalAnswered"):
    """One decider answered; its value is the data of the answer."""

    node: str
    decision: str
    by: str | None = None
    stands_for: tuple[str, ...] = ()
    """Those of the deciders that this answer is given for."""
    note: str | None = None


class ApprovalReminded(_Event, tag="ApprovalReminded"):
    """It has been open for long; ``deciders`` may decide from now on too."""

    node: str
    number: int
    """Of this reminder or escalation, from 1."""
    deciders: tuple[str, ...] = ()
    effects: Effects = NOTHING


class NodeNotified(_Event, tag="NodeNotified"):
    """People were told of an approval, or could not be."""

    key: str
    failure: Failure | None = None


class SignalReceived(_Event, tag="SignalReceived"):
    """Its value is the payload. Kept until a node takes it."""

    name: str
    by: str | None = None


class RunPaused(_Event, tag="RunPaused"):
    reason: str | None = None
    by: str | None = None


class RunResumed(_Event, tag="RunUnpaused"):
    by: str | None = None
    effects: Effects = NOTHING


class CompensationStarted(_Event, tag="CompensationStarted"):
    """The run ends as ``outcome`` once everything completed is undone."""

    outcome: str
    undoes: tuple[str, ...]
    """The nodes to undo, in this order."""
    effects: Effects
    failure: Failure | None = None
    node: str = ""
    reason: str | None = None
    by: str | None = None


class NodeUndone(_Event, tag="NodeUndone"):
    node: str
    effects: Effects = NOTHING


class UndoFailed(_Event, tag="UndoFailed"):
    node: str
    failure: Failure
    effects: Effects = NOTHING


class RunCompleted(_Event, tag="RunCompleted"):
    ref: int = 0


class RunFailed(_Event, tag="RunFailed"):
    failure: Failure
    node: str = ""


class RunCancelled(_Event, tag="RunCancelled"):
    reason: str | None = None
    by: str | None = None
    compensates: bool = False
    """What was completed is undone: by now in this run, and in the runs that it had started."""


class RunSkipped(_Event, tag="RunSkipped"):
    """It never began: ``last`` is the run of its flow that began or ended too short ago."""

    reason: str
    last: RunId
    until: datetime
    """From when on a run of the flow begins again."""


class RunRetried(_Event, tag="RunRetried"):
    effects: Effects
    by: str | None = None


class RunForked(_Event, tag="RunForked"):
    """From here on the run is its own; the events before were copied."""

    origin: Origin
    effects: Effects = NOTHING


class RunMigrated(_Event, tag="RunMigrated"):
    """``effects`` has all edge counts, because they are of the edges of one version."""

    version: str
    by: str | None = None
    effects: Effects = NOTHING


class OutputChanged(_Event, tag="OutputChanged"):
    """In a fork: its value is the output that a completed node has from here on."""

    node: str


Event = (
    RunSubmitted
    | NodeCompleted
    | ItemCompleted
    | IterationCompleted
    | NodeRetried
    | NodeFailed
    | NodeSkipped
    | NodePaused
    | NodeReported
    | NodePollStarted
    | NodePolled
    | ReportIgnored
    | ApprovalAnswered
    | ApprovalReminded
    | NodeNotified
    | SignalReceived
    | RunPaused
    | RunResumed
    | CompensationStarted
    | NodeUndone
    | UndoFailed
    | RunCompleted
    | RunFailed
    | RunCancelled
    | RunSkipped
    | RunRetried
    | RunForked
    | RunMigrated
    | OutputChanged
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)
_tags = {member.__struct_config__.tag for member in Event.__args__}


class NewEvent(Value):
    """An event as it is written; ``value`` is its value as the codec encodes it."""

    data: bytes
    value: bytes | None = None


class StoredEvent(Value):
    number: int
    at: datetime
    data: bytes
    value: bytes | None = None


def encode_event(event: Event) -> bytes:
    return _encoder.encode(event)


def decode_event(run: RunId, number: int, data: bytes) -> Event:
    """Refuses what a newer version wrote rather than skip it."""
    try:
        event: Event = _decoder.decode(data)
        return event
    except msgspec.ValidationError as error:
        found_type = _type_of(data)
        if found_type is not None and found_type not in _tags:
            raise UnknownEvent(run_id=run, number=number, type=found_type) from error
        raise EventLogCorrupt(
            run_id=run, reason=f"event {number} cannot be read: {error}"
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise EventLogCorrupt(
            run_id=run, reason=f"event {number} cannot be read: {error}"
        ) from error


def _type_of(data: bytes) -> str | None:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    found_type = found.get("type") if isinstance(found, dict) else None
    return found_type if isinstance(found_type, str) else None
