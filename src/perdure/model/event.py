"""The events of a run: an append-only log, numbered from 1 without gaps.

An event carries its effects, so that folding the log needs nothing else. Values (inputs, outputs,
signal payloads) are stored beside the event; ``ref`` is the number of another event whose value
is meant.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from perdure.errors import EventLogCorrupt, UnknownEvent
from perdure.model.failure import Failure
from perdure.model.ids import RunId
from perdure.model.job import PRIORITY_DEFAULT
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.value import Value


class EdgeCounts(Value, array_like=True):
    """How many incoming edges of a node are decided while others are still open."""

    node: str
    decided: int
    active: int
    blocked: int = 0


class Effects(Value, omit_defaults=True):
    """The immediate consequences of an event, as texts of keys or ids of nodes."""

    started: tuple[str, ...] = ()
    """Jobs to execute."""
    waiting: tuple[str, ...] = ()
    children: tuple[tuple[str, RunId], ...] = ()
    """Runs started for a key."""
    mapped: tuple[tuple[str, int], ...] = ()
    """Maps started, with the number of their items."""
    skipped: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    """Nodes that will not run, because a predecessor failed."""
    edge_counts: tuple[EdgeCounts, ...] = msgspec.field(default=(), name="arrived")


NOTHING = Effects()


class Origin(Value, omit_defaults=True):
    """The event of another run that a fork continues from, and who forked it."""

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
    """It replaced an earlier run with this id."""
    map_window: int = 0
    """How many unfinished items a map has at most; 0 for runs of earlier versions.

    In those, a map starts all items at once, may have any number, and is undone only as a whole.
    """
    gathered_max_bytes: int = 0
    """How many bytes values have at most together that become one input or result, or that nodes
    take which start at once; 0 for runs of earlier versions, which have no such limit."""
    first_items: int = 0
    """How many items each map of a child run starts initially; 0: as many as afterwards."""
    settings: RunSettings = NO_SETTINGS
    priority: int = PRIORITY_DEFAULT
    """The priority from the settings, or the parent's."""
    is_queued: bool = False
    """It starts queued (see ``QueuedRunStarted``)."""


class QueuedRunStarted(_Event, tag="QueuedRunStarted"):
    """A queued run started."""

    effects: Effects


class PriorityChanged(_Event, tag="PriorityChanged"):
    priority: int
    by: str | None = None


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
    """Findings of an advisory check."""


class ItemCompleted(_Event, tag="ItemCompleted"):
    key: str
    effects: Effects = NOTHING
    size_bytes: int = 0
    """Of its output, as JSON; not known in older logs."""


class IterationCompleted(_Event, tag="IterationCompleted"):
    """A loop starts another iteration, or its check task."""

    key: str
    effects: Effects = NOTHING


class NodeRetried(_Event, tag="NodeRetried"):
    """An attempt failed and will be retried."""

    key: str
    attempt: int
    failure: Failure
    restarts: bool = False
    """It failed because of a report, so the external work is restarted."""
    is_snoozed: bool = False
    """It asked to be retried later; older logs do not record it."""


class NodeFailed(_Event, tag="NodeFailed"):
    """``handled``: "continue", or the port the run continues on; empty if the run fails."""

    key: str
    failure: Failure
    handled: str = ""
    cause: str = ""
    effects: Effects = NOTHING


class NodeSkipped(_Event, tag="NodeSkipped"):
    """It was reached but skipped itself or lacked an input; treated as if no edge led to it."""

    node: str
    reason: str = ""
    effects: Effects = NOTHING


class NodePaused(_Event, tag="NodePaused"):
    """A body paused for external work; the event's value is the checkpoint."""

    key: str
    name: str = ""
    """The name of the pause, if a body has several."""
    poll_ms: int | None = None
    """How often to poll the external work while no report arrives."""
    cancels: bool = False
    """Whether the external work is cancelled if nothing waits for it any more."""
    attempt: int = 1
    """The attempt that the report resumes."""
    effects: Effects = NOTHING


class NodeReported(_Event, tag="NodeReported"):
    """A report on external work; it is the event's value. Status ``progress`` is not final."""

    key: str
    status: str
    token: str = ""
    """Identifies a repeated report."""
    by: str | None = None
    has_progress: bool = False
    """The report carries progress that a later attempt can resume from."""
    is_poll: bool = False
    """A poll of the node itself returned it; older logs have ``by="poll"`` instead."""
    effects: Effects = NOTHING


class NodePollStarted(_Event, tag="NodeAsked"):
    """A job polls the external work, because no report arrived."""

    key: str
    effects: Effects


class NodeCancelled(_Event, tag="NodeCancelled"):
    """A job cancelled the external work of a node; ``failure`` is set if it could not."""

    key: str
    failure: Failure | None = None


class NodePolled(_Event, tag="NodePolled"):
    """The poll brought no news; ``failure`` is set if the poll itself failed."""

    key: str
    failure: Failure | None = None
    effects: Effects = NOTHING


class ReportIgnored(_Event, tag="ReportIgnored"):
    """A final report that arrived after another one. Only the first counts;
    this one is just recorded."""

    key: str
    status: str
    port: str = ""
    by: str | None = None


