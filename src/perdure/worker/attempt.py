"""One claimed job from start to outcome: its body runs once, and ends once, whoever ends it.

A body ends by itself, or is stopped: by its timeout, its deadline, an abort, a lost claim, or the
worker's own stop. The first end counts. What a body does after that can no longer matter here, and
its claim's fence keeps it from mattering in the store.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from perdure import clock
from perdure.client.context import AbortSignal, Context, StepKeeper
from perdure.errors import AttemptTimeout, DeadlineExceeded, Permanent, ProcessDied
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob, Progress
from perdure.model.outcome import Cancelled, Completed, Failed, GivenBack, Outcome
from perdure.model.payload import Codec, from_json
from perdure.model.policy import CallPolicy, decode_policy
from perdure.model.task import Task
from perdure.rules.failure import describe
from perdure.rules.retry import Budget, after_error

_log = logging.getLogger("perdure.worker")

BEGIN_SECONDS_MAX = 60.0
"""How long a process may take to begin with a body, on top of the body's timeout."""
CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled coroutine may take to unwind before its slot is given to another."""


class Stop(StrEnum):
    """Why a body was told to stop; the value is what its abort signal says."""

    ABORTED = "the job was aborted"
    TIMED_OUT = "the attempt ran into its timeout"
    DEADLINE = "the job's deadline passed"
    CLAIM_LOST = "the claim was lost"
    SHUTDOWN = "the worker is stopping"


class Body(Protocol):
    """A running body, however it runs."""

    begins_later: ClassVar[bool]
    """Whether it says itself when it begins, with :meth:`Attempt.begun`."""

    def stop(self) -> bool:
        """Make it end. True if it is over at once, or cannot be made to end: do not wait for it."""


class Crew(Protocol):
    """What an attempt needs of its worker."""

    worker_id: WorkerId
    codec: Codec
    payload_max_bytes: int
    abort_grace: timedelta
    hold_off: timedelta

    @property
    def is_ending(self) -> bool:
        """The worker stops, or the event loop under it does."""

    def launch(self, attempt: Attempt) -> Body: ...

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Called from any thread."""

    def ended(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """The slot is free. No outcome: the claim is lost, and nothing is written."""

    def steps_of(self, attempt: Attempt) -> StepKeeper:
        """Where the results of its steps are kept."""

    @property
    def has_one_body(self) -> bool:
        """Whether no other body may end in a moment, whose outcome could share a commit."""

    async def write_here(self) -> None:
        """Commit what has ended, within the caller's own task if nobody is at it."""


class Attempt:
    """The state of one attempt. Its methods run on the worker's event loop, unless they say so."""

    __slots__ = (
        "_body",
        "_claimed_at",
        "_crew",
        "_timeout",
        "_timers",
        "abort",
        "claim",
        "is_begun",
        "is_over",
        "job",
        "progress",
        "seconds",
        "started_at",
        "stopped_by",
        "task",
        "writes_itself",
    )

    def __init__(
        self, job: ClaimedJob, task: Task[..., Any], crew: Crew, claimed_at: datetime
    ) -> None:
        self.job = job
        self.claim = job.claim
        self.task = task
        self.abort = AbortSignal()
        self.stopped_by: Stop | None = None
        self.is_begun = False
        self.is_over = False
        self.writes_itself = False
        """Its body's own task sees to the commit of its outcome."""
        self.progress: Progress | None = None
        self.started_at = clock.monotonic()
        self.seconds = 0.0
        self._claimed_at = claimed_at
        self._crew = crew
        self._body: Body | None = None
        self._timeout: timedelta | None = None
        self._timers: list[asyncio.TimerHandle] | None = None

    @property
    def is_worker_ending(self) -> bool:
        return self._crew.is_ending

    def start(self) -> None:
        """Run the body, bounded by its timeout and deadline."""
        self.is_begun = True
        if self.stopped_by is not None:  # while it waited for its slot
            self._abandon()
            return
        policy = stored_policy(self.job)
        timeout = policy.timeout if policy is not None and policy.timeout else self.task.timeout
        if self.job.deadline_at is not None:
            # Measured on the store's clock; what passed since the claim on our own.
            left = (self.job.deadline_at - self._claimed_at).total_seconds()
            left -= clock.monotonic() - self.started_at
            if left <= 0:
                self.finish(self._stopped_outcome(Stop.DEADLINE))
                return
            self._later(left, self.stop, Stop.DEADLINE)
        self._timeout = timeout
        self.started_at = clock.monotonic()
        self._body = self._crew.launch(self)
        if not self._body.begins_later:
            self.begun()
        elif timeout is not None:
            self._later(timeout.total_seconds() + BEGIN_SECONDS_MAX, self.stop, Stop.TIMED_OUT)

    def begun(self) -> None:
        """The body begins: its timeout runs from here, without what starting a process took."""
        self.started_at = clock.monotonic()
        if self._timeout is not None and not self.is_over:
            self._later(self._timeout.total_seconds(), self.stop, Stop.TIMED_OUT)

    def stored_call(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as plain values, from any thread. What cannot be read never will be."""
        data = self._crew.codec.decode(self.job.input)
        try:
            args, kwargs = from_json(data)
        except (ValueError, TypeError, RecursionError) as error:
            raise Permanent(f"the stored input cannot be used: {error}") from error
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise Permanent("the stored input cannot be used: it is not [[...], {...}]")
        return args, kwargs

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """What to call the function with, from any thread. What does not fit never will."""
        args, kwargs = self.stored_call()
        try:
            if self.task.context_parameter is None:
                return self.task.arguments(args, kwargs, None)
            steps = self._crew.steps_of(self)
            context = Context(self.job, self._crew.worker_id, self.report, self.abort, steps)
            return self.task.arguments(args, kwargs, context)
        except (ValueError, TypeError) as error:
            raise Permanent(f"the stored input cannot be used: {error}") from error

    def returned(self, data: bytes) -> None:
        """The body returned what is this as JSON."""
        try:
            output = self._crew.codec.encode(data)
        except Exception as error:  # a codec may raise anything
            self.raised(error)
        else:
            self.ended(Completed(output=output))

    async def returned_here(self, data: bytes) -> None:
        """The same, said by the body's own task, which commits if there is nobody to wait for."""
        self.writes_itself = self.stopped_by is None and self._crew.has_one_body
        self.returned(data)
        if self.writes_itself:
            await self._crew.write_here()

    def raised(self, error: BaseException) -> None:
        """The body raised."""
        if self.stopped_by is not None:
            self.ended(Cancelled())
        # By its type: isinstance() may run code of the exception's own.
        elif self._crew.is_ending and issubclass(type(error), asyncio.CancelledError | ProcessDied):
            # A loop that ends cancels everything, and a stop may hit child processes as well:
            # no fault of the body's.
            self.ended(GivenBack())
        else:
            self.ended(self._failed_outcome(error))

    def ended(self, outcome: Outcome) -> None:
        """The body ended so, which counts only if it was not stopped before."""
        self.finish(outcome if self.stopped_by is None else self._stopped_outcome(self.stopped_by))

    def report(self, progress: Progress) -> None:
        """Take note of progress, from any thread. The outcome carries the last one."""
        if not self.is_over:
            self.progress = progress
            self._crew.report(self, progress)

    def stop(self, reason: Stop) -> None:
        """Tell the body to stop, and see to it that it does."""
        if self.is_over or self.stopped_by not in (None, Stop.ABORTED):
            return
        self.stopped_by = reason
        self.abort.fire(reason.value)
        if reason is Stop.ABORTED:
            self._later(self._crew.abort_grace.total_seconds(), self._force)
        else:
            self._force()

    def finish(self, outcome: Outcome | None) -> None:
        """The first end counts."""
        if self.is_over:
            return
        self.is_over = True
        self.seconds = clock.monotonic() - self.started_at
        for timer in self._timers or ():
            timer.cancel()
        self._crew.ended(self, outcome)

    def _force(self) -> None:
        if self._body is None or self._body.stop():
            self._abandon()
        else:
            self._later(CANCEL_GRACE_SECONDS, self._abandon)

    def _abandon(self) -> None:
        assert self.stopped_by is not None
        self.finish(self._stopped_outcome(self.stopped_by))

    def _stopped_outcome(self, reason: Stop) -> Outcome | None:
        """The outcome of a stopped attempt, whatever its body made of being stopped."""
        match reason:
            case Stop.ABORTED:
                return Cancelled()
            case Stop.CLAIM_LOST:
                return None
            case Stop.SHUTDOWN:
                return GivenBack()
            case Stop.DEADLINE:
                error = DeadlineExceeded(f"the deadline was {self.job.deadline_at}")
                return Failed(failure=describe(error))
            case Stop.TIMED_OUT:
                seconds = clock.monotonic() - self.started_at
                return self._failed_outcome(AttemptTimeout(f"stopped after {seconds:.3g} s"))

    def _failed_outcome(self, error: BaseException) -> Outcome:
        return failed_outcome(self.job, self.task, error, self._crew.hold_off)

    def _later(self, seconds: float, act: Callable[..., None], *args: Any) -> None:
        if self._timers is None:
            self._timers = []
        self._timers.append(asyncio.get_running_loop().call_later(seconds, act, *args))


def stored_policy(job: ClaimedJob) -> CallPolicy | None:
    """What the caller asked for, if anything. What cannot be read never will be."""
    try:
        return None if job.policy is None else decode_policy(job.policy)
    except ValueError as error:
        raise Permanent(f"the stored policy cannot be used: {error}") from error


def failed_outcome(
    job: ClaimedJob, task: Task[..., Any], error: BaseException, hold_off: timedelta
) -> Outcome:
    """What an exception leads to under the caller's policy, else the task's. Never fails."""
    failure = describe(error)
    try:
        if isinstance(error, Permanent):
            return Failed(failure=failure)
        policy = stored_policy(job)
        retry = policy.retry if policy is not None and policy.retry is not None else task.retry
        budget = Budget(policy=retry, hold_off=hold_off)
        return after_error(job, error, failure, budget, random.random())
    except BaseException as trouble:
        # Deciding reads the exception, which is somebody else's code. The attempt has to end, or
        # it would keep its slot and its lease for ever.
        why = describe(trouble).message
        _log.error("job %s fails for good: its error cannot be read: %s", job.claim.id, why)
        return Failed(failure=failure)
