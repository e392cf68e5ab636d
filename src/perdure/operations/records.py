"""The records that operations return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from perdure.diagnostics import Action, Fault, declare
from perdure.errors import NoResult, PerdureError
from perdure.model.facts import RunStats
from perdure.model.failure import Failure
from perdure.model.graph import Graph, JsonSchema
from perdure.model.ids import JobId, Key, RunId
from perdure.model.job import FINISHED, Job, JobState, Progress, Status
from perdure.model.payload import Codec, PlainCodec, from_json
from perdure.model.run import (
    ENDED,
    NodeStatus,
    Run,
    RunState,
    RunStatus,
    RunSummary,
    Wait,
    WaitType,
)
from perdure.model.schedule import CatchUp, FlowCall, Overlap, Schedule, Started, TickRecord
from perdure.model.value import Value
from perdure.model.wait import Report
from perdure.model.worker import AttemptCounts, WorkerState
from perdure.operations.page import Page

NOT_COMPLETED = declare(
    "job.not_completed", "job {job_id} has no result; it is {status}", "To see why"
)
UNREADABLE = declare(
    "payload.unreadable",
    "a stored payload cannot be read: {reason}",
    "Pass the `codec` that it was written with",
)


def decoded(data: bytes, codec: Codec) -> Any:
    """A stored payload as plain values."""
    try:
        return from_json(codec.decode(data))
    except Exception as error:  # a codec may raise anything
        raise PerdureError(UNREADABLE.fault(reason=str(error))) from error


# Jobs and queues.


class Enqueued(Value):
    """A job that was enqueued, or the live job with the same fingerprint."""

    id: JobId
    is_new: bool


class JobRecord(Job):
    """One job, with its values readable."""

    codec: Codec = PlainCodec()

    @property
    def args(self) -> list[Any]:
        """The positional arguments it was enqueued with, as plain values."""
        args: list[Any] = self._call[0]
        return args

    @property
    def kwargs(self) -> dict[str, Any]:
        kwargs: dict[str, Any] = self._call[1]
        return kwargs

    @property
    def result(self) -> Any:
        """Its result as plain values; ``NoResult`` unless it completed."""
        if self.output is None:
            why = Action("jobs.explain", {"id": self.id})
            raise NoResult(NOT_COMPLETED.fault((), why, job_id=self.id, status=self.status))
        return decoded(self.output, self.codec)

    @property
    def _call(self) -> Any:
        return decoded(self.input or b"[[],{}]", self.codec)


def job_record(job: Job, codec: Codec) -> JobRecord:
    return JobRecord(**asdict(job), codec=codec)


class JobUpdate(Value):
    """What ``watch()`` yields: the job's state after a change."""

    id: JobId
    status: Status
    attempt: int
    progress: Progress

    @property
    def is_final(self) -> bool:
        return self.status in FINISHED


def job_update(state: JobState) -> JobUpdate:
    return JobUpdate(
        id=state.id, status=state.status, attempt=state.attempt, progress=state.progress
    )


class JobChange(Value):
    """The result of an operation on a job; ``before == after`` if nothing changed."""

    id: JobId
    before: Status
    after: Status

    @property
    def was_finished(self) -> bool:
        return self.before in FINISHED


class GroupChange(Value):
    """The result of cancelling a group."""

    group: str
    cancelled: int
    """Jobs that were not running and are cancelled."""
    aborting: int
    """Running jobs that were asked to stop."""


