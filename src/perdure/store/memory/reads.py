"""What can be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from perdure.model.ids import JobId
from perdure.model.job import (
    FailedAttempt,
    Job,
    JobFilter,
    JobState,
    QueueDepth,
    QueueInfo,
)
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.worker import WorkerState
from perdure.store.contract import ReadStore
from perdure.store.memory.limits import limit_use
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.transaction import Handle, Transaction


class MemoryReads(Handle, ReadStore):
    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        with self._transaction() as transaction:
            for job in transaction.visible(namespace, [id]):
                return job.as_job(with_values=True)
            return None

    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        with self._transaction() as transaction:
            page = islice(_newest_first(transaction, filter), limit)
            return [job.as_job(with_values=False) for job in page]

    async def count_jobs(self, filter: JobFilter) -> int:
        with self._transaction() as transaction:
            return sum(1 for _ in _newest_first(transaction, filter))

    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        with self._transaction() as transaction:
            jobs = transaction.state.jobs
            return {id: jobs[id].as_state() for id in ids if id in jobs}

    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        with self._transaction() as transaction:
            job = transaction.state.jobs.get(id)
            return [] if job is None else list(job.history)

    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        with self._transaction() as transaction:
            latest_first = reversed(transaction.state.results.ids(input_hash))
            for job in transaction.visible(namespace, list(latest_first)):
                if (job.lane.task, job.input) == (task, input):
                    return job.output
            return None

    async def depth(self, namespace: str | None) -> list[QueueDepth]:
        with self._transaction() as transaction:
            jobs = _newest_first(transaction, JobFilter(namespace=namespace))
            counts = Counter((job.namespace, job.lane.queue, job.status) for job in jobs)
            return [
                QueueDepth(namespace=place, queue=queue, status=status, count=count)
                for (place, queue, status), count in sorted(counts.items())
            ]

    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]:
        with self._transaction() as transaction:
            pauses = sorted(transaction.state.paused.items())
            return [pause for (place, _), pause in pauses if namespace in (None, place)]

    async def workers(self, namespace: str | None) -> list[WorkerState]:
        with self._transaction() as transaction:
            records = sorted(
                transaction.state.workers.values(),
                key=lambda record: (record.started_at, record.info.id),
            )
            return [
                WorkerState(
                    info=record.info,
                    started_at=record.started_at,
                    seen_at=record.seen_at,
                    running=tuple(transaction.state.by_worker.ids(record.info.id)),
                )
                for record in records
                if namespace in (None, record.info.namespace)
            ]

    async def limit_uses(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        with self._transaction() as transaction:
            return [limit_use(transaction, namespace, rule) for rule in rules]


def _newest_first(transaction: Transaction, filter: JobFilter) -> Iterator[StoredJob]:
    for _, id in reversed(transaction.state.by_id.entries()):
        job = transaction.state.jobs[id]
        if not job.is_dropped and _matches(job, filter):
            yield job


def _matches(job: StoredJob, filter: JobFilter) -> bool:
    return (
        filter.namespace in (None, job.namespace)
        and filter.status in (None, job.status)
        and filter.queue in (None, job.lane.queue)
        and filter.task in (None, job.lane.task)
        and filter.group in (None, job.group)
        and (filter.before is None or job.id < filter.before)
    )
