"""``JobRunner``: the claimed jobs of a worker, its slots, and the transitions of an attempt.

The worker renews a job's lease from the claim until the outcome is stored. An attempt has a slot
while its body runs. An attempt at a node keeps its slot until the commit is answered, because the
same job may continue in place with the next node.

With short jobs, a worker that claims only for free slots would spend its time waiting for the
store, so while jobs end fast it prefetches one batch. A job that waits here for longer than
``PREFETCH_SECONDS_MAX`` is requeued: another worker may have a free slot.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec.structs import replace

from perdure import clock
from perdure.engine.failures import too_many_crashes
from perdure.model.ids import JobId
from perdure.model.job import Claim, Claimed, ClaimedJob, NewJob
from perdure.model.outcome import DeadLettered, NodeOutcome, Requeued, Retried
from perdure.model.partition import UNSUSPECTED, Partition, Suspicion
from perdure.model.payload import Codec
from perdure.model.run import CommitAnswer
from perdure.model.worker import Renewal, WorkerInfo, WorkerSettings
from perdure.store.contract import Store
from perdure.worker.attempt import START_SECONDS_MAX, Attempt, StopReason
from perdure.worker.claims import Claims, KnownPartitions
from perdure.worker.code import TaskCode
from perdure.worker.commits import Commits, Settled, moves_run
from perdure.worker.events import AttemptAborting, WorkerEvents
from perdure.worker.executors import Executors, Threads
from perdure.worker.lease_renewal import ClaimMonitor
from perdure.worker.limiters import Limiters
from perdure.worker.processes import Processes
from perdure.worker.progress import ProgressWriter

UNCOMMITTED_MAX = 5_000
"""Stop claiming when more outcomes than this wait to be committed."""
PREFETCH_SECONDS_MAX = 0.1
"""How long a prefetched job may wait for its slot."""
LOOK_MARGIN_SECONDS = 0.01
LATE_MAX = 3
"""How often a job is requeued here because it is too late under its limits; then it starts."""
LATE_JOBS_MAX = 1_000
_log = logging.getLogger("perdure.worker")


class JobRunner:
    """Starts claimed jobs in free slots and passes their outcomes to ``Commits``.

    Runs on the worker's event loop; only ``current_claims`` is called from another thread.
    """

    def __init__(
        self,
        store: Store,
        code: TaskCode,
        settings: WorkerSettings,
        info: WorkerInfo,
        codec: Codec,
        events: WorkerEvents,
    ) -> None:
        self.store = store
        self.code = code
        self.settings = settings
        self.worker_id = info.id
        self.incarnation = info.incarnation
        self.codec = codec
        self.events = events
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.serving: asyncio.Task[None] | None = None
        """The asyncio task that the worker runs in; cancelling it stops the worker abruptly."""
        self.claimed: dict[JobId, Attempt] = {}
        self.running = 0
        """Attempts that have a slot."""
        self.concurrency = settings.concurrency
        self.taken = 0
        """Jobs claimed so far."""
        self.jobs_left: int | None = None
        """How many more jobs to claim, if that is bounded."""
        self.left: list[Attempt] = []
        """Attempts whose bodies did not end in time; their jobs stay claimed until it ends."""
        self.leave_process: Callable[[], None] | None = None
        """Called for each of them; None: this process may not end with the worker."""
        self.is_stopping = False
        self.was_stopped_by_body = False
        """A body sent the signal to stop: jobs that this interrupts are left to a takeover."""
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._queued: deque[Attempt] = deque()
        """Claimed attempts that wait for a slot."""
        self._is_filling = False
        self._requeue_timer: asyncio.TimerHandle | None = None
        self._pace = _Pace()
        self._late: Counter[JobId] = Counter()
        """How often jobs were requeued because their bodies could not start in time."""
        self._suspect: set[JobId] = set()
        """Claimed jobs that a hint reported as possibly lost or aborted."""
        self._slots_by_suspect: dict[JobId, int] = {}
        """For each job here that is suspected of crashing its workers: how many jobs this worker
        may have at once."""
        threads = Threads("perdure task")
        self.executors = Executors(Processes(threads), threads)
        self.progress = ProgressWriter(store, events)
        self.partitions = KnownPartitions(code, settings, info.id)
        self.claims = Claims(store, self)
        self.limiters = self.partitions.limiters = Limiters(settings.lease, self.claims)
        self.commits = Commits(store, self)
        self.claim_monitor = ClaimMonitor(store, self)

    @property
    def is_ending(self) -> bool:
        """Whether the worker is stopping, or its event loop is."""
        return self.is_stopping or (self.serving is not None and self.serving.cancelling() > 0)

    # Claimed jobs

    def room(self) -> int:
        """How many jobs to claim now."""
        if len(self.commits) > UNCOMMITTED_MAX:
            return 0
        # A prefetched job would use up a limit while it waits here.
        prefetches = self._pace.is_fast(self.concurrency) and not self.partitions.are_limited
        slots = self.concurrency * 2 if prefetches else self.concurrency
        room = slots - self.running - len(self._queued)
        if self._slots_by_suspect:
            room = min(room, self._slots_left(slots))
        return room if self.jobs_left is None else min(room, self.jobs_left)

    def is_condemned(self, suspicion: Suspicion) -> bool:
        """Whether a job crashed so many workers alone that it is dead-lettered, not run."""
        return suspicion.alone >= self.settings.max_crashes

    def slots_with(self, suspicion: Suspicion) -> int:
        """How many jobs this worker may have at once while it has this suspect."""
        return min([suspicion.slots(self.concurrency), *self._slots_by_suspect.values()])

    def room_with(self, suspicion: Suspicion) -> int:
        """How many jobs of this suspicion to claim now."""
        return self._slots_left(suspicion.slots(self.concurrency))

    def _slots_left(self, slots: int) -> int:
        """How many more jobs make ``slots``, or fewer if suspects here demand that.

        A body whose claim is lost may still run, and a job whose outcome is not yet stored would be
        charged with a crash.
        """
        held = max(len(self.claimed), self.running + len(self._queued))
        return min([slots, *self._slots_by_suspect.values()]) - held

    def take(
        self,
        claimed: Claimed,
        *,
        is_fresh: bool,
        slots: int | None = None,
        claimed_after: float = 0.0,
        timed: Collection[Partition] = (),
    ) -> None:
        """Take over claimed jobs. Until each of them ends, have at most ``slots`` jobs at once.

        Without ``is_fresh`` they are requeued: their leases may have expired before the store
        answered. Jobs of ``timed`` partitions are under a limit that counts starts: their bodies
        start soon after ``claimed_after``.
        """
        self.taken += len(claimed.jobs)
        if self.jobs_left is not None:
            self.jobs_left -= len(claimed.jobs)
        for job in claimed.jobs:
            if (former := self.claimed.get(job.claim.id)) is not None:
                former.stop(StopReason.CLAIM_LOST)  # lost and reclaimed before we learned of it
            attempt = self.claimed[job.claim.id] = Attempt(job, self, claimed.now)
            if timed and job.partition in timed:
                if self._late[job.claim.id] < LATE_MAX:
                    attempt.start_by = claimed_after + START_SECONDS_MAX
                else:  # it would never start
                    del self._late[job.claim.id]
                    fields = {"attempt_id": job.attempt_id}
                    _log.warning("body too slow to start for a limit", extra={"fields": fields})
            self._slots_by_suspect.pop(job.claim.id, None)
            if slots is not None:
                self._slots_by_suspect[job.claim.id] = slots
            if self.is_stopping or not is_fresh:
                attempt.finish(Requeued())
            elif self.is_condemned(job.suspicion):
                attempt.finish(DeadLettered(failure=too_many_crashes(job)))
            else:
                self.is_idle.clear()
                self._queued.append(attempt)
        self._fill()

    # The three calls of one attempt, in this order

    def ended(self, attempt: Attempt, outcome: NodeOutcome | None) -> None:
        """An attempt is over. Without an outcome its claim is lost, and nothing is written."""
        # When stopping, no job continues, and shutdown must not wait for a store that is down.
        if outcome is None or self.is_stopping or not moves_run(attempt, outcome):
            self._free_slot(attempt)
            self.claims.wake()
        if outcome is None:
            self._release(attempt)
            is_disabled = attempt.stopped_by is StopReason.DISABLED
            self.events.claim_lost(attempt, is_disabled=is_disabled)
        else:
            self.commits.add(attempt, outcome)
        self.limiters.ended(attempt.claim)

    def requeued_late(self, attempt: Attempt) -> None:
        """The body of this job could not start in time under its limits."""
        if len(self._late) >= LATE_JOBS_MAX:
            self._late.clear()
        self._late[attempt.claim.id] += 1

    def may_continue(self, attempt: Attempt, priority: int, partition: Partition) -> bool:
        """Whether the job may continue in place with a node of this partition, without a claim.

        Not with a less urgent node: jobs in the queue may come first. Not while suspects wait for
        this worker to have fewer jobs, nor if the jobs that it runs are counted: each node is one.
        """
        if self.jobs_left is not None:
            return False
        if self.is_stopping or priority > attempt.job.priority or self.claims.is_draining:
            return False
        return self.partitions.serves(partition)

    def settled(self, result: Settled) -> None:
        """The store answered: free the slot, or continue in place with the next node."""
        attempt, outcome = result.attempt, result.outcome
        if result.next_job is None:
            self._free_slot(attempt)
            self._release(attempt)
            self.claims.wake()
            self.events.settled(attempt, outcome, result.status)
            if self.jobs_left is not None and isinstance(outcome, Requeued):
                self.jobs_left += 1
            if isinstance(outcome, Retried) and outcome.until is None:
                # No hint announces that our own hold-off ends.
                seconds = (outcome.delay + outcome.hold_off).total_seconds()
                self.claims.look_in(seconds + LOOK_MARGIN_SECONDS)
        else:
            assert result.answer is not None
            self.events.settled(attempt, outcome, result.status)
            if self.claimed.get(attempt.claim.id) is attempt:
                self._continue(attempt, result.next_job, result.answer)
            else:  # lost meanwhile, and reclaimed under another epoch
                self._free_slot(attempt)
        attempt.is_settled = True  # last: after an error above, the outcome is still unsettled

    def _continue(self, attempt: Attempt, next_job: NewJob, answer: CommitAnswer) -> None:
        """Continue with the next node in the slot of this attempt, or requeue the job."""
        must_yield = yields(next_job, answer)
        job = continued(attempt.job, next_job)
        following = Attempt(job, self, answer.now or job.created_at)
        self.claimed[job.claim.id] = following  # before it starts, so that its lease has no gap
        self._slots_by_suspect.pop(job.claim.id, None)  # the store removed the suspicion, too
        if job.claim.id in self._suspect:
            self.claim_monitor.wake()  # the hint came while there was no body to stop
        can_continue = attempt.has_slot and self.running <= self.concurrency
        if self.is_stopping or not can_continue or must_yield:
            # Requeue before freeing the slot: the next attempt must not see the job as claimed.
            following.finish(Requeued())
            self._free_slot(attempt)
            self.claims.look()
        else:
            attempt.has_slot, following.has_slot = False, True  # ``running`` stays the same
            self._pace.ended += 1
            self._start(following)

    # Lost claims and aborted jobs

    def current_claims(self) -> list[Claim]:
        """The claims whose leases are renewed; called from the lease thread."""
        return [attempt.claim for attempt in list(self.claimed.values())]  # list() is atomic

    def suspect(self, ids: Collection[str]) -> None:
        """A hint: these jobs, or all if empty, may have been aborted or lost."""
        suspects = {id for id in self.claimed if not ids or id in ids}
        if suspects:
            self._suspect |= suspects
            self.claim_monitor.wake()

    def renewed(self, claims: Sequence[Claim], renewal: Renewal) -> None:
        """Stop attempts whose claims the store reports as lost or aborted."""
        if not renewal.lost and not renewal.aborting:
            return
        for claim in claims:
            attempt = self.claimed.get(claim.id)
            if attempt is None or attempt.is_over or attempt.claim.epoch != claim.epoch:
                continue
            if claim.id in renewal.disabled:
                attempt.stop(StopReason.DISABLED)
            elif claim.id in renewal.lost:
                attempt.stop(StopReason.CLAIM_LOST)
            elif claim.id in renewal.aborting and attempt.stopped_by is None:
                self.events.emit_job(AttemptAborting, attempt.job)
                attempt.stop(StopReason.ABORTED)

    # Resize and stop

    def scale(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self._fill()
        self.claims.wake()

    def stop(self) -> None:
        """Start no more jobs. Running bodies may finish; all other slots are freed immediately."""
        self.is_stopping = True
        self.claims.stop()
        queued, self._queued = self._queued, deque()
        self._requeue(queued)
        for attempt in list(self.claimed.values()):
            if attempt.is_over:
                self._free_slot(attempt)

    def stop_bodies(self) -> None:
        """Stop running bodies: the grace period is over."""
        for attempt in list(self.claimed.values()):
            attempt.stop(StopReason.SHUTDOWN)

    def leave(self, attempt: Attempt) -> None:
        """Keep the claim of a body that does not end: its job must not run again beside it."""
        assert self.leave_process is not None
        self.left.append(attempt)
        self.leave_process()
        self._free_slot(attempt)

    def close(self) -> None:
        self.progress.close()
        self.executors.close()

    # Slots

    def _fill(self) -> None:
        """Start queued attempts while there are free slots."""
        if self._is_filling:
            return  # an attempt ended while it was being started: the loop below continues
        self._is_filling = True
        try:
            while self._queued and self.running < self.concurrency:
                attempt = self._queued.popleft()
                if not attempt.is_over:
                    self.running += 1
                    attempt.has_slot = True
                    self._start(attempt)
        finally:
            self._is_filling = False
            self._note_idle()
        if self._queued and self._requeue_timer is None:
            last = self._queued[-1]
            requeue = self._requeue_up_to
            self._requeue_timer = self.loop.call_later(PREFETCH_SECONDS_MAX, requeue, last)

    def _start(self, attempt: Attempt) -> None:
        self.events.started(attempt)
        try:
            attempt.start()
        except Exception as error:  # the system refuses another thread, for example
            attempt.raised(error)

    def _free_slot(self, attempt: Attempt) -> None:
        """Free the slot of an attempt, if it has one."""
        if attempt.has_slot:
            attempt.has_slot = False
            self.running -= 1
            self._pace.ended += 1
        if self._queued:
            self._fill()
        else:
            self._note_idle()

    def _release(self, attempt: Attempt) -> None:
        """Stop renewing the lease of the job."""
        if self.claimed.get(attempt.claim.id) is attempt:
            del self.claimed[attempt.claim.id]
            self._slots_by_suspect.pop(attempt.claim.id, None)
            self._suspect.discard(attempt.claim.id)

    def _requeue_up_to(self, last: Attempt) -> None:
        """Requeue all up to ``last``: they waited too long. Jobs claimed later stay."""
        self._requeue_timer = None
        if last in self._queued:
            overdue: list[Attempt] = []
            while not overdue or overdue[-1] is not last:
                overdue.append(self._queued.popleft())
            self._requeue(overdue)
        self._fill()  # sets the timer for the rest

    def _requeue(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            attempt.finish(Requeued())

    def _note_idle(self) -> None:
        if not self.running and not self._queued:
            self.is_idle.set()


def continued(job: ClaimedJob, following: NewJob) -> ClaimedJob:
    """The same job, continued with another node."""
    return replace(
        job,
        partition=following.partition,
        input=following.input,
        attempt=1,
        failures=0,
        snoozes=0,
        crashes=0,
        suspicion=UNSUSPECTED,
        max_attempts=None,
        policy=following.policy,
        priority=following.priority,
        node=following.node,
    )


def yields(following: NewJob, answer: CommitAnswer) -> bool:
    """Whether a job in the queue is more urgent than the next node.

    The margin is half a priority step, so that jobs of equal priority do not interrupt a chain
    until they have aged by that much.
    """
    if answer.most_urgent_rank is None or answer.now is None:
        return False
    rank = answer.now.timestamp() + (following.priority - 0.5) * following.aging.total_seconds()
    return answer.most_urgent_rank < rank


PACE_SECONDS = 0.05
ENDS_MIN = 20


class _Pace:
    """Measures how fast attempts end."""

    def __init__(self) -> None:
        self.ended = 0
        self._lately = 0.0
        self._seen = 0
        self._seen_at = clock.monotonic()

    def is_fast(self, concurrency: int) -> bool:
        """Whether at least two attempts per slot, and ``ENDS_MIN``, ended in ``PACE_SECONDS``."""
        now = clock.monotonic()
        if (elapsed := now - self._seen_at) >= PACE_SECONDS:
            self._lately = (self.ended - self._seen) * PACE_SECONDS / elapsed
            self._seen, self._seen_at = self.ended, now
        return self._lately >= max(ENDS_MIN, 2 * concurrency)