class QueueStats(Value):
    """One queue: how many jobs it has in each status, and whether it is paused."""

    namespace: str
    name: str
    counts: Mapping[Status, int] = {}
    """Without zeros; exact up to 10,000."""
    more: tuple[Status, ...] = ()
    """Statuses with more jobs than were counted."""
    paused_at: datetime | None = None
    paused_by: str | None = None

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def total(self) -> int:
        """All jobs that were counted; there are more if ``more`` names a status."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class QueuePage(Page[QueueStats]):
    """A page of queues, and the runs of their namespaces."""

    runs: tuple[RunStats, ...] = ()


class TaskStats(AttemptCounts, kw_only=True):
    """What all workers did for the jobs of one task in one queue."""

    namespace: str
    task: str
    queue: str
    average_duration: timedelta | None = None
    """Over completed jobs."""


class ClusterStats(AttemptCounts):
    """Counters of all workers, live and removed; the number of workers and slots is current."""

    workers: int = 0
    """Live ones."""
    running: int = 0
    concurrency: int = 0
    average_duration: timedelta | None = None
    """Over completed jobs."""
    tasks: tuple[TaskStats, ...] = ()


# Runs.


class RunStarted(Value):
    """A run that was submitted or forked, or the existing one of this id."""

    id: RunId
    is_new: bool


class RunChange(Value):
    """The result of an operation on a run; ``before == after`` if its status did not change."""

    id: RunId
    before: RunStatus
    after: RunStatus


class WorkerRecord(WorkerState):
    """A registered worker, and whether it is alive."""

    status: Literal["live", "silent"]
    """Silent: no heartbeat within its lease. It was killed, or cannot reach the store."""
    silent_for: timedelta
    """The time since its last heartbeat."""


class RunRecord(Run):
    """A run and the reason for its status. ``number`` is the number of its last event."""

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    @property
    def reason(self) -> str | None:
        """The operator's reason for pausing or cancelling it."""
        return self._why.reason

    @property
    def by(self) -> str | None:
        """Who paused or cancelled it."""
        return self._why.by

    @property
    def failure(self) -> Failure | None:
        """The failure that ended it."""
        return self._why.failure

    @property
    def failed_node(self) -> str | None:
        return self._why.node or None

    @property
    def _why(self) -> RunSummary:
        if not self.summary:
            return RunSummary()
        try:
            return msgspec.json.decode(self.summary, type=RunSummary)
        except (msgspec.DecodeError, RecursionError):  # the log has it too
            return RunSummary()


def run_record(run: Run) -> RunRecord:
    return RunRecord(**asdict(run))


class NodeRecord(Value):
    """A node of a run's flow and its status in the run."""

    id: str
    type: str
    """``task``, ``route``, ``map``, ``loop``, ``delay``, ``signal``, ``approval``, ``child``, or
    the name of the node type that it uses."""
    status: NodeStatus | None = None
    """None if the run has not reached it."""
    output: Any = None
    """Of a completed node, as plain values."""
    port: str = ""
    """The port it completed on, if it has several."""
    iteration: int = 0
    """Of a loop: the current or last one."""
    items: int | None = None
    """Of a map that was reached: how many items it has."""
    items_completed: int | None = None
    has_failed: bool = False
    """It failed, and the run continued from there."""


class ChildRun(Value):
    """A child run and its status."""

    key: str
    """The key in the parent that started it."""
    id: RunId
    status: RunStatus | None
    """None if it was pruned."""
    failure: Failure | None = None


class EventRecord(Value):
    """One event of a run, and the run's status after it."""

    number: int
    """From 1, without gaps."""
    at: datetime
    type: str
    """Such as ``node_completed`` or ``run_paused``."""
    status: RunStatus
    """Of the run, after this event."""
    details: dict[str, Any]
    """The other fields of the event, by name."""
    node: str | None = None
    key: str | None = None
    """The node, with the iteration of a loop (``poll#2``) or the item of a map (``pack[7]``)."""
    value: Any = None
    """The input, output or payload that it is about, as plain values."""
    failure: Failure | None = None

    @property
    def is_final(self) -> bool:
        """Whether the run ended with it."""
        return self.status in ENDED


class RunDetail(RunRecord, kw_only=True):
    """One run with its events, its nodes, the runs it started, and its result."""

    events: tuple[EventRecord, ...]
    nodes: tuple[NodeRecord, ...]
    """In the order of the flow."""
    children: tuple[ChildRun, ...]
    """Of a part that was retried, the latest."""
    result: Any = None
    """Of a completed run, as plain values."""

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of completed nodes, in the order of the flow."""
        completed = NodeStatus.COMPLETED
        return {node.id: node.output for node in self.nodes if node.status is completed}


class RunSnapshot(Value):
    """A snapshot of a run: state, jobs, workers and waits."""

    run: RunRecord
    graph: Graph
    state: RunState
    events: tuple[EventRecord, ...]
    """Since the previous snapshot; in the first one, since the run started."""
    failures: Mapping[str, Failure]
    """By key: the failure of the last failed attempt."""
    jobs: tuple[Job, ...]
    waits: tuple[Wait, ...]
    workers: tuple[WorkerState, ...]
    """Of the run's namespace, including dead ones."""
    now: datetime
    """By the store's clock."""


