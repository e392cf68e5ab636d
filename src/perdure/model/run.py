"""Runs: the state folded from their events, their rows in the store, waits and commits."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from immutables import Map
from msgspec import UNSET, UnsetType

from perdure.errors import PerdureError
from perdure.model.event import NewEvent, Parent, StoredEvent
from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import PRIORITY_DEFAULT, Claim, NewJob
from perdure.model.outcome import Retried
from perdure.model.settings import NO_SETTINGS, RunSettings
from perdure.model.value import Value

RUN_ID_MAX_BYTES = 256

OnExisting = Literal["fail", "use_existing", "replace"]


class RunStatus(StrEnum):
    QUEUED = "queued"
    """It has not started: its time has not come, or all places of its flow are taken."""
    RUNNING = "running"
    WAITING = "waiting"
    """For a timer, signal, approval, report or child; occupies no worker."""
    PAUSED = "paused"
    """By an operator."""
    COMPENSATING = "compensating"
    """It failed or was cancelled, and its completed nodes are being undone."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    """It never started: its flow was cooling down."""


ENDED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.SKIPPED})
"""Final: only an explicit retry or fork changes it."""


class NodeStatus(StrEnum):
    LIVE = "live"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """No edge to it was taken."""
    BLOCKED = "blocked"
    """A predecessor failed."""
    CANCELLED = "cancelled"
    """It was live when its run ended."""


class NodeState(Value):
    status: NodeStatus
    ref: int = 0
    """The event whose value is the output; for a live loop, that of its last iteration."""
    port: str = ""
    iteration: int = 0
    part: str = ""
    """For a live loop: ``check`` while its check task runs."""
    end_number: int = 0
    """The event that completed it, or skipped it after an edge to it was taken."""
    has_failed: bool = False
    """It failed, but the run continued, so its status is completed."""
    is_undone: bool = False
    """Its undo task ended, or was cancelled while it may have been running."""


class MapState(Value):
    """The progress of a map: items below ``launched`` are live unless they have a ref.

    Kept when the map fails, because its completed items may have to be undone.
    """

    count: int
    launched: int
    refs: Map[int, int]
    """Item to the event whose value is its output."""
    failed: Map[int, int] = Map()
    """The items that failed and count as null; empty for runs of earlier versions."""
    size_bytes: int = 0
    """Total size of the outputs in bytes."""


class PauseState(Value):
    """One pause of a key: the events of its checkpoint and of its final report."""

    name: str
    checkpoint: int
    report: int = 0
    poll_ms: int | None = None
    cancels: Literal[True] | UnsetType = UNSET
    """Unset rather than false, because snapshots of earlier versions do not have it."""
    attempt: int = 1


class AnswerState(Value):
    """One answer to an open approval; ``ref`` is its event."""

    decision: str
    by: str | None
    stands_for: tuple[str, ...]
    ref: int
    note: str | None = None


class ApprovalState(Value):
    """The progress of an open approval."""

    answers: tuple[AnswerState, ...] = ()
    reminders: int = 0
    """How many reminders and escalations so far."""
    deciders: tuple[str, ...] = ()
    """Additional deciders, added by escalation."""


class LiveType(StrEnum):
    JOB = "job"
    WAIT = "wait"
    CHILD = "child"


class RunState(Value):
    """The state of a run after its events up to ``number``."""

    number: int = 0
    flow: str = ""
    version: str = ""
    status: RunStatus = RunStatus.RUNNING
    aging_ms: int = 0
    parent: Parent | None = None
    settings: RunSettings = NO_SETTINGS
    priority: int = PRIORITY_DEFAULT
    is_queued: bool = False
    """It has not started yet."""
    failed_attempts: int = 0
    """Failed attempts of all nodes since the run was submitted or last retried."""
    map_window: int = 0
    """See ``RunSubmitted``."""
    gathered_max_bytes: int = 0
    """See ``RunSubmitted``."""
    nodes: Map[str, NodeState] = Map()
    maps: Map[str, MapState] = Map()
    edge_counts: Map[str, tuple[int, int, int]] = Map()
    """For nodes with open incoming edges: how many are decided, and of those active and blocked."""
    live: Map[str, LiveType] = Map()
    """Keys that have a job, a wait or a child run."""
    jobs: int = 0
    """How many of them have a job."""
    signals: Map[str, tuple[int, ...]] = Map()
    """Pending signals by name: the numbers of their events."""
    children: Map[str, RunId] = Map()
    """The latest child run of each key that has had one."""
    pauses: Map[str, tuple[PauseState, ...]] = Map()
    """For uncompleted keys: their pauses; the last one is open if it has no report."""
    progress: Map[str, int] = Map()
    """For uncompleted keys: the event of the last report with progress."""
    external_failures: Map[str, int] = Map()
    """For keys whose external work was restarted: the number of failed attempts so far."""
    early_reports: Map[str, int] = Map()
    """Events of final reports that arrived before the body paused, or while the run was paused."""
    reports: Map[str, tuple[str, ...]] = Map()
    """Tokens of reports by key, so that none counts twice."""
    approvals: Map[str, ApprovalState] = Map()
    """Open approvals with answers or reminders."""
    is_paused: bool = False
    ends_as: RunStatus | None = None
    """While compensating: the final status."""
    compensates: bool = False
    only_cancels: bool = False
    """While it compensates: no node is undone, only external work is cancelled."""
    """It was cancelled, and the completed nodes of its child runs are undone too."""
    undoes: tuple[str, ...] = ()
    """While compensating: the nodes and items still to undo, the next one first."""
    result_ref: int = 0
    failure: Failure | None = None
    failed_node: str = ""
    reason: str | None = None
    by: str | None = None

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED


# Rows in the store, and the contents of a commit.


class Run(Value):
    """A run's row in the store."""

    id: RunId
    namespace: str
    flow: str
    version: str
    status: RunStatus
    number: int
    """The number of its last event."""
    parent: Parent | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    summary: bytes = b""
    """The reason for its status as JSON (see ``RunSummary``)."""
    priority: int = PRIORITY_DEFAULT
    start_at: datetime | None = None
    """When a delayed run is to start."""
    started_at: datetime | None = None
    """None while it is queued."""
    settings: RunSettings = NO_SETTINGS

    @property
    def awaited_place(self) -> str | None:
        """The key of the place that it waits for, if it is queued and needs one."""
        is_queued = self.status is RunStatus.QUEUED
        return self.settings.place_key(self.flow) if is_queued else None


