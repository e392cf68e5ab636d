"""How jobs are taken from runs, and how runs go with all that is kept of them."""

from __future__ import annotations

from perdure.model.hint import HintKind
from perdure.model.job import HELD
from perdure.store.memory.run_records import StepHolder
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.stored_run import Place
from perdure.store.memory.transaction import Transaction


def take_away(transaction: Transaction, job: StoredJob) -> None:
    """Remove a job, from its holder too."""
    transaction.remove(job.id)
    transaction.hint_at_room(job)
    if job.status in HELD:
        transaction.hint(HintKind.ABORTING, job.id)


def remove_tree(transaction: Transaction, root: Place) -> None:
    """Remove a run and its children with their jobs, events, waits and steps."""
    for place in transaction.state.records.tree(root):
        _remove(transaction, place)


def forget_steps(transaction: Transaction, holder: StepHolder) -> None:
    records = transaction.state.records
    for owner in list(records.step_owners.get(holder, ())):
        transaction.put(records.put_steps, owner, records.steps[owner], None)


def _remove(transaction: Transaction, place: Place) -> None:
    state, records = transaction.state, transaction.state.records
    for id in state.of_run.ids(place):
        take_away(transaction, state.jobs[id])
    for wait in records.waits_of(place):
        transaction.put(records.put_wait, wait.place, wait, None)
    forget_steps(transaction, place)
    transaction.put(records.put_events, place, records.events[place], None)
    transaction.put(records.put_run, place, records.runs[place], None)
    transaction.hint(HintKind.RUN, place[1])
