"""Runs: how they begin, the one way in which they go on, and what can be seen of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

from perdure.errors import StaleClaim
from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import Claim, Job
from perdure.model.run import (
    CommitAnswer,
    FlowCount,
    LoadedRun,
    NewRun,
    Run,
    RunCommit,
    RunFilter,
    RunStatus,
    Snapshot,
    StoredStep,
    Submitted,
)
from perdure.store.contract import RunAfter, RunBefore, RunStore
from perdure.store.sql.statements import fill
from perdure.store.sqlite.committing import commit_runs
from perdure.store.sqlite.handle import SMALL_MAX
from perdure.store.sqlite.removing import remove_run
from perdure.store.sqlite.rows import as_json, job_from, micros, micros_in
from perdure.store.sqlite.run_rows import RUN_COLUMNS, event_from, run_from
from perdure.store.sqlite.statements import statements_of
from perdure.store.sqlite.submitting import submit_run
from perdure.store.sqlite.transaction import Transaction
from perdure.store.sqlite.waits import SqliteWaits

_AFTER_ALL_TIMES = 2**63 - 1
_AFTER_ALL_EVENTS = 2**63 - 1


class SqliteRuns(SqliteWaits, RunStore):
    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        row = {"namespace": namespace, "flow": flow, "version": version, "data": data}
        await self._write(lambda transaction: transaction.write("save_definition", **row))

    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None:
        rows = await self._rows("get_definition", namespace=namespace, flow=flow, version=version)
        return rows[0][0] if rows else None

    async def submit_run(self, run: NewRun) -> Submitted:
        size = 1 + len(run.events) + len(run.jobs) + len(run.children) * SMALL_MAX
        if run.on_existing == "terminate_existing":  # which may remove a large one
            size += SMALL_MAX
        return await self._write_small(lambda transaction: submit_run(transaction, run), size)

    async def commit_runs(
        self, commits: Sequence[RunCommit], lanes: Sequence[str] = ()
    ) -> CommitAnswer:
        size = len(lanes) + sum(_size_of(commit) for commit in commits)
        return await self._write_small(
            lambda transaction: commit_runs(transaction, commits, lanes), size
        )

    async def load_runs(self, runs: Sequence[RunAfter]) -> list[LoadedRun | None]:
        return await self._read(lambda transaction: [_load(transaction, run) for run in runs])

    async def latest_events(self, runs: Sequence[RunBefore], limit: int) -> list[list[StoredEvent]]:
        return await self._read(
            lambda transaction: [_latest(transaction, run, limit) for run in runs]
        )

    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        wanted = as_json(list(numbers))
        return dict(await self._rows("event_values", namespace=namespace, run=run, numbers=wanted))

    async def get_run(self, namespace: str | None, id: RunId) -> Run | None:
        rows = await self._rows("get_run", namespace=namespace, run=id)
        return run_from(rows[0]) if rows else None

    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        text = listing(self._place.prefix, "list_runs", filter)
        rows = await self._read(
            lambda transaction: transaction.rows_of(text, **_parameters(filter), limit=limit)
        )
        return [run_from(row) for row in rows]

    async def count_runs(self, filter: RunFilter) -> int:
        text = listing(self._place.prefix, "count_runs", filter)
        [(count,)] = await self._read(
            lambda transaction: transaction.rows_of(text, **_parameters(filter))
        )
        return int(count)

    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        rows = await self._rows("live_flows", namespace=namespace)
        return [
            FlowCount(namespace=place, flow=flow, version=version, count=count)
            for place, flow, version, count in rows
        ]

    async def run_states(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        def states(transaction: Transaction) -> list[Run | None]:
            found = [
                transaction.rows("get_run", namespace=namespace, run=id) for namespace, id in runs
            ]
            return [run_from(rows[0]) if rows else None for rows in found]

        return await self._read(states)

    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        rows = await self._rows("run_jobs", namespace=namespace, run=run)
        return [job_from(row) for row in rows]

    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        def save(transaction: Transaction) -> None:
            held = transaction.rows("claim_states", ids=as_json([claim.id]))
            if not any(epoch == claim.epoch for _, _, epoch, _ in held):
                raise StaleClaim(claim.id, claim.epoch)
            transaction.write(
                "save_step", id=claim.id, owner=owner, step=step.name, value=step.value
            )

        await self._write(save)

    async def load_steps(self, owner: str) -> list[StoredStep]:
        rows = await self._rows("load_steps", owner=owner)
        return [StoredStep(name=name, value=value) for name, value in rows]

    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        def prune(transaction: Transaction) -> int:
            removed = 0
            for status, kept_for in keep.items():
                until = transaction.now - micros_in(kept_for)
                removed += _prune(transaction, namespace, status, until, limit - removed)
            return removed

        return await self._write(prune)

    async def save_snapshot(self, namespace: str, run: RunId, snapshot: Snapshot) -> None:
        row = {"number": snapshot.number, "data": snapshot.data}
        await self._write(
            lambda transaction: transaction.write(
                "save_snapshot", namespace=namespace, run=run, **row
            )
        )


def _load(transaction: Transaction, wanted: RunAfter) -> LoadedRun | None:
    found = transaction.rows(
        "run_with_snapshot",
        namespace=wanted.namespace,
        run=wanted.id,
        wants_snapshot=wanted.number is None,
    )
    if not found:
        return None
    serial, number, data = found[0][RUN_COLUMNS:]
    snapshot = None if number is None else Snapshot(number=number, data=data)
    events = transaction.run("events_after", (serial, wanted.number or number or 0))
    return LoadedRun(
        run=run_from(found[0][:RUN_COLUMNS]),
        snapshot=snapshot,
        events=[event_from(row) for row in events],
    )


def _latest(transaction: Transaction, wanted: RunBefore, limit: int) -> list[StoredEvent]:
    rows = transaction.rows(
        "latest_events",
        namespace=wanted.namespace,
        run=wanted.id,
        before=_AFTER_ALL_EVENTS if wanted.number is None else wanted.number,
        limit=limit,
    )
    return [event_from(row) for row in rows]


def _prune(
    transaction: Transaction, namespace: str, status: RunStatus, until: int, limit: int
) -> int:
    old = transaction.rows(
        "outdated_runs", status=status, namespace=namespace, until=until, limit=limit
    )
    for (id,) in old:
        remove_run(transaction, namespace, id)
    return len(old)


def listing(prefix: str, name: str, filter: RunFilter) -> str:
    """The text of a listing or counting statement, by the index that serves the filter best."""
    if filter.id is not None:
        return _completed(prefix, name, "id", "run.id = :id")
    if filter.parent is not None:
        place = "" if filter.namespace is None else " AND run.namespace = :namespace"
        return _completed(prefix, name, "parent", f"run.parent_run = :parent{place}")
    if filter.is_ended is False and filter.status is None:
        return _completed(prefix, name, "live", _live(filter))
    if filter.status is not None:
        return _completed(prefix, name, "status", "run.status = :status")
    return _completed(prefix, name, "created", "TRUE")


def _live(filter: RunFilter) -> str:
    """As many columns of the index as the filter names, without a gap."""
    terms = ["run.finished_at IS NULL"]
    for column in ("namespace", "flow", "version"):
        if getattr(filter, column) is None:
            break
        terms.append(f"run.{column} = :{column}")
    return " AND ".join(terms)


@lru_cache(maxsize=256)
def _completed(prefix: str, name: str, index: str, where: str) -> str:
    place = {"index": f"INDEXED BY {prefix}runs_{index}", "where": where}
    return fill(statements_of(prefix)[name], place)


def _parameters(filter: RunFilter) -> dict[str, Any]:
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


def _size_of(commit: RunCommit) -> int:
    """About how many rows it writes; whatever goes through all jobs of a run counts as many."""
    if commit.clears or commit.drops or commit.children or commit.holds is not None:
        return SMALL_MAX + 1
    if commit.version is not None or commit.snapshot is not None:
        return SMALL_MAX + 1
    return max(
        1, len(commit.events) + len(commit.jobs) + len(commit.waits) + len(commit.closes) - 1
    )
