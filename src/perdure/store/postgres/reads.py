"""What can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perdure.model.ids import JobId
from perdure.model.job import (
    FailedAttempt,
    Job,
    JobFilter,
    JobState,
    QueueDepth,
    QueueInfo,
    Status,
)
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.worker import WorkerInfo, WorkerState
from perdure.store.contract import ReadStore
from perdure.store.postgres.access import Access
from perdure.store.postgres.limits import limit_use
from perdure.store.postgres.rows import STATUS_OF, failed_attempt, job, job_state
from perdure.store.sql.statements import fill

_LISTED_IN_ORDER = frozenset(
    {Status.FAILED, Status.DEAD, Status.CANCELLED, Status.DISABLED, Status.PAUSED}
)
"""What the index for operators holds, in the order of ids."""


class PostgresReads(Access, ReadStore):
    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        for row in await self._fetch("get_job", namespace, id):
            return job(row)
        return None

    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        is_in_order = filter.status is None or filter.status in _LISTED_IN_ORDER
        name = "list_jobs" if is_in_order else "list_jobs_by_status"
        statement, arguments = filtered(self._statements[name], filter, after=1)
        return [job(row) for row in await self._connections.fetch(statement, limit, *arguments)]

    async def count_jobs(self, filter: JobFilter) -> int:
        statement, arguments = filtered(self._statements["count_jobs"], filter)
        count: int = (await self._scan(statement, *arguments))[0][0]
        return count

    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        rows = await self._fetch("job_states", list(ids))
        return {row[0]: job_state(row) for row in rows}

    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        return [failed_attempt(row) for row in await self._fetch("failed_attempts", id)]

    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        for row in await self._fetch("find_result", namespace, task, input_hash, input):
            output: bytes = row[0]
            return output
        return None

    async def depth(self, namespace: str | None) -> list[QueueDepth]:
        return [
            QueueDepth(namespace=row[0], queue=row[1], status=STATUS_OF[row[2]], count=row[3])
            for row in await self._scan(self._statements["depth"], namespace)
        ]

    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]:
        return [
            QueueInfo(namespace=row[0], queue=row[1], paused_at=row[2], paused_by=row[3])
            for row in await self._fetch("paused_queues", namespace)
        ]

    async def workers(self, namespace: str | None) -> list[WorkerState]:
        return [
            WorkerState(
                info=msgspec.json.decode(row[0], type=WorkerInfo),
                started_at=row[1],
                seen_at=row[2],
                running=tuple(row[3]),
            )
            for row in await self._fetch("workers", namespace)
        ]

    async def limit_uses(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        keys, windows = [rule.key for rule in rules], [rule.window for rule in rules]
        rows = await self._fetch("limit_uses", self._moment(), namespace, keys, windows)
        return [limit_use(row) for row in rows]


def filtered(statement: str, filter: JobFilter, after: int = 0) -> tuple[str, list[Any]]:
    """The statement with the filter in it, and its arguments, numbered on from ``after``.

    The status stands in the text, as one of ours, so that the partial indexes can serve it.
    """
    wanted = {
        "namespace =": filter.namespace,
        "queue =": filter.queue,
        "task =": filter.task,
        "job_group =": filter.group,
        "id <": filter.before,
    }
    given = [(test, value) for test, value in wanted.items() if value is not None]
    common = [f"{test} ${number}" for number, (test, _) in enumerate(given, after + 1)]
    common.append("NOT dropped")
    with_status = without_index = common
    if filter.status is not None:
        status = Status(filter.status).value
        with_status = [f"status = '{status}'", *common]
        without_index = [f"status || '' = '{status}'", *common]
    conditions = {
        "filter": " AND ".join(with_status),
        "filter_unindexed": " AND ".join(without_index),
    }
    return fill(statement, conditions), [value for _, value in given]