class RunSummary(Value, omit_defaults=True):
    reason: str | None = None
    by: str | None = None
    failure: Failure | None = None
    node: str = ""
    """That failed."""


class Snapshot(Value):
    """The state after one event, encoded by ``engine.snapshot``."""

    number: int
    data: bytes


class LoadedRun(Value):
    run: Run
    snapshot: Snapshot | None
    """None if not requested, or if there is none."""
    events: list[StoredEvent]
    """The events after the snapshot, or after the requested number."""


class WaitType(StrEnum):
    TIMER = "timer"
    SIGNAL = "signal"
    CHILD = "child"
    EXTERNAL = "external"
    """For a report on external work."""
    APPROVAL = "approval"


class NewWait(Value):
    """A wait of a key to open; it replaces an open wait of the same key."""

    key: str
    type: WaitType
    name: str = ""
    """The signal, the child run's id, the name of a pause. Not the title of an approval: it may
    contain anything, so it is in the detail."""
    delay: timedelta | None = None
    """When it becomes due, from the store's current time; None: not by time."""
    due_at: datetime | None = None
    """The same as a time; takes precedence over ``delay``."""
    deciders: tuple[str, ...] = ()
    """Whose inbox lists it."""
    detail: bytes = b""
    """Data for the party that ends the wait, encoded by the codec."""
    is_stopped: bool = False
    """The clock of ``delay`` runs from a commit with ``stop_clock=False``."""


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
    remaining: timedelta | None = None
    """Of a timer whose clock is stopped."""


class WaitFilter(Value):
    """Selects waits for a list. None means any."""

    namespace: str | None = None
    run: RunId | None = None
    type: WaitType | None = None
    name: str | None = None
    deciders: tuple[str, ...] | None = None
    """Waits of any of these deciders, and waits without deciders, which are in every inbox."""
    after: tuple[datetime, RunId, str] | None = None
    """For the next page: only waits opened after this one (when, run, key)."""


class Finishes(Value, tag=True):
    """The job is finished and leaves the queue."""


class Continues(Value, tag=True):
    """The same job continues with another key under the same claim; all but its id is reset."""

    job: NewJob


class Retries(Value, tag=True):
    """The job goes back to the queue for another attempt."""

    outcome: Retried


class NodeSettlement(Value):
    """The outcome of a claimed job of a run, fenced by its claim."""

    claim: Claim
    job_outcome: Finishes | Continues | Retries


