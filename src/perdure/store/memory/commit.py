"""Commits of runs: each step is checked, fenced, and written with all its effects."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from perdure.model.ids import RUN_TIMEOUT, JobId
from perdure.model.job import CLAIMED, NewJob, Status
from perdure.model.outcome import Settlement
from perdure.model.partition import UNSUSPECTED
from perdure.model.run import (
    ENDED,
    CommitAnswer,
    CommitResult,
    CommitState,
    Continues,
    Finishes,
    Priorities,
    Retries,
    RunCommit,
    WaitType,
)
from perdure.model.times import nearest_duration
from perdure.store.admission import rank_of
from perdure.store.contract.refusals import refused
from perdure.store.memory.jobs import fresh, settle
from perdure.store.memory.places import start_next, takes_place
from perdure.store.memory.records import NOT_STICKY, StoredJob, StoredRun
from perdure.store.memory.submit import add_events, add_work, make_due, remove_job, wake_parent
from perdure.store.memory.transaction import Transaction

_DONE = CommitResult(state=CommitState.DONE)
_CONFLICT = CommitResult(state=CommitState.CONFLICT)
_FULL = CommitResult(state=CommitState.FULL)
_SUSPENDABLE = CLAIMED | {Status.WAITING, Status.SCHEDULED}


def commit_runs(
    transaction: Transaction, commits: Sequence[RunCommit], partitions: Sequence[str]
) -> CommitAnswer:
    results = [refused(commit) or _commit(transaction, commit) for commit in commits]
    namespaces = {commit.namespace for commit in commits}
    waiting = transaction.state.waiting
    fronts = (
        waiting.first((namespace, partition))
        for namespace in namespaces
        for partition in partitions
    )
    return CommitAnswer(
        results=results,
        most_urgent_rank=min((rank for rank in fronts if rank is not None), default=None),
        now=transaction.now,
    )


def _finished_at(run: StoredRun, commit: RunCommit, now: datetime) -> datetime | None:
    """The run's end time; a commit may both retry and end a run."""
    if commit.status not in ENDED:
        return None
    return now if commit.events else run.finished_at or now


def _commit(transaction: Transaction, commit: RunCommit) -> CommitResult:
    """Check the step's expected number and claims, and write it."""
    run = transaction.state.records.runs.get((commit.namespace, commit.run))
    if run is None:
        return _CONFLICT
    if _is_repeated(transaction, run, commit):
        return _DONE
    if run.number != commit.expected or commit.created_at not in (None, run.created_at):
        return _CONFLICT
    claims = [settlement.claim for settlement in commit.settlements]
    stale = tuple(claim for claim in claims if transaction.claimed(claim) is None)
    if stale:
        return CommitResult(state=CommitState.STALE, stale=stale)
    place = commit.place
    if place is not None and commit.is_started and not takes_place(transaction, run, place):
        return _FULL
    _write(transaction, run, commit)
    if place is not None:
        start_next(transaction, run.namespace, place.key)
    return _DONE


def _is_repeated(transaction: Transaction, run: StoredRun, commit: RunCommit) -> bool:
    """Whether this step is already written, even if others follow it."""
    if not commit.events:
        return run.token == commit.token
    log = transaction.state.records.events[run.place]
    return len(log) > commit.expected and log[commit.expected].token == commit.token


