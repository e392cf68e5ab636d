"""Mutants of jobs: when they start, who claims them, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure.client import queue
from perdure.engine import snapshot
from perdure.engine.retry import after_error
from perdure.errors import RetryLater
from perdure.model.job import CLAIMED, FINISHED, Status
from perdure.model.partition import Partition, Suspicion
from perdure.store import lifecycle
from perdure.store.lifecycle import Transition, starts_from
from perdure.store.memory import admin, jobs, maintenance
from perdure.store.memory import runs as memory_runs
from perdure.store.memory import transaction as transactions
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.maintenance import MemoryMaintenance
from perdure.store.memory.records import StoredJob
from perdure.store.memory.transaction import Transaction
from perdure.worker import claims, janitor, outcome
from perdure.worker.claims import KnownPartitions
from perdure.worker.runner import JobRunner
from proof.simulate.mutants.patch import Change, mutant

LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)
UNBOUNDED = 1_000


def _claimed_by_any_worker(transaction: Transaction, claim: Any) -> Any:
    job = transaction.state.jobs.get(claim.id)
    return job if job is not None and job.status in CLAIMED else None


# Claims


@mutant("a lost claim renews its lease")
def _stale_renewal_accepted() -> list[Change]:
    async def renew(self: Any, worker: Any, claims: Sequence[Any], lease: timedelta) -> Any:
        with self._session.transaction() as transaction:
            for claim in claims:
                if (job := _claimed_by_any_worker(transaction, claim)) is not None:
                    transaction.save(replace(job, lease_until=transaction.now + lease))
            return jobs._renewal(transaction, claims)

    return [(MemoryJobs, "renew", renew)]


@mutant("progress under a lost claim is accepted")
def _stale_progress_accepted() -> list[Change]:
    async def save(self: Any, progress: Sequence[Any]) -> None:
        with self._session.transaction() as transaction:
            for claim, latest in progress:
                if (job := _claimed_by_any_worker(transaction, claim)) is not None:
                    transaction.save(replace(job, progress=latest))

    return [(MemoryJobs, "save_progress", save)]


@mutant("a job whose worker died keeps its place under a limit until it is taken over")
def _dead_worker_keeps_limit() -> list[Change]:
    usage = jobs._usage

    def counting(transaction: Transaction, namespace: str, rule: Any) -> Any:
        group = namespace, rule.key
        live = transaction.state.under_limit.count_after(LONG_AGO, group)
        return replace(usage(transaction, namespace, rule), live=live)

    return [(jobs, "_usage", counting)]


@mutant("a worker crash counts as a failed attempt")
def _crash_costs_an_attempt() -> list[Change]:
    take_over = maintenance._take_over

    def blaming(transaction: Transaction, job: Any, *args: Any) -> Any:
        taken = take_over(transaction, job, *args)
        after = transaction.state.jobs[job.id]
        transaction.save(replace(after, failures=after.failures + 1))
        return taken

    return [(maintenance, "_take_over", blaming)]


@mutant("a crash is never charged")
def _crash_is_not_charged() -> list[Change]:
    return [(Suspicion, "after_crash", lambda self, *, was_alone: self)]


@mutant("every job of a worker that crashed is charged as if it had been alone")
def _all_are_charged() -> list[Change]:
    take_over = lifecycle.after_take_over

    def charging(before: Status, key: str, *, was_alone: bool) -> Any:
        return take_over(before, key, was_alone=True)

    return [(maintenance, "after_take_over", charging)]


@mutant("a stored step does not remove the suspicion")
def _progress_does_not_count() -> list[Change]:
    return [(memory_runs, "UNSUSPECTED", Suspicion(crashes=1))]


@mutant("suspects wait among the other jobs")
def _suspects_share_partitions() -> list[Change]:
    return [(StoredJob, "partition_key", property(lambda self: self.partition.text))]


@mutant("suspects run beside any number of jobs")
def _suspects_run_with_others() -> list[Change]:
    return [(JobRunner, "_slots_left", lambda self, slots: self.concurrency - self.running)]


@mutant("JobQueue delivers node jobs, whose outcome never reaches the run")
def _queue_hands_out_nodes() -> list[Change]:
    wanted = queue._wanted

    def of_any_flow(*args: Any) -> Callable[[Partition], bool]:
        is_wanted = wanted(*args)
        return lambda partition: is_wanted(replace(partition, flow=""))

    return [(queue, "_wanted", of_any_flow)]


@mutant("the parked job of a paused run is acknowledged by its id")
def _parked_nodes_settled() -> list[Change]:
    def parked(transaction: Transaction, claim: Any) -> Any:
        job = transaction.state.jobs.get(claim.id)
        return job if job is not None and job.status is Status.PAUSED else None

    async def any_parked(store: Any, namespace: str, id: Any) -> Any:
        return await store.queries.get_job(namespace, id)

    return [(jobs, "_parked", parked), (queue, "parked_job", any_parked)]


@mutant("a job waits for a removed worker")
def _waits_for_a_removed_worker() -> list[Change]:
    async def release(self: Any, namespace: str, limit: int) -> int:
        return 0

    return [(MemoryMaintenance, "release_sticky", release)]


@mutant("a job that waits for one worker is claimed by another")
def _claims_from_others() -> list[Change]:
    return [(KnownPartitions, "is_of_another", lambda self, text: False)]


@mutant("a worker claims from queues and with tags that it does not serve")
def _claims_from_everywhere() -> list[Change]:
    return [(claims, "can_run", lambda partition, *, queues, tags: True)]


# Starts


@mutant("delayed jobs start early")
def _delayed_starts_early() -> list[Change]:
    async def promote(self: Any, namespace: str, limit: int) -> int:
        with self._session.transaction() as transaction:
            soon = transaction.now + timedelta(hours=1)
            due = transaction.state.scheduled.up_to(soon, limit, namespace)
            for id in due:
                transaction.move(transaction.state.jobs[id], Transition.PROMOTE, Status.WAITING)
            return len(due)

    return [(MemoryMaintenance, "promote_due", promote)]


@mutant("retries ignore their delay")
def _retried_at_once() -> list[Change]:
    return [(jobs, "_ready_at", lambda transaction, job, outcome: transaction.now)]


@mutant("the least urgent job is claimed first")
def _queue_reversed() -> list[Change]:
    in_order = jobs._in_order

    def reversed_order(*args: Any) -> Iterator[Any]:
        return reversed(list(in_order(*args)))

    return [(jobs, "_in_order", reversed_order)]


# Ends


@mutant("RetryLater does not use up attempts")
def _snoozes_are_free() -> list[Change]:
    def forgiving(job: Any, error: Any, *args: Any) -> Any:
        if isinstance(error, RetryLater):
            job = replace(job, failures=-UNBOUNDED, snoozes=0)
        return after_error(job, error, *args)

    return [(outcome, "after_error", forgiving)]


@mutant("the max_snoozes of a task is ignored")
def _snoozes_unbounded() -> list[Change]:
    def unbounded(job: Any, error: Any, failure: Any, budget: Any, draw: float) -> Any:
        return after_error(job, error, failure, replace(budget, max_snoozes=UNBOUNDED), draw)

    return [(outcome, "after_error", unbounded)]


@mutant("deadlines are not enforced by the store")
def _deadlines_ignored() -> list[Change]:
    async def none(self: Any, namespace: str, limit: int) -> Any:
        return []

    return [(MemoryMaintenance, "expire_deadlines", none)]


@mutant("an abort is accepted, and nothing happens")
def _abort_ignored() -> list[Change]:
    return [(admin, "_abort", lambda transaction, job: job)]


@mutant("a job that has ended can be aborted")
def _finished_aborted() -> list[Change]:
    def from_anywhere(operation: Transition) -> frozenset[Status]:
        found = starts_from(operation)
        return found | FINISHED if operation is Transition.ABORT else found

    return [
        (admin, "starts_from", from_anywhere),
        (transactions, "allows", lambda *_: True),
    ]


@mutant("ended work is pruned before its waiters see it")
def _pruned_too_soon() -> list[Change]:
    return [(janitor, "WAITER_GRACE", timedelta(0))]


@mutant("unfinished runs are pruned")
def _live_runs_pruned() -> list[Change]:
    def over(transaction: Transaction, group: Any, until: datetime) -> Any:
        return [run.place for run in transaction.state.records.runs.values() if not run.parent]

    return [(maintenance, "_over", over)]


# The store's clock


@mutant("a clock set back goes unnoticed", seeds_max=1_000)
def _clock_step_unnoticed() -> list[Change]:
    return [(janitor, "is_ahead", lambda *_: False)]


@mutant("a limit counts starts of the future until the clock shows their time")
def _future_starts_counted() -> list[Change]:
    return [(jobs, "bound_limits", lambda *_: None), (maintenance, "bound_limits", lambda *_: None)]


# Logs of runs


@mutant("a snapshot differs from the log")
def _snapshot_wrong() -> list[Change]:
    take = snapshot.take
    return [(snapshot, "take", lambda state: take(replace(state, jobs=state.jobs + 1)))]
