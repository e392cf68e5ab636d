"""What can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from perdure.model.ids import JobId
from perdure.model.job import (
    FINISHED,
    FailedAttempt,
    Job,
    JobFilter,
    JobState,
    QueueDepth,
    QueueInfo,
    Status,
)
from perdure.model.worker import WorkerState
from perdure.store.contract import ReadStore
from perdure.store.sql.statements import fill
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.rows import (
    Row,
    as_json,
    attempt_from,
    job_from,
    queue_from,
    state_from,
    worker_from,
)
from perdure.store.sqlite.transaction import Transaction

_AFTER_ALL_IDS = "\U0010ffff"

# The terms in which each status is found by a partial index; the planner needs them spelled out.
_CONDITIONS = {
    Status.WAITING: "job.status = 'waiting'",
    Status.SCHEDULED: "job.status = 'scheduled'",
    Status.ACTIVE: "job.lease_until IS NOT NULL",
    Status.ABORTING: "job.lease_until IS NOT NULL",
    Status.PAUSED: "job.status IN ('paused', 'disabled')",
    Status.DISABLED: "job.status IN ('paused', 'disabled')",
} | dict.fromkeys(FINISHED, "job.finished_at IS NOT NULL AND job.status = :status")


class SqliteReads(Handle, ReadStore):
    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        rows = await self._rows("get_job", namespace=namespace, id=id)
        return job_from(rows[0]) if rows else None

    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        def list_jobs(transaction: Transaction) -> Sequence[Row]:
            text = _text(transaction, "list_jobs", filter)
            return transaction.rows_of(text, **_parameters(filter), limit=limit)

        return [job_from(row) for row in await self._read(list_jobs)]

    async def count_jobs(self, filter: JobFilter) -> int:
        return await self._read(lambda transaction: _count(transaction, filter))

    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        rows = await self._rows("job_states", ids=as_json(list(ids)))
        states = [state_from(row) for row in rows]
        return {state.id: state for state in states}

    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        rows = await self._rows("failed_attempts", id=id)
        return [attempt_from(row) for row in rows]

    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        rows = await self._rows(
            "find_result", namespace=namespace, task=task, input_hash=input_hash, input=input
        )
        return rows[0][0] if rows else None

    async def depth(self, namespace: str | None) -> list[QueueDepth]:
        rows = await self._rows("depth", namespace=namespace)
        return [
            QueueDepth(namespace=place, queue=queue, status=Status(status), count=count)
            for place, queue, status, count in rows
        ]

    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]:
        rows = await self._rows("paused_queues", namespace=namespace)
        return [queue_from(row) for row in rows]

    async def workers(self, namespace: str | None) -> list[WorkerState]:
        rows = await self._rows("workers", namespace=namespace)
        return [worker_from(row) for row in rows]


def _count(transaction: Transaction, filter: JobFilter) -> int:
    """Count by the index that knows the answer, where there is one."""
    if filter.group is not None or filter.before is not None:
        return _counted(transaction, _text(transaction, "count_listed", filter), filter)
    if filter.status is None:
        return sum(_count(transaction, _with_status(filter, status)) for status in Status)
    if filter.status is Status.WAITING:
        return _counted(transaction, transaction.sql["count_waiting"], filter)
    if filter.status in FINISHED:
        return _counted(transaction, transaction.sql["count_finished"], filter)
    return _counted(transaction, _text(transaction, "count_listed", filter), filter)


def _counted(transaction: Transaction, text: str, filter: JobFilter) -> int:
    [(count,)] = transaction.rows_of(text, **_parameters(filter))
    return int(count)


def _with_status(filter: JobFilter, status: Status) -> JobFilter:
    return JobFilter(
        namespace=filter.namespace, status=status, queue=filter.queue, task=filter.task
    )


def _text(transaction: Transaction, name: str, filter: JobFilter) -> str:
    if filter.group is not None:
        return _completed(transaction.sql[name], "job.job_group = :group")
    if filter.status is not None:
        return _completed(transaction.sql[name], _CONDITIONS[filter.status])
    return _completed(transaction.sql[name], "TRUE")


@lru_cache(maxsize=256)
def _completed(text: str, where: str) -> str:
    return fill(text, {"where": where})


def _parameters(filter: JobFilter) -> dict[str, Any]:
    return {
        "namespace": filter.namespace,
        "status": filter.status,
        "queue": filter.queue,
        "task": filter.task,
        "group": filter.group,
        "before": filter.before or _AFTER_ALL_IDS,
    }
