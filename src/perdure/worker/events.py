"""Worker events, listeners and counters. A failing listener is logged and otherwise ignored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

from perdure import clock
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.failure import Failure
from perdure.model.job import ClaimedJob, Expired, Progress, Status, TakenOver
from perdure.model.outcome import (
    Completed,
    DeadLettered,
    Failed,
    NodeOutcome,
    Parked,
    Paused,
    Retried,
)
from perdure.model.partition import Partition
from perdure.model.value import Value
from perdure.model.worker import COMPLETED_MICROS, AttemptCounts, TaskCounts, summary
from perdure.worker.isolation import ctrl_c_raises

if TYPE_CHECKING:
    from perdure.worker.attempt import Attempt

UNKNOWN_EVENT = declare(
    "worker.unknown_event",
    "{value!r} is not a worker event",
    "Use a class from perdure.worker.events",
)
ASYNC_LISTENER = declare(
    "worker.async_listener",
    "{listener!r} is async and would never be awaited",
    "Use a plain function, which may start a task: asyncio.ensure_future(...)",
)


_log = logging.getLogger("perdure.worker")


class WorkerEvent(Value):
    worker: str


class WorkerStarted(WorkerEvent):
    pass


class WorkerStopping(WorkerEvent):
    """The worker starts no more jobs; running ones may finish within the grace period."""

    running: int
    grace: timedelta


class WorkerStopped(WorkerEvent):
    pass


class JobEvent(WorkerEvent):
    job_id: str
    task: str
    queue: str
    attempt: int
    run_id: str | None
    """The run, for the job of a node."""
    node: str | None
    """The node with its iteration or item, for the job of a node."""
    flow: str | None
    """The flow of the run."""
    attempt_id: str | None
    """Unique to one execution, as ``ctx.attempt_id``; None for a job that never started."""


class AttemptStarted(JobEvent):
    """The body is about to run."""


class AttemptCompleted(JobEvent):
    """The result is stored."""

    duration: timedelta
    output: bytes | None = None
    """The result as encoded by the codec; None if the run decided about it."""


class AttemptFailed(JobEvent):
    """The job failed and is not retried."""

    failure: Failure


class AttemptRetried(JobEvent):
    """The attempt failed, and another one is scheduled."""

    failure: Failure
    next_at: datetime | None = None
    """When the next attempt may start, by this worker's clock."""


class AttemptDeadLettered(JobEvent):
    """The job is out of retries and was dead-lettered."""

    failure: Failure


class AttemptProgressed(JobEvent):
    """Progress was written."""

    progress: Progress


class AttemptAborting(JobEvent):
    """The job was aborted, and the abort signal of its body fired."""


class AttemptCancelled(JobEvent):
    """The job ended after an abort."""


class AttemptRequeued(JobEvent):
    """The job went back to the queue unfinished, or was parked, without costing an attempt."""


class AttemptParked(AttemptRequeued):
    """The job was parked until it is resumed, or the node until a report."""


class JobTakenOver(JobEvent):
    """The lease of the worker ``holder`` expired, or it was started again: this one took over.

    ``attempt`` and ``attempt_id`` are those of the attempt that ended with it.
    The job is requeued, unless another event reports that it ended.
    """

    holder: str | None
    failure: Failure


class AttemptLost(JobEvent):
    """The claim was lost to another worker or an operator; this worker wrote no outcome."""


class AttemptDisabled(AttemptLost):
    """The claim was lost because the job was disabled."""


E = TypeVar("E", bound=WorkerEvent)
Listener = Callable[[Any], object]


class WorkerStats(AttemptCounts):
    """Counters of one worker since it started; ``running`` and ``concurrency`` are current."""

    running: int = 0
    concurrency: int = 0
    average_duration: timedelta | None = None
    """Over completed jobs."""
    updated_at: datetime | None = None