class ApprovalAnswered(_Event, tag="ApprovalAnswered"):
    """One decider answered; the event's value is the data of the answer."""

    node: str
    decision: str
    by: str | None = None
    stands_for: tuple[str, ...] = ()
    """The deciders on whose behalf this answer is given."""
    note: str | None = None


class ApprovalReminded(_Event, tag="ApprovalReminded"):
    """A reminder was due. Older logs have escalations too, with the deciders they added."""

    node: str
    number: int
    """The number of this reminder, from 1; in older logs, escalations are counted too."""
    deciders: tuple[str, ...] = ()
    effects: Effects = NOTHING


class ApprovalEscalated(_Event, tag="ApprovalEscalated"):
    """``deciders`` may now decide as well."""

    node: str
    number: int
    """The number of this escalation, from 1."""
    deciders: tuple[str, ...]
    effects: Effects = NOTHING


class NodeNotified(_Event, tag="NodeNotified"):
    """The ``notify`` task of an approval ended; ``failure`` is set if it failed."""

    key: str
    failure: Failure | None = None


class SignalReceived(_Event, tag="SignalReceived"):
    """The event's value is the payload. Stays pending until a node consumes it."""

    name: str
    by: str | None = None


class RunPaused(_Event, tag="RunPaused"):
    reason: str | None = None
    by: str | None = None


class RunResumed(_Event, tag="RunUnpaused"):
    by: str | None = None
    effects: Effects = NOTHING


class CompensationStarted(_Event, tag="CompensationStarted"):
    """The run ends as ``outcome`` once its completed nodes are undone."""

    outcome: str
    undoes: tuple[str, ...]
    """The nodes, and the items of maps that did not complete, to undo in this order."""
    effects: Effects
    failure: Failure | None = None
    node: str = ""
    reason: str | None = None
    by: str | None = None
    compensates: bool = True
    """False if no node is undone: the run only waits until its external work is cancelled."""


class NodeUndone(_Event, tag="NodeUndone"):
    node: str
    effects: Effects = NOTHING
    item: int | None = None
    """Of a map that did not complete, and is undone item by item."""


class UndoFailed(_Event, tag="UndoFailed"):
    node: str
    failure: Failure
    effects: Effects = NOTHING
    item: int | None = None


class RunCompleted(_Event, tag="RunCompleted"):
    ref: int = 0


class RunFailed(_Event, tag="RunFailed"):
    failure: Failure
    node: str = ""


class RunCancelled(_Event, tag="RunCancelled"):
    reason: str | None = None
    by: str | None = None
    compensates: bool = False
    """Completed nodes are undone: already in this run, and also in its child runs."""


class RunSkipped(_Event, tag="RunSkipped"):
    """It never started: the flow is cooling down after the run ``last``."""

    reason: str
    last: RunId
    until: datetime
    """When the flow accepts runs again."""


class RunRetried(_Event, tag="RunRetried"):
    effects: Effects
    by: str | None = None
    is_late: bool = False
    """The run's deadline had passed, so it no longer has one."""
    is_queued: bool = False
    """It starts later (``QueuedRunStarted``)."""


class RunForked(_Event, tag="RunForked"):
    """Ends the events that were copied from the original run."""

    origin: Origin
    effects: Effects = NOTHING
    is_late: bool = False
    """The deadline had passed, so the fork has none."""
    is_queued: bool = False
    """It starts later (``QueuedRunStarted``)."""
    restarts: tuple[str, ...] = ()
    """If queued: the unfinished nodes that start from the beginning."""


class RunMigrated(_Event, tag="RunMigrated"):
    """``effects`` has all edge counts, because they depend on the version's edges."""

    version: str
    by: str | None = None
    effects: Effects = NOTHING


class OutputChanged(_Event, tag="OutputChanged"):
    """In a fork: the event's value replaces the output of a completed node, or of an iteration."""

    node: str
    iteration: int = 0
    """The last iteration of an unfinished loop; 0 for a completed node."""


Event = (
    RunSubmitted
    | QueuedRunStarted
    | PriorityChanged
    | NodeCompleted
    | ItemCompleted
    | IterationCompleted
    | NodeRetried
    | NodeFailed
    | NodeSkipped
    | NodePaused
    | NodeReported
    | NodePollStarted
    | NodeCancelled
    | NodePolled
    | ReportIgnored
    | ApprovalAnswered
    | ApprovalReminded
    | ApprovalEscalated
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
    """An event to write; ``value`` is encoded by the codec."""

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
    """Decode an event; raises ``UnknownEvent`` for types of a newer version, never skips them."""
    try:
        event: Event = _decoder.decode(data)
        return event
    except msgspec.ValidationError as error:
        event_type = _type_of(data)
        if event_type is not None and event_type not in _tags:
            raise UnknownEvent(run_id=run, number=number, type=event_type) from error
        raise EventLogCorrupt(
            run_id=run, reason=f"event {number} cannot be read: {error}"
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise EventLogCorrupt(
            run_id=run, reason=f"event {number} cannot be read: {error}"
        ) from error


def _type_of(data: bytes) -> str | None:
    try:
        event = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
    event_type = event.get("type") if isinstance(event, dict) else None
    return event_type if isinstance(event_type, str) else None
