"""How runs advance: each step is checked, fenced, and written with all that it ends and starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from perdure.model.ids import JobId
from perdure.model.job import HELD, NewJob, Status
from perdure.model.outcome import Settlement
from perdure.model.run import (
    ENDED,
    CommitAnswer,
    CommitResult,
    CommitState,
    Continues,
    Ends,
    Repeats,
    RunCommit,
    WaitKind,
)
from perdure.store.memory.jobs import fresh, settle
from perdure.store.memory.records import StoredJob, StoredRun
from perdure.store.memory.submit import add_events, begin, make_due, take_away, tell_parent
from perdure.store.memory.transaction import Transaction

_DONE = CommitResult(state=CommitState.DONE)
_CONFLICT = CommitResult(state=CommitState.CONFLICT)
_HOLDABLE = HELD | {Status.WAITING, Status.SCHEDULED}


def commit_runs(
    transaction: Transaction, commits: Sequence[RunCommit], lanes: Sequence[str]
) -> CommitAnswer:
    results = [_commit(transaction, commit) for commit in commits]
    namespaces = {commit.namespace for commit in commits}
    waiting = transaction.state.waiting
    fronts = (waiting.first((namespace, lane)) for namespace in namespaces for lane in lanes)
    return CommitAnswer(
        results=results,
        most_urgent_rank=min((rank for rank in fronts if rank is not None), default=None),
        now=transaction.now,
    )


def _commit(transaction: Transaction, commit: RunCommit) -> CommitResult:
    """Check what a step was decided upon and that its claims are current, and write it."""
    run = transaction.state.records.runs.get((commit.namespace, commit.run))
    if run is None:
        return _CONFLICT
    if _is_repeated(transaction, run, commit):
        return _DONE
    if run.number != commit.expected:
        return _CONFLICT
    claims = [settlement.claim for settlement in commit.settlements]
    stale = tuple(claim for claim in claims if transaction.held(claim) is None)
    if stale:
        return CommitResult(state=CommitState.STALE, stale=stale)
    _write(transaction, run, commit)
    return _DONE


def _is_repeated(transaction: Transaction, run: StoredRun, commit: RunCommit) -> bool:
    """Whether this very step was written before, whatever followed it."""
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
        finished_at=(run.finished_at or now) if commit.status in ENDED else None,
        summary=run.summary if commit.summary is None else commit.summary,
        snapshot=commit.snapshot or run.snapshot,
    )
    add_events(transaction, run.place, commit.events, commit.token)
    transaction.put(records.put_run, run.place, run, after)
    if after.is_ended and not run.is_ended:
        tell_parent(transaction, after)

    # What ends comes before what the same step starts, which may have the same keys.
    settled = {settlement.claim.id for settlement in commit.settlements}
    if commit.clears or commit.drops:
        _give_up_jobs(transaction, run, commit, settled)
    if commit.clears or commit.drops or commit.closes:
        _end_waits(transaction, run, commit)
    if commit.holds is not None:
        _hold_jobs(transaction, run, settled, holds=commit.holds)
        _hold_waits(transaction, run, holds=commit.holds)
    if commit.version is not None:
        _change_lanes(transaction, run, commit.version)

    for settlement in commit.settlements:
        job = transaction.state.jobs[settlement.claim.id]
        match settlement.then:
            case Continues(job=following):
                _continue(transaction, job, following)
            case Ends():
                transaction.remove(job.id)
                transaction.hint_at_room(job)
            case Repeats(outcome=outcome):
                settle(transaction, Settlement(claim=settlement.claim, outcome=outcome))

    begin(transaction, run.place, commit.jobs, commit.waits, commit.children)
    transaction.hints.stepped(run.id, is_moved=True)


# What becomes of the jobs of the run


def _continue(transaction: Transaction, job: StoredJob, following: NewJob) -> None:
    """Let the row be another job under the same claim, as if that had just been started."""
    started = replace(
        fresh(transaction, following),
        id=job.id,
        status=job.status,
        epoch=job.epoch,
        attempt=1,
        worker=job.worker,
        lease_until=job.lease_until,
        started_at=transaction.now,
    )
    transaction.save(started)
    transaction.hint_at_room(job)


def _give_up_jobs(
    transaction: Transaction, run: StoredRun, commit: RunCommit, settled: Collection[JobId]
) -> None:
    state = transaction.state
    if commit.clears:
        ids = state.of_run.ids(run.place)
    else:
        ids = [id for key in commit.drops for id in state.of_node.ids((*run.place, key))]
    for id in dict.fromkeys(ids):
        if id not in settled:
            take_away(transaction, state.jobs[id])


def _hold_jobs(
    transaction: Transaction, run: StoredRun, settled: Collection[JobId], *, holds: bool
) -> None:
    state = transaction.state
    for id in state.of_run.ids(run.place):
        job = state.jobs[id]
        if holds and job.status in _HOLDABLE and id not in settled:
            _park(transaction, job)
        elif not holds and job.status is Status.PAUSED:
            is_due = job.ready_at <= transaction.now
            back = replace(job, status=Status.WAITING if is_due else Status.SCHEDULED)
            transaction.save(back)
            transaction.hint_if_queued(back)


def _park(transaction: Transaction, job: StoredJob) -> None:
    if job.status not in HELD:
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


def _change_lanes(transaction: Transaction, run: StoredRun, version: str) -> None:
    state = transaction.state
    for id in state.of_run.ids(run.place):
        job = state.jobs[id]
        moved = replace(job, lane=replace(job.lane, flow=f"{run.flow}@{version}"))
        transaction.save(moved)
        transaction.hint_if_queued(moved)


# What becomes of its waits


def _end_waits(transaction: Transaction, run: StoredRun, commit: RunCommit) -> None:
    """Remove those that are closed or given up; whoever waits for a child has to look after it."""
    records = transaction.state.records
    for key in commit.closes:
        wait = records.wait(*run.place, key)
        if wait is not None:
            transaction.put(records.put_wait, wait.place, wait, None)
    if commit.clears:
        given_up = records.waits_of(run.place)
    else:
        found = (records.wait(*run.place, key) for key in dict.fromkeys(commit.drops))
        given_up = [wait for wait in found if wait is not None]
    for wait in given_up:
        if wait.kind is WaitKind.CHILD:
            make_due(transaction, wait, is_held=False)
        else:
            transaction.put(records.put_wait, wait.place, wait, None)


def _hold_waits(transaction: Transaction, run: StoredRun, *, holds: bool) -> None:
    records = transaction.state.records
    for wait in records.waits_of(run.place):
        if wait.is_held is not holds:
            transaction.put(records.put_wait, wait.place, wait, replace(wait, is_held=holds))
            if not holds and wait.due_at is not None:
                transaction.hints.due()
