"""Removing jobs and runs for good, with all that is kept of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.model.hint import HintKind
from perdure.model.ids import JobId, RunId
from perdure.model.job import HELD
from perdure.store.sqlite.rows import JobRow, as_json
from perdure.store.sqlite.transaction import Transaction


def remove_jobs(transaction: Transaction, jobs: Sequence[tuple[int, JobId]]) -> None:
    """Remove jobs, given their rows' numbers and their ids."""
    if not jobs:
        return
    ids = as_json([id for _, id in jobs])
    transaction.write("remove_failures", ids=ids)
    transaction.write("remove_large_inputs", ids=ids)
    transaction.write("remove_steps_of_jobs", ids=ids)
    transaction.write("remove_jobs", numbers=as_json([number for number, _ in jobs]))


def take_away_jobs(transaction: Transaction, jobs: Iterable[JobRow]) -> None:
    """Remove jobs of a run whoever holds them, and tell the holders."""
    taken = list(jobs)
    remove_jobs(transaction, [(job.number, job.id) for job in taken])
    hint_at_lost_claims(transaction, taken)


def hint_at_lost_claims(transaction: Transaction, jobs: Iterable[JobRow]) -> None:
    """Tell the holders of these jobs, and those that wait for room under a limit."""
    held = [job for job in jobs if job.status in HELD]
    transaction.hint(HintKind.ABORTING, (job.id for job in held))
    if any(job.is_limited for job in held):
        transaction.hint_any(HintKind.READY)


def remove_run(transaction: Transaction, namespace: str, id: RunId) -> None:
    """Remove a run and all below it. Jobs that they still have are taken away."""
    family = transaction.rows("family_of_run", namespace=namespace, run=id)
    ids = [each for _, each in family]
    for each in ids:
        rows = transaction.rows("jobs_of_run", namespace=namespace, run=each)
        take_away_jobs(transaction, [JobRow._make(row[:-1]) for row in rows])
    transaction.write("remove_waits_of_runs", namespace=namespace, ids=as_json(ids))
    serials = as_json([serial for serial, _ in family])
    for name in ("remove_events", "remove_snapshots", "remove_steps", "remove_runs"):
        transaction.write(name, serials=serials)
    transaction.hint(HintKind.RUN, ids)
