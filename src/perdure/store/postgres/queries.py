"""Reads for clients and operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from perdure.model.client_event import EndedJob, EndFilter
from perdure.model.event import StoredEvent
from perdure.model.facts import EXPLAINED_MAX, ExplainFacts, may_have_failed
from perdure.model.ids import JobId, RunId
from perdure.model.job import FailedAttempt, Job, JobFilter, JobState, Status
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.run import Run, RunFilter, RunStatus, Wait, WaitFilter, WaitType
from perdure.model.worker import TaskCounts, WorkerInfo, WorkerState
from perdure.store.contract import QueryStore
from perdure.store.postgres.connection import Connection, Record, Transacting
from perdure.store.postgres.jobs import limit_use
from perdure.store.postgres.params import EndedJobsParams, EndedRunsParams
from perdure.store.postgres.rows import (
    attempt_from,
    job_from,
    loaded_from,
    queue_from,
    run_from,
    wait_from,
)
from perdure.store.postgres.session import Session
from perdure.store.sql.rows import state_from, work_counts
from perdure.store.sql.statements import fill

_LISTED_IN_ORDER = frozenset(
    {Status.FAILED, Status.DEAD, Status.CANCELLED, Status.DISABLED, Status.PAUSED}
)
"""The statuses in the operators' index, which is in the order of ids."""