class WorkerEvents:
    """The listeners and the counters of one worker."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self._listeners: list[tuple[type[WorkerEvent], Listener]] = []
        self._counts: dict[tuple[str, str], dict[str, int]] = {}
        """By task and queue; then by field of :class:`AttemptCounts`, and ``COMPLETED_MICROS``."""
        self._updated_at: datetime | None = None

    @property
    def task_counts(self) -> list[TaskCounts]:
        """From any thread: copying a list or a dict is atomic."""
        return [
            TaskCounts(task=task, queue=queue, counts=dict(counts))
            for (task, queue), counts in list(self._counts.items())
        ]

    def stats(self, running: int, concurrency: int) -> WorkerStats:
        return WorkerStats(
            running=running,
            concurrency=concurrency,
            updated_at=self._updated_at,
            **summary(self.task_counts),
        )

    # Listeners

    def listen(self, event_type: type[E], listener: Callable[[E], object]) -> Callable[[], None]:
        """Call ``listener`` for each event of ``event_type``; returns a function that stops it."""
        given: object = event_type
        if not (isinstance(given, type) and issubclass(given, WorkerEvent)):
            raise InvalidInput(UNKNOWN_EVENT.fault(("event_type",), value=event_type))
        if not callable(listener):
            raise check.wrong_type(listener, "listener", "a function that takes an event")
        if iscoroutinefunction(listener) or iscoroutinefunction(type(listener).__call__):
            raise InvalidInput(ASYNC_LISTENER.fault(("listener",), listener=listener))
        entry = (event_type, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry) if entry in self._listeners else None

    def emit(self, event: WorkerEvent) -> None:
        for wanted, listener in list(self._listeners):
            if isinstance(event, wanted):
                try:
                    listener(event)
                # Called within the worker's own tasks, which must not be ended by a listener's
                # SystemExit or cancellation.
                except BaseException as error:
                    if issubclass(type(error), KeyboardInterrupt) and ctrl_c_raises():
                        raise
                    _log.exception("event listener failed")

    def emit_job(
        self, event_type: type[JobEvent], job: ClaimedJob | TakenOver | Expired, **details: Any
    ) -> None:
        if not self._listeners:  # the common case: create no event without listeners
            return
        if not any(issubclass(event_type, wanted) for wanted, _ in self._listeners):
            return
        node = None if isinstance(job, Expired) else job.node
        event = event_type(
            worker=self.worker,
            job_id=job.claim.id if isinstance(job, ClaimedJob) else job.id,
            task=job.partition.task,
            queue=job.partition.queue,
            attempt=job.attempt,
            run_id=None if node is None else node.run,
            node=None if node is None else node.key,
            attempt_id=None if isinstance(job, Expired) else job.attempt_id,
            flow=job.partition.flow.rpartition("@")[0] or None,
            **details,
        )
        self.emit(event)

    # Transitions

    def started(self, attempt: Attempt) -> None:
        counts = self._counts_of(attempt.job.partition)
        counts["started"] = counts.get("started", 0) + 1
        self.emit_job(AttemptStarted, attempt.job)

    def claim_lost(self, attempt: Attempt, *, is_disabled: bool) -> None:
        self._count("disabled" if is_disabled else "claims_lost", attempt.job)
        self.emit_job(AttemptDisabled if is_disabled else AttemptLost, attempt.job)

    def settled(self, attempt: Attempt, outcome: NodeOutcome, status: Status | None) -> None:
        """The store answered; without a status the claim was lost and nothing was written.

        Nor was anything for a job that is disabled.
        """
        job = attempt.job
        if status is None or status is Status.DISABLED:
            self.claim_lost(attempt, is_disabled=status is Status.DISABLED)
        elif status is Status.COMPLETED:
            self._count("completed", job, micros=round(attempt.seconds * 1_000_000))
            if self._listeners:
                output = outcome.output if isinstance(outcome, Completed) else None
                duration = timedelta(seconds=attempt.seconds)
                self.emit_job(AttemptCompleted, job, duration=duration, output=output)
        elif status is Status.CANCELLED:
            self._count("cancelled", job)
            self.emit_job(AttemptCancelled, job)
        elif isinstance(outcome, Failed):
            self._count("failed", job)
            self.emit_job(AttemptFailed, job, failure=outcome.failure)
        elif isinstance(outcome, DeadLettered):
            self._count("dead", job)
            self.emit_job(AttemptDeadLettered, job, failure=outcome.failure)
        elif isinstance(outcome, Retried):
            self._count("retried", job)
            if self._listeners:
                next_at = outcome.until or clock.system_clock() + outcome.delay
                self.emit_job(AttemptRetried, job, failure=outcome.failure, next_at=next_at)
        else:
            self._count("requeued", job)
            is_parked = isinstance(outcome, Parked | Paused)
            self.emit_job(AttemptParked if is_parked else AttemptRequeued, job)

    def taken_over(self, job: TakenOver) -> None:
        """A job of a crashed worker was requeued, or ended."""
        self._count("taken_over", job)
        self.emit_job(JobTakenOver, job, holder=job.worker, failure=job.failure)
        if job.after is Status.CANCELLED:
            self._count("cancelled", job)
            self.emit_job(AttemptCancelled, job)

    def expired(self, job: Expired) -> None:
        """A job failed because no worker started it in time."""
        self._count("failed", job)
        self.emit_job(AttemptFailed, job, failure=job.failure)

    def _count(self, name: str, job: ClaimedJob | TakenOver | Expired, micros: int = 0) -> None:
        counts = self._counts_of(job.partition)
        counts[name] = counts.get(name, 0) + 1
        if micros:
            counts[COMPLETED_MICROS] = counts.get(COMPLETED_MICROS, 0) + micros
        self._updated_at = clock.system_clock()

    def _counts_of(self, partition: Partition) -> dict[str, int]:
        place = partition.task, partition.queue
        counts = self._counts.get(place)
        if counts is None:
            counts = self._counts[place] = {}
        return counts
