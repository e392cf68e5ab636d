"""What a backend must do; the only file that says it.

Each bullet is a promise with a conformance test. Every write is one transaction. Times that decide
ownership are the store's own; tests turn its clock. A store publishes its own wake-ups, after the
write that they are about. Every method may be called again after a lost connection: backends that
can lose one retry by themselves, with growing, jittered, capped delays, and no write counts twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from perdure.model.event import StoredEvent
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.insight import EndedCounts, Examination, FlowRuns
from perdure.model.job import (
    Claim,
    Claimed,
    Expired,
    FailedAttempt,
    Inserted,
    Job,
    JobFilter,
    JobState,
    Moved,
    NewJob,
    Progress,
    QueueDepth,
    QueueInfo,
    Status,
    TakenOver,
)
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.outcome import Settlement
from perdure.model.run import (
    CommitAnswer,
    FlowCount,
    LoadedRun,
    NewRun,
    Run,
    RunCommit,
    RunFilter,
    RunStatus,
    Snapshot,
    StoredStep,
    Submitted,
    Wait,
    WaitFilter,
)
from perdure.model.schedule import (
    Schedule,
    ScheduleAnswer,
    ScheduleCommit,
    UnreadableSchedule,
)
from perdure.model.value import Value
from perdure.model.worker import Renewal, Survey, WorkerInfo, WorkerState
from perdure.store.wakeups import Kinds, Listener

SURVEY_LANES_MAX = 1000
"""Lanes that one survey names; with more of them, the next survey goes on where it stopped."""


class LaneRequest(Value):
    """One lane to claim from, with the limit rules that govern its jobs."""

    lane: str
    queue: str
    rules: tuple[LimitRule, ...] = ()


class ClaimRequest(Value):
    """Who claims, from which lanes, how many, and for how long."""

    namespace: str
    worker: WorkerId
    lanes: Sequence[LaneRequest]
    limit: int
    lease: timedelta


class JobStore(Protocol):
    """Jobs: how they come in, are held, and end."""

    @abstractmethod
    async def insert_jobs(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        """Add jobs, all or none, and answer in their order.

        - Jobs may be made while earlier ones are on their way to the store; what making one
          raises is raised, and nothing is written.
        - A job whose delay or run_at lies ahead is scheduled, any other waiting.
        - Inserting the same id again changes nothing and counts as inserted.
        - A fingerprint taken by a live job of the same namespace and queue yields that job
          ("return"), raises ``FingerprintTaken`` with nothing written ("raise"), or cancels that
          job, taking its claim away, and inserts ("replace"). Within one call too.
        - A fingerprint is free again once its job is finished.
        - A deadline that is not after the store's now raises ``InvalidInput``, and so does any
          time so far away that some backend could not read it back.
        """

    @abstractmethod
    async def claim_jobs(self, request: ClaimRequest) -> Claimed:
        """Lease up to ``limit`` waiting jobs of the lanes, lowest rank first, then oldest id.

        - Hands a job to one worker at a time, and raises its epoch and attempt.
        - Takes nothing of a paused queue, of another namespace, or of another lane.
        - Leaves a job alone that this worker failed, until its hold-off ends.
        - Never exceeds a rule, however many claim at once: live jobs under a key are those held
          with an unexpired lease, starts are counted in the sliding window.
        - Says when a limit opens by itself, if one held something back.
        """

    @abstractmethod
    async def settle_jobs(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        """Write outcomes, each under its claim's fence; answer the new status, or None if stale.

        - A claim that is not current writes nothing, and does not stop the others.
        - An aborting job ends cancelled whatever its outcome.
        - Completed keeps the output and sets progress to 100.
        - Retried, Failed and Buried keep the failure in the job's history.
        - Retried moves the rank with the time it is ready again, and holds its worker off.
        - Retried counts a failure, or a postponement, and closes the limit it names.
        - A time too far away is brought as near as every backend can read it back.
        - Failed and Buried count a failure too: the last one.
        - GivenBack and Released take the attempt back; GivenBack keeps the rank.
        - A dropped job is gone for readers, and still there for its waiters.
        """

    @abstractmethod
    async def renew_leases(
        self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta
    ) -> Renewal:
        """Extend the leases of all these claims, and say which are lost or asked to stop.

        - A claim that is not current is lost, and its row untouched.
        - An aborting job is renewed and reported.
        """

    @abstractmethod
    async def check_claims(self, claims: Sequence[Claim]) -> Renewal:
        """The same answer as renewing, writing nothing."""

    @abstractmethod
    async def save_progress(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        """Keep the latest progress of held jobs; that of a stale claim is ignored."""

    @abstractmethod
    async def give_back_unknown(self, worker: WorkerId, known: Sequence[JobId]) -> int:
        """Give back what this worker holds and does not know of: claims whose answer was lost."""


class RunAfter(Value):
    """A run to load: its events after ``number``, or from its snapshot if that is None."""

    namespace: str
    id: RunId
    number: int | None = None


class RunBefore(Value):
    """A run whose log is read from its end: the events before ``number``; None: all of them."""

    namespace: str
    id: RunId
    number: int | None = None


class RunStore(Protocol):
    """Runs: how they begin, and the one way in which they go on.

    A job of a run (``NewJob.node``) is claimed, renewed, given back and taken over as any other.
    It leaves the queue with its outcome, and never stays as a finished one; how often it killed
    its workers is counted, and told by ``ClaimedJob.deaths``, but the store does not bury it.
    """

    @abstractmethod
    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        """Keep a flow's definition; a version that is known already is left as it is."""

    @abstractmethod
    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None: ...

    @abstractmethod
    async def submit_run(self, run: NewRun) -> Submitted:
        """Add a run with its first events, its jobs, waits and children, all or none.

        - An id that is taken in the namespace raises ``RunExists`` ("fail"), yields that run and
          writes nothing ("use_existing"), or makes room: that run's jobs are taken away and all
          that is kept of it is replaced ("terminate_existing").
        - However many submit one id at once, one of them is new.
        - A run with a ``cooldown`` is added as skipped, without anything that it would start,
          when a run of its flow with one began, or was completed, less than that ago. Children and
          skipped runs do not count. However many are submitted at once, one of them begins.
        - A submission whose answer was lost, and that is tried again, counts once: it neither
          conflicts with itself nor takes its own place.
        """

    @abstractmethod
    async def commit_runs(
        self, commits: Sequence[RunCommit], lanes: Sequence[str] = ()
    ) -> CommitAnswer:
        """Write one step of each run, each all or none; one does not stop the others.

        - CONFLICT, and nothing written, when the run's last event is not the expected one or the
          run is unknown; STALE, and nothing written, when a settled claim is not current; the
          answer names those claims.
        - Events are numbered on from the expected one. The run takes the status, and an ended one
          its time; one that is retried is no longer ended.
        - Ends: the job leaves the queue. Continues: the same row takes the new job's lane,
          priority, input, policy and key under the same claim and lease, as if just started:
          attempt 1, no failures, no progress. Repeats: as a retried job.
        - New jobs and children are inserted, waits opened and closed. A wait that is opened
          where one is open takes its place, but keeps the time when it was first opened.
        - Drops and clears take jobs away, from their holders too (a hint names their ids), remove
          them, and end waits, but a child's becomes due at once. What the same commit settles,
          inserts or opens is not touched by its own drops and clears.
        - Holds parks jobs as paused, taking held ones from their holders, with their attempt
          back, and keeps waits from becoming due; until False puts them back in their place.
        - A new version goes into the lanes of the run's jobs.
        - The end of a child makes the wait of its parent due at once.
        - A snapshot replaces the one that is kept.
        - A commit repeated with its token after a lost answer is done, and counts once.
        - Answers the lowest rank that waits in ``lanes``, as of this write.
        """

    @abstractmethod
    async def load_runs(self, runs: Sequence[RunAfter]) -> list[LoadedRun | None]:
        """What a worker needs to decide, in the order asked; None for a run that is not there.

        - Without a number: the snapshot if there is one, and the events after it.
        - With a number: the events after it, and no snapshot.
        - One consistent view of each run: its number is that of the last event.
        """

    @abstractmethod
    async def latest_events(self, runs: Sequence[RunBefore], limit: int) -> list[list[StoredEvent]]:
        """Up to ``limit`` events of each run, the latest first, without their values.

        - In the order asked; none for a run that is not there.
        """

    @abstractmethod
    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        """The values of these events; events without one are left out."""

    @abstractmethod
    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        """Waits whose time has come, earliest first; none of a run that is held."""

    @abstractmethod
    async def get_run(self, namespace: str | None, id: RunId) -> Run | None: ...

    @abstractmethod
    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        """Matching runs, newest first."""

    @abstractmethod
    async def count_runs(self, filter: RunFilter) -> int: ...

    @abstractmethod
    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        """Which versions of which flows unended runs are of."""

    @abstractmethod
    async def run_states(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        """These runs, in the order asked."""

    @abstractmethod
    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        """The run's jobs, with their failures left to ``failed_attempts``; oldest first."""

    @abstractmethod
    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]: ...

    @abstractmethod
    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        """Matching waits, the longest open first (then by run and key); held ones too.

        - Asked for deciders: those that name one of them, and those that name nobody.
        """

    @abstractmethod
    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        """Keep a result under a name; the first one stays.

        - Raises ``StaleClaim``, and writes nothing, when the claim is not current.
        """

    @abstractmethod
    async def load_steps(self, owner: str) -> list[StoredStep]: ...

    @abstractmethod
    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        """Remove runs that ended longer ago than ``keep`` says, with all that is kept of them.

        - A child is removed with its parent, not before.
        """

    @abstractmethod
    async def save_snapshot(self, namespace: str, run: RunId, snapshot: Snapshot) -> None:
        """Replace the snapshot of a run, if this one is of a later event."""


