"""How runs advance: one statement for a batch of steps, and a transaction where they do more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.model.check import check_times, reachable
from perdure.model.ids import JobId
from perdure.model.job import HELD, Claim, NewJob, Status
from perdure.model.partition import Lane
from perdure.model.run import (
    CommitAnswer,
    CommitResult,
    CommitState,
    Continues,
    Ends,
    Repeats,
    RunCommit,
)
from perdure.store.hints import WriteHints, note_queued
from perdure.store.postgres.connection import Connection, Record, Transacting
from perdure.store.postgres.params import (
    ClaimColumns,
    CommitColumns,
    CommitParams,
    EventColumns,
    NewJobColumns,
    RetryColumns,
    SpecColumns,
)
from perdure.store.postgres.rows import encode_failure
from perdure.store.postgres.session import Session
from perdure.store.postgres.submit import Starting
from perdure.store.sql.statements import arguments_of, compact, without_rows


class _Specs:
    """Numbers what jobs have in common from 1, as it comes."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}

    def number_of(self, job: NewJob) -> int:
        lane = job.lane
        spec = (
            job.namespace,
            lane.queue,
            lane.task,
            lane.text,
            job.group,
            job.policy,
            job.input_hash,
            job.priority,
            job.aging.total_seconds(),
            job.max_attempts,
            job.delay,
            job.run_at,
            job.deadline,
            job.deadline_at,
        )
        return self._numbers.setdefault(spec, len(self._numbers) + 1)

    def columns(self) -> SpecColumns:
        """In the order in which ``SpecColumns`` declares them."""
        if not self._numbers:
            return _NO_SPECS
        return SpecColumns(*(compact(list(column)) for column in zip(*self._numbers, strict=True)))


_NO_CLAIMS = without_rows(ClaimColumns)
_NO_JOBS = without_rows(NewJobColumns)
_NO_SPECS = without_rows(SpecColumns)
_NO_RETRIES = without_rows(RetryColumns)

DONE = CommitResult(state=CommitState.DONE)

_CONFLICT = CommitResult(state=CommitState.CONFLICT)


class CommitBatch:
    """Steps of different runs, in the order in which their rows are locked."""

    def __init__(self, commits: Sequence[RunCommit]) -> None:
        self.commits = sorted(commits, key=lambda commit: (commit.namespace, commit.run))
        self._lines = sorted(
            (
                (settlement.claim.id, settlement.claim.epoch, position, settlement.then)
                for position, commit in enumerate(self.commits, 1)
                for settlement in commit.settlements
            ),
            key=lambda line: line[0],
        )
        for commit in self.commits:
            for job in commit.jobs:
                check_times(job)
            for settlement in commit.settlements:
                if type(settlement.then) is Continues:
                    check_times(settlement.then.job)

    @property
    def settled(self) -> list[JobId]:
        """In the order in which they are locked."""
        return [line[0] for line in self._lines]

    def params(self, now: datetime | None, lanes: Sequence[str]) -> CommitParams:
        """What ``commit_runs`` takes."""
        commits, specs = self.commits, _Specs()
        events = [
            (position, number, event)
            for position, commit in enumerate(commits, 1)
            for number, event in enumerate(commit.events, commit.expected + 1)
        ]
        return CommitParams(
            now=now,
            commits=CommitColumns(
                namespace=[commit.namespace for commit in commits],
                run_id=[commit.run for commit in commits],
                expected=[commit.expected for commit in commits],
                token=[commit.token for commit in commits],
                status=[commit.status for commit in commits],
                number=[commit.expected + len(commit.events) for commit in commits],
                summary=compact([commit.summary for commit in commits]),
            ),
            claims=self._claim_columns(specs),
            events=EventColumns(
                commit=[position for position, _, _ in events],
                number=[number for _, number, _ in events],
                data=[event.data for _, _, event in events],
                value=[event.value for _, _, event in events],
            ),
            jobs=self._job_columns(specs),
            specs=specs.columns(),  # all that are numbered by now
            retries=self._retry_columns(),
            namespaces=list({commit.namespace for commit in commits}) if lanes else None,
            lanes=list(lanes) if lanes else None,
        )

    def _claim_columns(self, specs: _Specs) -> ClaimColumns:
        if not self._lines:
            return _NO_CLAIMS
        next_jobs = [then.job if type(then) is Continues else None for _, _, _, then in self._lines]
        return ClaimColumns(
            commit=[position for _, _, position, _ in self._lines],
            id=[id for id, _, _, _ in self._lines],
            epoch=[epoch for _, epoch, _, _ in self._lines],
            ends=[type(then) is Ends for _, _, _, then in self._lines],
            next_spec=compact([None if job is None else specs.number_of(job) for job in next_jobs]),
            input=compact([None if job is None else job.input for job in next_jobs]),
            node_key=compact(
                [None if job is None or job.node is None else job.node.key for job in next_jobs]
            ),
        )

    def _job_columns(self, specs: _Specs) -> NewJobColumns:
        jobs = [
            (position, job)
            for position, commit in enumerate(self.commits, 1)
            for job in commit.jobs
        ]
        if not jobs:
            return _NO_JOBS
        return NewJobColumns(
            commit=[position for position, _ in jobs],
            id=[job.id for _, job in jobs],
            run_id=[None if job.node is None else job.node.run for _, job in jobs],
            spec=[specs.number_of(job) for _, job in jobs],
            input=[job.input for _, job in jobs],
            node_key=[None if job.node is None else job.node.key for _, job in jobs],
        )

    def _retry_columns(self) -> RetryColumns:
        retries = [
            (position, id, reachable(then.outcome))
            for id, _, position, then in self._lines
            if type(then) is Repeats
        ]
        if not retries:
            return _NO_RETRIES
        return RetryColumns(
            commit=[position for position, _, _ in retries],
            id=[id for _, id, _ in retries],
            failure=[encode_failure(retried.failure) for _, _, retried in retries],
            delay=[retried.delay for _, _, retried in retries],
            until=[retried.until for _, _, retried in retries],
            hold_off=[retried.hold_off for _, _, retried in retries],
            is_postponed=[retried.is_postponed for _, _, retried in retries],
            closes_limit=[retried.closes_limit for _, _, retried in retries],
        )

    def results(self, row: Record) -> list[CommitResult]:
        """What became of each commit, in the order of ``commits``."""
        verdicts = row["verdicts"]
        stale: dict[int, list[Claim]] = {}
        for (id, epoch, position, _), is_limited in zip(
            self._lines, row["is_limited"], strict=True
        ):
            is_current = is_limited is not None
            if not is_current and verdicts[position - 1] == "write":
                stale.setdefault(position, []).append(Claim(id=id, epoch=epoch))
        results = []
        for position, verdict in enumerate(verdicts, 1):
            if verdict == "conflict":
                results.append(_CONFLICT)
            elif position in stale:
                claims = tuple(stale[position])
                results.append(CommitResult(state=CommitState.STALE, stale=claims))
            else:
                results.append(DONE)
        return results

    def note(self, row: Record, results: Sequence[CommitResult], hints: WriteHints) -> None:
        """Let ``hints`` learn what there is to publish."""
        changed = row["status_changed"]
        for commit, result, is_moved in zip(self.commits, results, changed, strict=True):
            if result is DONE:
                hints.stepped(commit.run, is_moved=is_moved)
                for job in commit.jobs:
                    note_queued(job, hints)
        if any(row["is_limited"]):
            hints.frees_limit()
        if row["is_due"]:
            hints.due()
        for lane in row["lanes"]:
            hints.queued(Status.WAITING if lane else Status.SCHEDULED, lane)

    def new(self, row: Record, results: Sequence[CommitResult]) -> list[RunCommit]:
        """Those that were written just now, not by an earlier try."""
        return [
            commit
            for commit, result, verdict in zip(self.commits, results, row["verdicts"], strict=True)
            if result is DONE and verdict == "write"
        ]


