"""Submitting, committing and reading runs."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import ClaimLost
from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import Claim
from perdure.model.run import (
    CommitAnswer,
    LoadedRun,
    NewRun,
    RunCommit,
    Snapshot,
    StoredStep,
    Submitted,
)
from perdure.store.contract import EventsAfter, EventsBefore, RunStore
from perdure.store.sql.rows import RUN_COLUMNS
from perdure.store.sqlite.commit import commit_runs
from perdure.store.sqlite.rows import as_json, event_from, run_from
from perdure.store.sqlite.session import SMALL_MAX, Session
from perdure.store.sqlite.submit import save_definition, submit_run
from perdure.store.sqlite.transaction import Transaction

_AFTER_ALL_EVENTS = 2**63 - 1


class SqliteRuns(RunStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        await self._session.write(
            lambda transaction: save_definition(transaction, namespace, flow, version, data)
        )

    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None:
        rows = await self._session.rows(
            "get_definition", namespace=namespace, flow=flow, version=version
        )
        return rows[0][0] if rows else None

    async def submit(self, run: NewRun) -> Submitted:
        size = 1 + len(run.events) + len(run.jobs) + len(run.children) * SMALL_MAX
        if run.on_existing == "replace":  # may remove a large one
            size += SMALL_MAX
        return await self._session.write_small(
            lambda transaction: submit_run(transaction, run), size
        )

    async def commit(
        self, commits: Sequence[RunCommit], partitions: Sequence[str] = ()
    ) -> CommitAnswer:
        size = len(partitions) + sum(_size_of(commit) for commit in commits)
        return await self._session.write_small(
            lambda transaction: commit_runs(transaction, commits, partitions), size
        )

    async def load(self, runs: Sequence[EventsAfter]) -> list[LoadedRun | None]:
        return await self._session.read(
            lambda transaction: [load_run(transaction, run) for run in runs]
        )

    async def latest_events(
        self, runs: Sequence[EventsBefore], limit: int
    ) -> list[list[StoredEvent]]:
        return await self._session.read(
            lambda transaction: [latest_events(transaction, run, limit) for run in runs]
        )

    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        wanted = as_json(list(numbers))
        return dict(
            await self._session.rows("event_values", namespace=namespace, run=run, numbers=wanted)
        )

    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        def save(transaction: Transaction) -> None:
            held = transaction.rows("claim_states", ids=as_json([claim.id]))
            if not any(epoch == claim.epoch for _, _, epoch, _ in held):
                raise ClaimLost(job_id=claim.id, epoch=claim.epoch)
            transaction.write(
                "save_step", id=claim.id, owner=owner, step=step.name, value=step.value
            )
            transaction.write("remove_suspicion", id=claim.id)

        await self._session.write(save)

    async def load_steps(self, owner: str) -> list[StoredStep]:
        rows = await self._session.rows("load_steps", owner=owner)
        return [StoredStep(name=name, value=value) for name, value in rows]


def load_run(transaction: Transaction, wanted: EventsAfter) -> LoadedRun | None:
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


def latest_events(transaction: Transaction, wanted: EventsBefore, limit: int) -> list[StoredEvent]:
    rows = transaction.rows(
        "latest_events",
        namespace=wanted.namespace,
        run=wanted.id,
        before=_AFTER_ALL_EVENTS if wanted.number is None else wanted.number,
        limit=limit,
    )
    return [event_from(row) for row in rows]


def _size_of(commit: RunCommit) -> int:
    """The approximate number of rows it writes; anything that affects all jobs counts as many."""
    if commit.cancel_all or commit.cancel_keys or commit.children or commit.suspend is not None:
        return SMALL_MAX + 1
    if commit.version is not None or commit.snapshot is not None:
        return SMALL_MAX + 1
    return max(
        1, len(commit.events) + len(commit.jobs) + len(commit.waits) + len(commit.close_waits) - 1
    )