class UnservedRun(Value):
    """An unfinished run of a version that no given flow serves."""

    id: RunId
    status: RunStatus
    differences: tuple[Fault, ...] = ()
    """Why it cannot be migrated to the nearest version."""


class UnservedVersion(Value):
    """A flow version that no given flow serves, with its unfinished runs."""

    namespace: str
    flow: str
    version: str
    nearest: str | None
    """The most similar version among the given flows; None if none has its name."""
    runs: tuple[UnservedRun, ...]

    @property
    def migratable(self) -> int:
        """How many of the runs can be migrated to the nearest version."""
        return 0 if self.nearest is None else sum(not run.differences for run in self.runs)


# Waits: signals, external work, approvals.


class WaitRecord(Value):
    """An open wait of a run."""

    run: RunId
    namespace: str
    node: str
    key: str
    """The node, with the iteration of a loop (``poll#2``) or the item of a map (``pack[7]``)."""
    type: WaitType
    name: str
    """The signal, the child run's id, the name of a pause, the title of an approval."""
    opened_at: datetime
    due_at: datetime | None
    """When it ends by itself; None if it never does."""
    deciders: tuple[str, ...] = ()
    detail: Any = None
    """Details for the external system, as plain values."""
    fault: Fault | None = None
    """Why the detail cannot be decoded here."""


def with_title(wait: Wait, codec: Codec) -> Wait:
    """The wait of an approval with its title as the name, if it can be decoded here."""
    if wait.type is not WaitType.APPROVAL or wait.name:
        return wait
    try:
        title = decoded(wait.detail, codec)["title"]
    except (PerdureError, LookupError, TypeError):
        return wait
    return replace(wait, name=title) if isinstance(title, str) else wait


def wait_record(wait: Wait, codec: Codec) -> WaitRecord:
    wait, detail, fault = with_title(wait, codec), None, None
    try:
        detail = decoded(wait.detail, codec) if wait.detail else None
    except PerdureError as error:  # one wait of another codec must not hide the others
        fault = error.faults[0]
    return WaitRecord(
        run=wait.run,
        namespace=wait.namespace,
        node=Key.parse(wait.key).node,
        key=wait.key,
        type=wait.type,
        name=wait.name,
        opened_at=wait.opened_at,
        due_at=wait.due_at,
        deciders=wait.deciders,
        detail=detail,
        fault=fault,
    )


class BroadcastResult(Value):
    """The result of a broadcast."""

    name: str
    runs: tuple[RunId, ...]
    """Runs that received the signal, longest waiting first."""
    unmatched: int
    """How many other runs wait for this name with a filter that the signal does not pass."""

    @property
    def count(self) -> int:
        return len(self.runs)


class ReportOutcome(StrEnum):
    ACCEPTED = "accepted"
    KEPT = "kept"
    """The run has not reached the node yet; the report counts once its body pauses."""
    REPEATED = "repeated"
    """A report with this key exists already; nothing was written."""
    IGNORED = "ignored"
    """Another final report came first and counts; this one is only logged."""


class ReportReceipt(Value):
    """The result of a report."""

    run: RunId
    node: str
    """With its iteration or item, if any: ``poll#2``, ``pack[7]``."""
    outcome: ReportOutcome
    status: RunStatus
    """Of the run, after the report."""
    first: Report | None = None
    """For an ignored report: the one that counts."""

    @property
    def is_accepted(self) -> bool:
        """Whether it counts, now or once its node is reached."""
        return self.outcome in (ReportOutcome.ACCEPTED, ReportOutcome.KEPT)


class ApprovalStatus(StrEnum):
    OPEN = "open"
    DECIDED = "decided"
    TIMED_OUT = "timed out"
    """It timed out; the flow decides how to continue."""
    CANCELLED = "cancelled"
    """Its run ended before a decision."""


class Answer(Value):
    """The answer of one decider."""

    decision: str
    by: str | None
    at: datetime
    note: str | None = None
    data: Any = None
    """The data for the approval's form."""
    stands_for: tuple[str, ...] = ()
    """The deciders that it counts for: the user, and roles as ``role:NAME``."""