class ScheduleStore(Protocol):
    """Schedules: what is started by time alone, once for each of its times."""

    @abstractmethod
    async def commit_schedule(self, commit: ScheduleCommit) -> ScheduleAnswer:
        """Write a schedule as a whole, and start what comes with it, all or none.

        - CONFLICT, and nothing written, when its revision is not the expected one, or when it is
          there or gone and was not expected to be.
        - However many commit on one revision at once, one of them is done.
        - A run is added as ``submit_run`` adds it, a job as ``insert_jobs`` does.
        - TAKEN, and nothing written, when the id of the run is taken.
        - If the flow is cooling down, ``if_skipped`` is written instead, with the skipped run.
        - A commit repeated after a lost answer is done, and counts once.
        - Tells workers to look (a DUE hint) if the schedule has a time to look at it.
        """

    @abstractmethod
    async def get_schedule(self, namespace: str, name: str) -> Schedule | None:
        """Raises ``ScheduleUnreadable`` where a newer version wrote what this one does not know."""

    @abstractmethod
    async def list_schedules(self, namespace: str | None) -> list[Schedule]:
        """All that can be read, by namespace and name."""

    @abstractmethod
    async def unreadable_schedules(self, namespace: str | None) -> list[UnreadableSchedule]:
        """All others: a newer version wrote them. By namespace and name."""

    @abstractmethod
    async def due_schedules(self, namespace: str, limit: int) -> list[Schedule]:
        """Schedules whose time to be looked at has come, earliest first.

        - Those that cannot be read are left out, and stand in nobody's way.
        """

    @abstractmethod
    async def delete_schedule(self, namespace: str, name: str) -> bool:
        """Remove a schedule, if there is one. What it started goes on."""


