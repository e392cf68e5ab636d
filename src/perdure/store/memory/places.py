"""The places of flows that limit how many of their runs are in progress (``max_running``)."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.model.ids import RUN_START
from perdure.model.run import PlaceChange
from perdure.store.admission import rank_of, starting
from perdure.store.memory.records import Place, StoredRun
from perdure.store.memory.transaction import Transaction


def takes_place(transaction: Transaction, run: StoredRun, change: PlaceChange) -> bool:
    """Whether a queued run may start now; otherwise it waits for a place."""
    records, now = transaction.state.records, transaction.now
    if run.rank is None:
        queued = replace(run, rank=rank_of(now, run.priority, change.aging))
        transaction.put(records.put_run, run.place, run, queued)
    if run.place in _next_runs(transaction, run.namespace, change.key):
        return True
    wait = records.wait(*run.place, RUN_START)
    if wait is not None:
        transaction.put(records.put_wait, wait.place, wait, replace(wait, due_at=None))
    return False


def start_next(transaction: Transaction, namespace: str, key: str) -> None:
    """Start the next runs that have a place."""
    records, now = transaction.state.records, transaction.now
    for place in _next_runs(transaction, namespace, key):
        wait = records.wait(*place, RUN_START)
        if wait is not None and (wait.due_at is None or wait.due_at > now):
            transaction.put(records.put_wait, wait.place, wait, replace(wait, due_at=now))
            transaction.hints.due()


def _next_runs(transaction: Transaction, namespace: str, key: str) -> list[Place]:
    records = transaction.state.records
    held = len(records.holders.entries((namespace, key)))
    queue = records.queued.entries((namespace, key))
    return starting(held, ((place, records.runs[place].place_limit or 0) for _, place in queue))
