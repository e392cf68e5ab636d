"""Runs: their state as folded from events, and what the store keeps of them."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from immutables import Map

from perdure.model.event import NewEvent, Parent, StoredEvent
from perdure.model.failure import Failure
from perdure.model.ids import RunId
from perdure.model.job import Claim, NewJob
from perdure.model.outcome import Retried
from perdure.model.value import Value

RUN_ID_MAX_BYTES = 256

OnExisting = Literal["fail", "use_existing", "replace"]


class RunStatus(StrEnum):
    RUNNING = "running"
    WAITING = "waiting"
    """For a timer, a signal or a child; holds no worker."""
    PAUSED = "paused"
    """By an operator."""
    COMPENSATING = "compensating"
    """It failed or was cancelled, and what it completed is being undone."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """It never began: its flow was cooling down."""


ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.SKIPPED})
"""Final: only an explicit retry or fork starts it anew."""


class NodeStatus(StrEnum):
    LIVE = "live"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """No edge that leads to it was taken."""
    BLOCKED = "blocked"
    """Something before it failed."""
    CANCELLED = "cancelled"
    """It was live when its run ended."""


class NodeState(Value):
    status: NodeStatus
    ref: int = 0
    """The event whose value is the output; of a live loop, that of its last iteration."""
    port: str = ""
    iteration: int = 0
    part: str = ""
    """Of a live loop: ``check`` while it is asked whether it is done."""
    end_number: int = 0
    """The event with which it was completed, or was skipped though an edge had led to it."""
    has_failed: bool = False
    """It failed, and the run went on from there: its status is completed."""
    is_undone: bool = False
    """Its undo task ended, or was taken away while it may have been running."""


class MapState(Value):
    """How far a map is: items below ``launched`` are live unless they have a ref."""

    count: int
    launched: int
    refs: Map[int, int]
    """Item to the event whose value is its output."""


class PauseState(Value):
    """One pause of a key: the events of its checkpoint and of the report that ended it."""

    name: str
    checkpoint: int
    report: int = 0
    poll_ms: int | None = None


class AnswerState(Value):
    """One answer to an open approval, and the event that it came with."""

    decision: str
    by: str | None
    stands_for: tuple[str, ...]
    ref: int
    note: str | None = None


class ApprovalState(Value):
    """How far an open approval is."""

    answers: tuple[AnswerState, ...] = ()
    reminders: int = 0
    """How many reminders and escalations there were."""
    deciders: tuple[str, ...] = ()
    """Who may decide too by escalation."""


class LiveType(StrEnum):
    JOB = "job"
    WAIT = "wait"
    CHILD = "child"


class RunState(Value):
    """What the events of a run up to ``number`` add up to."""

    number: int = 0
    flow: str = ""
    version: str = ""
    status: RunStatus = RunStatus.RUNNING
    aging_ms: int = 0
    parent: Parent | None = None
    nodes: Map[str, NodeState] = Map()
    maps: Map[str, MapState] = Map()
    edge_counts: Map[str, tuple[int, int, int]] = Map()
    """Of nodes with some incoming edges decided: how many, of those active, of those blocked."""
    live: Map[str, LiveType] = Map()
    """Keys that have a job, a wait or a child run."""
    jobs: int = 0
    """How many of them have a job."""
    signals: Map[str, tuple[int, ...]] = Map()
    """Signals by name that no node has taken yet: the events they came with."""
    children: Map[str, RunId] = Map()
    """The latest child run of each key that has had one."""
    pauses: Map[str, tuple[PauseState, ...]] = Map()
    """Of keys that are not completed: their pauses, the last one open if it has no report."""
    progress: Map[str, int] = Map()
    """Of keys that are not completed: the event of the last report with progress."""
    external_failures: Map[str, int] = Map()
    """Of keys whose outside work was begun again: how many attempts failed so far."""
    early_reports: Map[str, int] = Map()
    """Last reports that came before the body paused, or in a pause of the run: their events."""
    reports: Map[str, tuple[str, ...]] = Map()
    """By key, the tokens of reports, so that none counts twice."""
    approvals: Map[str, ApprovalState] = Map()
    """Of open approvals that somebody answered, or was reminded of."""
    is_paused: bool = False
    ends_as: RunStatus | None = None
    """While compensating: how it ends afterwards."""
    compensates: bool = False
    """It was cancelled, and what the runs that it had started completed is undone too."""
    undoes: tuple[str, ...] = ()
    """While compensating: the nodes that are still to be undone, the next one first."""
    result_ref: int = 0
    failure: Failure | None = None
    failed_node: str = ""
    reason: str | None = None
    by: str | None = None

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED


# What the store keeps, and what one commit writes.


class Run(Value):
    """A run as the record shows it."""

    id: RunId
    namespace: str
    flow: str
    version: str
    status: RunStatus
    number: int
    """Of its last event."""
    parent: Parent | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    summary: bytes = b""
    """JSON of why it is as it is: reason, by, failure (see ``RunSummary``)."""


class RunSummary(Value, omit_defaults=True):
    reason: str | None = None
    by: str | None = None
    failure: Failure | None = None
    node: str = ""
    """That failed."""


class Snapshot(Value):
    """A state as of one event, encoded by ``engine.snapshot``."""

    number: int
    data: bytes


class LoadedRun(Value):
    run: Run
    snapshot: Snapshot | None
    """None if it was not asked for, or there is none."""
    events: list[StoredEvent]
    """Those after the snapshot, or after the number that was asked for."""


class WaitType(StrEnum):
    TIMER = "timer"
    SIGNAL = "signal"
    CHILD = "child"
    EXTERNAL = "external"
    """For a report from outside."""
    APPROVAL = "approval"


class NewWait(Value):
    """What a key waits for. One that is opened again takes the place of the one before."""

    key: str
    type: WaitType
    name: str = ""
    """The signal, the child run's id, the name of a pause, the title of an approval."""
    delay: timedelta | None = None
    """When it is due at the latest, from the store's now; None: never by itself."""
    due_at: datetime | None = None
    """The same as a time; wins over ``delay``."""
    deciders: tuple[str, ...] = ()
    """In whose inbox it is."""
    detail: bytes = b""
    """What whoever is waited for needs to know, as the codec encodes it."""