class Reminder(Value):
    """A reminder, or an escalation: from then on ``deciders`` may decide too."""

    number: int
    """Reminders and escalations are each counted from 1."""
    at: datetime
    deciders: tuple[str, ...] = ()
    is_escalation: bool = False


class ApprovalRecord(Value):
    """An approval: question, deciders, answers and outcome."""

    id: str
    """``<run>:<node>``."""
    run: RunId
    node: str
    namespace: str
    flow: str
    status: ApprovalStatus
    title: str
    message: str
    form: JsonSchema | None
    """JSON Schema of the data of an answer; None if it has no form."""
    show: Any
    """Data for deciders to review."""
    data: Any
    """The data that an answer may change, as changed by the answers so far."""
    deciders: tuple[str, ...]
    """Users, and roles as ``role:NAME``; empty if anyone may decide."""
    choices: tuple[str, ...]
    """The possible decisions."""
    quorum: int
    """How many must agree; 0 means all deciders."""
    answers: tuple[Answer, ...]
    """So far, in order."""
    opened_at: datetime
    revision: int = 0
    """How many answers have changed the data; pass it to ``decide`` with the answer to this data.
    """
    due_at: datetime | None = None
    """When it times out; None if it never does, or is not open."""
    reminders: tuple[Reminder, ...] = ()
    """Reminders and escalations so far; omitted in lists."""
    decision: str | None = None
    """The outcome, once it is decided."""
    port: str | None = None
    """The port on which its run continued; None if it is open or made its run fail."""
    decided_at: datetime | None = None
    fault: Fault | None = None
    """Why the question or the answers cannot be decoded here; they are then omitted."""

    @property
    def is_open(self) -> bool:
        return self.status is ApprovalStatus.OPEN


# Schedules.


class ScheduleStarted(Value):
    """The run or job that a triggered schedule started."""

    run: RunId | None = None
    job: JobId | None = None

    @property
    def id(self) -> RunId | JobId:
        id = self.run or self.job
        assert id is not None
        return id


class ScheduleRecord(Value):
    """A schedule: its times, target and recent ticks."""

    name: str
    namespace: str
    flow: str | None
    """What it starts: a flow in this version, or a task."""
    version: str | None
    task: str | None
    cron: str | None
    every: timedelta | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    overlap: Overlap
    catch_up: CatchUp
    next_at: datetime | None
    """None while it is paused, and after its last tick."""
    last_at: datetime | None
    """The last tick that started something, including manual triggers, and what it started."""
    last_run: RunId | None
    last_job: JobId | None
    queued: tuple[datetime, ...]
    """Ticks that wait for the previous one to end."""
    started: int
    skipped: int
    missed: int
    failed: int
    paused_at: datetime | None
    paused_by: str | None
    created_at: datetime
    changed_at: datetime
    history: tuple[TickRecord, ...]
    """Results of the last ticks, newest last."""

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


def schedule_record(schedule: Schedule) -> ScheduleRecord:
    definition, state = schedule.definition, schedule.state
    timetable, call = definition.timetable, definition.call
    every_ms = timetable.every_ms
    last = state.triggered or Started(at=state.last_at, run=state.last_run, job=state.last_job)
    return ScheduleRecord(
        name=schedule.name,
        namespace=schedule.namespace,
        flow=call.flow if isinstance(call, FlowCall) else None,
        version=call.version if isinstance(call, FlowCall) else None,
        task=None if isinstance(call, FlowCall) else call.job.partition.task,
        cron=timetable.cron or None,
        every=timedelta(milliseconds=every_ms) if every_ms else None,
        timezone=timetable.timezone,
        start_at=timetable.start_at,
        end_at=timetable.end_at,
        overlap=definition.overlap,
        catch_up=definition.catch_up,
        next_at=state.next_at,
        last_at=last.at,
        last_run=last.run,
        last_job=last.job,
        queued=state.queued,
        started=state.started,
        skipped=state.skipped,
        missed=state.missed,
        failed=state.failed,
        paused_at=state.paused_at,
        paused_by=state.paused_by,
        created_at=state.created_at,
        changed_at=state.changed_at,
        history=state.history,
    )
