"""The queue as such, for people who write their own worker. Every settle is fenced by its claim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Unpack

from perdure.client.access import Access, Openable
from perdure.client.face import OpenableFace, mirrors, waits_for
from perdure.client.records import Depth, JobRecord, changed_by, record_of
from perdure.client.results import decoded
from perdure.clock import new_id
from perdure.engine.failures import Budget, after_error, describe
from perdure.errors import JobNotFound, StaleClaim
from perdure.model import check
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import (
    DEFAULT_NAMESPACE,
    DEFAULT_QUEUE,
    Claim,
    ClaimedJob,
    Status,
    StatusChange,
)
from perdure.model.outcome import Completed, Outcome, Released, Settlement
from perdure.model.partition import Lane
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec, to_json
from perdure.model.retry import Retry
from perdure.model.times import Duration
from perdure.model.value import Value
from perdure.store.admission import AGING_DEFAULT
from perdure.store.contract import SURVEY_LANES_MAX, ClaimRequest, LaneRequest, Store
from perdure.store.lifecycle import Operation
from perdure.tasks.calls import JobDefaults, payload_job
from perdure.tasks.options import JobOptions

ATTEMPTS_DEFAULT = 3
DEATHS_MAX = 3
"""Expired leases that send a job to the dead letter as a poison pill."""
HOUSEKEEPING_BATCH = 1_000


class QueuedJob(Value):
    """A job that its worker holds until the lease ends: ack, nack or release it before that."""

    claimed: ClaimedJob
    worker: WorkerId
    lease: timedelta
    codec: Codec

    @property
    def id(self) -> JobId:
        return self.claimed.claim.id

    @property
    def claim(self) -> Claim:
        return self.claimed.claim

    @property
    def claim_epoch(self) -> int:
        """Raised by every claim of the job; writes under an older one are refused."""
        return self.claimed.claim.epoch

    @property
    def kind(self) -> str:
        return self.claimed.lane.task

    @property
    def queue(self) -> str:
        return self.claimed.lane.queue

    @property
    def attempt(self) -> int:
        return self.claimed.attempt

    @property
    def payload(self) -> Any:
        """What it was enqueued with; for a call of a task, its first argument."""
        args, _ = decoded(self.claimed.input, self.codec)
        return args[0] if args else None


class AsyncJobQueue(Openable):
    """Enqueue, claim and settle jobs by hand. Opens its store on first use, or with ``async with``.

    A ``kind`` is a task's name, and needs no registration here. Limits are not applied: they
    belong to :class:`Worker`.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        payload_max_bytes: int = PAYLOAD_MAX_BYTES,
        codec: Codec | None = None,
    ) -> None:
        super().__init__(Access(store, namespace, codec, payload_max_bytes))
        self._access.own("JobQueue")

    async def enqueue(self, kind: str, payload: Any, **options: Unpack[JobOptions]) -> JobId:
        """Add a job; its id, or that of the live job with the same fingerprint.

        Priority 3 and three attempts unless the options say otherwise.
        """
        defaults = JobDefaults(
            namespace=self.namespace,
            aging=AGING_DEFAULT,
            task=check.name(kind, "kind"),
            max_attempts=ATTEMPTS_DEFAULT,
        )
        id = JobId(new_id())
        job = payload_job(id, defaults, payload, options, self._access.storing)
        store = await self._access.store.opened()
        [inserted] = await store.jobs.insert([job])
        return inserted.id

    async def dequeue(
        self,
        worker_id: str,
        *,
        queues: Sequence[str] = (DEFAULT_QUEUE,),
        kinds: Sequence[str] | None = None,
        lease: Duration = "5m",
    ) -> QueuedJob | None:
        """Claim the most urgent waiting job of the queues, or None if there is none.

        It is this worker's until ``lease`` has passed since the last heartbeat.
        """
        worker = WorkerId(check.name(worker_id, "worker_id"))
        duration = check.span(lease, "lease", is_positive=True)
        store = await self._access.store.opened()
        lanes = await self._lanes(store, check.names(queues, "queues"), kinds)
        if not lanes:
            return None
        claimed = await store.jobs.claim(
            ClaimRequest(
                namespace=self.namespace, worker=worker, lanes=lanes, limit=1, lease=duration
            )
        )
        for job in claimed.jobs:
            return QueuedJob(claimed=job, worker=worker, lease=duration, codec=self._access.codec)
        return None

    async def ack(self, job: QueuedJob, result: Any = None) -> Status:
        """Complete a job. Its status afterwards: cancelled if it was aborted meanwhile."""
        what = f"the result of job {job.id}"
        data = to_json(result, what, self._access.storing.payload_max_bytes)
        return await self._settle(job, Completed(output=self._access.codec.encode(data)))

    async def nack(self, job: QueuedJob, error: BaseException | str) -> Status:
        """Report a failure. Tried again after 1 s, 2 s, 4 s … up to 5 minutes, while attempts
        remain; then it is dead. ``Permanent`` and ``RetryLater`` count as they do in a task."""
        if not isinstance(error, BaseException):
            error = Exception(error)
        retries = (job.claimed.max_attempts or ATTEMPTS_DEFAULT) - 1
        budget = Budget(policy=Retry(retries, first="1s", factor=2, max="5m", jitter=False))
        return await self._settle(job, after_error(job.claimed, error, describe(error), budget, 0))

    async def release(self, job: QueuedJob) -> Status:
        """Park a job as paused until it is resumed; it does not cost an attempt."""
        return await self._settle(job, Released())

    async def heartbeat(self, job: QueuedJob, extend: Duration | None = None) -> Status:
        """Hold a job for another lease, or for ``extend``. ``aborting`` asks you to stop."""
        lease = check.optional(check.span, extend, "extend", is_positive=True) or job.lease
        store = await self._access.store.opened()
        renewal = await store.jobs.renew(job.worker, [job.claim], lease)
        if job.id in renewal.lost:
            raise StaleClaim(job_id=job.id, epoch=job.claim_epoch)
        return Status.ABORTING if job.id in renewal.aborting else Status.ACTIVE

    async def resume(self, id: str) -> StatusChange:
        """Put a released job back into the queue."""
        job_id = JobId(check.name(id, "id", label="job id"))
        store = await self._access.store.opened()
        moved = await store.admin.change_jobs(Operation.RESUME, self.namespace, [job_id])
        return changed_by(Operation.RESUME, job_id, moved)

    async def reclaim_expired(self) -> int:
        """Take this namespace's jobs from workers whose lease ran out; how many.

        They wait again without having used up an attempt; the third time a job is dead.
        """
        store = await self._access.store.opened()
        count = 0
        while taken := await store.maintenance.take_over_expired(
            self.namespace, HOUSEKEEPING_BATCH, DEATHS_MAX
        ):
            count += len(taken)
        return count

    async def get_job(self, id: str) -> JobRecord:
        job_id = JobId(check.name(id, "id", label="job id"))
        store = await self._access.store.opened()
        job = await store.queries.get_job(self.namespace, job_id)
        if job is None:
            raise JobNotFound(job_id=id)
        return record_of(job, self._access.codec)

    async def depth(self) -> Depth:
        """How many jobs are in each status, by queue and in total."""
        store = await self._access.store.opened()
        return Depth(entries=tuple(await store.admin.queue_stats(self.namespace)))

    async def _settle(self, job: QueuedJob, outcome: Outcome) -> Status:
        store = await self._access.store.opened()
        [status] = await store.jobs.settle([Settlement(claim=job.claim, outcome=outcome)])
        if status is None:
            raise StaleClaim(job_id=job.id, epoch=job.claim_epoch)
        return status

    async def _lanes(
        self, store: Store, queues: Sequence[str], kinds: Sequence[str] | None
    ) -> list[LaneRequest]:
        """The lanes with waiting jobs that are asked for, once what is due has been seen to."""
        wanted_kinds = check.optional(check.names, kinds, "kinds")
        survey = await store.maintenance.poll(self.namespace)
        if survey.next_deadline_at is not None and survey.next_deadline_at <= survey.now:
            await store.maintenance.expire_deadlines(self.namespace, HOUSEKEEPING_BATCH)
        if survey.next_due_at is not None and survey.next_due_at <= survey.now:
            await store.maintenance.promote_due(self.namespace, HOUSEKEEPING_BATCH)
            survey = await store.maintenance.poll(self.namespace)
        texts = list(survey.lanes)
        while len(survey.lanes) == SURVEY_LANES_MAX:
            survey = await store.maintenance.poll(self.namespace, survey.lanes[-1])
            texts += survey.lanes
        lanes = [(text, Lane.parse(text)) for text in texts]
        return [
            LaneRequest(lane=text, queue=lane.queue)
            for text, lane in lanes
            if lane.queue in queues and (wanted_kinds is None or lane.task in wanted_kinds)
        ]


class JobQueue(OpenableFace[AsyncJobQueue]):
    """The same for blocking code, usable from many threads at once."""

    @mirrors(AsyncJobQueue.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncJobQueue(*args, **kwargs))

    enqueue = waits_for(AsyncJobQueue.enqueue)
    dequeue = waits_for(AsyncJobQueue.dequeue)
    ack = waits_for(AsyncJobQueue.ack)
    nack = waits_for(AsyncJobQueue.nack)
    release = waits_for(AsyncJobQueue.release)
    heartbeat = waits_for(AsyncJobQueue.heartbeat)
    resume = waits_for(AsyncJobQueue.resume)
    reclaim_expired = waits_for(AsyncJobQueue.reclaim_expired)
    get_job = waits_for(AsyncJobQueue.get_job)
    depth = waits_for(AsyncJobQueue.depth)
