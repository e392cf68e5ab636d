"""Submitting, loading and committing runs; definitions and steps."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.errors import ClaimLost
from perdure.model.event import StoredEvent
from perdure.model.graph import children_in
from perdure.model.ids import RunId
from perdure.model.job import Claim
from perdure.model.run import CommitAnswer, LoadedRun, NewRun, RunCommit, StoredStep, Submitted
from perdure.store.contract import EventsAfter, EventsBefore, RunStore
from perdure.store.postgres.commit import commit_runs
from perdure.store.postgres.params import SaveStepParams
from perdure.store.postgres.rows import loaded_from
from perdure.store.postgres.session import Session
from perdure.store.postgres.submit import submit_run
from perdure.store.sql.statements import arguments_of


class PostgresRuns(RunStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        place = namespace, flow, version
        await self._session.fetch(
            "save_definition", *place, data, children_in(data), self._session.moment()
        )

    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None:
        for row in await self._session.fetch("get_definition", namespace, flow, version):
            data: bytes = row[0]
            return data
        return None

    async def load(self, runs: Sequence[EventsAfter]) -> list[LoadedRun | None]:
        found: list[LoadedRun | None] = [None] * len(runs)
        columns = (
            [wanted.namespace for wanted in runs],
            [wanted.id for wanted in runs],
            [wanted.number for wanted in runs],
        )
        for row in await self._session.fetch("load_runs", *columns):
            found[row[0] - 1] = loaded_from(row)
        return found

    async def latest_events(
        self, runs: Sequence[EventsBefore], limit: int
    ) -> list[list[StoredEvent]]:
        found: list[list[StoredEvent]] = [[] for _ in runs]
        columns = (
            [wanted.namespace for wanted in runs],
            [wanted.id for wanted in runs],
            [wanted.number for wanted in runs],
        )
        for position, number, at, data in await self._session.fetch(
            "latest_events", *columns, limit
        ):
            found[position - 1].append(StoredEvent(number=number, at=at, data=data))
        return found

    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        found = await self._session.fetch("event_values", namespace, run, list(numbers))
        return {row[0]: row[1] for row in found}

    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        params = SaveStepParams(
            id=claim.id, epoch=claim.epoch, owner=owner, name=step.name, value=step.value
        )
        if not await self._session.fetch("save_step", *arguments_of(params)):
            raise ClaimLost(job_id=claim.id, epoch=claim.epoch)

    async def load_steps(self, owner: str) -> list[StoredStep]:
        return [
            StoredStep(name=row[0], value=row[1])
            for row in await self._session.fetch("load_steps", owner)
        ]

    async def submit(self, run: NewRun) -> Submitted:
        return await submit_run(self._session, run)

    async def commit(
        self, commits: Sequence[RunCommit], partitions: Sequence[str] = ()
    ) -> CommitAnswer:
        return await commit_runs(self._session, commits, partitions)
