"""What people do to jobs and queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from perdure.errors import FingerprintTaken, JobBelongsToRun
from perdure.model.hint import Hint, HintKind
from perdure.model.ids import JobId
from perdure.model.job import HELD, Moved
from perdure.model.moment import nearest_storable
from perdure.store.contract import OperatorStore
from perdure.store.postgres.access import Access
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.rows import STATUS_OF


class PostgresOperators(Access, OperatorStore):
    async def abort_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return _in_order(ids, await self._act("abort_jobs", namespace, list(ids), self._moment()))

    async def abort_group(self, namespace: str, group: str) -> list[Moved]:
        return sorted(
            await self._act("abort_group", namespace, group, self._moment()),
            key=lambda moved: moved.id,
        )

    async def disable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return _in_order(ids, await self._act("disable_jobs", namespace, list(ids)))

    async def enable_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return _in_order(ids, await self._act("enable_jobs", namespace, list(ids), self._moment()))

    async def retry_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        while True:
            try:
                return _in_order(
                    ids, await self._act("retry_jobs", namespace, list(ids), self._moment())
                )
            except asyncpg.UniqueViolationError as error:
                rivals = await self._fetch("find_retry_rival", namespace, list(ids))
                for queue, fingerprint, rival in rivals:
                    raise FingerprintTaken(queue, fingerprint, rival) from error
                # The rival has finished meanwhile: nothing is in the way any more.

    async def resume_jobs(self, namespace: str | None, ids: Sequence[JobId]) -> list[Moved]:
        return _in_order(ids, await self._act("resume_jobs", namespace, list(ids)))

    async def pause_queue(self, namespace: str, queue: str, by: str | None) -> None:
        await self._fetch("pause_queue", self._moment(), namespace, queue, by)
        self._publish(Hint(kind=HintKind.DUE))

    async def resume_queue(self, namespace: str, queue: str) -> None:
        if await self._fetch("resume_queue", namespace, queue):
            self._publish(Hint(kind=HintKind.READY))

    async def close_limit(self, namespace: str, key: str, until: datetime) -> None:
        await self._fetch("close_limit", namespace, key, nearest_storable(until))

    async def _act(self, statement: str, *arguments: Any) -> list[Moved]:
        rows = await self._fetch(statement, *arguments)
        answers, moves = [], Moves()
        for id, old, new, lane, frees_limit, run in rows:
            if run is not None:
                raise JobBelongsToRun(id, run)
            before, after = STATUS_OF[old], STATUS_OF[new]
            answers.append(Moved(id=JobId(id), before=before, after=after))
            if before is not after:
                moves.moved(id, after, lane, frees_limit=frees_limit)
                if before in HELD:
                    moves.stopped(id)
        self._publish(*moves.hints())
        return answers


def _in_order(ids: Sequence[JobId], moved: Sequence[Moved]) -> list[Moved]:
    by_id = {each.id: each for each in moved}
    return [by_id[id] for id in dict.fromkeys(ids) if id in by_id]