class NewRun(Value):
    """A run to insert, with its first events and their effects."""

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
    settings: RunSettings = NO_SETTINGS
    priority: int = PRIORITY_DEFAULT
    aging: timedelta = timedelta(0)
    """Determines the rank of a run that waits for a place."""
    on_existing: OnExisting = "fail"
    cooldown: timedelta | None = None
    """Skip the run if the flow's last run is unfinished or ended less than this ago.

    The store decides, where the run is inserted.
    """
    needs_definition: bool = False
    """Refuse the run with ``UnknownFlow`` unless its definition is stored and was used lately."""

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    @property
    def place_key(self) -> str | None:
        """Where its place is counted; None if it needs none."""
        return self.settings.place_key(self.flow)


class Priorities(Value):
    """The new priority of a run and of its jobs, whose ranks change accordingly."""

    run: int
    jobs: tuple[tuple[str, int], ...]
    """By key."""
    aging: timedelta


class PlaceChange(Value):
    """The place that a run takes, gives up, or waits for, out of a limited number."""

    key: str
    aging: timedelta
    """For the rank of a run that has to wait."""


class RunCommit(Value):
    """One atomic step of one run."""

    namespace: str
    run: RunId
    expected: int
    """The run's last event when the decision was made; otherwise the commit is a conflict."""
    token: int
    """Random: identifies a repeated commit whose first answer was lost."""
    events: tuple[NewEvent, ...]
    status: RunStatus
    created_at: datetime | None = None
    """Of the run that was decided about: for one that has replaced it, it is a conflict."""
    settlements: tuple[NodeSettlement, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    waits: tuple[NewWait, ...] = ()
    close_waits: tuple[str, ...] = ()
    """Keys whose waits end."""
    children: tuple[NewRun, ...] = ()
    cancel_keys: tuple[str, ...] = ()
    """Keys to cancel: their jobs are removed and their waits end; a child's wait becomes due."""
    cancel_all: bool = False
    """The same for all live keys, except those this commit starts."""
    suspend: bool | None = None
    """True: park all jobs and waits until a commit with False."""
    version: str | None = None
    """The run's new version, also for the partitions of its jobs."""
    summary: bytes | None = None
    snapshot: Snapshot | None = None
    is_started: bool | None = None
    """True: a queued run starts. False: it is queued again."""
    place: PlaceChange | None = None
    """Of a run with ``max_running`` that ends, or is or was queued."""
    stop_clock: bool | None = None
    """True: stop the clock of the run's timeout. False: let it continue."""
    priorities: Priorities | None = None
    worker: WorkerId | None = None
    """The worker whose outcomes it settles, if the run's jobs stay with one."""
    sticky: timedelta | None = None
    """How long its jobs wait for that worker, or for the last one; None: for none."""

    @property
    def queued_jobs(self) -> list[JobId]:
        """The jobs that it inserts, continues or retries."""
        settled = (
            each.claim.id for each in self.settlements if not isinstance(each.job_outcome, Finishes)
        )
        return [*settled, *(job.id for job in self.jobs)]


class CommitState(StrEnum):
    DONE = "done"
    CONFLICT = "conflict"
    """The run has changed or is gone: read its new events and decide again."""
    STALE = "stale"
    """A claim was lost: drop its outcome and decide again."""
    FULL = "full"
    """There is no place for the run to start: it stays queued, and becomes due when there is."""
    REFUSED = "refused"
    """It cannot be written at all."""


class CommitResult(Value):
    state: CommitState
    stale: tuple[Claim, ...] = ()
    refusal: PerdureError | None = None
    """Why it was refused."""


class CommitAnswer(Value):
    results: list[CommitResult]
    most_urgent_rank: float | None = None
    """The lowest rank that is waiting in the requested partitions."""
    now: datetime | None = None


class Submitted(Value):
    """The result of submitting one run."""

    run: Run
    is_new: bool


class RunFilter(Value):
    """Selects runs for a list or a count. None means any."""

    namespace: str | None = None
    id: RunId | None = None
    """Ids are unique per namespace only."""
    status: RunStatus | None = None
    flow: str | None = None
    version: str | None = None
    parent: RunId | None = None
    is_ended: bool | None = None
    before: tuple[datetime, RunId] | None = None
    """For the next page: only runs created before this one."""


class FlowCount(Value):
    """The number of unfinished runs of one version of a flow."""

    namespace: str
    flow: str
    version: str
    count: int


class StoredStep(Value):
    """A result stored by ``ctx.step``."""

    name: str
    value: bytes
