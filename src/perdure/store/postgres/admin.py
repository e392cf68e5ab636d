"""What operators do to jobs and queues, and what they ask now and then."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from perdure.errors import FingerprintTaken, JobBelongsToRun
from perdure.model.duration import nearest_duration
from perdure.model.hint import Hint, HintKind
from perdure.model.ids import JobId
from perdure.model.insight import STRAYS_MAX, EndedCounts, FlowRuns, OrphanedRun, StorageReport
from perdure.model.job import HELD, QueueDepth, QueueInfo, Status, StatusChange
from perdure.model.moment import nearest_storable
from perdure.model.run import FlowCount, RunStatus
from perdure.store.contract import AdminStore
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.rows import STATUS_OF
from perdure.store.postgres.session import Session
from perdure.store.postgres.statements import PACKAGE, place_in_sql
from perdure.store.sql.migrations import indexes_made, load_migrations


class PostgresAdmin(AdminStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def abort_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        return _in_order(
            ids, await self._act("abort_jobs", namespace, list(ids), self._session.moment())
        )

    async def abort_group(self, namespace: str, group: str) -> list[StatusChange]:
        return sorted(
            await self._act("abort_group", namespace, group, self._session.moment()),
            key=lambda moved: moved.id,
        )

    async def disable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        return _in_order(ids, await self._act("disable_jobs", namespace, list(ids)))

    async def enable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        return _in_order(
            ids, await self._act("enable_jobs", namespace, list(ids), self._session.moment())
        )

    async def retry_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        while True:
            try:
                return _in_order(
                    ids, await self._act("retry_jobs", namespace, list(ids), self._session.moment())
                )
            except asyncpg.UniqueViolationError as error:
                rivals = await self._session.fetch("find_retry_rival", namespace, list(ids))
                for queue, fingerprint, rival in rivals:
                    raise FingerprintTaken(
                        queue=queue, fingerprint=fingerprint, job_id=rival
                    ) from error
                # The rival has finished meanwhile: nothing is in the way any more.

    async def resume_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[StatusChange]:
        return _in_order(ids, await self._act("resume_jobs", namespace, list(ids)))

    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> None:
        await self._session.fetch("pause_queue", self._session.moment(), namespace, queue, by)
        self._session.publish(Hint(kind=HintKind.DUE))

    async def resume_queue(self, namespace: str, queue: str) -> None:
        if await self._session.fetch("resume_queue", namespace, queue):
            self._session.publish(Hint(kind=HintKind.READY))

    async def close_limit(self, namespace: str, key: str, until: datetime) -> None:
        await self._session.fetch("close_limit", namespace, key, nearest_storable(until))

    async def _act(self, statement: str, *arguments: Any) -> list[StatusChange]:
        rows = await self._session.fetch(statement, *arguments)
        answers, moves = [], Moves()
        for id, old, new, lane, frees_limit, run in rows:
            if run is not None:
                raise JobBelongsToRun(job_id=id, run_id=run)
            before, after = STATUS_OF[old], STATUS_OF[new]
            answers.append(StatusChange(id=JobId(id), before=before, after=after))
            if before is not after:
                moves.moved(id, after, lane, frees_limit=frees_limit)
                if before in HELD:
                    moves.stopped(id)
        self._session.publish(*moves.hints())
        return answers

    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        return [
            FlowCount(namespace=row[0], flow=row[1], version=row[2], count=row[3])
            for row in await self._session.fetch("live_flows", namespace)
        ]

    async def depth(self, namespace: str | None) -> list[QueueDepth]:
        return [
            QueueDepth(namespace=row[0], queue=row[1], status=STATUS_OF[row[2]], count=row[3])
            for row in await self._session.scan(self._session.statements["depth"], namespace)
        ]

    async def paused_queues(self, namespace: str | None) -> list[QueueInfo]:
        return [
            QueueInfo(namespace=row[0], queue=row[1], paused_at=row[2], paused_by=row[3])
            for row in await self._session.fetch("paused_queues", namespace)
        ]

    async def inspect_storage(self) -> StorageReport:
        schema = self._session.address.schema
        wanted = indexes_made(load_migrations(PACKAGE, place_in_sql(schema)))
        present = dict(await self._session.fetch("indexes_present", schema))
        strays = await self._session.scan(self._session.statements["strays"], STRAYS_MAX)
        return StorageReport(
            schema_version=(await self._session.fetch("schema_version"))[0][0],
            missing_indexes={name: wanted[name] for name in sorted(wanted.keys() - present.keys())},
            invalid_indexes={
                name: f'REINDEX INDEX CONCURRENTLY "{schema}".{name};'
                for name in sorted(wanted)
                if present.get(name) is False
            },
            strays=tuple(OrphanedRun(run=run, namespace=namespace) for run, namespace in strays),
        )

    async def count_flows(self, namespace: str | None) -> list[FlowRuns]:
        return [
            FlowRuns(
                namespace=place,
                flow=flow,
                version=version,
                live=live,
                ended=ended,
                last_submitted_at=last,
            )
            for place, flow, version, live, ended, last in await self._session.scan(
                self._session.statements["count_flows"], namespace
            )
        ]

    async def count_ended(self, namespace: str, keep: timedelta) -> EndedCounts:
        old = (self._session.moment(), namespace, nearest_duration(keep))
        jobs = await self._session.scan(self._session.statements["count_ended_jobs"], *old)
        runs = await self._session.scan(self._session.statements["count_ended_runs"], *old)
        return EndedCounts(
            jobs={Status(status): count for status, count in jobs},
            runs={RunStatus(status): count for status, count in runs},
        )


def _in_order(ids: Sequence[JobId], moved: Sequence[StatusChange]) -> list[StatusChange]:
    by_id = {each.id: each for each in moved}
    return [by_id[id] for id in dict.fromkeys(ids) if id in by_id]
