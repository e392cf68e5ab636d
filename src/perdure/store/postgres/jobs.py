"""Inserting, claiming and settling jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import asyncpg
import msgspec
from msgspec.structs import replace

from perdure.clock import Clock
from perdure.errors import FingerprintTaken
from perdure.model.check import check_times
from perdure.model.hint import Hint, HintType
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage, LimitUse
from perdure.model.outcome import Completed, Settlement
from perdure.model.run import StoredStep
from perdure.model.times import nearest_duration
from perdure.model.worker import Renewal
from perdure.store import admission
from perdure.store.contract import ClaimRequest, JobStore, PartitionClaim
from perdure.store.contract.refusals import deadline_passed
from perdure.store.failures import replaced_by
from perdure.store.hints import WriteHints
from perdure.store.postgres.connection import Connection, Record, Transacting
from perdure.store.postgres.params import (
    AcceptParkedParams,
    ChosenColumns,
    ClaimFromOnePartitionParams,
    ClaimFromPartitionsParams,
    FindRivalsParams,
    FingerprintColumns,
    InsertParams,
    LimitCandidatesParams,
    MoveStartParams,
    OutputColumns,
    PartitionColumns,
    ProgressColumns,
    ReplaceRivalsParams,
    ReplacingColumns,
    ResumeParkedParams,
    RoomColumns,
    SaveProgressParams,
    SettleCompletedParams,
    SettleParams,
    SkippedAllParams,
    StartColumns,
    StartUnderLimitsParams,
)
from perdure.store.postgres.rows import (
    HAS_SKIPPED,
    STARTED_AT,
    by_rank,
    claimed_job,
    encode_failure,
    job_columns,
    like_job_params,
    outcome_columns,
    progress_row,
)
from perdure.store.postgres.session import Session
from perdure.store.sql.rows import STATUS_OF
from perdure.store.sql.statements import Params, arguments_of

Step = tuple[str, Sequence[Any]]
"""A statement's name and its arguments."""

Rows = Sequence[Sequence[Any]]

Steps = Generator[Step, Rows, list[Inserted]]

INSERT_CHUNK = 2_000
"""Jobs per statement; the next ones are created while the server works on them."""


