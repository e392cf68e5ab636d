"""The places of flows that limit how many of their runs are in progress (``max_running``)."""

from __future__ import annotations

from perdure.model.ids import RunId
from perdure.model.run import PlaceChange, RunCommit
from perdure.store.admission import starting
from perdure.store.sqlite.rows import as_json
from perdure.store.sqlite.transaction import Transaction


def takes_place(
    transaction: Transaction, commit: RunCommit, serial: int, change: PlaceChange
) -> bool:
    """Whether a queued run may start now; otherwise it waits for a place."""
    rank_base, aging = transaction.moment.timestamp(), change.aging.total_seconds()
    transaction.write("queue_for_place", serial=serial, now=rank_base, aging=aging)
    if commit.run in _next_runs(transaction, commit.namespace, change.key):
        return True
    transaction.write("wait_for_place", namespace=commit.namespace, run=commit.run)
    return False


def start_next(transaction: Transaction, namespace: str, key: str) -> None:
    """Start the next runs that have a place."""
    runs = _next_runs(transaction, namespace, key)
    if runs and transaction.write(
        "place_found", namespace=namespace, runs=as_json(runs), now=transaction.now
    ):
        transaction.hints.due()


def _next_runs(transaction: Transaction, namespace: str, key: str) -> list[RunId]:
    place = {"namespace": namespace, "key": key}
    queue = transaction.rows("queued_for_place", **place, limit=1)
    if not queue:  # the common case
        return []
    [(held,)] = transaction.rows("places_held", **place)
    if (room := queue[0][1] - held) > 1:
        queue = transaction.rows("queued_for_place", **place, limit=room)
    return starting(held, queue)
