"""What any worker may do, one at a time, in bounded batches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from perdure.errors import DeadlineExceeded, WorkerDied
from perdure.model.hint import Hint, HintKind
from perdure.model.ids import WorkerId
from perdure.model.job import Status, TakenOver
from perdure.model.lane import Lane
from perdure.model.retry import type_name
from perdure.model.worker import Survey, WorkerInfo
from perdure.store.contract import SURVEY_LANES_MAX, HousekeepingStore
from perdure.store.postgres.access import Access
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.rows import STATUS_OF


class PostgresHousekeeping(Access, HousekeepingStore):
    async def survey(self, namespace: str, after_lane: str = "") -> Survey:
        (row,) = await self._fetch(
            "survey", self._moment(), namespace, after_lane, SURVEY_LANES_MAX
        )
        return Survey(
            now=row[0],
            lanes=tuple(row[1]),
            next_due_at=row[2],
            next_lease_end_at=row[3],
            next_deadline_at=row[4],
        )

    async def lead(self, duty: str, worker: WorkerId, lease: timedelta) -> bool:
        return bool(await self._fetch("lead", self._moment(), duty, worker, lease))

    async def promote_due(self, limit: int) -> int:
        rows = await self._fetch("promote_due", self._moment(), limit)
        moves = Moves()
        for id, lane in rows:
            moves.moved(id, Status.WAITING, lane)
        self._publish(*moves.hints())
        return len(rows)

    async def take_over_expired(self, limit: int, deaths_max: int) -> list[TakenOver]:
        rows = await self._fetch(
            "take_over_expired", self._moment(), limit, deaths_max, type_name(WorkerDied)
        )
        taken, moves = [], Moves()
        for id, namespace, lane, holder, status, was_limited in rows:
            moves.moved(id, status, lane, frees_limit=was_limited)
            taken.append(
                TakenOver(
                    id=id,
                    namespace=namespace,
                    lane=Lane.parse(lane),
                    worker=holder,
                    after=STATUS_OF[status],
                )
            )
        self._publish(*moves.hints())
        return taken

    async def expire_deadlines(self, limit: int) -> int:
        rows = await self._fetch(
            "expire_deadlines", self._moment(), limit, type_name(DeadlineExceeded)
        )
        if rows:
            self._publish(Hint(kind=HintKind.CHANGED, names=frozenset(row[0] for row in rows)))
        return len(rows)

    async def prune_jobs(self, keep: Mapping[Status, timedelta], limit: int) -> int:
        others = {status: span for status, span in keep.items() if status is not Status.COMPLETED}
        rows = await self._fetch(
            "prune_jobs",
            self._moment(),
            keep.get(Status.COMPLETED),
            list(others),
            list(others.values()),
            limit,
        )
        return len(rows)

    async def register_worker(self, info: WorkerInfo) -> None:
        text = msgspec.json.encode(info).decode()
        await self._fetch("register_worker", self._moment(), info.id, info.namespace, text)

    async def remove_worker(self, id: WorkerId) -> None:
        await self._fetch("remove_worker", id)

    async def prune_workers(self, idle: timedelta) -> int:
        return len(await self._fetch("prune_workers", self._moment(), idle))
