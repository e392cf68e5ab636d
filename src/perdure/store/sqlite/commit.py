"""Commits of runs: each step is checked, fenced, and written with all its effects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.model.ids import RUN_TIMEOUT, JobId, WorkerId
from perdure.model.job import CLAIMED, NewJob, Status
from perdure.model.outcome import Settlement
from perdure.model.partition import Partition, is_sticky, with_worker
from perdure.model.run import (
    ENDED,
    CommitAnswer,
    CommitResult,
    CommitState,
    Continues,
    Finishes,
    Priorities,
    RunCommit,
)
from perdure.store.admission import rank_of
from perdure.store.contract.refusals import refused
from perdure.store.sqlite.jobs import hint_at_moves, insert_jobs, settle_jobs
from perdure.store.sqlite.places import start_next, takes_place
from perdure.store.sqlite.rows import (
    INLINE_MAX_BYTES,
    RUN_ROW_COLUMNS,
    NodeJobRow,
    SqliteJobRow,
    SqliteRunRow,
    as_json,
    deadline_of,
    micros,
    micros_in,
    moment,
)
from perdure.store.sqlite.submit import (
    child_ended,
    hint_at_lost_claims,
    insert_children,
    open_waits,
    remove_run_jobs,
)
from perdure.store.sqlite.transaction import Transaction

_DONE = CommitResult(state=CommitState.DONE)
_CONFLICT = CommitResult(state=CommitState.CONFLICT)
_FULL = CommitResult(state=CommitState.FULL)
_GONE = NodeJobRow(0, -1, "", 0, 0, 0)
_SUSPENDABLE = CLAIMED | {Status.WAITING, Status.SCHEDULED}


def commit_runs(
    transaction: Transaction, commits: Sequence[RunCommit], partitions: Sequence[str]
) -> CommitAnswer:
    results = [refused(commit) or _commit(transaction, commit) for commit in commits]
    rank = None
    if partitions:
        rank = _lowest_rank(transaction, {commit.namespace for commit in commits}, partitions)
    return CommitAnswer(results=results, most_urgent_rank=rank, now=transaction.moment)


def _commit(transaction: Transaction, commit: RunCommit) -> CommitResult:
    """Check the step's expected number and claims, and write it."""
    settlements = commit.settlements
    first = settlements[0].claim.id if settlements else None
    found = transaction.run("run_and_job", (first, commit.run, commit.namespace))
    if not found:
        return _CONFLICT
    run = SqliteRunRow._make(found[0][:RUN_ROW_COLUMNS])
    if run.number != commit.expected:
        return _DONE if _is_repeated(transaction, commit, run) else _CONFLICT
    if commit.created_at is not None and micros(commit.created_at) != run.created_at:
        return _CONFLICT
    if not commit.events and run.token == commit.token:
        return _DONE
    jobs = [NodeJobRow._make(found[0][RUN_ROW_COLUMNS:])] if settlements else []
    for other in settlements[1:]:
        rows = transaction.run("node_job", (other.claim.id, commit.run, commit.namespace))
        jobs.append(NodeJobRow._make(rows[0]) if rows else _GONE)
    stale = [
        settlement.claim
        for settlement, job in zip(settlements, jobs, strict=True)
        if job.epoch != settlement.claim.epoch or job.status not in CLAIMED
    ]
    if stale:
        return CommitResult(state=CommitState.STALE, stale=tuple(stale))
    place = commit.place
    if (
        place is not None
        and commit.is_started
        and not takes_place(transaction, commit, run.serial, place)
    ):
        return _FULL
    _write(transaction, commit, run, jobs)
    if place is not None:
        start_next(transaction, commit.namespace, place.key)
    return _DONE


def _is_repeated(transaction: Transaction, commit: RunCommit, run: SqliteRunRow) -> bool:
    """Whether this step is already written, even if others follow it."""
    found = transaction.run("token_of_event", (run.serial, commit.expected + 1))
    return bool(commit.events) and any(token == commit.token for (token,) in found)


