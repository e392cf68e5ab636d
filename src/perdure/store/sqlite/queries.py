"""Reads for clients and operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from perdure.model.client_event import EndedJob, EndFilter
from perdure.model.facts import EXPLAINED_MAX, ExplainFacts, may_have_failed
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, FailedAttempt, Job, JobFilter, JobState, Status
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.run import Run, RunFilter, Wait, WaitFilter, WaitType
from perdure.model.worker import TaskCounts, WorkerState
from perdure.store.contract import EventsAfter, EventsBefore, QueryStore
from perdure.store.sql.rows import state_from, work_counts
from perdure.store.sql.statements import fill
from perdure.store.sqlite.jobs import limit_uses
from perdure.store.sqlite.rows import (
    as_json,
    attempt_from,
    job_from,
    micros,
    moment,
    queue_from,
    run_from,
    wait_from,
    worker_from,
)
from perdure.store.sqlite.runs import latest_events, load_run
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.transaction import Transaction, statements_of

_AFTER_ALL_IDS = "\U0010ffff"


class SqliteQueries(QueryStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        rows = await self._session.rows("get_job", namespace=namespace, id=id)
        return job_from(rows[0]) if rows else None

    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        text = listing_of_jobs(self._session.place.prefix, "list_jobs", filter)
        rows = await self._session.read(
            lambda transaction: transaction.rows_of(text, **_job_parameters(filter), limit=limit)
        )
        return [job_from(row) for row in rows]

    async def peek(self, namespace: str, partitions: Sequence[str], limit: int) -> list[Job]:
        rows = await self._session.rows(
            "peek", namespace=namespace, partitions=as_json(list(partitions)), limit=limit
        )
        return [job_from(row) for row in rows]

    async def count_jobs(self, filter: JobFilter) -> int:
        prefix = self._session.place.prefix
        return await self._session.read(lambda transaction: _count(transaction, prefix, filter))

    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        rows = await self._session.rows("job_states", ids=as_json(list(ids)))
        states = [state_from(row) for row in rows]
        return {state.id: state for state in states}

    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        rows = await self._session.rows("failed_attempts", id=id)
        return [attempt_from(row) for row in rows]

    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        rows = await self._session.rows(
            "find_result", namespace=namespace, task=task, input_hash=input_hash, input=input
        )
        return rows[0][0] if rows else None

    async def workers(self, namespace: str | None) -> list[WorkerState]:
        return await self._session.read(lambda transaction: _workers(transaction, namespace))

    async def work_counts(self, namespace: str | None) -> dict[str, list[TaskCounts]]:
        return work_counts(await self._session.rows("work_counts", namespace=namespace))

    async def explain_facts(
        self, namespace: str, run: RunId | None = None, job: JobId | None = None
    ) -> ExplainFacts:
        def read(transaction: Transaction) -> ExplainFacts:
            place = {"namespace": namespace, "run": run}
            loaded = (
                None
                if run is None
                else load_run(transaction, EventsAfter(namespace=namespace, id=run))
            )
            if run is not None:
                rows = transaction.rows("run_jobs", **place)
            else:
                rows = transaction.rows("jobs_of_ids", namespace=namespace, ids=as_json([job]))
            jobs = [job_from(row) for row in rows]
            waits = [wait_from(row) for row in transaction.rows("run_waits", **place)]
            children = [RunId(wait.name) for wait in waits if wait.type is WaitType.CHILD]
            states = [transaction.rows("get_run", namespace=namespace, run=id) for id in children]
            failed = as_json(may_have_failed(jobs))
            before = EventsBefore(namespace=namespace, id=run or RunId(""))
            awaited = None if loaded is None else loaded.run.awaited_place
            return ExplainFacts(
                now=transaction.moment,
                loaded=loaded,
                jobs=tuple(jobs),
                waits=tuple(waits),
                failures={
                    row[0]: attempt_from(row[1:])
                    for row in transaction.rows("last_failures", ids=failed)
                },
                events=tuple(latest_events(transaction, before, EXPLAINED_MAX)),
                children={
                    id: run_from(rows[0]).status
                    for id, rows in zip(children, states, strict=True)
                    if rows
                },
                workers=tuple(_workers(transaction, namespace)),
                paused_queues=tuple(
                    queue_from(row)
                    for row in transaction.rows("paused_queues", namespace=namespace)
                ),
                place_holders=tuple(
                    id
                    for (id,) in transaction.rows(
                        "place_holders", namespace=namespace, key=awaited, limit=EXPLAINED_MAX
                    )
                ),
            )

        return await self._session.read(read)

    async def get_jobs(self, namespace: str, ids: Sequence[JobId]) -> list[Job]:
        rows = await self._session.rows("jobs_of_ids", namespace=namespace, ids=as_json(list(ids)))
        return [job_from(row) for row in rows]

    async def limit_usage(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        return await self._session.read(
            lambda transaction: limit_uses(transaction, namespace, rules)
        )

    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        text = listing_of_runs(self._session.place.prefix, "list_runs", filter)
        rows = await self._session.read(
            lambda transaction: transaction.rows_of(text, **_run_parameters(filter), limit=limit)
        )
        return [run_from(row) for row in rows]

    async def count_runs(self, filter: RunFilter) -> int:
        text = listing_of_runs(self._session.place.prefix, "count_runs", filter)
        [(count,)] = await self._session.read(
            lambda transaction: transaction.rows_of(text, **_run_parameters(filter))
        )
        return int(count)

    async def get_runs(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        def states(transaction: Transaction) -> list[Run | None]:
            found = [
                transaction.rows("get_run", namespace=namespace, run=id) for namespace, id in runs
            ]
            return [run_from(rows[0]) if rows else None for rows in found]

        return await self._session.read(states)

    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        rows = await self._session.rows("run_jobs", namespace=namespace, run=run)
        return [job_from(row) for row in rows]

    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]:
        rows = await self._session.rows("run_waits", namespace=namespace, run=run)
        return [wait_from(row) for row in rows]

    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        text = listing_of_waits(self._session.place.prefix, filter)
        rows = await self._session.read(
            lambda transaction: transaction.rows_of(text, **_wait_parameters(filter), limit=limit)
        )
        return [wait_from(row) for row in rows]

    async def ended_jobs(self, filter: EndFilter, limit: int) -> list[EndedJob]:
        rows = await self._session.rows(
            "ended_jobs",
            **_end_parameters(filter),
            queue=filter.queue,
            task=filter.task,
            limit=limit,
        )
        return [
            EndedJob(
                id=id, status=Status(status), at=moment(at), queue=queue, task=task, attempt=attempt
            )
            for id, status, at, queue, task, attempt in rows
        ]

    async def ended_runs(self, filter: EndFilter, limit: int) -> list[Run]:
        rows = await self._session.rows(
            "ended_runs", **_end_parameters(filter), flow=filter.flow, limit=limit
        )
        return [run_from(row) for row in rows]

    async def pruned_until(self, namespace: str) -> Mapping[str, datetime]:
        rows = await self._session.rows("pruned_until", namespace=namespace)
        return {type: moment(until) for type, until in rows}


def _end_parameters(filter: EndFilter) -> dict[str, Any]:
    at, id = filter.after
    return {
        "namespace": filter.namespace,
        "statuses": as_json(filter.statuses),
        "after_at": micros(at),
        "after_id": id,
        "until": micros(filter.until),
    }


def _count(transaction: Transaction, prefix: str, filter: JobFilter) -> int:
    """Count by an index that covers the filter, without reading rows, if there is one."""
    if filter.group is None and filter.before is None:
        if filter.status is None:
            each = (replace(filter, status=status) for status in Status)
            return sum(_count(transaction, prefix, part) for part in each)
        if filter.status is Status.WAITING:
            return _counted(transaction, transaction.sql["count_waiting"], filter)
        if filter.status in FINISHED:
            return _counted(transaction, transaction.sql["count_finished"], filter)
    return _counted(transaction, listing_of_jobs(prefix, "count_listed", filter), filter)


def _counted(transaction: Transaction, text: str, filter: JobFilter) -> int:
    [(count,)] = transaction.rows_of(text, **_job_parameters(filter))
    return int(count)


def _workers(transaction: Transaction, namespace: str | None) -> list[WorkerState]:
    running: dict[str, list[JobId]] = {}
    for worker, id in transaction.rows("claimed_jobs"):
        running.setdefault(worker, []).append(id)
    rows = transaction.rows("workers", namespace=namespace)
    return [worker_from(row, running.get(row[0], ())) for row in rows]


def listing_of_jobs(prefix: str, name: str, filter: JobFilter) -> str:
    """The SQL of a listing or count, with the best index for the filter."""
    if filter.group is not None:
        return _job_statement(prefix, name, "job.job_group = :group")
    return _job_statement(prefix, name, "TRUE" if filter.status is None else "job.status = :status")


@lru_cache(maxsize=256)
def _job_statement(prefix: str, name: str, where: str) -> str:
    return fill(statements_of(prefix)[name], {"where": where})


def _job_parameters(filter: JobFilter) -> dict[str, Any]:
    return {
        "namespace": filter.namespace,
        "status": filter.status,
        "queue": filter.queue,
        "task": filter.task,
        "group": filter.group,
        "before": filter.before or _AFTER_ALL_IDS,
    }


_AFTER_ALL_TIMES = 2**63 - 1


def listing_of_runs(prefix: str, name: str, filter: RunFilter) -> str:
    """The SQL of a listing or count, with the best index for the filter."""
    if filter.id is not None:
        return _run_statement(prefix, name, "id", "run.id = :id")
    if filter.parent is not None:
        place = "" if filter.namespace is None else " AND run.namespace = :namespace"
        return _run_statement(prefix, name, "parent", f"run.parent_run = :parent{place}")
    if filter.is_ended is False and filter.status is None:
        return _run_statement(prefix, name, "live", _live(filter))
    if filter.status is not None:
        return _run_statement(prefix, name, "status", "run.status = :status")
    return _run_statement(prefix, name, "created", "TRUE")


def _live(filter: RunFilter) -> str:
    """The leading index columns that the filter names, without a gap."""
    terms = ["run.finished_at IS NULL"]
    for column in ("namespace", "flow", "version"):
        if getattr(filter, column) is None:
            break
        terms.append(f"run.{column} = :{column}")
    return " AND ".join(terms)


@lru_cache(maxsize=256)
def _run_statement(prefix: str, name: str, index: str, where: str) -> str:
    place = {"index": f"INDEXED BY {prefix}runs_{index}", "where": where}
    return fill(statements_of(prefix)[name], place)


def _run_parameters(filter: RunFilter) -> dict[str, Any]:
    at, id = filter.before or (None, "")
    return {
        "namespace": filter.namespace,
        "id": filter.id,
        "status": filter.status,
        "flow": filter.flow,
        "version": filter.version,
        "parent": filter.parent,
        "is_ended": filter.is_ended,
        "before_at": _AFTER_ALL_TIMES if at is None else micros(at),
        "before_id": id,
    }


_CONDITIONS = {
    "namespace": "wait.namespace = :namespace",
    "run": "wait.run_id = :run",
    "type": "wait.type = :type",
    "name": "wait.name = :name",
    "deciders": """\
