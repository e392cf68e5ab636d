"""What can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

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
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.worker import WorkerState
from perdure.store.contract import ReadStore
from perdure.store.sql.statements import fill
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.limits import limit_uses
from perdure.store.sqlite.rows import (
    as_json,
    attempt_from,
    job_from,
    queue_from,
    state_from,
    worker_from,
)
from perdure.store.sqlite.statements import statements_of
from perdure.store.sqlite.transaction import Transaction

_AFTER_ALL_IDS = "\U0010ffff"


class SqliteReads(Handle, ReadStore):
    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        rows = await self._rows("get_job", namespace=namespace, id=id)
        return job_from(rows[0]) if rows else None

    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        text = statement_for(self._place.prefix, "list_jobs", filter)
        rows = await self._read(
            lambda transaction: transaction.rows_of(text, **_parameters(filter), limit=limit)
        )
        return [job_from(row) for row in rows]

    async def count_jobs(self, filter: JobFilter) -> int:
        prefix = self._place.prefix
        return await self._read(lambda transaction: _count(transaction, prefix, filter))

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
        return await self._read(lambda transaction: _workers(transaction, namespace))

    async def limit_uses(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        return await self._read(lambda transaction: limit_uses(transaction, namespace, rules))


def _count(transaction: Transaction, prefix: str, filter: JobFilter) -> int:
    """Count by the index that knows the answer without a look at the rows, where there is one."""
    if filter.group is None and filter.before is None:
        if filter.status is None:
            each = (replace(filter, status=status) for status in Status)
            return sum(_count(transaction, prefix, part) for part in each)
        if filter.status is Status.WAITING:
            return _counted(transaction, transaction.sql["count_waiting"], filter)
        if filter.status in FINISHED:
            return _counted(transaction, transaction.sql["count_finished"], filter)
    return _counted(transaction, statement_for(prefix, "count_listed", filter), filter)


def _counted(transaction: Transaction, text: str, filter: JobFilter) -> int:
    [(count,)] = transaction.rows_of(text, **_parameters(filter))
    return int(count)


def _workers(transaction: Transaction, namespace: str | None) -> list[WorkerState]:
    running: dict[str, list[JobId]] = {}
    for worker, id in transaction.rows("held_jobs"):
        running.setdefault(worker, []).append(id)
    rows = transaction.rows("workers", namespace=namespace)
    return [worker_from(row, running.get(row[0], ())) for row in rows]


def statement_for(prefix: str, name: str, filter: JobFilter) -> str:
    """The text of a listing or counting statement, by the index that serves the filter best."""
    if filter.group is not None:
        return _completed(prefix, name, "job.job_group = :group")
    return _completed(prefix, name, "TRUE" if filter.status is None else "job.status = :status")


@lru_cache(maxsize=256)
def _completed(prefix: str, name: str, where: str) -> str:
    return fill(statements_of(prefix)[name], {"where": where})


def _parameters(filter: JobFilter) -> dict[str, Any]:
    return {
        "namespace": filter.namespace,
        "status": filter.status,
        "queue": filter.queue,
        "task": filter.task,
        "group": filter.group,
        "before": filter.before or _AFTER_ALL_IDS,
    }