def _write(
    transaction: Transaction, commit: RunCommit, run: SqliteRunRow, jobs: Sequence[NodeJobRow]
) -> None:
    now, number = transaction.now, commit.expected
    events = []
    for event in commit.events:
        number += 1
        events.append((run.serial, number, now, commit.token, event.data, event.value))
    if events:
        transaction.write_rows("insert_events", events)
    else:
        transaction.run("touch_run", (commit.token, now, run.serial))
    is_ended = commit.status in ENDED
    is_changed = commit.status != run.status or (is_ended and bool(events))
    # The number detects a truncated log. A job that continues in place stores it too, in a row
    # that is written anyway.
    continues = any(type(each.job_outcome) is Continues for each in commit.settlements)
    is_recorded = bool(events) and not continues
    if commit.version is not None:
        transaction.write("leave_definition", serial=run.serial)
    if is_changed or is_recorded or commit.summary is not None or commit.version is not None:
        transaction.write(
            "change_run",
            serial=run.serial,
            status=commit.status,
            is_ended=is_ended,
            has_events=bool(events),
            number=number,
            version=commit.version,
            summary=commit.summary,
            now=now,
        )
        if is_ended and run.parent_run is not None and run.parent_key is not None:
            child_ended(transaction, commit.namespace, commit.run, run.parent_run, run.parent_key)

    # Ends before starts: both may have the same keys.
    if commit.close_waits:
        transaction.write(
            "close_waits",
            namespace=commit.namespace,
            run=commit.run,
            keys=as_json(commit.close_waits),
        )
    if commit.cancel_keys or commit.cancel_all:
        _give_up(transaction, commit)
    if commit.is_started is not None:
        transaction.write(
            "start_run",
            serial=run.serial,
            started_at=now if commit.is_started else None,
            now=transaction.moment.timestamp(),
            aging=commit.place.aging.total_seconds() if commit.place is not None else None,
        )
    if commit.stop_clock is not None:
        _stop_clock(transaction, commit, stop=commit.stop_clock)
    if commit.priorities is not None:
        _reprioritize(transaction, commit, run.serial, commit.priorities)
    if commit.suspend is not None:
        _hold(transaction, commit, is_suspended=commit.suspend)
    if commit.version is not None:
        _change_partitions(transaction, commit, f"{run.flow}@{commit.version}")

    for settlement, job in zip(commit.settlements, jobs, strict=True):
        match settlement.job_outcome:
            case Continues(job=following):
                _continue(transaction, settlement.claim.id, job, following, number)
            case Finishes():
                transaction.run("remove_node_job", (job.number,))
                _forget(transaction, settlement.claim.id, job)
            case repeats:
                outcome = Settlement(claim=settlement.claim, outcome=repeats.outcome)
                settle_jobs(transaction, [outcome])

    if commit.jobs:
        insert_jobs(transaction, commit.jobs)
    if commit.sticky is not None:
        _stick(transaction, commit, run.serial, micros_in(commit.sticky))
    if commit.waits:
        open_waits(transaction, commit.namespace, commit.run, commit.waits)
    if commit.children:
        insert_children(transaction, commit.children, moment(run.created_at))
    if commit.snapshot is not None:
        snapshot = commit.snapshot
        transaction.write(
            "replace_snapshot", serial=run.serial, number=snapshot.number, data=snapshot.data
        )
    transaction.hints.stepped(commit.run, is_moved=True)


def _continue(
    transaction: Transaction, id: JobId, job: NodeJobRow, following: NewJob, number: int
) -> None:
    """Turn the row into the next job under the same claim, as if just started."""
    now, partition, node = transaction.now, following.partition, following.node
    is_large = len(following.input) > INLINE_MAX_BYTES
    transaction.run(
        "continue_job",
        (
            partition.queue,
            partition.task,
            partition.text,
            following.group,
            following.priority,
            rank_of(transaction.moment, following.priority, following.aging),
            following.max_attempts,
            now,
            now,
            now,
            deadline_of(following, now),
            following.policy,
            None if is_large else following.input,
            None if node is None else node.key,
            number,
            job.number,
        ),
    )
    _forget(transaction, id, job)
    if is_large:
        transaction.write_rows("insert_large_inputs", [(id, following.input)])


def _stick(transaction: Transaction, commit: RunCommit, serial: int, sticky: int) -> None:
    """Let the run's jobs wait for its last worker, if that one is live."""
    if commit.worker is not None:
        transaction.write("remember_worker", serial=serial, worker=commit.worker)
    found = transaction.rows("sticky_worker", serial=serial, now=transaction.now)
    worker = WorkerId(found[0][0]) if found else None
    rows = transaction.rows("jobs_by_id", ids=as_json(commit.queued_jobs))
    jobs = [SqliteJobRow._make(row) for row in rows]
    stuck = [job._replace(partition=with_worker(job.partition, worker)) for job in jobs]
    transaction.write_rows(
        "stick_jobs",
        [
            (job.number, job.partition, worker, job.ready_at + sticky)
            if is_sticky(job.partition)
            else (job.number, job.partition, None, None)
            for job in stuck
        ],
    )
    for job in stuck:
        transaction.hints.queued(job.status, job.partition)


