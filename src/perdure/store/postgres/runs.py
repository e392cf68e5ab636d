"""Runs: what is kept of them, as it is read, and what is kept beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.errors import StaleClaim
from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import Claim, Job
from perdure.model.run import (
    FlowCount,
    LoadedRun,
    Run,
    RunFilter,
    RunStatus,
    Snapshot,
    StoredStep,
)
from perdure.store.contract import RunAfter, RunBefore, RunStore
from perdure.store.postgres import rows, run_rows
from perdure.store.postgres.commits import PostgresCommits
from perdure.store.postgres.submits import PostgresSubmits
from perdure.store.postgres.waits import PostgresWaits
from perdure.store.sql.statements import fill


class PostgresRuns(PostgresCommits, PostgresSubmits, PostgresWaits, RunStore):
    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        await self._fetch("save_definition", namespace, flow, version, data)

    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None:
        for row in await self._fetch("get_definition", namespace, flow, version):
            data: bytes = row[0]
            return data
        return None

    async def load_runs(self, runs: Sequence[RunAfter]) -> list[LoadedRun | None]:
        found: list[LoadedRun | None] = [None] * len(runs)
        columns = (
            [wanted.namespace for wanted in runs],
            [wanted.id for wanted in runs],
            [wanted.number for wanted in runs],
        )
        for row in await self._fetch("load_runs", *columns):
            found[row[0] - 1] = run_rows.loaded_run(row)
        return found

    async def latest_events(self, runs: Sequence[RunBefore], limit: int) -> list[list[StoredEvent]]:
        found: list[list[StoredEvent]] = [[] for _ in runs]
        columns = (
            [wanted.namespace for wanted in runs],
            [wanted.id for wanted in runs],
            [wanted.number for wanted in runs],
        )
        for position, number, at, data in await self._fetch("latest_events", *columns, limit):
            found[position - 1].append(StoredEvent(number=number, at=at, data=data))
        return found

    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        found = await self._fetch("event_values", namespace, run, list(numbers))
        return {row[0]: row[1] for row in found}

    async def get_run(self, namespace: str | None, id: RunId) -> Run | None:
        for row in await self._fetch("get_run", namespace, id):
            return run_rows.run(row)
        return None

    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        name = "list_runs" if filter.id is None else "list_runs_of_id"
        statement, arguments = filtered_runs(self._statements[name], filter, after=1)
        found = await self._connections.fetch(statement, limit, *arguments)
        return [run_rows.run(row) for row in found]

    async def count_runs(self, filter: RunFilter) -> int:
        statement, arguments = filtered_runs(self._statements["count_runs"], filter)
        count: int = (await self._scan(statement, *arguments))[0][0]
        return count

    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        return [
            FlowCount(namespace=row[0], flow=row[1], version=row[2], count=row[3])
            for row in await self._fetch("live_flows", namespace)
        ]

    async def run_states(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        found: list[Run | None] = [None] * len(runs)
        columns = [namespace for namespace, _ in runs], [id for _, id in runs]
        for row in await self._fetch("run_states", *columns):
            found[row[0] - 1] = run_rows.run(row, 1)
        return found

    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        return [rows.job(row) for row in await self._fetch("run_jobs", namespace, run)]

    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        columns = (claim.id, claim.epoch, owner, step.name, step.value)
        if not await self._fetch("save_step", *columns):
            raise StaleClaim(claim.id, claim.epoch)

    async def load_steps(self, owner: str) -> list[StoredStep]:
        return [
            StoredStep(name=row[0], value=row[1]) for row in await self._fetch("load_steps", owner)
        ]

    async def save_snapshot(self, namespace: str, run: RunId, snapshot: Snapshot) -> None:
        columns = [namespace], [run], [snapshot.number], [snapshot.data]
        await self._fetch("put_snapshots", *columns, True)


def filtered_runs(statement: str, filter: RunFilter, after: int = 0) -> tuple[str, list[Any]]:
    """The statement with the filter in it, and its arguments, numbered on from ``after``.

    The status stands in the text, as one of ours, so that the planner knows which are rare.
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
