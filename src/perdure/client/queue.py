"""The job queue for custom workers. Every outcome is fenced by its claim."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from perdure.client.facade import OpenableFacade, sync
from perdure.clock import new_id
from perdure.diagnostics import declare
from perdure.engine.failures import describe, too_many_crashes
from perdure.engine.retry import Budget, after_error
from perdure.errors import ClaimLost, InvalidInput
from perdure.model import check
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import (
    DEFAULT_NAMESPACE,
    DEFAULT_QUEUE,
    Claim,
    ClaimedJob,
    Job,
    NewJob,
    Status,
)
from perdure.model.outcome import Completed, DeadLettered, Outcome, Parked, Settlement
from perdure.model.partition import Partition, suspicion_in
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec, from_json
from perdure.model.retry import Retry
from perdure.model.times import Duration
from perdure.model.value import Value
from perdure.model.wait import answer_step
from perdure.operations.backend import Backend
from perdure.operations.jobs import Jobs, job_id, parked_job
from perdure.operations.live import publish_settled
from perdure.operations.page import page_size
from perdure.operations.queues import next_jobs, queue_stats, waiting_partitions
from perdure.operations.records import JobChange, JobRecord, QueueStats, decoded
from perdure.store.admission import AGING_DEFAULT
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.tasks.calls import JobDefaults, payload_job
from perdure.tasks.options import JobOptions

ATTEMPTS_DEFAULT = 3
MAX_CRASHES = 3
"""Expired leases of a job that its worker had alone, after which it is dead-lettered."""
MAINTENANCE_BATCH = 1_000
NOT_A_JOB = declare(
    "queue.not_a_job",
    "expected a job returned by dequeue(), or the id of a parked one (got {value!r})",
)


class QueuedJob(Value):
    """A claimed job. Ack, nack or release it before its lease expires."""

    claimed: ClaimedJob
    worker: WorkerId
    lease: timedelta
    codec: Codec
    answer: Any = None
    """The data that it was resumed with, if it was parked."""

    @property
    def id(self) -> JobId:
        return self.claimed.claim.id

    @property
    def claim(self) -> Claim:
        return self.claimed.claim

    @property
    def claim_epoch(self) -> int:
        """The fencing token: incremented by each claim; writes with an older one are rejected."""
        return self.claimed.claim.epoch

    @property
    def task(self) -> str:
        return self.claimed.partition.task

    @property
    def queue(self) -> str:
        return self.claimed.partition.queue

    @property
    def attempt(self) -> int:
        return self.claimed.attempt

    @property
    def payload(self) -> Any:
        """The enqueued payload; for a task call, its first argument."""
        args, _ = decoded(self.claimed.input, self.codec)
        return args[0] if args else None


class AsyncJobQueue:
    """Enqueue, claim and settle jobs manually. Opens its store on first use, or with ``async
    with``.

    Task names need no registration. Limits are not applied; only :class:`Worker` enforces them.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        payload_max_bytes: int = PAYLOAD_MAX_BYTES,
        codec: Codec | None = None,
    ) -> None:
        self._backend = Backend(
            store, namespace=namespace, codec=codec, payload_max_bytes=payload_max_bytes
        )
        self._backend.require_namespace("JobQueue")
        self._id = WorkerId(f"{socket.gethostname()}-{os.getpid()}-{new_id()[-6:]}")
        """Settles parked jobs, which no worker holds."""
        self._held: dict[WorkerId, dict[Claim, ClaimedJob]] = {}
        """Jobs that each worker got here and may still be working on."""

    def __repr__(self) -> str:
        return f"<AsyncJobQueue at {self.store_url}, {self.namespace!r}>"

    @property
    def namespace(self) -> str:
        return self._backend.namespace

    @property
    def store_url(self) -> str:
        """The store's URL, without the password."""
        return self._backend.place.url

    async def open(self) -> Self:
        """Connect now instead of on first use, and create or upgrade the tables."""
        await self._backend.store()
        return self

    async def close(self) -> None:
        """Close connections."""
        await self._backend.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        found_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Methods that encode values are not `async def`: the sync queue encodes on the caller's thread.

    def enqueue(
        self, task: str, payload: Any, **options: Unpack[JobOptions]
    ) -> Coroutine[Any, Any, JobId]:
        """Enqueue a job and return its id, or that of the live job with the same fingerprint.

        Defaults to priority 3 and three attempts.
        """
        defaults = JobDefaults(
            namespace=self.namespace,
            aging=AGING_DEFAULT,
            task=check.name(task, "task"),
            max_attempts=ATTEMPTS_DEFAULT,
        )
        id = JobId(new_id())
        return self._insert(payload_job(id, defaults, payload, options, self._backend.storing))

    async def _insert(self, job: NewJob) -> JobId:
        store = await self._backend.store()
        [inserted] = await store.jobs.insert([job])
        return inserted.id

    async def dequeue(
        self,
        worker_id: str,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        tasks: Sequence[str] | None = None,
        lease: Duration = "5m",
    ) -> QueuedJob | None:
        """Claim the most urgent waiting job of the queues, or return None.

        Nodes of runs are left to workers that have their flow: only a run can settle its nodes.
        The claim is valid until ``lease`` has passed since the last heartbeat. A job whose lease
        expired may have crashed its worker: it is claimed only by a worker that has no other job,
        and until it is settled that worker gets no other.
        """
        worker = WorkerId(check.name(worker_id, "worker_id"))
        duration = check.span(lease, "lease", is_positive=True)
        store = await self._backend.store()
        partitions = await self._partitions(store, queues, tasks)
        held = self._held.setdefault(worker, {})
        if held:
            lost = (await store.jobs.check(list(held))).lost
            for claim in [claim for claim in held if claim.id in lost]:
                del held[claim]
        if any(job.suspicion.crashes for job in held.values()):
            return None
        if held:
            partitions = [each for each in partitions if not suspicion_in(each.partition).crashes]
        while partitions:
            claimed = await store.jobs.claim(
                ClaimRequest(
                    namespace=self.namespace,
                    worker=worker,
                    partitions=partitions,
                    limit=1,
                    lease=duration,
                    is_alone=not held,
                )
            )
            if not claimed.jobs:
                return None
            [job] = claimed.jobs
            if job.suspicion.alone < MAX_CRASHES:
                held[job.claim] = job
                return QueuedJob(
                    claimed=job,
                    worker=worker,
                    lease=duration,
                    codec=self._backend.codec,
                    answer=await self._answer(store, job),
                )
            outcome = DeadLettered(failure=too_many_crashes(job))
            await store.jobs.settle([Settlement(claim=job.claim, outcome=outcome)])
        return None

    async def _answer(self, store: Store, job: ClaimedJob) -> Any:
        """The data that the job was last resumed with."""
        if job.claim.epoch == 1:  # never claimed before
            return None
        steps = {step.name: step.value for step in await store.runs.load_steps(job.claim.id)}
        for epoch in range(job.claim.epoch - 1, 0, -1):
            if (data := steps.get(answer_step(epoch))) is not None:
                return from_json(self._backend.codec.decode(data))
        return None

    # A parked job has no claim: any caller with its id may settle it.

    def ack(self, job: QueuedJob | str, result: Any = None) -> Coroutine[Any, Any, Status]:
        """Complete a job and return its status, which is cancelled if it was aborted meanwhile.

        Takes the claimed job, or the id of a parked one.
        """
        id = _checked(job)
        data = self._backend.codec.encode(self._backend.json(result, f"the result of job {id}"))
        return self._settle(job, lambda _: Completed(output=data))

    async def nack(
        self,
        job: QueuedJob | str,
        error: BaseException | str,
        *,
        delay: Duration | None = None,
    ) -> Status:
        """Report a failure. Retries wait for ``delay``, by default 1 s, 2 s, 4 s … up to 5 minutes;
        without attempts left, the job is dead. ``Permanent`` and ``RetryLater`` work as in a task.

        Takes the claimed job, or the id of a parked one.
        """
        _checked(job)
        fixed = check.optional(check.span, delay, "delay")
        raised = error if isinstance(error, BaseException) else Exception(error)

        def outcome(job: ClaimedJob | Job) -> Outcome:
            retries = (job.max_attempts or ATTEMPTS_DEFAULT) - 1
            policy = Retry(retries, first="1s", factor=2, max="5m", jitter=False)
            if fixed is not None:
                policy = Retry(retries, first=fixed, factor=1, max=fixed, jitter=False)
            return after_error(job, raised, describe(raised), Budget(policy=policy), 0)

        return await self._settle(job, outcome)

    async def release(self, job: QueuedJob | str) -> Status:
        """Park a job as paused until it is resumed, without using up an attempt.

        Takes the claimed job, or the id of a parked one, which stays parked.
        """
        _checked(job)
        return await self._settle(job, lambda _: Parked())

    async def heartbeat(self, job: QueuedJob, extend: Duration | None = None) -> Status:
        """Renew the lease, or set it to ``extend``. The status ``aborting`` asks you to stop."""
        lease = check.optional(check.span, extend, "extend", is_positive=True) or job.lease
        store = await self._backend.store()
        renewal = await store.jobs.renew(job.worker, [job.claim], lease)
        if job.id in renewal.lost:
            raise ClaimLost(job_id=job.id, epoch=job.claim_epoch)
        return Status.ABORTING if job.id in renewal.aborting else Status.ACTIVE

    def resume(self, id: str, data: Any = None) -> Coroutine[Any, Any, JobChange]:
        """Requeue a parked job, with data that its next claim has as ``answer``."""
        return Jobs(self._backend).resume(id, data=data)

    async def peek(
        self,
        n: int = 1,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        tasks: Sequence[str] | None = None,
    ) -> list[Job]:
        """Return the jobs that ``dequeue`` would claim next, in that order, without values."""
        store, is_wanted = await self._backend.store(), _wanted(queues, tasks)
        return await next_jobs(store, self.namespace, page_size(n, "n"), is_wanted)

    async def reclaim_expired(self) -> int:
        """Requeue this namespace's jobs whose lease expired, and return how many.

        This uses up no attempt, but makes a job a suspect, which only a worker without another job
        gets. If the lease of a suspect expires three times, the next ``dequeue`` dead-letters it.
        """
        store = await self._backend.store()
        count = 0
        while taken := await store.maintenance.take_over_expired(self.namespace, MAINTENANCE_BATCH):
            count += len(taken)
        return count

    async def get_job(self, id: str) -> JobRecord:
        """Return one job with its payload and its result."""
        return await Jobs(self._backend).get(id)

    async def stats(self) -> list[QueueStats]:
        """Return how many jobs are in each status, by queue."""
        store = await self._backend.store()
        return queue_stats(await store.admin.queue_stats(self.namespace), [])

    async def _settle(
        self, job: QueuedJob | str, outcome: Callable[[ClaimedJob | Job], Outcome]
    ) -> Status:
        store = await self._backend.store()
        if isinstance(job, str):
            return await self._settle_parked(store, JobId(job), outcome)
        decided = outcome(job.claimed)
        [status] = await store.jobs.settle([Settlement(claim=job.claim, outcome=decided)])
        self._held.get(job.worker, {}).pop(job.claim, None)
        if status is None:
            raise ClaimLost(job_id=job.id, epoch=job.claim_epoch)
        await publish_settled(self._backend, job.claimed, decided, status, job.worker)
        return status

    async def _settle_parked(
        self, store: Store, id: JobId, outcome: Callable[[ClaimedJob | Job], Outcome]
    ) -> Status:
        while True:
            job = await parked_job(store, self.namespace, id)
            decided = outcome(job)
            if isinstance(decided, Parked):
                return Status.PAUSED
            settlement = Settlement(claim=Claim(id=id, epoch=job.epoch), outcome=decided)
            status = await store.jobs.settle_parked(settlement, self._id)
            if status is not None:
                await publish_settled(self._backend, job, decided, status)
                return status

    async def _partitions(
        self, store: Store, queues: Sequence[str], tasks: Sequence[str] | None
    ) -> list[PartitionClaim]:
        """Promote due jobs, then return the partitions with waiting jobs."""
        is_wanted = _wanted(queues, tasks)
        poll = await store.maintenance.poll(self.namespace)
        if poll.next_deadline_at is not None and poll.next_deadline_at <= poll.now:
            await store.maintenance.expire_deadlines(self.namespace, MAINTENANCE_BATCH)
        if poll.next_due_at is not None and poll.next_due_at <= poll.now:
            await store.maintenance.promote_due(self.namespace, MAINTENANCE_BATCH)
            poll = await store.maintenance.poll(self.namespace)
        return [
            PartitionClaim(partition=text, queue=partition.queue)
            for text, partition in await waiting_partitions(store, self.namespace, poll)
            if is_wanted(partition)
        ]