async def run_steps(
    steps: Steps, execute: Callable[[str, Sequence[Any]], Awaitable[Rows]]
) -> list[Inserted]:
    try:
        step = next(steps)
        while True:
            step = steps.send(await execute(*step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what Steps says it returns


def run_steps_blocking(
    steps: Steps, execute: Callable[[str, Sequence[Any]], Rows]
) -> list[Inserted]:
    try:
        step = next(steps)
        while True:
            step = steps.send(execute(*step))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what Steps says it returns


class Made:
    """A lazy sequence of new jobs, buffered so that an insert can be retried."""

    def __init__(self, jobs: Iterable[NewJob]) -> None:
        self._jobs: list[NewJob] = []
        self._rest = iter(jobs)

    def chunk(self, start: int) -> list[NewJob]:
        """The next chunk from ``start``; creates no more jobs than it needs."""
        missing = start + INSERT_CHUNK - len(self._jobs)
        self._jobs.extend(islice(self._rest, max(0, missing)))
        return self._jobs[start : start + INSERT_CHUNK]


def is_one_statement(jobs: Sequence[NewJob]) -> bool:
    """Whether the insert needs no transaction."""
    return all(job.fingerprint is None for job in jobs)


def insert_steps(
    jobs: Sequence[NewJob], moment: datetime | None, moves: WriteHints, *, may_be_in: bool = True
) -> Steps:
    """Insert jobs and answer in their order; adds their hints to ``moves``.

    ``may_be_in``: an earlier attempt may have inserted them. Without it, an existing id is a
    database error, after which the caller tries again with it.
    """
    if not jobs:
        return []
    for job in jobs:
        check_times(job)
    yield from _check_deadlines(jobs, moment)
    if is_one_statement(jobs):
        return (yield from _insert_plain(jobs, moment, moves, may_be_in))
    if not any(job.on_conflict == "raise" for job in jobs):
        return (yield from _insert_unique(jobs, moment, moves))
    yield "mark_start", ()
    try:
        inserted = yield from _insert_unique(jobs, moment, moves)
    except FingerprintTaken:
        yield "undo_to_start", ()
        raise
    yield "forget_start", ()
    return inserted


def _check_deadlines(
    jobs: Sequence[NewJob], moment: datetime | None
) -> Generator[Step, Rows, None]:
    fixed = []
    for job in jobs:
        if job.deadline_at is not None:
            fixed.append(job)
        elif job.deadline is not None and job.deadline <= timedelta(0):
            raise deadline_passed(job.id, job.deadline)
    if not fixed:
        return
    ids, deadlines = [job.id for job in fixed], [job.deadline_at for job in fixed]
    for id, deadline_at, now in (yield "late_deadlines", (moment, ids, deadlines)):
        raise deadline_passed(id, deadline_at, now)


def _insert_plain(
    jobs: Sequence[NewJob], moment: datetime | None, moves: WriteHints, may_be_in: bool
) -> Generator[Step, Rows, list[Inserted]]:
    """Insert jobs without fingerprints: only the id can exist, which counts as inserted."""
    params = None if may_be_in else like_job_params(moment, jobs)
    if params is None:
        yield from _insert(jobs, moment, moves)
    else:
        [(is_waiting,)] = yield "insert_like_jobs", arguments_of(params)
        moves.queued(_status(is_waiting), jobs[0].partition.text)
    return [Inserted(id=job.id, is_new=True) for job in jobs]


def _insert(
    jobs: Sequence[NewJob], moment: datetime | None, moves: WriteHints
) -> Generator[Step, Rows, set[str]]:
    """The ids of inserted jobs; the others have an existing id or fingerprint."""
    partitions = {job.id: job.partition.text for job in jobs}
    new = yield "insert_jobs", arguments_of(InsertParams(now=moment, jobs=job_columns(jobs)))
    for id, is_waiting in new:
        moves.queued(_status(is_waiting), partitions[id])
    return {row[0] for row in new}


def _status(is_waiting: bool) -> Status:
    return Status.WAITING if is_waiting else Status.SCHEDULED


def _insert_unique(jobs: Sequence[NewJob], moment: datetime | None, moves: WriteHints) -> Steps:
    answers: list[Inserted] = []
    for run in _runs(jobs):
        found: dict[str, Inserted] = {}
        while left := [job for job in run if job.id not in found]:
            if left[0].on_conflict == "replace":
                yield from _replace_rivals(left, moment, moves)
            for id in (yield from _insert(left, moment, moves)):
                found[id] = Inserted(id=JobId(id), is_new=True)
            # Jobs whose rival has finished since are tried again.
            yield from _find_rivals([job for job in left if job.id not in found], found)
        answers += [found[job.id] for job in run]
    return answers


def _runs(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Split jobs into groups that one statement can insert as if one by one.

    A replacing job cancels earlier ones of the same call, so it starts a new group unless all jobs
    of the group replace different fingerprints.
    """
    run: list[NewJob] = []
    taken: set[tuple[str, str, str | None]] = set()
    for job in jobs:
        place = (job.namespace, job.partition.queue, job.fingerprint)
        replaces = job.on_conflict == "replace"
        if run and (replaces != (run[0].on_conflict == "replace") or (replaces and place in taken)):
            yield run
            run, taken = [], set()
        run.append(job)
        taken.add(place)
    yield run


def _replace_rivals(
    jobs: Sequence[NewJob], moment: datetime | None, moves: WriteHints
) -> Generator[Step, Rows, None]:
    failures = [encode_failure(replaced_by(job.id)) for job in jobs]
    given = ReplacingColumns(*_fingerprints(jobs), failure=failures)
    params = ReplaceRivalsParams(now=moment, given=given)
    replaced = yield "replace_rivals", arguments_of(params)
    for id, was_held, was_limited in replaced:
        moves.moved(id, Status.CANCELLED, None, frees_limit=was_limited)
        if was_held:
            moves.stopped(id)


def _find_rivals(jobs: Sequence[NewJob], found: dict[str, Inserted]) -> Generator[Step, Rows, None]:
    if not jobs:
        return
    met = yield "find_rivals", arguments_of(FindRivalsParams(given=_fingerprints(jobs)))
    rivals = {id: (is_in, rival) for id, is_in, rival in met}
    for job in jobs:
        is_in, rival = rivals[job.id]
        if is_in:
            found[job.id] = Inserted(id=job.id, is_new=True)  # retried after a lost response
        elif rival is not None and job.on_conflict == "return":
            found[job.id] = Inserted(id=JobId(rival), is_new=False)
        elif rival is not None and job.on_conflict == "raise":
            raise FingerprintTaken(
                queue=job.partition.queue, fingerprint=job.fingerprint or "", job_id=rival
            )


def _fingerprints(jobs: Sequence[NewJob]) -> FingerprintColumns:
    return FingerprintColumns(
        id=[job.id for job in jobs],
        namespace=[job.namespace for job in jobs],
        queue=[job.partition.queue for job in jobs],
        fingerprint=[job.fingerprint for job in jobs],
    )


class LimitedClaim:
    """A claim from partitions of which some have limit rules, in one transaction."""

    def __init__(
        self,
        statements: Mapping[str, str],
        request: ClaimRequest,
        partitions: Sequence[PartitionClaim],
        clock: Clock | None,
    ) -> None:
        self._statements = statements
        self._request = request
        self._partitions = partitions
        self._clock = clock
        self._rules = tuple(
            dict.fromkeys(rule for partition in partitions for rule in partition.rules)
        )
        self._keys = sorted({rule.key for rule in self._rules})
        self._is_bounded = False
        """Whether what limits count was changed, because the clock was set back."""

    async def run(self, connection: Connection, is_repeated: bool) -> Claimed:
        async with Transacting(connection) as transaction:
            claimed = await self._claim(connection)
            if not claimed.jobs and not self._is_bounded:
                transaction.undo()
        return msgspec.structs.replace(claimed, is_repeated=True) if is_repeated else claimed

    async def _claim(self, connection: Connection) -> Claimed:
        usages, paused, now = await self._usage(connection)
        partitions = [partition for partition in self._partitions if partition.queue not in paused]
        rules = dict.fromkeys(rule for partition in partitions for rule in partition.rules)
        rooms = admission.rooms({rule: usages[rule] for rule in rules}, now)
        left = {key: room.count for key, room in rooms.items()}

        partition_of, has_skipped = await self._candidates(connection, partitions, left, now)
        keys_of = {
            partition.partition: sorted({rule.key for rule in partition.rules})
            for partition in partitions
        }
        chosen = admission.share_out(
            ((id, keys_of[partition]) for id, partition in partition_of.items()),
            left,
            self._request.limit,
        )

        windows = admission.windows(rules)
        rows = await self._start(
            connection, {id: keys_of[partition_of[id]] for id in chosen}, windows, now
        )
        return Claimed(
            jobs=[claimed_job(row, self._request.namespace) for row in rows],
            now=now,
            opens_at=admission.opens_at(rooms),
            has_skipped=has_skipped,
        )

    async def _lock(self, connection: Connection) -> dict[str, Record]:
        """Lock the rows of all keys until the end, creating missing ones."""
        arguments = (self._request.namespace, self._keys)
        while True:
            rows = await connection.fetch(self._statements["lock_limits"], *arguments)
            if len(rows) == len(self._keys):
                return {row[0]: row for row in rows}
            await connection.fetch(self._statements["add_limits"], *arguments)

    async def _usage(
        self, connection: Connection
    ) -> tuple[dict[LimitRule, LimitUsage], Sequence[str], datetime]:
        """The usage of each rule, the paused queues, and the time."""
        limits = await self._lock(connection)
        rates = [rule for rule in self._rules if rule.window is not None]
        now, paused, keys, counts, starts, oldest, newest = await connection.fetchrow(
            self._statements["limit_usage"],
            None if self._clock is None else self._clock(),
            self._request.namespace,
            [rule.key for rule in rates],
            [rule.window for rule in rates],
        )
        recorded = (*newest, *(at for row in limits.values() for at in (row[2], row[3])))
        if any(admission.is_ahead(at, now) for at in recorded):
            arguments = (now, self._request.namespace, self._keys)
            await connection.fetch(self._statements["bound_limits"], *arguments)
            self._is_bounded = True
            return await self._usage(connection)
        live = dict(zip(keys, counts, strict=True))
        started = dict(zip(rates, zip(starts, oldest, strict=True), strict=True))
        usages = {}
        for rule in self._rules:
            count, oldest_start_at = started.get(rule, (0, None))
            usages[rule] = LimitUsage(
                live=live.get(rule.key, 0),
                starts=count,
                oldest_start_at=oldest_start_at,
                last_start_at=limits[rule.key][2],
                closed_until=limits[rule.key][1],
            )
        return usages, paused, now

    async def _candidates(
        self,
        connection: Connection,
        partitions: Sequence[PartitionClaim],
        left: Mapping[str, int],
        now: datetime,
    ) -> tuple[dict[str, str], bool]:
        """The startable jobs with their partitions, lowest rank first, and whether some were
        skipped; of each partition as many as its keys have room for.
        """
        wanted = {}
        for partition in partitions:
            room = min([self._request.limit, *(left[rule.key] for rule in partition.rules)])
            if room > 0:
                wanted[partition.partition] = room
        if not wanted:
            return {}, False
        params = LimitCandidatesParams(
            now=now,
            namespace=self._request.namespace,
            worker=self._request.worker,
            wanted=RoomColumns(partition_key=list(wanted), room=list(wanted.values())),
        )
        rows: list[Record] = await connection.fetch(
            self._statements["limit_candidates"], *arguments_of(params)
        )
        return {row[0]: row[1] for row in rows if row[0] is not None}, rows[0][2]

    async def _start(
        self,
        connection: Connection,
        chosen: Mapping[str, list[str]],
        windows: Mapping[str, timedelta],
        now: datetime,
    ) -> list[Record]:
        if not chosen:
            return []
        counts = Counter(key for keys in chosen.values() for key in keys)
        keys = [msgspec.json.encode(keys).decode() if keys else None for keys in chosen.values()]
        params = StartUnderLimitsParams(
            now=now,
            namespace=self._request.namespace,
            worker=self._request.worker,
            lease=nearest_duration(self._request.lease),
            chosen=ChosenColumns(id=list(chosen), keys=keys),
            starts=StartColumns(
                key=list(counts),
                number=list(counts.values()),
                span=[windows.get(key) for key in counts],
                memory=[admission.memory_of(self._rules, key) for key in counts],
            ),
            alone=self._request.is_alone,
            incarnation=self._request.incarnation,
        )
        rows: list[Record] = await connection.fetch(
            self._statements["start_under_limits"], *arguments_of(params)
        )
        return sorted(rows, key=by_rank)


def limit_use(row: Record) -> LimitUse:
    ids = row[0]
    usage = LimitUsage(
        live=len(ids),
        starts=row[1],
        oldest_start_at=row[2],
        last_start_at=row[3],
        closed_until=row[4],
    )
    return LimitUse(usage=usage, held_by=tuple(ids[:HOLDERS_MAX]))


class PostgresJobs(JobStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def insert(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        made = Made(jobs)

        async def work(
            connection: Connection, is_repeated: bool
        ) -> tuple[list[Inserted], WriteHints]:
            try:
                return await self._insert_all(connection, made, may_be_in=is_repeated)
            except asyncpg.UniqueViolationError:
                return await self._insert_all(connection, made, may_be_in=True)

        inserted, moves = await self._session.connections.run(work)
        self._session.publish(*moves.hints())
        return inserted

    async def _insert_all(
        self, connection: Connection, made: Made, *, may_be_in: bool
    ) -> tuple[list[Inserted], WriteHints]:
        """Insert one chunk in one statement if possible; several in one transaction."""
        moves = WriteHints()
        inserted: list[Inserted] = []
        chunk = made.chunk(0)
        if len(chunk) < INSERT_CHUNK and is_one_statement(chunk):
            return await self._insert(connection, chunk, moves, may_be_in), moves
        async with Transacting(connection):
            while chunk:
                writing = asyncio.create_task(self._insert(connection, chunk, moves, may_be_in))
                try:
                    await asyncio.sleep(0)  # send it before the next ones are created
                    chunk = made.chunk(len(inserted) + len(chunk))
                finally:
                    inserted += await writing
        return inserted, moves

    async def _insert(
        self, connection: Connection, jobs: Sequence[NewJob], moves: WriteHints, may_be_in: bool
    ) -> list[Inserted]:
        async def execute(statement: str, arguments: Sequence[Any]) -> Rows:
            rows: Rows = await connection.fetch(self._session.statements[statement], *arguments)
            return rows

        steps = insert_steps(jobs, self._session.moment(), moves, may_be_in=may_be_in)
        return await run_steps(steps, execute)

    async def claim(self, request: ClaimRequest) -> Claimed:
        partitions = list(
            {partition.partition: partition for partition in request.partitions}.values()
        )
        if not partitions or request.limit < 1:
            return Claimed(jobs=[], now=await self._session.present())
        if any(partition.rules for partition in partitions):
            return await self._session.connections.run(
                LimitedClaim(self._session.statements, request, partitions, self._session.clock).run
            )
        rows, is_repeated = await self._claim_unlimited(request, partitions)
        if rows:
            rows.sort(key=by_rank)
            now, has_skipped = rows[0][STARTED_AT], rows[0][HAS_SKIPPED]
        else:
            params = SkippedAllParams(
                now=self._session.moment(),
                namespace=request.namespace,
                worker=request.worker,
                wanted=_partition_columns(partitions),
            )
            [(now, has_skipped)] = await self._session.fetch("skipped_all", *arguments_of(params))
        return Claimed(
            jobs=[claimed_job(row, request.namespace) for row in rows],
            now=now,
            is_repeated=is_repeated,
            has_skipped=has_skipped,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        by_id = {settlement.claim.id: settlement for settlement in settlements}
        if len(by_id) < len(settlements):  # a second outcome of a job follows the first
            return [(await self.settle([each]))[0] for each in settlements]
        if not by_id:
            return []
        # Sorted by id, so that no two batches deadlock.
        batch = [by_id[id] for id in sorted(by_id)]
        if _all_completed(batch):
            rows = await self._settle_completed(batch)
        else:
            rows = await self._settle_any(batch)
        statuses = {row[0]: STATUS_OF[row[1]] for row in rows}
        return [statuses.get(settlement.claim.id) for settlement in settlements]

    async def settle_parked(self, settlement: Settlement, worker: WorkerId) -> Status | None:
        claim, statements = settlement.claim, self._session.statements
        accepted = replace(settlement, claim=Claim(id=claim.id, epoch=claim.epoch + 1))
        now = self._session.moment()
        outcome = arguments_of(SettleParams(now=now, outcomes=outcome_columns([accepted])))

        async def work(connection: Connection, is_repeated: bool) -> list[Record]:
            params = AcceptParkedParams(
                now=now, id=claim.id, epoch=claim.epoch, worker=worker, is_repeated=is_repeated
            )
            async with Transacting(connection):
                found = await connection.fetch(statements["accept_parked"], *arguments_of(params))
                for is_claimed, status in found:
                    if not is_claimed:
                        return [(claim.id, status, False, None)]
                    rows: list[Record] = await connection.fetch(statements["settle_jobs"], *outcome)
                    return rows
                return []

        rows = await self._session.connections.run(work)
        self._publish_moved(rows)
        return STATUS_OF[rows[0][1]] if rows else None

    async def resume_parked(self, claim: Claim, step: StoredStep) -> bool:
        params = ResumeParkedParams(
            id=claim.id, epoch=claim.epoch, name=step.name, value=step.value
        )
        rows = await self._session.fetch("resume_parked", *arguments_of(params))
        self._publish_moved(rows)
        return bool(rows)

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        columns, span = _columns_of(claims), nearest_duration(lease)
        held = await self._session.fetch("renew_leases", self._session.moment(), *columns, span)
        return await self._renewal(claims, held)

    async def check(self, claims: Sequence[Claim]) -> Renewal:
        held = await self._session.fetch("check_claims", *_columns_of(claims))
        return await self._renewal(claims, held)

    async def _renewal(self, claims: Sequence[Claim], held: Sequence[Record]) -> Renewal:
        current = {row[0] for row in held}
        lost = [claim.id for claim in claims if claim.id not in current]
        disabled = await self._session.fetch("disabled_among", lost) if lost else ()
        return Renewal(
            lost=frozenset(lost),
            disabled=frozenset(row[0] for row in disabled),
            aborting=frozenset(row[0] for row in held if row[1]),
        )

    async def save_progress(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        # Every transaction locks jobs in the order of their ids.
        latest = sorted(dict(progress).items(), key=lambda item: item[0].id)
        rows = [progress_row(value) for _, value in latest]
        columns = ProgressColumns(
            id=[claim.id for claim, _ in latest],
            epoch=[claim.epoch for claim, _ in latest],
            percent=[percent for percent, _, _ in rows],
            message=[message for _, message, _ in rows],
            details=[details for _, _, details in rows],
        )
        params = SaveProgressParams(latest=columns)
        changed = await self._session.fetch("save_progress", *arguments_of(params))
        if changed:
            self._session.publish(
                Hint(type=HintType.CHANGED, names=frozenset(row[0] for row in changed))
            )

    async def move_start(self, claim: Claim, within: timedelta) -> bool:
        params = MoveStartParams(
            now=self._session.moment(),
            id=claim.id,
            epoch=claim.epoch,
            within=nearest_duration(within),
        )
        statements = self._session.statements

        async def work(connection: Connection, _is_repeated: bool) -> list[Record]:
            async with Transacting(connection):
                await connection.fetch(statements["lock_limits_of_job"], claim.id, claim.epoch)
                rows: list[Record] = await connection.fetch(
                    statements["move_start"], *arguments_of(params)
                )
                return rows

        rows = await self._session.connections.run(work)
        is_moved = bool(rows and rows[0][0])
        if rows and not is_moved:
            moves = WriteHints()
            moves.frees_limit()
            self._session.publish(*moves.hints())
        return is_moved

    async def requeue_unknown(
        self, worker: WorkerId, known: Sequence[JobId], incarnation: int | None = None
    ) -> int:
        rows = await self._session.fetch(
            "requeue_unknown", self._session.moment(), worker, list(known), incarnation
        )
        self._publish_moved(rows)
        return len(rows)

    async def _claim_unlimited(
        self, request: ClaimRequest, partitions: Sequence[PartitionClaim]
    ) -> tuple[list[Record], bool]:
        """The claimed rows, and whether an unanswered attempt may have claimed more."""
        now, lease = self._session.moment(), nearest_duration(request.lease)
        if len(partitions) == 1:
            params = ClaimFromOnePartitionParams(
                now=now,
                namespace=request.namespace,
                worker=request.worker,
                lease=lease,
                partition_key=partitions[0].partition,
                queue=partitions[0].queue,
                limit=request.limit,
                alone=request.is_alone,
                incarnation=request.incarnation,
            )
            return await self._claim("claim_from_one_partition", params)
        # One more than a fair share of each partition: enough to bound the locked rows.
        share = -(-request.limit // len(partitions)) + 1
        is_any_repeated = False
        for front in (share, 0):
            rows, is_repeated = await self._claim(
                "claim_from_partitions",
                ClaimFromPartitionsParams(
                    now=now,
                    namespace=request.namespace,
                    worker=request.worker,
                    lease=lease,
                    wanted=_partition_columns(partitions),
                    limit=request.limit,
                    front=front,
                    alone=request.is_alone,
                    incarnation=request.incarnation,
                ),
            )
            is_any_repeated |= is_repeated
            if rows:
                return rows, is_any_repeated
            # Other claims may have locked all jobs within the bound: retry without a bound.
        return [], is_any_repeated

    async def _claim(self, statement: str, params: Params) -> tuple[list[Record], bool]:
        arguments = arguments_of(params)

        async def work(connection: Connection, is_repeated: bool) -> tuple[list[Record], bool]:
            rows: list[Record] = await connection.fetch(
                self._session.statements[statement], *arguments
            )
            return rows, is_repeated

        return await self._session.connections.run(work)

    async def _settle_completed(self, batch: Sequence[Settlement]) -> list[Record]:
        outcomes = OutputColumns(
            id=[settlement.claim.id for settlement in batch],
            epoch=[settlement.claim.epoch for settlement in batch],
            output=[settlement.outcome.output for settlement in batch],  # type: ignore[union-attr]
        )
        params = SettleCompletedParams(
            now=self._session.moment(), outcomes=outcomes, is_hidden=batch[0].is_hidden
        )
        rows = await self._settle("settle_completed", batch, params)
        if rows:
            moves = WriteHints()
            moves.changed(row[0] for row in rows)
            if any(row[2] for row in rows):
                moves.frees_limit()
            self._session.publish(*moves.hints())
        return rows

    async def _settle_any(self, batch: Sequence[Settlement]) -> list[Record]:
        params = SettleParams(now=self._session.moment(), outcomes=outcome_columns(batch))
        rows = await self._settle("settle_jobs", batch, params)
        self._publish_moved(rows)
        return rows

    async def _settle(
        self, statement: str, batch: Sequence[Settlement], params: Params
    ) -> list[Record]:
        arguments = arguments_of(params)

        async def work(connection: Connection, is_repeated: bool) -> list[Record]:
            rows: list[Record] = await connection.fetch(
                self._session.statements[statement], *arguments
            )
            if is_repeated and len(rows) < len(batch):
                done = {row[0] for row in rows}
                claims = _columns_of([settlement.claim for settlement in batch])
                before = await connection.fetch(
                    self._session.statements["settled_already"], *claims
                )
                rows += [row for row in before if row[0] not in done]
            return rows

        return await self._session.connections.run(work)

    def _publish_moved(self, rows: Sequence[Record]) -> None:
        moves = WriteHints()
        for id, status, was_limited, partition in rows:
            moves.moved(id, status, partition, frees_limit=was_limited)
        self._session.publish(*moves.hints())


def _partition_columns(partitions: Sequence[PartitionClaim]) -> PartitionColumns:
    return PartitionColumns(
        partition_key=[partition.partition for partition in partitions],
        queue=[partition.queue for partition in partitions],
    )


def _all_completed(batch: Sequence[Settlement]) -> bool:
    """Whether there are only outputs to write: the common case, with a cheaper statement."""
    is_hidden = batch[0].is_hidden
    return all(
        type(each.outcome) is Completed and each.progress is None and each.is_hidden is is_hidden
        for each in batch
    )


def _columns_of(claims: Sequence[Claim]) -> tuple[list[str], list[int]]:
    """Ids and epochs, in lock order."""
    ordered = sorted((claim.id, claim.epoch) for claim in claims)
    return [id for id, _ in ordered], [epoch for _, epoch in ordered]
