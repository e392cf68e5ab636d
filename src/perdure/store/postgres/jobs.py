"""Jobs: how they come in, are held, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from perdure.model.duration import nearest_duration
from perdure.model.hint import Hint, HintKind
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.outcome import Completed, Settlement
from perdure.model.worker import Renewal
from perdure.store.contract import ClaimRequest, JobStore, LaneRequest
from perdure.store.postgres.connections import Connection, Record
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.inserting import (
    INSERT_CHUNK,
    Made,
    Rows,
    carry_out,
    insert_steps,
    is_one_statement,
)
from perdure.store.postgres.limits import LimitedClaim
from perdure.store.postgres.rows import (
    LEFT_OVER,
    STARTED_AT,
    STATUS_OF,
    by_rank,
    claimed_job,
    progress_row,
    settled_columns,
    settled_row,
)
from perdure.store.postgres.session import Session
from perdure.store.postgres.transacting import Transacting


class PostgresJobs(JobStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def insert(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        made = Made(jobs)

        async def work(connection: Connection, is_repeated: bool) -> tuple[list[Inserted], Moves]:
            try:
                return await self._insert_all(connection, made, may_be_in=is_repeated)
            except asyncpg.UniqueViolationError:
                return await self._insert_all(connection, made, may_be_in=True)

        inserted, moves = await self._session.connections.run(work)
        self._session.publish(*moves.hints())
        return inserted

    async def _insert_all(
        self, connection: Connection, made: Made, *, may_be_in: bool
    ) -> tuple[list[Inserted], Moves]:
        """One chunk in one statement, if it can be; more of them in one transaction."""
        moves = Moves()
        inserted: list[Inserted] = []
        chunk = made.chunk(0)
        if len(chunk) < INSERT_CHUNK and is_one_statement(chunk):
            return await self._insert(connection, chunk, moves, may_be_in), moves
        async with Transacting(connection):
            while chunk:
                writing = asyncio.create_task(self._insert(connection, chunk, moves, may_be_in))
                try:
                    await asyncio.sleep(0)  # on its way, before the next ones are made
                    chunk = made.chunk(len(inserted) + len(chunk))
                finally:
                    inserted += await writing
        return inserted, moves

    async def _insert(
        self, connection: Connection, jobs: Sequence[NewJob], moves: Moves, may_be_in: bool
    ) -> list[Inserted]:
        async def execute(statement: str, arguments: Sequence[Any]) -> Rows:
            rows: Rows = await connection.fetch(self._session.statements[statement], *arguments)
            return rows

        steps = insert_steps(jobs, self._session.moment(), moves, may_be_in=may_be_in)
        return await carry_out(steps, execute)

    async def claim(self, request: ClaimRequest) -> Claimed:
        lanes = list({lane.lane: lane for lane in request.lanes}.values())
        if not lanes or request.limit < 1:
            return Claimed(jobs=[], now=await self._session.present())
        if any(lane.rules for lane in lanes):
            return await self._session.connections.run(
                LimitedClaim(self._session.statements, request, lanes, self._session.clock).run
            )
        rows, is_repeated = await self._claim_unlimited(request, lanes)
        if not rows:
            return Claimed(jobs=[], now=await self._session.present(), is_repeated=is_repeated)
        rows.sort(key=by_rank)
        jobs = [claimed_job(row, request.namespace) for row in rows]
        return Claimed(jobs=jobs, now=rows[0][STARTED_AT], is_repeated=is_repeated)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        by_id = {settlement.claim.id: settlement for settlement in settlements}
        if len(by_id) < len(settlements):  # a second outcome of a job comes after the first
            return [(await self.settle([each]))[0] for each in settlements]
        if not by_id:
            return []
        # In the order of ids, so that two batches never wait for each other's rows.
        batch = [by_id[id] for id in sorted(by_id)]
        if _all_completed(batch):
            rows = await self._settle_completed(batch)
        else:
            rows = await self._settle_any(batch)
        statuses = {row[0]: STATUS_OF[row[1]] for row in rows}
        return [statuses.get(settlement.claim.id) for settlement in settlements]

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        columns, span = _columns_of(claims), nearest_duration(lease)
        return _renewal(
            claims,
            await self._session.fetch("renew_leases", self._session.moment(), *columns, span),
        )

    async def check(self, claims: Sequence[Claim]) -> Renewal:
        return _renewal(claims, await self._session.fetch("check_claims", *_columns_of(claims)))

    async def save_progress(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        latest = sorted(dict(progress).items(), key=lambda item: item[0].id)
        rows = [progress_row(value) for _, value in latest]
        changed = await self._session.fetch(
            "save_progress",
            *_columns_of([claim for claim, _ in latest]),
            *([row[number] for row in rows] for number in range(3)),
        )
        if changed:
            self._session.publish(
                Hint(kind=HintKind.CHANGED, names=frozenset(row[0] for row in changed))
            )

    async def requeue_unknown(self, worker: WorkerId, known: Sequence[JobId]) -> int:
        rows = await self._session.fetch(
            "give_back_unknown", self._session.moment(), worker, list(known)
        )
        self._publish_moved(rows)
        return len(rows)

    async def _claim_unlimited(
        self, request: ClaimRequest, lanes: Sequence[LaneRequest]
    ) -> tuple[list[Record], bool]:
        """What was claimed, and whether an unanswered try may have claimed more."""
        holder = (
            self._session.moment(),
            request.namespace,
            request.worker,
            nearest_duration(request.lease),
        )
        if len(lanes) == 1:
            lane, queue = lanes[0].lane, lanes[0].queue
            return await self._claim("claim_from_one_lane", *holder, lane, queue, request.limit)
        names, queues = [lane.lane for lane in lanes], [lane.queue for lane in lanes]
        # One more than a fair share of each lane: enough to bound what is worth locking.
        share = -(-request.limit // len(lanes)) + 1
        is_any_repeated = False
        for front in (share, 0):
            rows, is_repeated = await self._claim(
                "claim_from_lanes", *holder, names, queues, request.limit, front
            )
            is_any_repeated |= is_repeated
            if rows:
                if rows[0][LEFT_OVER]:
                    self._session.publish(Hint(kind=HintKind.READY, names=frozenset(names)))
                return rows, is_any_repeated
            # Other claimers may have locked all within the bound: look again without one.
        return [], is_any_repeated

    async def _claim(self, statement: str, *arguments: Any) -> tuple[list[Record], bool]:
        async def work(connection: Connection, is_repeated: bool) -> tuple[list[Record], bool]:
            rows: list[Record] = await connection.fetch(
                self._session.statements[statement], *arguments
            )
            return rows, is_repeated

        return await self._session.connections.run(work)

    async def _settle_completed(self, batch: Sequence[Settlement]) -> list[Record]:
        claims = _columns_of([settlement.claim for settlement in batch])
        columns = (
            *claims,
            [settlement.outcome.output for settlement in batch],  # type: ignore[union-attr]
            batch[0].is_dropped,
        )
        rows = await self._settle("settle_completed", claims, columns)
        if rows:
            moves = Moves()
            moves.changed(row[0] for row in rows)
            if any(row[2] for row in rows):
                moves.frees_limit()
            self._session.publish(*moves.hints())
        return rows

    async def _settle_any(self, batch: Sequence[Settlement]) -> list[Record]:
        claims = _columns_of([settlement.claim for settlement in batch])
        columns = settled_columns([settled_row(settlement) for settlement in batch])
        rows = await self._settle("settle_jobs", claims, columns)
        self._publish_moved(rows)
        return rows

    async def _settle(
        self, statement: str, claims: tuple[list[str], list[int]], columns: Sequence[Any]
    ) -> list[Record]:
        async def work(connection: Connection, is_repeated: bool) -> list[Record]:
            rows: list[Record] = await connection.fetch(
                self._session.statements[statement], self._session.moment(), *columns
            )
            if is_repeated and len(rows) < len(columns[0]):
                done = {row[0] for row in rows}
                before = await connection.fetch(
                    self._session.statements["settled_already"], *claims
                )
                rows += [row for row in before if row[0] not in done]
            return rows

        return await self._session.connections.run(work)

    def _publish_moved(self, rows: Sequence[Record]) -> None:
        moves = Moves()
        for id, status, was_limited, lane in rows:
            moves.moved(id, status, lane, frees_limit=was_limited)
        self._session.publish(*moves.hints())


def _all_completed(batch: Sequence[Settlement]) -> bool:
    """Whether nothing but outputs is to be written: the common case, and a cheaper statement."""
    is_dropped = batch[0].is_dropped
    return all(
        type(each.outcome) is Completed and each.progress is None and each.is_dropped is is_dropped
        for each in batch
    )


def _columns_of(claims: Sequence[Claim]) -> tuple[list[str], list[int]]:
    """Ids and epochs, in the order in which rows are locked everywhere."""
    ordered = sorted((claim.id, claim.epoch) for claim in claims)
    return [id for id, _ in ordered], [epoch for _, epoch in ordered]


def _renewal(claims: Sequence[Claim], held: Sequence[Record]) -> Renewal:
    current = {row[0] for row in held}
    return Renewal(
        lost=frozenset(claim.id for claim in claims if claim.id not in current),
        aborting=frozenset(row[0] for row in held if row[1]),
    )
