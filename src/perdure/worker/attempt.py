"""One attempt at a claimed job: starts its body, enforces its timeouts, and ends exactly once.

A body ends by itself or is stopped by its timeout, its deadline, an abort, a lost claim or the
worker's shutdown. The first end counts. Anything a body does after that is ignored here, and the
claim's fence (its epoch) keeps it out of the store.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec.structs import replace

from perdure import clock
from perdure.engine.failures import describe
from perdure.errors import AttemptTimeout, DeadlineExceeded, ProcessCrashed
from perdure.expr.template import TemplateSkips
from perdure.model.job import ClaimedJob, Progress
from perdure.model.outcome import (
    Cancelled,
    Completed,
    Failed,
    NodeOutcome,
    Outcome,
    Paused,
    Requeued,
    Retried,
    Skipped,
)
from perdure.store.admission import START_MARGIN
from perdure.tasks.context import AbortSignal, BaseContext
from perdure.worker.call import HasLimitKeys
from perdure.worker.executors import StartsLate
from perdure.worker.outcome import failed_outcome, stored_policy
from perdure.worker.secrets import Masker
from perdure.worker.steps import AttemptSteps

if TYPE_CHECKING:
    from perdure.worker.call import CallScope
    from perdure.worker.runner import JobRunner

PROCESS_SECONDS_MAX = 60.0
"""How long a process may take to start a body, on top of the body's timeout."""
START_SECONDS_MAX = 0.8 * START_MARGIN.total_seconds()
"""How long after its claim a body may start under a rate or spacing; the rest of the margin is for
the time between this check and the body's first statement."""
MOVES_MAX = 5
"""How often the start of a late body is counted again, before it starts as soon as it can."""
CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled coroutine may take to unwind before its slot is freed."""

_log = logging.getLogger("perdure.worker")


class StopReason(StrEnum):
    """Why a body is stopped; the value is the reason in its abort signal."""

    ABORTED = "the job was aborted"
    TIMED_OUT = "the attempt ran into its timeout"
    DEADLINE = "the job's deadline passed"
    CLAIM_LOST = "the claim was lost"
    DISABLED = "the job was disabled"
    SHUTDOWN = "the worker is stopping"


_RUNS_AGAIN = frozenset({StopReason.SHUTDOWN, StopReason.TIMED_OUT})
"""After these, another worker may execute the job: a body that no stop can end gets time to."""


class Body(Protocol):
    """A running body: a coroutine, a thread or a child process."""

    starts_later: ClassVar[bool]
    """Whether it calls :meth:`Attempt.body_started` when it starts."""
    can_be_ended: ClassVar[bool]
    """Whether ``stop`` can end it against its will."""

    def stop(self) -> bool:
        """End the body. True if there is nothing to wait for: it has ended, or cannot be ended."""


class Attempt:
    """The state of one attempt. Methods run on the worker's event loop unless documented."""

    __slots__ = (
        "_body",
        "_claimed_at",
        "_keeping",
        "_moves",
        "_timeout",
        "_timers",
        "abort",
        "attempts_before",
        "claim",
        "has_slot",
        "is_over",
        "is_provided",
        "is_settled",
        "job",
        "keeps_place",
        "progress",
        "rules",
        "runner",
        "scope",
        "seconds",
        "start_by",
        "started_at",
        "stopped_by",
        "takes_context",
        "task",
        "writes_itself",
    )

    def __init__(self, job: ClaimedJob, runner: JobRunner, claimed_at: datetime) -> None:
        self.job = job
        self.claim = job.claim
        self.runner = runner
        self.task = runner.code.task_of(job.partition)
        self.rules = runner.code.flows.rules_of(job)
        resources = runner.code.resources
        self.is_provided = resources.provide is not None and resources.provides_for(self.task)
        """Whether the worker builds values for this job before its body is called."""
        self.takes_context = self.task.context_parameter is not None or self.is_provided
        self.scope: CallScope | None = None
        """None if the body takes the stored arguments as they are, and no context."""
        self.attempts_before = 0
        """Attempts at the node before its job was enqueued, to resume a paused one."""
        self.abort = AbortSignal()
        self.stopped_by: StopReason | None = None
        self.has_slot = False
        self.is_over = False
        self.is_settled = False
        """The store has answered the commit of the outcome, and the runner has processed it."""
        self.writes_itself = False
        """The asyncio task of the body commits the outcome."""
        self.progress: Progress | None = None
        self.started_at = clock.monotonic()
        self.seconds = 0.0
        self.start_by: float | None = None
        """Under a limit that counts starts: until when the body may start."""
        self.keeps_place = False
        """Its start is counted again and again while resources are built for its body."""
        self._claimed_at = claimed_at
        self._keeping: asyncio.Task[None] | None = None
        self._moves = 0
        self._body: Body | None = None
        self._timeout: timedelta | None = None
        self._timers: list[asyncio.TimerHandle] | None = None

    # The call

    @property
    def prepares_in_thread(self) -> bool:
        """Whether preparing the arguments would block the event loop for too long."""
        return self.may_be_resumed or (self.rules is not None and self.rules.prepares_in_thread)

    @property
    def may_be_resumed(self) -> bool:
        """Whether this may be a resumed plain job whose body has a context to read the pauses.

        Each claim increments both the epoch and the attempt, unless the job was requeued, parked
        or taken over.
        """
        job = self.job
        return (
            job.node is None
            and job.claim.epoch != job.attempt
            and self.task.context_parameter is not None
        )

    @property
    def context(self) -> BaseContext:
        """The context of its body, once its arguments are prepared."""
        assert self.scope is not None
        assert self.scope.body_context is not None
        return self.scope.body_context

    @property
    def masker(self) -> Masker | None:
        """None as long as there is nothing to mask."""
        return None if self.scope is None else self.scope.masker

    @property
    def counted_job(self) -> ClaimedJob:
        """The job with all failures that count against its retries, also those before a pause."""
        before = 0 if self.scope is None else self.scope.resumption.failures
        return self.job if not before else replace(self.job, failures=self.job.failures + before)

    def steps(self) -> AttemptSteps:
        return AttemptSteps(self)

    # Start

    def start(self) -> None:
        """Run the body, bounded by its timeout and deadline."""
        if self.stopped_by is not None:  # while it waited for its slot
            self._abandon()
            return
        policy = stored_policy(self.job)
        timeout = policy.timeout if policy is not None and policy.timeout else self.task.timeout
        if self.job.deadline_at is not None:
            # The deadline is on the store's clock; the time since the claim on our own.
            left = (self.job.deadline_at - self._claimed_at).total_seconds()
            left -= clock.monotonic() - self.started_at
            if left <= 0:
                self.finish(self._stopped_outcome(StopReason.DEADLINE))
                return
            self._later(left, self.stop, StopReason.DEADLINE)
        self._timeout = timeout
        self.started_at = clock.monotonic()
        if self.start_by is not None and self.is_provided:
            self.keeps_place = True
            self._keeping = asyncio.create_task(self._keep_place())
        self._body = self.runner.executors.start(self)
        if not self._body.starts_later:
            self.body_started()
        elif timeout is not None:
            limit = timeout.total_seconds() + PROCESS_SECONDS_MAX
            self._later(limit, self.stop, StopReason.TIMED_OUT)

    def body_started(self) -> None:
        """Start the timeout, which excludes the time it took to start a process."""
        self.started_at = clock.monotonic()
        if self._timeout is not None and not self.is_over:
            self._later(self._timeout.total_seconds(), self.stop, StopReason.TIMED_OUT)

    @property
    def seconds_to_start(self) -> float:
        """How soon the body has to start; negative if it is late. In any thread."""
        return math.inf if self.start_by is None else self.start_by - clock.monotonic()

    async def count_start_again(self) -> None:
        """Count the start of a late body now instead of when it was claimed.

        Raises ``StartsLate`` if another job may have taken its place meanwhile: then it no longer
        counts, and must not start.
        """
        held = self.runner.partitions.place_held(self.job.partition)
        now = clock.monotonic()
        try:
            is_moved = await self.runner.store.jobs.move_start(self.claim, held)
        except Exception as error:  # the store may be down: not the body's fault
            raise StartsLate from error
        if not is_moved:
            raise StartsLate
        self._moves += 1
        if self._moves < MOVES_MAX:
            self.start_by = now + START_SECONDS_MAX
        else:  # it would be late forever
            self.start_by = None
            fields = {"task": self.job.partition.task, "attempt_id": self.job.attempt_id}
            _log.warning("store too slow for a rate limit", extra={"fields": fields})

    async def _keep_place(self) -> None:
        """Until the body starts, let no other job take its place.

        Otherwise a job would never start if building its resources takes longer than its limit
        keeps the place: it would be requeued as late each time.
        """
        held = self.runner.partitions.place_held(self.job.partition)
        while True:
            await asyncio.sleep(held.total_seconds() / 2)
            if not self.keeps_place:
                return
            with suppress(Exception):  # if it fails, the place may be lost when the body starts
                await self.runner.store.jobs.move_start(self.claim, held)

    def report(self, progress: Progress) -> None:
        """Record progress, from any thread. The outcome carries the last one."""
        if not self.is_over:
            if (masker := self.masker) is not None:
                progress = masker.progress(progress)
            self.progress = progress
            self.runner.progress.report(self, progress)

    # End

    def returned(self, result: bytes | NodeOutcome) -> None:
        """The body returned: its output as JSON, or an outcome whose payload is plain JSON."""
        encode = self.runner.codec.encode
        try:
            outcome: NodeOutcome
            if isinstance(result, bytes):
                outcome = Completed(output=encode(result))
            elif isinstance(result, Completed):
                outcome = replace(result, output=encode(result.output))
            elif isinstance(result, Paused):
                outcome = replace(result, checkpoint=encode(result.checkpoint))
            else:
                outcome = result
        except BaseException as error:  # a codec may raise anything
            self.raised(error)
        else:
            self._ended(outcome)

    def raised(self, error: BaseException) -> None:
        """The body raised."""
        scope = self.scope
        if self.stopped_by is not None:
            self._ended(Cancelled())
        elif scope is not None and scope.requested_outcome is not None:
            # It raised to pause, or after requesting a pause. Reset the request first: if the
            # pause cannot be encoded, that is a failure like any other.
            outcome, scope.requested_outcome = scope.requested_outcome, None
            self.returned(outcome if scope.masker is None else scope.masker.outcome(outcome))
        elif type(error) is StartsLate:
            self.runner.requeued_late(self)
            self._ended(Requeued())
        elif type(error) is HasLimitKeys:
            self._ended(Requeued(partition_key=error.partition_key))
        elif type(error) is TemplateSkips:
            self._ended(Skipped(reason=str(error)))
        # By type: isinstance() may run the exception's own code.
        elif self.runner.is_ending and issubclass(
            type(error), asyncio.CancelledError | ProcessCrashed
        ):
            # A closing loop cancels every task, and a signal to stop may also reach child
            # processes: not the body's fault.
            self.finish(self._stopped_outcome(StopReason.SHUTDOWN))
        else:
            self._ended(self._failed_outcome(error))

    def stop(self, reason: StopReason) -> None:
        """Fire the abort signal and make sure that the body ends."""
        if self.is_over or self.stopped_by not in (None, StopReason.ABORTED):
            return
        self.stopped_by = reason
        self.abort.fire(reason.value)
        if reason is StopReason.ABORTED or (reason in _RUNS_AGAIN and self._is_beyond_reach):
            self._later(self.runner.settings.abort_grace.total_seconds(), self._force)
        else:
            self._force()

    def finish(self, outcome: NodeOutcome | None) -> None:
        """End the attempt. Only the first call counts."""
        if self.is_over:
            return
        self.is_over = True
        self.seconds = clock.monotonic() - self.started_at
        if self._keeping is not None:
            self._keeping.cancel()
        for timer in self._timers or ():
            timer.cancel()
        self.runner.ended(self, outcome)

    def _ended(self, outcome: NodeOutcome) -> None:
        """The body ended with this outcome, which is ignored if it was stopped before."""
        self.finish(outcome if self.stopped_by is None else self._stopped_outcome(self.stopped_by))

    def _force(self) -> None:
        if self._body is None or self._body.stop():
            self._abandon()
        else:
            self._later(CANCEL_GRACE_SECONDS, self._abandon)

    def _abandon(self) -> None:
        assert self.stopped_by is not None
        outcome = self._stopped_outcome(self.stopped_by)
        runs_again = isinstance(outcome, Requeued | Retried)
        if runs_again and self._is_beyond_reach and self.runner.leave_process is not None:
            self.runner.leave(self)
        else:
            self.finish(outcome)

    @property
    def _is_beyond_reach(self) -> bool:
        return self._body is not None and not self._body.can_be_ended

    def leave(self, delay: timedelta) -> None:
        """End it although its body runs: this process ends before the job is ready again."""
        assert self.stopped_by is not None
        outcome = self._stopped_outcome(self.stopped_by)
        if isinstance(outcome, Requeued | Retried):
            outcome = replace(outcome, delay=max(delay, outcome.delay))
        self.finish(outcome)

    def _stopped_outcome(self, reason: StopReason) -> Outcome | None:
        """The outcome of a stopped attempt, regardless of how its body ended."""
        match reason:
            case StopReason.ABORTED:
                return Cancelled()
            case StopReason.CLAIM_LOST | StopReason.DISABLED:
                return None
            case StopReason.SHUTDOWN:
                # Requeued uncounted, a job that stops its workers would do so for ever. Its lease
                # expires instead: the takeover counts a crash, and isolates the job.
                return None if self.runner.was_stopped_by_body else Requeued()
            case StopReason.DEADLINE:
                error = DeadlineExceeded(f"the deadline was {self.job.deadline_at}")
                return Failed(failure=describe(error))
            case StopReason.TIMED_OUT:
                seconds = clock.monotonic() - self.started_at
                return self._failed_outcome(AttemptTimeout(f"stopped after {seconds:.3g} s"))

    def _failed_outcome(self, error: BaseException) -> Outcome:
        hold_off = self.runner.settings.hold_off
        return failed_outcome(self.counted_job, self.task, error, hold_off, self.masker)

    def _later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        if self._timers is None:
            self._timers = []
        self._timers.append(asyncio.get_running_loop().call_later(seconds, callback, *args))