def has_effects(commit: RunCommit) -> bool:
    """Whether a commit needs more than the one statement."""
    return bool(
        commit.waits
        or commit.closes
        or commit.children
        or commit.snapshot is not None
        or takes_jobs(commit)
    )


def takes_jobs(commit: RunCommit) -> bool:
    """Whether it touches jobs that it does not settle."""
    return bool(
        commit.clears or commit.drops or commit.holds is not None or commit.version is not None
    )


class Effects:
    def __init__(
        self, connection: Connection, statements: Mapping[str, str], moves: WriteHints
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._moves = moves

    async def lock(self, batch: CommitBatch) -> None:
        """Lock everything beforehand: the statement itself would lock only what is settled."""
        await self._fetch("lock_runs", *_places(batch.commits))
        taking = [commit for commit in batch.commits if takes_jobs(commit)]
        await self._fetch("lock_jobs", *_places(taking), batch.settled)

    async def write(self, commits: Sequence[RunCommit], now: datetime) -> None:
        """Carry out what these commits ask for; ``now`` is the moment of the commit."""
        own = [settlement.claim.id for each in commits for settlement in each.settlements]
        own += [job.id for commit in commits for job in commit.jobs]
        await self._give_up(commits, own, now)
        await self._hold(commits, own, now)
        await self._change_versions(commits)
        await self._keep_snapshots(commits)
        starting = Starting(self._connection, self._statements, self._moves, now)
        await starting.open_waits(
            [(commit.namespace, commit.run, wait) for commit in commits for wait in commit.waits]
        )
        await starting.add_runs([child for commit in commits for child in commit.children])

    async def _give_up(
        self, commits: Sequence[RunCommit], own: Sequence[str], now: datetime
    ) -> None:
        closed = [(commit, key) for commit in commits for key in commit.closes]
        dropped = [(commit, key) for commit in commits if not commit.clears for key in commit.drops]
        cleared = [commit for commit in commits if commit.clears]
        if dropped:
            columns = _key_columns(dropped)
            self._moves.taken(await self._fetch("drop_jobs", *columns, own))
        if cleared:
            self._moves.taken(await self._fetch("clear_jobs", *_places(cleared), own))
        if closed:
            await self._fetch("close_waits", *_key_columns(closed))
        ended = [*dropped, *((commit, None) for commit in cleared)]
        if ended and await self._fetch("drop_waits", now, *_key_columns(ended)):
            self._moves.due()

    async def _hold(self, commits: Sequence[RunCommit], own: Sequence[str], now: datetime) -> None:
        held = [commit for commit in commits if commit.holds is True]
        released = [commit for commit in commits if commit.holds is False]
        if held:
            self._moves.taken(await self._fetch("hold_jobs", *_places(held), own))
            await self._fetch("hold_waits", *_places(held), True)
        if released:
            for status, lane in await self._fetch("release_jobs", now, *_places(released)):
                self._moves.queued(status, lane)
            if any(row[0] for row in await self._fetch("hold_waits", *_places(released), False)):
                self._moves.due()

    async def _change_versions(self, commits: Sequence[RunCommit]) -> None:
        moved = [commit for commit in commits if commit.version is not None]
        if not moved:
            return
        versions = [commit.version for commit in moved]
        flows = {
            (namespace, id): flow
            for namespace, id, flow in await self._fetch(
                "change_versions", *_places(moved), versions
            )
        }
        renamed = []
        for position, before in await self._fetch("lanes_of_runs", *_places(moved)):
            commit = moved[position - 1]
            flow = flows[commit.namespace, commit.run]
            after = replace(Lane.parse(before), flow=f"{flow}@{commit.version}")
            renamed.append((commit.namespace, commit.run, before, after.text))
        columns = _turned(renamed, 4)
        for status, lane in await self._fetch("change_lanes", *columns):
            if status not in HELD:
                self._moves.queued(status, lane)

    async def _keep_snapshots(self, commits: Sequence[RunCommit]) -> None:
        kept = [
            (commit.namespace, commit.run, commit.snapshot.number, commit.snapshot.data)
            for commit in commits
            if commit.snapshot is not None
        ]
        if kept:
            await self._fetch("put_snapshots", *_turned(kept, 4))

    async def _fetch(self, statement: str, *arguments: Any) -> list[Record]:
        rows: list[Record] = await self._connection.fetch(self._statements[statement], *arguments)
        return rows


def _places(commits: Sequence[RunCommit]) -> tuple[list[str], list[str]]:
    """Namespaces and ids of runs, in the order of the commits, which is that of locking."""
    return [commit.namespace for commit in commits], [commit.run for commit in commits]


def _key_columns(keys: Sequence[tuple[RunCommit, str | None]]) -> list[list[Any]]:
    """In the order of keys, in which all lock the waits of a run. No key: all of them."""
    places = [(commit.namespace, commit.run, key) for commit, key in keys]
    return _turned(sorted(places, key=lambda place: (place[1], place[0], place[2] or "")), 3)


def _turned(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    """Rows into columns."""
    return [[row[number] for row in rows] for number in range(width)]


async def commit_runs(
    session: Session, commits: Sequence[RunCommit], lanes: Sequence[str] = ()
) -> CommitAnswer:
    results: dict[int, CommitResult] = {}
    rank, now = None, None
    for steps in _one_of_each_run(commits):
        batch = CommitBatch(steps)
        row, found = await _commit(session, batch, lanes)
        results |= {id(commit): each for commit, each in zip(batch.commits, found, strict=True)}
        rank, now = row["most_urgent_rank"], row["now"]
    return CommitAnswer(
        results=[results[id(commit)] for commit in commits], most_urgent_rank=rank, now=now
    )


async def _commit(
    session: Session, batch: CommitBatch, lanes: Sequence[str]
) -> tuple[Record, list[CommitResult]]:
    arguments = arguments_of(batch.params(session.moment(), lanes))
    is_more = any(has_effects(commit) for commit in batch.commits)

    async def work(
        connection: Connection, _: bool
    ) -> tuple[Record, list[CommitResult], WriteHints]:
        moves = WriteHints()
        if not is_more:
            row = await connection.fetchrow(session.statements["commit_runs"], *arguments)
            results = batch.results(row)
        else:
            async with Transacting(connection):
                effects = Effects(connection, session.statements, moves)
                if any(takes_jobs(commit) for commit in batch.commits):
                    await effects.lock(batch)
                row = await connection.fetchrow(session.statements["commit_runs"], *arguments)
                results = batch.results(row)
                await effects.write(batch.new(row, results), row["now"])
        batch.note(row, results, moves)
        return row, results, moves

    row, results, moves = await session.connections.run(work)
    session.publish_moves(moves)
    return row, results


def _one_of_each_run(commits: Sequence[RunCommit]) -> Iterator[list[RunCommit]]:
    """Rounds in which each run goes one step; a second step of a run comes after the first."""
    left = list(commits)
    while left:
        steps: dict[tuple[str, str], RunCommit] = {}
        for commit in left:
            steps.setdefault((commit.namespace, commit.run), commit)
        yield list(steps.values())
        left = [each for each in left if steps[each.namespace, each.run] is not each]
