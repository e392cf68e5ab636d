"""Commits of runs: one statement for a batch of steps, or a transaction for further effects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure.model.check import reachable
from perdure.model.ids import RunId
from perdure.model.job import CLAIMED, Claim, NewJob, Status
from perdure.model.partition import Partition, worker_suffix
from perdure.model.run import (
    CommitAnswer,
    CommitResult,
    CommitState,
    Continues,
    Finishes,
    NodeSettlement,
    Retries,
    RunCommit,
)
from perdure.model.times import nearest_duration
from perdure.store.contract.refusals import refused
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
from perdure.store.postgres.places import lock_places, places_of, start_next, without_place
from perdure.store.postgres.rows import encode_failure
from perdure.store.postgres.session import Session
from perdure.store.postgres.submit import add_runs, open_waits
from perdure.store.sql.statements import arguments_of

_DONE = CommitResult(state=CommitState.DONE)
_CONFLICT = CommitResult(state=CommitState.CONFLICT)
_FULL = CommitResult(state=CommitState.FULL)

_Settled = tuple[int, NodeSettlement]
"""A settlement and the position of its commit, from 1."""

_Results = dict[int, CommitResult]
"""By the identity of the commit."""


async def commit_runs(
    session: Session, commits: Sequence[RunCommit], partitions: Sequence[str] = ()
) -> CommitAnswer:
    found_refused = ((commit, refused(commit)) for commit in commits)
    results: _Results = {id(each): result for each, result in found_refused if result is not None}
    rank, now = None, None
    left: Sequence[RunCommit] = [commit for commit in commits if id(commit) not in results]
    while left:
        # One step of each run: a second one is checked against the first one's writes.
        steps: dict[tuple[str, str], RunCommit] = {}
        for commit in left:
            steps.setdefault((commit.namespace, commit.run), commit)
        # Every transaction locks runs in this order, so no two batches deadlock.
        row, found = await _commit(session, [steps[place] for place in sorted(steps)], partitions)
        rank, now = row["most_urgent_rank"], row["now"]
        results |= found
        left = [commit for commit in left if id(commit) not in results]
    return CommitAnswer(
        results=[results[id(commit)] for commit in commits], most_urgent_rank=rank, now=now
    )


async def _commit(
    session: Session, commits: Sequence[RunCommit], partitions: Sequence[str]
) -> tuple[Record, _Results]:
    """Commit steps of different runs, given in lock order."""
    settled: list[_Settled] = [
        (position, settlement)
        for position, commit in enumerate(commits, 1)
        for settlement in commit.settlements
    ]
    # Every transaction locks jobs in the order of their ids, after their runs.
    settled.sort(key=lambda each: each[1].claim.id)
    # Built once for all attempts of the statement.
    params = _params(session.moment(), commits, settled, partitions)
    arguments = arguments_of(params)
    statements = session.statements
    needs_transaction = any(_has_effects(commit) for commit in commits)
    takes_jobs = any(_takes_jobs(commit) for commit in commits)
    places = places_of(commits)

    async def work(
        connection: Connection, _is_repeated: bool
    ) -> tuple[Record, _Results, WriteHints]:
        # A commit recognizes itself by its token, so a retry needs no special case.
        hints = WriteHints()
        if not needs_transaction:
            row = await connection.fetchrow(statements["commit_runs"], *arguments)
            return row, _results(commits, settled, row, hints), hints
        async with Transacting(connection):
            given, full = arguments, set[tuple[str, RunId]]()
            await lock_places(connection, statements, places)
            if takes_jobs or places:
                locked = await _lock(connection, statements, commits, settled)
                full = await without_place(connection, statements, commits, session.moment())
                if full or len(locked) < len(commits):
                    # A run that is gone may have been replaced since. The statement would find
                    # the new one and lock it after runs and jobs that come later in the order;
                    # without an id it finds nothing, which is a conflict.
                    ids = [
                        commit.run if (commit.namespace, commit.run) in locked - full else None
                        for commit in commits
                    ]
                    given = arguments_of(
                        params._replace(commits=params.commits._replace(run_id=ids))
                    )
            row = await connection.fetchrow(statements["commit_runs"], *given)
            results = _results(commits, settled, row, hints)
            results |= {
                id(commit): _FULL for commit in commits if (commit.namespace, commit.run) in full
            }
            written = [
                commit
                for commit, verdict in zip(commits, row["verdicts"], strict=True)
                if verdict == "write" and results[id(commit)] is _DONE
            ]
            await _write_effects(connection, statements, written, row["now"], hints)
            await start_next(connection, statements, places, session.moment(), hints)
        return row, results, hints

    row, results, hints = await session.connections.run(work)
    session.publish_moves(hints)
    return row, results


async def _lock(
    connection: Connection,
    statements: Mapping[str, str],
    commits: Sequence[RunCommit],
    settled: Sequence[_Settled],
) -> set[tuple[str, RunId]]:
    """Lock all runs, and then in one order the jobs that commits will settle or take from them.

    ``commit_runs`` by itself would lock only the jobs that it settles. A commit that is too late
    locks no jobs: the one that was first may just have queued them, and a claim skips what is
    locked. Returns the runs that exist.
    """
    rows = await connection.fetch(statements["lock_runs"], *_places(commits))
    locked = {(namespace, run): (number, token) for namespace, run, number, token in rows}
    timely = {
        position: commit
        for position, commit in enumerate(commits, 1)
        if (commit.namespace, commit.run) in locked
        and locked[commit.namespace, commit.run][0] == commit.expected
        and locked[commit.namespace, commit.run][1] != commit.token
    }
    whole = [commit for commit in timely.values() if _takes_all_jobs(commit)]
    keys = [
        (commit.namespace, commit.run, key)
        for commit in timely.values()
        if not _takes_all_jobs(commit)
        for key in commit.cancel_keys
    ]
    ids = [settlement.claim.id for position, settlement in settled if position in timely]
    await connection.fetch(statements["lock_jobs"], *_places(whole), *_columns(keys, 3), ids)
    return set(locked)


def _has_effects(commit: RunCommit) -> bool:
    """Whether a commit needs more than the one statement."""
    return bool(
        commit.waits
        or commit.close_waits
        or commit.children
        or commit.snapshot is not None
        or commit.is_started is not None
        or commit.place is not None
        or commit.stop_clock is not None
        or commit.sticky is not None
        or _takes_jobs(commit)
    )


def _takes_jobs(commit: RunCommit) -> bool:
    """Whether it affects jobs that it does not settle."""
    return bool(_takes_all_jobs(commit) or commit.cancel_keys)


def _takes_all_jobs(commit: RunCommit) -> bool:
    return (
        commit.cancel_all
        or commit.suspend is not None
        or commit.version is not None
        or commit.priorities is not None
    )


def _params(
    now: datetime | None,
    commits: Sequence[RunCommit],
    settled: Sequence[_Settled],
    partitions: Sequence[str],
) -> CommitParams:
    """The arguments of ``commit_runs``."""
    numbered = list(enumerate(commits, 1))
    events = [
        (position, number, event)
        for position, commit in numbered
        for number, event in enumerate(commit.events, commit.expected + 1)
    ]
    next_jobs = [
        settlement.job_outcome.job if type(settlement.job_outcome) is Continues else None
        for _, settlement in settled
    ]
    jobs = [(position, job) for position, commit in numbered for job in commit.jobs]
    retries = [
        (position, settlement.claim.id, reachable(settlement.job_outcome.outcome))
        for position, settlement in settled
        if type(settlement.job_outcome) is Retries
    ]
    specs: dict[tuple[Any, ...], int] = {}
    """Shared job attributes, numbered from 1."""

    def spec_of(job: NewJob) -> int:
        return specs.setdefault(_spec(job), len(specs) + 1)

    return CommitParams(
        now=now,
        commits=CommitColumns(
            namespace=[commit.namespace for commit in commits],
            run_id=[commit.run for commit in commits],
            expected=[commit.expected for commit in commits],
            token=[commit.token for commit in commits],
            status=[commit.status for commit in commits],
            created_at=[commit.created_at for commit in commits],
            number=[commit.expected + len(commit.events) for commit in commits],
            summary=[commit.summary for commit in commits],
        ),
        claims=ClaimColumns(
            commit=[position for position, _ in settled],
            id=[settlement.claim.id for _, settlement in settled],
            epoch=[settlement.claim.epoch for _, settlement in settled],
            ends=[type(settlement.job_outcome) is Finishes for _, settlement in settled],
            next_spec=[None if job is None else spec_of(job) for job in next_jobs],
            input=[None if job is None else job.input for job in next_jobs],
            node_key=[
                None if job is None or job.node is None else job.node.key for job in next_jobs
            ],
        ),
        events=EventColumns(
            commit=[position for position, _, _ in events],
            number=[number for _, number, _ in events],
            data=[event.data for _, _, event in events],
            value=[event.value for _, _, event in events],
        ),
        jobs=NewJobColumns(
            commit=[position for position, _ in jobs],
            id=[job.id for _, job in jobs],
            run_id=[None if job.node is None else job.node.run for _, job in jobs],
            spec=[spec_of(job) for _, job in jobs],
            input=[job.input for _, job in jobs],
            node_key=[None if job.node is None else job.node.key for _, job in jobs],
        ),
        # Last, when all specs are numbered.
        specs=SpecColumns(
            *([spec[at] for spec in specs] for at in range(len(SpecColumns._fields)))
        ),
        retries=RetryColumns(
            commit=[position for position, _, _ in retries],
            id=[id for _, id, _ in retries],
            failure=[encode_failure(retried.failure) for _, _, retried in retries],
            delay=[retried.delay for _, _, retried in retries],
            until=[retried.until for _, _, retried in retries],
            hold_off=[retried.hold_off for _, _, retried in retries],
            is_snoozed=[retried.is_snoozed for _, _, retried in retries],
            closes_limit=[retried.closes_limit for _, _, retried in retries],
        ),
        namespaces=list({commit.namespace for commit in commits}) if partitions else [],
        partitions=list(partitions),
    )


def _spec(job: NewJob) -> tuple[Any, ...]:
    """The attributes that jobs may share, in the order of ``SpecColumns``."""
    partition = job.partition
    return (
        job.namespace,
        partition.queue,
        partition.task,
        partition.text,
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


def _results(
    commits: Sequence[RunCommit], settled: Sequence[_Settled], row: Record, hints: WriteHints
) -> _Results:
    """The result of each commit; adds its hints to ``hints``."""
    verdicts = row["verdicts"]
    stale: dict[int, list[Claim]] = {}
    for (position, settlement), is_limited in zip(settled, row["is_limited"], strict=True):
        is_current = is_limited is not None
        if not is_current and verdicts[position - 1] == "write":
            stale.setdefault(position, []).append(settlement.claim)
        elif is_limited:
            hints.frees_limit()
    results: _Results = {}
    for position, (commit, verdict, is_moved) in enumerate(
        zip(commits, verdicts, row["status_changed"], strict=True), 1
    ):
        if verdict == "conflict":
            results[id(commit)] = _CONFLICT
        elif position in stale:
            claims = tuple(stale[position])
            results[id(commit)] = CommitResult(state=CommitState.STALE, stale=claims)
        else:
            results[id(commit)] = _DONE
            hints.stepped(commit.run, is_moved=is_moved)
            for job in commit.jobs:
                note_queued(job, hints)
    if row["is_due"]:
        hints.due()
    for partition in row["partitions"]:
        hints.queued(Status.WAITING if partition else Status.SCHEDULED, partition)
    return results


async def _write_effects(
    connection: Connection,
    statements: Mapping[str, str],
    commits: Sequence[RunCommit],
    now: datetime,
    hints: WriteHints,
) -> None:
    """Write the effects of steps beyond the jobs that they settle."""

    async def fetch(statement: str, *arguments: Any) -> list[Record]:
        rows: list[Record] = await connection.fetch(statements[statement], *arguments)
        return rows

    own = [settlement.claim.id for commit in commits for settlement in commit.settlements]
    own += [job.id for commit in commits for job in commit.jobs]

    dropped = [
        (commit, key) for commit in commits if not commit.cancel_all for key in commit.cancel_keys
    ]
    cleared = [commit for commit in commits if commit.cancel_all]
    closed = [(commit, key) for commit in commits for key in commit.close_waits]
    if dropped:
        hints.taken(await fetch("cancel_jobs", *_key_columns(dropped), own))
    if cleared:
        hints.taken(await fetch("cancel_all_jobs", *_places(cleared), own))
    if closed:
        await fetch("close_waits", *_key_columns(closed))
    given_up = [*dropped, *((commit, None) for commit in cleared)]
    if given_up and await fetch("cancel_waits", now, *_key_columns(given_up)):
        hints.due()

    held = [commit for commit in commits if commit.suspend is True]
    if held:
        hints.taken(await fetch("park_jobs", *_places(held), own))
        await fetch("suspend_waits", *_places(held), True)
    released = [commit for commit in commits if commit.suspend is False]
    if released:
        for status, partition in await fetch("unpark_jobs", now, *_places(released)):
            hints.queued(status, partition)
        if any(has_time for (has_time,) in await fetch("suspend_waits", *_places(released), False)):
            hints.due()

    moved = [commit for commit in commits if commit.is_started is not None]
    if moved:
        agings = [
            None if commit.place is None else commit.place.aging.total_seconds() for commit in moved
        ]
        are_started = [commit.is_started for commit in moved]
        await fetch("start_runs", now, *_places(moved), are_started, agings)
    stopped = [commit for commit in commits if commit.stop_clock is True]
    if stopped:
        await fetch("stop_clocks", now, *_places(stopped))
    continued = [commit for commit in commits if commit.stop_clock is False]
    if continued and await fetch("continue_clocks", now, *_places(continued)):
        hints.due()
    ranked = [
        (commit, commit.priorities, commit.priorities.aging.total_seconds())
        for commit in commits
        if commit.priorities is not None
    ]
    if ranked:
        rows = [(commit.namespace, commit.run, given.run, aging) for commit, given, aging in ranked]
        await fetch("change_priorities", *_columns(rows, 4))
        jobs = [
            (commit.namespace, commit.run, key, priority, aging)
            for commit, given, aging in ranked
            for key, priority in given.jobs
        ]
        await fetch("rank_jobs", *_columns(jobs, 5))

    sticky = [commit for commit in commits if commit.sticky is not None]
    if sticky:
        last = [commit.worker for commit in sticky]
        found = await fetch("remember_workers", now, *_places(sticky), last)
        workers = {(namespace, run): worker for namespace, run, worker in found}
        stuck = []
        for commit in sticky:
            worker = workers.get((commit.namespace, commit.run))
            suffix = worker_suffix(worker)
            assert commit.sticky is not None
            span = nearest_duration(commit.sticky)
            stuck += [(id, suffix, worker, span) for id in commit.queued_jobs]
        for status, partition in await fetch("stick_jobs", *_columns(sorted(stuck), 4)):
            hints.queued(status, partition)

    migrated = [commit for commit in commits if commit.version is not None]
    if migrated:
        versions = [commit.version for commit in migrated]
        found = await fetch("change_versions", *_places(migrated), versions)
        flows = {(namespace, run): flow for namespace, run, flow in found}
        renamed = []
        for position, before in await fetch("partitions_of_runs", *_places(migrated)):
            commit = migrated[position - 1]
            flow = flows[commit.namespace, commit.run]
            after = replace(Partition.parse(before), flow=f"{flow}@{commit.version}")
            renamed.append((commit.namespace, commit.run, before, after.text))
        for status, partition in await fetch("change_partitions", *_columns(renamed, 4)):
            if status not in CLAIMED:
                hints.queued(status, partition)

    snapshots = [
        (commit.namespace, commit.run, commit.snapshot.number, commit.snapshot.data)
        for commit in commits
        if commit.snapshot is not None
    ]
    if snapshots:
        await fetch("put_snapshots", *_columns(snapshots, 4))

    waits = [(commit.namespace, commit.run, wait) for commit in commits for wait in commit.waits]
    await open_waits(connection, statements, waits, now, hints)
    children = [child for commit in commits for child in commit.children]
    await add_runs(connection, statements, children, now, hints)


def _places(commits: Sequence[RunCommit]) -> tuple[list[str], list[str]]:
    """Namespaces and ids of runs, in the order of the commits, which is the lock order."""
    return [commit.namespace for commit in commits], [commit.run for commit in commits]


def _key_columns(keys: Sequence[tuple[RunCommit, str | None]]) -> list[list[Any]]:
    """Columns sorted by key, the lock order of waits. A null key means all waits of the run."""
    places = [(commit.namespace, commit.run, key) for commit, key in keys]
    return _columns(sorted(places, key=lambda place: (place[1], place[0], place[2] or "")), 3)


def _columns(rows: Collection[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[number] for row in rows] for number in range(width)]
