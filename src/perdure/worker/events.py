"""Worker events, their listeners, counters. A failing listener is logged and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from perdure import clock
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.failure import Failure
from perdure.model.job import ClaimedJob, Expired, Progress, Status, TakenOver
from perdure.model.outcome import Buried, Failed, NodeOutcome, Retried
from perdure.model.value import Value
from perdure.worker.attempt import Attempt

UNKNOWN_EVENT = declare(
    "worker.unknown_event",
    "{value!r} is not a worker event",
    "They are in perdure.worker.events, where JobFailed is not the error of that name",
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
    """It starts nothing more, and lets what runs finish within the grace."""

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
    """Of a node's job: the run it belongs to."""
    node: str | None
    """Of a node's job: the node, with its iteration or item."""


class JobStarted(JobEvent):
    """The body is about to run."""


class JobCompleted(JobEvent):
    """The result is in the record."""

    duration: timedelta


class JobFailed(JobEvent):
    """It failed for good."""

    failure: Failure


class JobRetried(JobEvent):
    """The attempt failed, and another one is scheduled."""

    failure: Failure


class JobDead(JobEvent):
    """It went to the dead letter."""

    failure: Failure


class JobProgressed(JobEvent):
    """Progress was written."""

    progress: Progress


class JobAborting(JobEvent):
    """It was asked to stop, and its signal fired."""


class JobCancelled(JobEvent):
    """It ended after an abort."""


class JobReleased(JobEvent):
    """It went back to the queue unfinished, without costing an attempt."""


class JobTakenOver(JobEvent):
    """The lease of its worker, ``holder``, had run out, and this one saw to the job.

    It waits again, unless another event tells of its end.
    """

    holder: str | None
    failure: Failure


class ClaimLost(JobEvent):
    """Another worker has it, or it was taken away; this worker wrote nothing."""


E = TypeVar("E", bound=WorkerEvent)
Listener = Callable[[Any], object]


class Listeners:
    """Who listens to which events."""

    def __init__(self) -> None:
        self._listeners: list[tuple[type[WorkerEvent], Listener]] = []

    def add(self, kind: type[E], listener: Callable[[E], object]) -> Callable[[], None]:
        """Call ``listener`` for each event of ``kind``; returns how to stop it."""
        _check(kind, listener)
        entry = (kind, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry) if entry in self._listeners else None

    def wants(self, kind: type[WorkerEvent]) -> bool:
        """Whether anybody would hear it: saves making events for nobody."""
        if not self._listeners:  # as nearly always
            return False
        return any(issubclass(kind, wanted) for wanted, _ in self._listeners)

    def emit(self, event: WorkerEvent) -> None:
        for wanted, listener in list(self._listeners):
            if isinstance(event, wanted):
                try:
                    listener(event)
                except KeyboardInterrupt:
                    raise  # from whoever sits before the worker
                # Called from within the worker's own tasks, which must not take a listener's
                # exit or cancellation for theirs.
                except BaseException:
                    _log.exception("a listener for worker events failed")


def _check(kind: object, listener: object) -> None:
    if not (isinstance(kind, type) and issubclass(kind, WorkerEvent)):
        raise InvalidInput(UNKNOWN_EVENT.fault(("kind",), value=kind))
    if not callable(listener):
        raise check.wrong_type(listener, "listener", "a function that takes an event")
    if iscoroutinefunction(listener) or iscoroutinefunction(type(listener).__call__):
        raise InvalidInput(ASYNC_LISTENER.fault(("listener",), listener=listener))


class WorkerStats(Value):
    """Counts of one worker. ``running`` and ``concurrency`` are of this moment."""

    started: int
    completed: int
    failed: int
    retried: int
    dead: int
    cancelled: int
    released: int
    claims_lost: int
    taken_over: int
    """Jobs of dead workers that this one saw to."""
    running: int
    concurrency: int
    average_duration: timedelta | None
    """Over completed jobs."""
    updated_at: datetime | None


class Tally:
    """The counters behind :class:`WorkerStats`."""

    def __init__(self) -> None:
        self.started = self.completed = self.failed = self.retried = self.dead = 0
        self.cancelled = self.released = self.claims_lost = self.taken_over = 0
        self.seconds = 0.0
        self.updated_at: datetime | None = None

    def stats(self, running: int, concurrency: int) -> WorkerStats:
        average = timedelta(seconds=self.seconds / self.completed) if self.completed else None
        return WorkerStats(
            started=self.started,
            completed=self.completed,
            failed=self.failed,
            retried=self.retried,
            dead=self.dead,
            cancelled=self.cancelled,
            released=self.released,
            claims_lost=self.claims_lost,
            taken_over=self.taken_over,
            running=running,
            concurrency=concurrency,
            average_duration=average,
            updated_at=self.updated_at,
        )


class Report:
    """The tally and the listeners of one worker."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.listeners = Listeners()
        self.tally = Tally()

    def wants(self, kind: type[WorkerEvent]) -> bool:
        return self.listeners.wants(kind)

    def emit(self, event: WorkerEvent) -> None:
        self.listeners.emit(event)

    def job(
        self, kind: type[JobEvent], job: ClaimedJob | TakenOver | Expired, **details: Any
    ) -> None:
        if not self.listeners.wants(kind):
            return
        node = job.node if isinstance(job, ClaimedJob) else None
        event = kind(
            worker=self.worker,
            job_id=job.claim.id if isinstance(job, ClaimedJob) else job.id,
            task=job.lane.task,
            queue=job.lane.queue,
            attempt=job.attempt,
            run_id=None if node is None else node.run,
            node=None if node is None else node.key,
            **details,
        )
        self.listeners.emit(event)

    def taken_over(self, job: TakenOver) -> None:
        """Count and tell what became of a job whose worker was gone."""
        self.tally.taken_over += 1
        self.tally.updated_at = clock.system_clock()
        self.job(JobTakenOver, job, holder=job.worker, failure=job.failure)
        if job.after is Status.DEAD:
            self.tally.dead += 1
            self.job(JobDead, job, failure=job.failure)
        elif job.after is Status.CANCELLED:
            self.tally.cancelled += 1
            self.job(JobCancelled, job)

    def expired(self, job: Expired) -> None:
        """Count and tell that a job failed because nobody started it in time."""
        self.tally.failed += 1
        self.tally.updated_at = clock.system_clock()
        self.job(JobFailed, job, failure=job.failure)

    def settled(self, attempt: Attempt, outcome: NodeOutcome, status: Status | None) -> None:
        """Count and tell how an attempt ended in the record."""
        tally, job = self.tally, attempt.job
        tally.updated_at = clock.system_clock()
        if status is None:
            tally.claims_lost += 1
            self.job(ClaimLost, job)
        elif status is Status.COMPLETED:
            tally.completed += 1
            seconds = attempt.seconds
            tally.seconds += seconds
            if self.wants(JobCompleted):
                self.job(JobCompleted, job, duration=timedelta(seconds=seconds))
        elif status is Status.CANCELLED:
            tally.cancelled += 1
            self.job(JobCancelled, job)
        elif isinstance(outcome, Failed):
            tally.failed += 1
            self.job(JobFailed, job, failure=outcome.failure)
        elif isinstance(outcome, Buried):
            tally.dead += 1
            self.job(JobDead, job, failure=outcome.failure)
        elif isinstance(outcome, Retried):
            tally.retried += 1
            self.job(JobRetried, job, failure=outcome.failure)
        else:
            tally.released += 1
            self.job(JobReleased, job)
