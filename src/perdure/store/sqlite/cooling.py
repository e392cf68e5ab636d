"""Whether a flow is cooling down, as the transaction that adds a run of it sees it."""

from __future__ import annotations

from perdure.model.run import NewRun
from perdure.rules.cooldown import LastRun, cooled
from perdure.store.sqlite.rows import moment
from perdure.store.sqlite.transaction import Transaction


def cooled_run(transaction: Transaction, run: NewRun) -> NewRun:
    """The run, or what is added instead while its flow is cooling down."""
    if run.cooldown is None:
        return run
    place = {"namespace": run.namespace, "flow": run.flow}
    last = [
        LastRun(id=id, at=moment(at), is_completed=name == "last_completed")
        for name in ("last_begun", "last_completed")
        for id, at in transaction.rows(name, **place)
    ]
    return cooled(run, transaction.moment, last)
