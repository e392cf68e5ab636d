"""What runs start beside jobs: waits, and runs of their own with all that those begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.model.reach import check_times
from perdure.model.run import ENDED, NewRun, NewWait
from perdure.store.postgres.commit_batch import note_queued
from perdure.store.postgres.connections import Connection, Record
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.rows import new_job_columns
from perdure.store.postgres.run_rows import child_columns, new_wait_columns


class Starting:
    """Inserts in the open transaction of a connection, as of one moment."""

    def __init__(
        self,
        connection: Connection,
        statements: Mapping[str, str],
        moves: Moves,
        now: datetime,
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._moves = moves
        self._now = now

    async def open_waits(self, waits: Sequence[tuple[str, str, NewWait]]) -> None:
        """Open waits of runs, given by namespace and id; one of the same key is replaced."""
        latest = {(run, namespace, wait.key): wait for namespace, run, wait in waits}
        if not latest:
            return
        ordered = sorted(latest.items(), key=lambda item: item[0])
        await self._fetch(
            "open_waits",
            self._now,
            [namespace for (_, namespace, _), _ in ordered],
            [run for (run, _, _), _ in ordered],
            *new_wait_columns([wait for _, wait in ordered]),
        )
        if any(wait.delay is not None or wait.due_at is not None for wait in latest.values()):
            self._moves.due()

    async def add_runs(self, runs: Sequence[NewRun]) -> None:
        """Add runs with all that they begin with; one whose id is taken is left out."""
        while runs:
            runs = await self._add_generation(runs)

    async def _add_generation(self, runs: Sequence[NewRun]) -> list[NewRun]:
        """Add runs, and answer their children."""
        wanted = {(run.namespace, run.id): run for run in runs}
        ordered = [wanted[place] for place in sorted(wanted)]
        rows = await self._fetch("add_runs", self._now, *child_columns(ordered))
        added = [(serial, wanted[namespace, id]) for namespace, id, serial in rows]
        await self._add_events(added)
        new = [run for _, run in added]
        await self._add_jobs(new)
        await self.open_waits([(run.namespace, run.id, wait) for run in new for wait in run.waits])
        await self._wake_parents([run for run in new if run.status in ENDED])
        for run in new:
            self._moves.stepped(run.id, is_moved=True)
        return [child for run in new for child in run.children]

    async def _add_events(self, added: Sequence[tuple[int, NewRun]]) -> None:
        events = [
            (serial, number, event)
            for serial, run in added
            for number, event in enumerate(run.events, 1)
        ]
        if events:
            await self._fetch(
                "add_events",
                self._now,
                [serial for serial, _, _ in events],
                [number for _, number, _ in events],
                [event.data for _, _, event in events],
                [event.value for _, _, event in events],
            )

    async def _add_jobs(self, runs: Sequence[NewRun]) -> None:
        jobs = [job for run in runs for job in run.jobs]
        for job in jobs:
            check_times(job)
            note_queued(job, self._moves)
        if jobs:
            await self._fetch("insert_jobs", self._now, *new_job_columns(jobs))

    async def _wake_parents(self, ended: Sequence[NewRun]) -> None:
        of_parents = [
            (run.namespace, run.parent.run, run.parent.key, run.id)
            for run in ended
            if run.parent is not None
        ]
        if of_parents:
            columns = ([place[number] for place in of_parents] for number in range(4))
            if await self._fetch("wake_parents", self._now, *columns):
                self._moves.due()

    async def _fetch(self, statement: str, *arguments: Any) -> list[Record]:
        rows: list[Record] = await self._connection.fetch(self._statements[statement], *arguments)
        return rows