class OperatorStore(Protocol):
    """What people do to jobs and queues. Jobs that are not found are left out of the answer.

    Acting on a job of a run raises ``JobBelongsToRun``, and nothing is written.
    """

    @abstractmethod
    async def abort_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        """Stop jobs: unheld ones are cancelled, active ones become aborting, finished ones stay.

        - Tells the holders at once (a hint names the ids).
        """

    @abstractmethod
    async def abort_group(self, namespace: str, group: str) -> list[Moved]:
        """The same for every unfinished job of one group and of no other."""

    @abstractmethod
    async def disable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        """Keep jobs from running until enabled; an active one is taken from its holder."""

    @abstractmethod
    async def enable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        """Let disabled jobs run again: waiting, or scheduled if their time lies ahead."""

    @abstractmethod
    async def retry_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        """Start failed, dead or cancelled jobs anew.

        - With a fresh budget: failures, postponements and deaths count from zero.
        - Without a deadline, which has had its say. Its history of failures is kept.
        - Raises ``FingerprintTaken`` when a live job has its fingerprint by now.
        """

    @abstractmethod
    async def resume_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        """Put paused (released) jobs back into the queue."""

    @abstractmethod
    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> None:
        """Let no job of the queue be claimed until it is resumed. Pausing twice keeps the first.

        - Tells workers to look (a DUE hint), so that no run goes on into the queue in place.
        """

    @abstractmethod
    async def resume_queue(self, namespace: str, queue: str) -> None:
        """End a pause, if there is one."""

    @abstractmethod
    async def close_limit(self, namespace: str, key: str, until: datetime) -> None:
        """Let nothing start under ``key`` before ``until``; an earlier time changes nothing."""