def _write(transaction: Transaction, run: StoredRun, commit: RunCommit) -> None:
    records, now = transaction.state.records, transaction.now
    after = replace(
        run,
        number=run.number + len(commit.events),
        token=commit.token,
        status=commit.status,
        version=run.version if commit.version is None else commit.version,
        updated_at=now,
        finished_at=_finished_at(run, commit, now),
        summary=run.summary if commit.summary is None else commit.summary,
        snapshot=commit.snapshot or run.snapshot,
    )
    if commit.is_started is not None:
        rank = None
        if not commit.is_started and commit.place is not None:
            rank = rank_of(now, run.priority, commit.place.aging)
        after = replace(after, started_at=now if commit.is_started else None, rank=rank)
    if commit.priorities is not None:
        after = _reprioritized(transaction, after, commit.priorities)
    add_events(transaction, run.place, commit.events, commit.token)
    transaction.put(records.put_run, run.place, run, after)
    if after.is_ended and not run.is_ended:
        wake_parent(transaction, after)

    # Ends before starts: both may have the same keys.
    settled = {settlement.claim.id for settlement in commit.settlements}
    if commit.cancel_all or commit.cancel_keys:
        _give_up_jobs(transaction, run, commit, settled)
    if commit.cancel_all or commit.cancel_keys or commit.close_waits:
        _end_waits(transaction, run, commit)
    if commit.suspend is not None:
        _suspend_jobs(transaction, run, settled, suspend=commit.suspend)
        _suspend_waits(transaction, run, suspend=commit.suspend)
    if commit.stop_clock is not None:
        _stop_clock(transaction, run, stop=commit.stop_clock)
    if commit.version is not None:
        _change_partitions(transaction, run, commit.version)

    for settlement in commit.settlements:
        job = transaction.state.jobs[settlement.claim.id]
        match settlement.job_outcome:
            case Continues(job=following):
                _continue(transaction, job, following)
            case Finishes():
                transaction.remove(job.id)
                transaction.hint_at_room(job)
            case Retries(outcome=outcome):
                settle(transaction, Settlement(claim=settlement.claim, outcome=outcome))

    add_work(transaction, run.place, commit.jobs, commit.waits, commit.children)
    if commit.sticky is not None:
        _stick(transaction, records.runs[run.place], commit, nearest_duration(commit.sticky))
    transaction.hints.stepped(run.id, is_moved=True)


def _continue(transaction: Transaction, job: StoredJob, following: NewJob) -> None:
    """Turn the row into the next job under the same claim, as if just started."""
    started = replace(
        fresh(transaction, following),
        id=job.id,
        status=job.status,
        epoch=job.epoch,
        attempt=1,
        worker=job.worker,
        incarnation=job.incarnation,
        lease_until=job.lease_until,
        started_at=transaction.now,
    )
    transaction.save(started)
    transaction.hint_at_room(job)


def _stick(transaction: Transaction, run: StoredRun, commit: RunCommit, sticky: timedelta) -> None:
    """Let the run's jobs wait for its last worker, if that one is live."""
    records, state = transaction.state.records, transaction.state
    if commit.worker is not None and commit.worker != run.sticky_worker:
        after = replace(run, sticky_worker=commit.worker)
        transaction.put(records.put_run, run.place, run, after)
        run = after
    worker = None if run.sticky_worker is None else state.workers.get(run.sticky_worker)
    is_live = worker is not None and worker.is_live(transaction.now)
    for id in commit.queued_jobs:
        job = state.jobs[id]
        if is_live and job.suspicion == UNSUSPECTED:
            until = job.ready_at + sticky
            stuck = replace(job, sticky_worker=run.sticky_worker, sticky_until=until)
        else:
            stuck = replace(job, **NOT_STICKY)
        transaction.save(stuck)
        transaction.hint_if_queued(stuck)


def _give_up_jobs(
    transaction: Transaction, run: StoredRun, commit: RunCommit, settled: Collection[JobId]
) -> None:
    state = transaction.state
    if commit.cancel_all:
        ids = state.of_run.ids(run.place)
    else:
        ids = [id for key in commit.cancel_keys for id in state.of_node.ids((*run.place, key))]
    for id in dict.fromkeys(ids):
        if id not in settled:
            remove_job(transaction, state.jobs[id])


def _suspend_jobs(
    transaction: Transaction, run: StoredRun, settled: Collection[JobId], *, suspend: bool
) -> None:
    state = transaction.state
    for id in state.of_run.ids(run.place):
        job = state.jobs[id]
        if suspend and job.status in _SUSPENDABLE and id not in settled:
            _park(transaction, job)
        elif not suspend and job.status is Status.PAUSED:
            is_due = job.ready_at <= transaction.now
            back = replace(job, status=Status.WAITING if is_due else Status.SCHEDULED)
            transaction.save(back)
            transaction.hint_if_queued(back)