class Wait(Value):
    run: RunId
    namespace: str
    key: str
    type: WaitType
    name: str
    opened_at: datetime
    due_at: datetime | None
    deciders: tuple[str, ...] = ()
    detail: bytes = b""


class WaitFilter(Value):
    """Which waits a list is about. None means any."""

    namespace: str | None = None
    run: RunId | None = None
    type: WaitType | None = None
    name: str | None = None
    deciders: tuple[str, ...] | None = None
    """In the inbox of one of these, or of everybody: a wait without deciders is in all."""
    after: tuple[datetime, RunId, str] | None = None
    """Only waits opened after this one (when, run, key): the next page."""


class Finishes(Value, tag=True):
    """The job is done: it leaves the queue."""


class Continues(Value, tag=True):
    """The same job goes on with another key under the same claim; as new in all but its id."""

    job: NewJob


class Retries(Value, tag=True):
    """The job goes back to the queue for another attempt."""

    outcome: Retried


class NodeSettlement(Value):
    """What becomes of a held job of a run, under its claim's fence."""

    claim: Claim
    job_outcome: Finishes | Continues | Retries


class NewRun(Value):
    """A run to insert, with its first events and everything that follows from them."""

    id: RunId
    namespace: str
    flow: str
    version: str
    status: RunStatus
    events: tuple[NewEvent, ...]
    jobs: tuple[NewJob, ...] = ()
    waits: tuple[NewWait, ...] = ()
    children: tuple[NewRun, ...] = ()
    parent: Parent | None = None
    summary: bytes = b""
    on_existing: OnExisting = "fail"
    cooldown: timedelta | None = None
    """It is skipped if the flow's last run is not over by so long; decided where it is added."""

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED


class RunCommit(Value):
    """One atomic step of one run."""

    namespace: str
    run: RunId
    expected: int
    """The number of the run's last event that was decided upon."""
    token: int
    """Random: by it a commit whose answer was lost recognises itself."""
    events: tuple[NewEvent, ...]
    status: RunStatus
    settlements: tuple[NodeSettlement, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    waits: tuple[NewWait, ...] = ()
    close_waits: tuple[str, ...] = ()
    """Keys whose waits end."""
    children: tuple[NewRun, ...] = ()
    cancel_keys: tuple[str, ...] = ()
    """Keys that are given up: their jobs are taken away, their waits end; a child's becomes due."""
    cancel_all: bool = False
    """The same for everything that is live, but for what this commit starts."""
    suspend: bool | None = None
    """True: park all jobs and waits until told False."""
    version: str | None = None
    """The run's version from now on, and with it that in the partitions of its jobs."""
    summary: bytes | None = None
    snapshot: Snapshot | None = None


class CommitState(StrEnum):
    DONE = "done"
    CONFLICT = "conflict"
    """The run has other events by now, or has none at all: read them, and decide again."""
    STALE = "stale"
    """A claim is not current: leave its outcome out, and decide again."""


class CommitResult(Value):
    state: CommitState
    stale: tuple[Claim, ...] = ()


class CommitAnswer(Value):
    results: list[CommitResult]
    most_urgent_rank: float | None = None
    """The lowest rank that waits in the partitions that were asked about."""
    now: datetime | None = None


class Submitted(Value):
    """What became of one new run."""

    run: Run
    is_new: bool


class RunFilter(Value):
    """Which runs a list or a count is about. None means any."""

    namespace: str | None = None
    id: RunId | None = None
    """Which several namespaces may have, each of its own."""
    status: RunStatus | None = None
    flow: str | None = None
    version: str | None = None
    parent: RunId | None = None
    is_ended: bool | None = None
    before: tuple[datetime, RunId] | None = None
    """Only runs made before this one: the next page."""


class FlowCount(Value):
    """How many unended runs of one version of a flow there are."""

    namespace: str
    flow: str
    version: str
    count: int


class StoredStep(Value):
    """A result that ``ctx.step`` stored."""

    name: str
    value: bytes