def _forget(transaction: Transaction, id: JobId, job: NodeJobRow) -> None:
    """Delete the rows of the node that the job has executed."""
    if job.is_large:
        transaction.run("forget_large_input", (id,))
    if job.failure_count:
        transaction.run("forget_failures", (id,))
    if job.is_limited:
        transaction.hints.frees_limit()


def _give_up(transaction: Transaction, commit: RunCommit) -> None:
    """Remove jobs and waits of some keys, or of all; a wait for a child becomes due instead."""
    cancel_keys = set(commit.cancel_keys)
    given_up = [
        job
        for job, key in _unsettled_jobs(transaction, commit)
        if commit.cancel_all or key in cancel_keys
    ]
    remove_run_jobs(transaction, given_up)
    place = {"namespace": commit.namespace, "run": commit.run}
    keys = None if commit.cancel_all else as_json(commit.cancel_keys)
    transaction.write("end_waits", **place, keys=keys)
    if transaction.write("give_up_children", **place, keys=keys, now=transaction.now):
        transaction.hints.due()


def _hold(transaction: Transaction, commit: RunCommit, *, is_suspended: bool) -> None:
    """Park the jobs and suspend the waits of a run, or resume them."""
    transaction.write(
        "suspend_waits", namespace=commit.namespace, run=commit.run, suspended=is_suspended
    )
    if is_suspended:
        jobs = _unsettled_jobs(transaction, commit)
        parked = [job for job, _ in jobs if job.status in _SUSPENDABLE]
        transaction.write("park_jobs", numbers=as_json([job.number for job in parked]))
        hint_at_lost_claims(transaction, parked)
        return
    transaction.hints.due()
    now = transaction.now
    back = [job for job, _ in _jobs(transaction, commit) if job.status == Status.PAUSED]
    transaction.write("unpark_jobs", numbers=as_json([job.number for job in back]), now=now)
    hint_at_moves(
        transaction,
        [(job, Status.WAITING if job.ready_at <= now else Status.SCHEDULED) for job in back],
    )


def _stop_clock(transaction: Transaction, commit: RunCommit, *, stop: bool) -> None:
    """Stop the clock of the run's timeout, unless it is due already, or let it continue."""
    place = {"namespace": commit.namespace, "run": commit.run, "key": RUN_TIMEOUT}
    name = "stop_clock" if stop else "continue_clock"
    if transaction.write(name, **place, now=transaction.now) and not stop:
        transaction.hints.due()


def _reprioritize(
    transaction: Transaction, commit: RunCommit, serial: int, given: Priorities
) -> None:
    """Change the priority of a run and its jobs; aging stays exact."""
    aging = given.aging.total_seconds()
    transaction.write("change_priority", serial=serial, priority=given.run, aging=aging)
    place = {"namespace": commit.namespace, "run": commit.run}
    for key, priority in given.jobs:
        transaction.write("rank_job", **place, key=key, priority=priority, aging=aging)


def _change_partitions(transaction: Transaction, commit: RunCommit, flow: str) -> None:
    """Move the jobs of a run to the partitions of workers that have its new version."""
    changed = [
        (job, replace(Partition.parse(job.partition), flow=flow).text)
        for job, _ in _jobs(transaction, commit)
    ]
    transaction.write_rows(
        "change_partitions", [(job.number, partition) for job, partition in changed]
    )
    for job, partition in changed:
        if job.status == Status.WAITING:
            transaction.hints.queued(Status.WAITING, partition)


def _unsettled_jobs(transaction: Transaction, commit: RunCommit) -> list[tuple[SqliteJobRow, str]]:
    settled = {settlement.claim.id for settlement in commit.settlements}
    return [(job, key) for job, key in _jobs(transaction, commit) if job.id not in settled]


def _jobs(transaction: Transaction, commit: RunCommit) -> list[tuple[SqliteJobRow, str]]:
    rows = transaction.rows("jobs_of_run", namespace=commit.namespace, run=commit.run)
    return [(SqliteJobRow._make(row[:-1]), row[-1]) for row in rows]


def _lowest_rank(
    transaction: Transaction, namespaces: Iterable[str], partitions: Sequence[str]
) -> float | None:
    ranks: list[float] = []
    for namespace in namespaces:
        # If nothing is waiting, as in a chain of steps, no partition needs a query.
        if transaction.run("is_any_waiting", (namespace,)):
            wanted = as_json(list(partitions))
            [(rank,)] = transaction.rows("lowest_rank", namespace=namespace, partitions=wanted)
            ranks += [] if rank is None else [rank]
    return min(ranks, default=None)