class ReadStore(Protocol):
    """What can be seen. ``namespace`` None looks across all of them."""

    @abstractmethod
    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        """One job with its values."""

    @abstractmethod
    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        """Matching jobs without their values, newest first."""

    @abstractmethod
    async def count_jobs(self, filter: JobFilter) -> int: ...

    @abstractmethod
    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        """What waiters need to know of these jobs, dropped ones included."""

    @abstractmethod
    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        """The job's history of failures, oldest first."""

    @abstractmethod
    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        """The output of the latest completed job of this task with this very input, if kept."""

    @abstractmethod
    async def depth(self, namespace: str | None) -> list[QueueDepth]:
        """How many jobs are in each status, by queue."""

    @abstractmethod
    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]: ...

    @abstractmethod
    async def workers(self, namespace: str | None) -> list[WorkerState]:
        """The registered workers, with what they hold."""

    @abstractmethod
    async def limit_uses(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        """What is in use under each rule just now, in their order, as a claim would find it.

        - Names the jobs that count as live under its key, the longest held first.
        """


class InsightStore(Protocol):
    """What operators ask now and then. It may cost in proportion to what is kept."""

    @abstractmethod
    async def examine(self) -> Examination:
        """How the place itself is, and which runs go nowhere; over all namespaces.

        - Names indexes that are missing, and those that are not valid.
        - Names runs that are under way without a job or a wait, unless they are paused; at most
          ``STRAYS_MAX`` of them.
        """

    @abstractmethod
    async def count_flows(self, namespace: str | None) -> list[FlowRuns]:
        """Every stored version of every flow, with its runs counted; sorted by their names."""

    @abstractmethod
    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        """What ended longer ago than this.

        - Pruning removes all of it, but for runs that something live is below.
        """


class HousekeepingStore(Protocol):
    """What any worker may do for its namespace, one at a time, in bounded batches.

    Nothing here touches, or tells of, jobs, limits and workers of another namespace.
    """

    @abstractmethod
    async def survey(self, namespace: str, after_lane: str = "") -> Survey:
        """What waits and what is due next, in one statement whose cost does not grow with jobs.

        - Names the lanes of this namespace with waiting jobs, in text order, those after
          ``after_lane``, at most ``SURVEY_LANES_MAX`` of them.
        - The times due are those of this namespace; a wait's counts as ``next_wait_at``, a
          schedule's as ``next_tick_at``.
        - Names the paused queues of this namespace.
        """

    @abstractmethod
    async def lead(self, duty: str, worker: WorkerId, lease: timedelta) -> bool:
        """Take or keep the lease row of a duty; False while another holds it."""

    @abstractmethod
    async def promote_due(self, namespace: str, limit: int) -> int:
        """Make scheduled jobs whose time has come waiting, earliest first."""

    @abstractmethod
    async def take_over_expired(
        self, namespace: str, limit: int, deaths_max: int
    ) -> list[TakenOver]:
        """Take jobs from holders whose lease ran out.

        - Back to waiting with their rank, no failure counted, a death counted.
        - The ``deaths_max``-th death sends it to the dead letter as a poison pill.
        - An aborting one ends cancelled. The old claim is stale from then on.
        """

    @abstractmethod
    async def expire_deadlines(self, namespace: str, limit: int) -> list[Expired]:
        """Fail unheld jobs whose deadline has passed, with ``DeadlineExceeded``."""

    @abstractmethod
    async def prune_jobs(self, namespace: str, keep: Mapping[Status, timedelta], limit: int) -> int:
        """Remove jobs that finished longer ago than ``keep`` says for their status."""

    @abstractmethod
    async def prune_limits(self, namespace: str, idle: timedelta, limit: int) -> int:
        """Forget limit keys that have been without effect for that long; how many.

        - One has an effect while it is closed, and while a start counts in its window or spacing.
        - A key that a claim is using just now is left alone.
        - How much runs under a key is not forgotten: jobs know their keys themselves.
        """

    @abstractmethod
    async def register_worker(self, info: WorkerInfo) -> None:
        """Write the worker's row, or say that it is still there."""

    @abstractmethod
    async def remove_worker(self, id: WorkerId) -> None: ...

    @abstractmethod
    async def prune_workers(self, namespace: str, idle: timedelta) -> int:
        """Drop rows of workers not seen for that long, and not for two of their leases."""


class Store(
    JobStore,
    RunStore,
    ScheduleStore,
    OperatorStore,
    ReadStore,
    InsightStore,
    HousekeepingStore,
    Protocol,
):
    """One place that keeps everything. Usable from any thread's event loop it was opened on."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, without the password."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create or upgrade the tables under a lock.

        - Raises ``StoreUnreachable`` when nobody answers, at once rather than for ever.
        - Raises ``SchemaMismatch`` when the tables belong to a newer version or to others.
        - Several processes may open an empty store at the same moment.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections and threads, after sending the last wake-ups."""

    @abstractmethod
    def twin(self) -> Store:
        """Another handle on the same place, for another thread's event loop. Not opened yet."""

    @abstractmethod
    async def now(self) -> datetime: ...

    @abstractmethod
    def subscribe(self, listener: Listener, kinds: Kinds = None) -> Callable[[], None]:
        """Call ``listener`` on this store's event loop for each hint; returns how to stop it.

        - Only for hints of these kinds, where they are given.
        - Hints come from every process that uses the store, and may be missed or repeated.
        """

    @abstractmethod
    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        """``insert_jobs`` within the caller's own open transaction; theirs to commit.

        - Raises ``InvalidInput`` for a connection that cannot be used with this store.
        """

    @abstractmethod
    def insert_in_blocking_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        """The same on a connection with blocking calls, from the caller's thread."""