def _wanted(queues: Sequence[str], tasks: Sequence[str] | None) -> Callable[[Partition], bool]:
    """Whether a partition has plain jobs of these queues and tasks."""
    names = check.names(queues, "queues")
    wanted = check.optional(check.names, tasks, "tasks")
    return lambda partition: (
        not partition.flow
        and partition.queue in names
        and (wanted is None or partition.task in wanted)
    )


def _checked(job: Any) -> JobId:
    """The id of a claimed job, or the id itself."""
    if isinstance(job, QueuedJob):
        return job.id
    if not isinstance(job, str):
        raise InvalidInput(NOT_A_JOB.fault(("job",), value=job))
    return job_id(job)


class JobQueue(OpenableFacade[AsyncJobQueue]):
    """The sync form of :class:`AsyncJobQueue`. Thread-safe."""

    def __init__(
        self,
        store: str | Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        payload_max_bytes: int = PAYLOAD_MAX_BYTES,
        codec: Codec | None = None,
    ) -> None:
        super().__init__(
            AsyncJobQueue(
                store, namespace=namespace, payload_max_bytes=payload_max_bytes, codec=codec
            )
        )

    enqueue = sync(AsyncJobQueue.enqueue)
    dequeue = sync(AsyncJobQueue.dequeue)
    ack = sync(AsyncJobQueue.ack)
    nack = sync(AsyncJobQueue.nack)
    release = sync(AsyncJobQueue.release)
    heartbeat = sync(AsyncJobQueue.heartbeat)
    resume = sync(AsyncJobQueue.resume)
    peek = sync(AsyncJobQueue.peek)
    reclaim_expired = sync(AsyncJobQueue.reclaim_expired)
    get_job = sync(AsyncJobQueue.get_job)
    stats = sync(AsyncJobQueue.stats)