def _park(transaction: Transaction, job: StoredJob) -> None:
    if job.status not in CLAIMED:
        transaction.save(replace(job, status=Status.PAUSED))
        return
    parked = replace(
        job,
        status=Status.PAUSED,
        epoch=job.epoch + 1,
        attempt=job.attempt - 1,
        worker=None,
        lease_until=None,
        limit_keys=(),
    )
    transaction.save(parked)
    transaction.hint_at_room(job)
    transaction.hints.stopped(job.id)


def _change_partitions(transaction: Transaction, run: StoredRun, version: str) -> None:
    state = transaction.state
    place = run.namespace, run.flow, run.version
    if (use := state.records.definition_uses.get(place)) is not None:
        left = use._replace(was_left=True)
        transaction.put(state.records.put_definition_use, place, use, left)
    for id in state.of_run.ids(run.place):
        job = state.jobs[id]
        partition = replace(job.partition, flow=f"{run.flow}@{version}")
        moved = replace(job, partition=partition, suspicion=UNSUSPECTED, **NOT_STICKY)
        transaction.save(moved)
        transaction.hint_if_queued(moved)


def _end_waits(transaction: Transaction, run: StoredRun, commit: RunCommit) -> None:
    """Remove closed and dropped waits; a wait for a child becomes due instead."""
    records = transaction.state.records
    for key in commit.close_waits:
        wait = records.wait(*run.place, key)
        if wait is not None:
            transaction.put(records.put_wait, wait.place, wait, None)
    if commit.cancel_all:
        given_up = records.waits_of(run.place)
    else:
        found = (records.wait(*run.place, key) for key in dict.fromkeys(commit.cancel_keys))
        given_up = [wait for wait in found if wait is not None]
    for wait in given_up:
        if wait.type is WaitType.CHILD:
            make_due(transaction, wait, is_suspended=False)
        else:
            transaction.put(records.put_wait, wait.place, wait, None)


def _suspend_waits(transaction: Transaction, run: StoredRun, *, suspend: bool) -> None:
    records = transaction.state.records
    for wait in records.waits_of(run.place):
        if wait.is_suspended is not suspend and wait.key != RUN_TIMEOUT:
            transaction.put(records.put_wait, wait.place, wait, replace(wait, is_suspended=suspend))
            if not suspend and wait.due_at is not None:
                transaction.hints.due()


def _stop_clock(transaction: Transaction, run: StoredRun, *, stop: bool) -> None:
    """Stop the clock of the run's timeout, unless it is due already, or let it continue."""
    records, now = transaction.state.records, transaction.now
    wait = records.wait(*run.place, RUN_TIMEOUT)
    if wait is None:
        return
    if stop and wait.due_at is not None and wait.due_at > now:
        changed = replace(wait, due_at=None, remaining=wait.due_at - now)
    elif not stop and wait.remaining is not None:
        changed = replace(wait, due_at=now + wait.remaining, remaining=None)
        transaction.hints.due()
    else:
        return
    transaction.put(records.put_wait, wait.place, wait, changed)


def _reprioritized(transaction: Transaction, run: StoredRun, given: Priorities) -> StoredRun:
    """The run with its new priority, after that of its jobs has changed; aging stays exact."""
    state = transaction.state
    for key, priority in given.jobs:
        for id in state.of_node.ids((*run.place, key)):
            job = state.jobs[id]
            rank = job.rank + (priority - job.priority) * given.aging.total_seconds()
            transaction.save(replace(job, priority=priority, rank=rank))
    queued = run.rank
    if queued is not None:
        queued += (given.run - run.priority) * given.aging.total_seconds()
    return replace(run, priority=given.run, rank=queued)
