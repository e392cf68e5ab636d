"""What a step does to the jobs and waits that its run has: let go, hold, move to a version.

Operators leave these jobs alone, so nobody else moves them in these ways.
"""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.hint import HintKind
from perdure.model.job import HELD, Status
from perdure.model.lane import Lane
from perdure.model.run import RunCommit
from perdure.store.sqlite.moving import hint_at_moves
from perdure.store.sqlite.removing import hint_at_lost_claims, take_away_jobs
from perdure.store.sqlite.rows import JobRow, as_json
from perdure.store.sqlite.transaction import Transaction

_HOLDABLE = HELD | {Status.WAITING, Status.SCHEDULED}


def let_go(transaction: Transaction, commit: RunCommit) -> None:
    """Close waits, and give up keys with their jobs. Comes before what the same step starts."""
    place = {"namespace": commit.namespace, "run": commit.run}
    if commit.closes:
        transaction.write("close_waits", **place, keys=as_json(commit.closes))
    if not commit.drops and not commit.clears:
        return
    drops = set(commit.drops)
    given_up = [
        job for job, key in _unsettled_jobs(transaction, commit) if commit.clears or key in drops
    ]
    take_away_jobs(transaction, given_up)
    keys = None if commit.clears else as_json(commit.drops)
    transaction.write("end_waits", **place, keys=keys)
    if transaction.write("give_up_children", **place, keys=keys, now=transaction.now):
        transaction.hint_any(HintKind.DUE)


def hold(transaction: Transaction, commit: RunCommit, *, is_held: bool) -> None:
    """Park the jobs and waits that a run has, or put them back in their place."""
    transaction.write("hold_waits", namespace=commit.namespace, run=commit.run, is_held=is_held)
    if is_held:
        _park(transaction, commit)
    else:
        transaction.hint_any(HintKind.DUE)
        _unpark(transaction, commit)


def change_version(transaction: Transaction, commit: RunCommit, flow: str) -> None:
    """Let the jobs of a run be claimed by workers that have its new version."""
    text = f"{flow}@{commit.version}"
    changed = [
        (job, replace(Lane.parse(job.lane), flow=text).text)
        for job, _ in _jobs(transaction, commit)
    ]
    transaction.write_rows("change_lanes", [(job.number, lane) for job, lane in changed])
    ready = (lane for job, lane in changed if job.status == Status.WAITING)
    transaction.hint(HintKind.READY, ready)


def _park(transaction: Transaction, commit: RunCommit) -> None:
    jobs = _unsettled_jobs(transaction, commit)
    parked = [job for job, _ in jobs if job.status in _HOLDABLE]
    transaction.write("park_jobs", numbers=as_json([job.number for job in parked]))
    hint_at_lost_claims(transaction, parked)


def _unpark(transaction: Transaction, commit: RunCommit) -> None:
    now = transaction.now
    back = [job for job, _ in _jobs(transaction, commit) if job.status == Status.PAUSED]
    numbers = as_json([job.number for job in back])
    transaction.write("unpark_jobs", numbers=numbers, now=now)
    hint_at_moves(
        transaction,
        [(job, Status.WAITING if job.ready_at <= now else Status.SCHEDULED) for job in back],
    )


def _unsettled_jobs(transaction: Transaction, commit: RunCommit) -> list[tuple[JobRow, str]]:
    settled = {settlement.claim.id for settlement in commit.settlements}
    return [(job, key) for job, key in _jobs(transaction, commit) if job.id not in settled]


def _jobs(transaction: Transaction, commit: RunCommit) -> list[tuple[JobRow, str]]:
    rows = transaction.rows("jobs_of_run", namespace=commit.namespace, run=commit.run)
    return [(JobRow._make(row[:-1]), row[-1]) for row in rows]
