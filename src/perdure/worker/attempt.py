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

from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare
from perdure.engine.failures import Budget, after_error, describe
from perdure.errors import AttemptTimeout, DeadlineExceeded, Permanent, ProcessDied
from perdure.expr.template import TemplateSkips
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob, Progress
from perdure.model.outcome import (
    Cancelled,
    Completed,
    Failed,
    GivenBack,
    NodeOutcome,
    Outcome,
    Paused,
    Skipped,
)
from perdure.model.payload import Codec
from perdure.model.retry import CallPolicy, decode_policy
from perdure.model.wait import Resumption
from perdure.tasks.context import AbortSignal, Context, StepKeeper
from perdure.tasks.task import Task
from perdure.worker.calls import (
    INVALID_STORED_INPUT,
    Arguments,
    BodyCall,
    CallSettings,
    before_retry,
    stored_call,
)
from perdure.worker.node_calls import NodeRules
from perdure.worker.secrets import Masker

_log = logging.getLogger("perdure.worker")

BEGIN_SECONDS_MAX = 60.0
"""How long a process may take to begin with a body, on top of the body's timeout."""
CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled coroutine may take to unwind before its slot is given to another."""

INVALID_STORED_POLICY = declare("job.invalid_policy", "the stored policy cannot be used: {reason}")


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


class Steps(StepKeeper, Protocol):
    async def past_pauses(self) -> Resumption:
        """Of a plain job: the pauses that it was resumed from."""


class Crew(CallSettings, Protocol):
    """What an attempt needs of its worker."""

    worker_id: WorkerId
    codec: Codec
    abort_grace: timedelta
    hold_off: timedelta

    @property
    def is_ending(self) -> bool:
        """The worker stops, or the event loop under it does."""

    def launch(self, attempt: Attempt) -> Body: ...

    def report(self, attempt: Attempt, progress: Progress) -> None:
        """Called from any thread."""

    def ended(self, attempt: Attempt, outcome: NodeOutcome | None) -> None:
        """The slot is free. No outcome: the claim is lost, and nothing is written."""

    def steps_of(self, attempt: Attempt) -> Steps:
        """Where the results of its steps are kept."""

    def rules_of(self, job: ClaimedJob) -> NodeRules | None:
        """What its node asks for around the call of its body, if that is anything."""

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
        "call",
        "claim",
        "is_begun",
        "is_over",
        "job",
        "progress",
        "rules",
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
        self.rules = crew.rules_of(job)
        self.call: BodyCall | None = None
        """None where the body is called with what is stored, and has no context."""
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

    @property
    def prepares_aside(self) -> bool:
        """Whether its arguments cannot be had from where the event loop is, at once."""
        return self._has_past or (self.rules is not None and self.rules.prepares_aside)

    @property
    def is_ruled(self) -> bool:
        """Whether something has to be said about an output besides that it is one."""
        call = self.call
        return self.rules is not None or (
            call is not None and (call.asked is not None or call.masker is not None)
        )

    @property
    def masker(self) -> Masker | None:
        """None as long as there is nothing to mask."""
        return None if self.call is None else self.call.masker

    def stored_values(self) -> Arguments:
        """The call as plain values, with all that its node asks for filled in; in any thread.

        Of a job that may have been resumed: in any but that of the event loop.
        """
        args, kwargs, before = stored_call(self.job, self._crew.codec)
        if self.task.context_parameter is None and self.rules is None:
            return args, kwargs
        if self._has_past:
            steps = self._crew.steps_of(self)
            before = steps.wait(steps.past_pauses())
        elif before.pauses:
            before = before_retry(before, self.job.failures)
        self.call = BodyCall(self.job, self._crew, before)
        if self.rules is None:
            return args, kwargs
        return self.rules.arguments(args, kwargs, self.call)

    def arguments(self) -> Arguments:
        """What to call the function with, in the same threads. What does not fit never will."""
        args, kwargs = self.stored_values()
        try:
            if self.task.context_parameter is None or self.call is None:
                return self.task.arguments(args, kwargs, None)
            steps = self._crew.steps_of(self)
            context = Context(
                self.job, self._crew.worker_id, self.report, self.abort, steps, self.call
            )
            return self.task.arguments(args, kwargs, context)
        except (ValueError, TypeError) as error:
            raise Permanent(INVALID_STORED_INPUT.fault(reason=str(error))) from error

    @property
    def _has_past(self) -> bool:
        """Whether it may be a plain job that was resumed, and its body may want to know.

        Each claim raises both numbers, unless it is given back, parked or taken over.
        """
        job = self.job
        return (
            job.node is None
            and job.claim.epoch != job.attempt
            and self.task.context_parameter is not None
        )

    def returned(self, result: bytes | NodeOutcome) -> None:
        """The body returned what is this as JSON, or what has this outcome, in plain JSON too."""
        try:
            outcome = self._encoded(result)
        except Exception as error:  # a codec may raise anything
            self.raised(error)
        else:
            self.ended(outcome)

    def _encoded(self, result: bytes | NodeOutcome) -> NodeOutcome:
        encode = self._crew.codec.encode
        if isinstance(result, bytes):
            return Completed(output=encode(result))
        if isinstance(result, Completed):
            return replace(result, output=encode(result.output))
        if isinstance(result, Paused):
            return replace(result, checkpoint=encode(result.checkpoint))
        return result

    async def returned_here(self, result: bytes | NodeOutcome) -> None:
        """The same, said by the body's own task, which commits if there is nobody to wait for."""
        self.writes_itself = self.stopped_by is None and self._crew.has_one_body
        self.returned(result)
        if self.writes_itself:
            await self._crew.write_here()

    def raised(self, error: BaseException) -> None:
        """The body raised."""
        if self.stopped_by is not None:
            self.ended(Cancelled())
        elif self.call is not None and self.call.asked is not None:
            self._paused(self.call.asked)
        elif type(error) is TemplateSkips:
            self.ended(Skipped(reason=str(error)))
        # By its type: isinstance() may run code of the exception's own.
        elif self._crew.is_ending and issubclass(type(error), asyncio.CancelledError | ProcessDied):
            # A loop that ends cancels everything, and a stop may hit child processes as well:
            # no fault of the body's.
            self.ended(GivenBack())
        else:
            self.ended(self._failed_outcome(error))

    def _paused(self, asked: Paused | Completed) -> None:
        """It raised because it asked for a pause, or after that."""
        assert self.call is not None
        self.call.asked = None  # if this cannot be written, that is a failure like any other
        masker = self.masker
        self.returned(asked if masker is None else masker.outcome(asked))

    def ended(self, outcome: NodeOutcome) -> None:
        """The body ended so, which counts only if it was not stopped before."""
        self.finish(outcome if self.stopped_by is None else self._stopped_outcome(self.stopped_by))

    def report(self, progress: Progress) -> None:
        """Take note of progress, from any thread. The outcome carries the last one."""
        if not self.is_over:
            if (masker := self.masker) is not None:
                progress = masker.progress(progress)
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

    def finish(self, outcome: NodeOutcome | None) -> None:
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

    @property
    def counted_job(self) -> ClaimedJob:
        """The job with all failures that count, also those of jobs before a pause."""
        before = 0 if self.call is None else self.call.resumption.failures
        return self.job if not before else replace(self.job, failures=self.job.failures + before)

    def _failed_outcome(self, error: BaseException) -> Outcome:
        return failed_outcome(self.counted_job, self.task, error, self._crew.hold_off, self.masker)

    def _later(self, seconds: float, act: Callable[..., None], *args: Any) -> None:
        if self._timers is None:
            self._timers = []
        self._timers.append(asyncio.get_running_loop().call_later(seconds, act, *args))


def stored_policy(job: ClaimedJob) -> CallPolicy | None:
    """What the caller asked for, if anything. What cannot be read never will be."""
    try:
        return None if job.policy is None else decode_policy(job.policy)
    except ValueError as error:
        raise Permanent(INVALID_STORED_POLICY.fault(reason=str(error))) from error


def failed_outcome(
    job: ClaimedJob,
    task: Task[..., Any],
    error: BaseException,
    hold_off: timedelta,
    masker: Masker | None = None,
) -> Outcome:
    """What an exception leads to under the caller's policy, else the task's. Never fails."""
    masked = None if masker is None else masker.text
    failure = describe(error, masked)
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
        why = describe(trouble, masked).message
        _log.error("job %s fails for good: its error cannot be read: %s", job.claim.id, why)
        return Failed(failure=failure)
