"""Inserting, claiming and settling jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Protocol

from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Settlement
from perdure.model.run import StoredStep
from perdure.model.value import Value
from perdure.model.worker import Renewal


class PartitionClaim(Value):
    """A partition to claim from, with the limit rules of its jobs."""

    partition: str
    queue: str
    rules: tuple[LimitRule, ...] = ()


class ClaimRequest(Value):
    """A claim: worker, partitions, number of jobs and lease."""

    namespace: str
    worker: WorkerId
    partitions: Sequence[PartitionClaim]
    limit: int
    lease: timedelta
    is_alone: bool = False
    """Whether the worker has no other job, and will have none while it has these."""
    incarnation: int | None = None
    """That of the worker; None: no later start under its id takes the jobs over."""


class JobStore(Protocol):
    """Inserting, claiming and settling jobs."""

    @abstractmethod
    async def insert(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        """Add jobs, all or none, and answer in their order.

        - Jobs may be created while earlier ones are being sent; if creating one raises, the
          exception propagates and nothing is written.
        - A job whose delay or run_at is in the future is scheduled, any other waiting.
        - Inserting the same id again changes nothing and counts as inserted.
        - A fingerprint taken by a live job of the same namespace and queue yields that job
          ("return"), raises ``FingerprintTaken`` with nothing written ("raise"), or cancels that
          job, taking its claim away, and inserts ("replace"). Within one call too.
        - A fingerprint is free again once its job is finished.
        - A deadline that is not after the store's now raises ``InvalidInput``, and so does any
          time so far away that some backend could not read it back.
        """

    @abstractmethod
    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lease up to ``limit`` waiting jobs of the partitions, lowest rank first, then oldest id.

        - Gives a job to one worker at a time, and increments its epoch and attempt.
        - Takes nothing of a paused queue, of another namespace, or of another partition.
        - Skips a job that this worker failed, until its hold-off ends.
        - Never exceeds a rule under concurrent claims: live jobs under a key are those claimed
          with an unexpired lease; starts are counted in a sliding window.
        - Returns when a limit opens by itself, if one blocked a job.
        """

    @abstractmethod
    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        """Write outcomes, each under its claim's fence; answer the new status, or None if stale.

        - A claim that is not current writes nothing, and does not stop the others.
        - Nor does an outcome that would end the job of a node: only a commit of its run may.
        - An aborting job ends cancelled whatever its outcome.
        - Completed keeps the output and sets progress to 100.
        - Retried, Failed and DeadLettered keep the failure in the job's history.
        - Retried moves the rank with the time it is ready again, and holds its worker off.
        - Retried counts a failure, or a snooze, and closes the limit it names.
        - A time out of range is clamped to what every backend can read back.
        - Failed and DeadLettered count a failure too: the last one.
        - Requeued and Parked give the attempt back; Requeued keeps the rank, and may name another
          partition. With a delay it is scheduled, and its rank moves as that of a retried job.
        - A hidden job is invisible to readers, but not to its waiters.
        """

    @abstractmethod
    async def settle_parked(self, settlement: Settlement, worker: WorkerId) -> Status | None:
        """Write the outcome of a parked job; None, and nothing written, if it cannot be.

        - The claim is the last one of the job, under which it was parked. Like any other claim,
          that of ``worker``, which settles it, counts an attempt and makes earlier claims stale.
        - Settles no job of a run, and none that was resumed since.
        """

    @abstractmethod
    async def resume_parked(self, claim: Claim, step: StoredStep) -> bool:
        """Requeue a job that was parked under this claim, and store a step of it.

        - Answers False and writes nothing for a job of a run, and for one that was resumed since.
        """

    @abstractmethod
    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        """Extend the leases of these claims; return which are lost or asked to stop.

        - A claim that is not current is lost, and its row untouched. The answer says whether
          the job is disabled now.
        - An aborting job is renewed and reported.
        """

    @abstractmethod
    async def check(self, claims: Sequence[Claim]) -> Renewal:
        """Like ``renew``, without writing anything."""

    @abstractmethod
    async def save_progress(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        """Store the latest progress of claimed jobs; that of a stale claim is ignored."""

    @abstractmethod
    async def requeue_unknown(
        self, worker: WorkerId, known: Sequence[JobId], incarnation: int | None = None
    ) -> int:
        """Requeue jobs that this worker claimed without learning of it: the response was lost.

        - Leaves the jobs that another incarnation of the worker claimed.
        """

    @abstractmethod
    async def move_start(self, claim: Claim, within: timedelta) -> bool:
        """Count the start of a claimed job now instead of when it was counted last.

        - Only within ``within`` of that count: later, another job may have taken its place. If it
          is too late, the answer is False, and the job no longer counts under its limits.
        - Answers False and changes nothing if the claim is not current or under no limit.
        """