(wait.deciders = '[]' OR EXISTS (
        SELECT 1
        FROM json_each(wait.deciders) AS named
        WHERE named.value IN (SELECT value FROM json_each(:deciders))
    ))""",
    "after": "(wait.opened_at, wait.run_id, wait.key) > (:after_at, :after_run, :after_key)",
}

_ASKING = ("asking", "wait.type IN ('external', 'approval') AND wait.type = :type")

_INDEXES = {
    WaitType.SIGNAL: ("signals", "wait.type = 'signal'"),
    WaitType.EXTERNAL: _ASKING,
    WaitType.APPROVAL: _ASKING,
}
"""The index for each wait type, with the condition that lets SQLite use it."""


def listing_of_waits(prefix: str, filter: WaitFilter) -> str:
    """The SQL of the listing, with the best index for the filter."""
    asked = {name: text for name, text in _CONDITIONS.items() if getattr(filter, name) is not None}
    index = ""
    if filter.run is None and filter.type in _INDEXES:
        index, asked["type"] = _INDEXES[filter.type]
    return _wait_statement(prefix, index, " AND ".join(asked.values()) or "TRUE")


@lru_cache(maxsize=256)
def _wait_statement(prefix: str, index: str, filter: str) -> str:
    place = {"index": f"INDEXED BY {prefix}waits_{index}" if index else "", "filter": filter}
    return fill(statements_of(prefix)["list_waits"], place)


def _wait_parameters(filter: WaitFilter) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "namespace": filter.namespace,
        "run": filter.run,
        "type": filter.type,
        "name": filter.name,
        "deciders": as_json(filter.deciders),
    }
    if filter.after is not None:
        at, run, key = filter.after
        parameters |= {"after_at": micros(at), "after_run": run, "after_key": key}
    return parameters