class PostgresQueries(QueryStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        for row in await self._session.fetch("get_job", namespace, id):
            return job_from(row)
        return None

    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        is_in_order = filter.status is None or filter.status in _LISTED_IN_ORDER
        name = "list_jobs" if is_in_order else "list_jobs_by_status"
        statement, arguments = filtered_jobs(self._session.statements[name], filter, after=1)
        return [
            job_from(row)
            for row in await self._session.connections.fetch(statement, limit, *arguments)
        ]

    async def peek(self, namespace: str, partitions: Sequence[str], limit: int) -> list[Job]:
        rows = await self._session.fetch("peek", namespace, list(partitions), limit)
        return [job_from(row) for row in rows]

    async def count_jobs(self, filter: JobFilter) -> int:
        statement, arguments = filtered_jobs(self._session.statements["count_jobs"], filter)
        count: int = (await self._session.scan(statement, *arguments))[0][0]
        return count

    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        rows = await self._session.fetch("job_states", list(ids))
        return {row[0]: state_from(row) for row in rows}

    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        return [attempt_from(row) for row in await self._session.fetch("failed_attempts", id)]

    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        for row in await self._session.fetch("find_result", namespace, task, input_hash, input):
            output: bytes = row[0]
            return output
        return None

    async def workers(self, namespace: str | None) -> list[WorkerState]:
        return [worker_from(row) for row in await self._session.fetch("workers", namespace)]

    async def work_counts(self, namespace: str | None) -> dict[str, list[TaskCounts]]:
        return work_counts(await self._session.fetch("work_counts", namespace))

    async def explain_facts(
        self, namespace: str, run: RunId | None = None, job: JobId | None = None
    ) -> ExplainFacts:
        statements, now = self._session.statements, self._session.moment()

        async def work(connection: Connection, _: bool) -> ExplainFacts:
            async def rows(name: str, *arguments: Any) -> list[Record]:
                found: list[Record] = await connection.fetch(statements[name], *arguments)
                return found

            # One snapshot for all statements. Read-only, without row locks.
            async with Transacting(connection, readonly=True, isolation="repeatable_read"):
                loaded, events, waits = None, [], []
                if run is None:
                    jobs = [job_from(row) for row in await rows("jobs_of_ids", namespace, [job])]
                else:
                    jobs = [job_from(row) for row in await rows("run_jobs", namespace, run)]
                    waits = [wait_from(row) for row in await rows("run_waits", namespace, run)]
                    for row in await rows("load_runs", [namespace], [run], [None]):
                        loaded = loaded_from(row)
                    events = await rows("latest_events", [namespace], [run], [None], EXPLAINED_MAX)
                children = [RunId(wait.name) for wait in waits if wait.type is WaitType.CHILD]
                found = await rows("run_states", [namespace] * len(children), children)
                states = [run_from(row[1:]) for row in found]
                failures = await rows("last_failures", may_have_failed(jobs))
                workers = [worker_from(row) for row in await rows("workers", namespace)]
                paused = [queue_from(row) for row in await rows("paused_queues", namespace)]
                awaited = None if loaded is None else loaded.run.awaited_place
                holders = await rows("place_holders", namespace, awaited, EXPLAINED_MAX)
                return ExplainFacts(
                    now=now or (await rows("now"))[0][0],
                    loaded=loaded,
                    jobs=tuple(jobs),
                    waits=tuple(waits),
                    failures={row[0]: attempt_from(row[1:]) for row in failures},
                    events=tuple(
                        StoredEvent(number=number, at=at, data=data)
                        for _, number, at, data in events
                    ),
                    children={each.id: each.status for each in states},
                    workers=tuple(workers),
                    paused_queues=tuple(paused),
                    place_holders=tuple(id for (id,) in holders),
                )

        return await self._session.connections.run(work)

    async def get_jobs(self, namespace: str, ids: Sequence[JobId]) -> list[Job]:
        rows = await self._session.fetch("jobs_of_ids", namespace, list(ids))
        return [job_from(row) for row in rows]

    async def limit_usage(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        keys, windows = [rule.key for rule in rules], [rule.window for rule in rules]
        rows = await self._session.fetch(
            "limit_uses", self._session.moment(), namespace, keys, windows
        )
        return [limit_use(row) for row in rows]

    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        name = "list_runs" if filter.id is None else "list_runs_of_id"
        statement, arguments = filtered_runs(self._session.statements[name], filter, after=1)
        found = await self._session.connections.fetch(statement, limit, *arguments)
        return [run_from(row) for row in found]

    async def count_runs(self, filter: RunFilter) -> int:
        statement, arguments = filtered_runs(self._session.statements["count_runs"], filter)
        count: int = (await self._session.scan(statement, *arguments))[0][0]
        return count

    async def get_runs(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        found: list[Run | None] = [None] * len(runs)
        columns = [namespace for namespace, _ in runs], [id for _, id in runs]
        for row in await self._session.fetch("run_states", *columns):
            found[row[0] - 1] = run_from(row[1:])
        return found

    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        return [job_from(row) for row in await self._session.fetch("run_jobs", namespace, run)]

    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]:
        return [wait_from(row) for row in await self._session.fetch("run_waits", namespace, run)]

    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        statement, arguments = filtered_waits(
            self._session.statements["list_waits"], filter, after=1
        )
        is_indexed = filter.run is not None or filter.type in _INDEXED
        fetch = self._session.connections.fetch if is_indexed else self._session.scan
        found = await fetch(statement, limit, *arguments)
        return [wait_from(row) for row in found]

    async def ended_jobs(self, filter: EndFilter, limit: int) -> list[EndedJob]:
        params = EndedJobsParams(
            namespace=filter.namespace,
            statuses=list(filter.statuses),
            after_at=filter.after[0],
            after_id=filter.after[1],
            until=filter.until,
            queue=filter.queue,
            task=filter.task,
            limit=limit,
        )
        return [
            EndedJob(id=id, status=Status(status), at=at, queue=queue, task=task, attempt=attempt)
            for id, status, at, queue, task, attempt in await self._session.fetch(
                "ended_jobs", *params
            )
        ]

    async def ended_runs(self, filter: EndFilter, limit: int) -> list[Run]:
        params = EndedRunsParams(
            namespace=filter.namespace,
            statuses=list(filter.statuses),
            after_at=filter.after[0],
            after_id=filter.after[1],
            until=filter.until,
            flow=filter.flow,
            limit=limit,
        )
        return [run_from(row) for row in await self._session.fetch("ended_runs", *params)]

    async def pruned_until(self, namespace: str) -> Mapping[str, datetime]:
        rows = await self._session.fetch("pruned_until", namespace)
        return {row[0]: row[1] for row in rows}


def worker_from(row: Record) -> WorkerState:
    return WorkerState(
        info=msgspec.json.decode(row[0], type=WorkerInfo),
        started_at=row[1],
        seen_at=row[2],
        running=tuple(row[3]),
    )


def filtered_jobs(statement: str, filter: JobFilter, after: int = 0) -> tuple[str, list[Any]]:
    """The statement with the filter filled in, and its arguments, numbered after ``after``.

    The status is a literal in the SQL, so that partial indexes apply.
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
    common.append("NOT hidden")
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


def filtered_runs(statement: str, filter: RunFilter, after: int = 0) -> tuple[str, list[Any]]:
    """The statement with the filter filled in, and its arguments, numbered after ``after``.

    The status is a literal in the SQL, so that the planner knows which are rare.
    """
    wanted = {
        "namespace = ${}": filter.namespace,
        "id = ${}": filter.id,
        "flow = ${}": filter.flow,
        "version = ${}": filter.version,
        "parent_run = ${}": filter.parent,
    }
    given = [(test, value) for test, value in wanted.items() if value is not None]
    conditions = [test.format(number) for number, (test, _) in enumerate(given, after + 1)]
    arguments: list[Any] = [value for _, value in given]
    if filter.before is not None:
        number = after + len(arguments) + 1
        conditions.append(f"(created_at, id) < (${number}, ${number + 1})")
        arguments += filter.before
    if filter.status is not None:
        conditions.append(f"status = '{RunStatus(filter.status).value}'")
    if filter.is_ended is not None:
        conditions.append(f"finished_at IS {'NOT ' if filter.is_ended else ''}NULL")
    return fill(statement, {"filter": " AND ".join(conditions) or "true"}), arguments


_INDEXED = frozenset({WaitType.SIGNAL, WaitType.EXTERNAL, WaitType.APPROVAL})


def filtered_waits(statement: str, filter: WaitFilter, after: int = 0) -> tuple[str, list[Any]]:
    """The statement with the filter filled in, and its arguments, numbered after ``after``.

    The type is a literal in the SQL, so that partial indexes apply. With a run it is hidden from
    the planner: the run's few waits are found by its id.
    """
    wanted = {
        "namespace = ${}": filter.namespace,
        "run_id = ${}": filter.run,
        "name = ${}": filter.name,
        "(deciders = '{{}}' OR deciders && ${}::text[])": filter.deciders,
    }
    given = [(test, value) for test, value in wanted.items() if value is not None]
    conditions = [test.format(number) for number, (test, _) in enumerate(given, after + 1)]
    arguments: list[Any] = [value for _, value in given]
    if filter.after is not None:
        number = after + len(arguments) + 1
        conditions.append(f"(opened_at, run_id, key) > (${number}, ${number + 1}, ${number + 2})")
        arguments += filter.after
    if filter.type is not None:
        found_type = "type" if filter.run is None else "type || ''"
        conditions.append(f"{found_type} = '{WaitType(filter.type).value}'")
    return fill(statement, {"filter": " AND ".join(conditions) or "true"}), arguments
