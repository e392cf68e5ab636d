"""Adding runs with all their first effects, and removing them with all their rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from perdure.errors import RunExists, UnknownFlow
from perdure.model.event import NewEvent, StoredEvent
from perdure.model.job import CLAIMED, NewJob
from perdure.model.run import ENDED, NewRun, NewWait, Submitted, WaitType
from perdure.model.times import nearest_duration, nearest_storable
from perdure.store.admission import (
    NOT_STARTED,
    LastRun,
    cooled,
    created_at,
    is_ahead,
    queue_rank,
    start_at_of,
)
from perdure.store.contract import DEFINITION_FRESH
from perdure.store.memory.jobs import insert
from perdure.store.memory.places import start_next
from perdure.store.memory.records import Place, StoredJob, StoredRun, StoredRunEvent, StoredWait
from perdure.store.memory.state import StepOwner
from perdure.store.memory.transaction import Transaction


def remove_job(transaction: Transaction, job: StoredJob) -> None:
    """Remove a job; its worker, if any, loses the claim."""
    transaction.remove(job.id)
    transaction.hint_at_room(job)
    if job.status in CLAIMED:
        transaction.hints.stopped(job.id)


def remove_tree(transaction: Transaction, root: Place) -> datetime:
    """Remove a run and its children with their jobs, events, waits and steps.

    Return when the last of them was created.
    """
    records = transaction.state.records
    places = records.tree(root)
    created = max(records.runs[place].created_at for place in places)
    for place in places:
        _remove(transaction, place)
    return created


def forget_steps(transaction: Transaction, holder: StepOwner) -> None:
    records = transaction.state.records
    for owner in list(records.step_owners.get(holder, ())):
        transaction.put(records.put_steps, owner, records.steps[owner], None)


def _remove(transaction: Transaction, place: Place) -> None:
    state, records = transaction.state, transaction.state.records
    for id in state.of_run.ids(place):
        remove_job(transaction, state.jobs[id])
    for wait in records.waits_of(place):
        transaction.put(records.put_wait, wait.place, wait, None)
    forget_steps(transaction, place)
    transaction.put(records.put_events, place, records.events[place], None)
    transaction.put(records.put_run, place, records.runs[place], None)
    transaction.hints.stepped(place[1], is_moved=True)


def submit(transaction: Transaction, new: NewRun) -> Submitted:
    """Add a run, or resolve an existing id by ``on_existing``."""
    existing = transaction.state.records.runs.get((new.namespace, new.id))
    if existing is not None:
        if new.on_existing == "use_existing":
            return Submitted(run=existing.as_run(), is_new=False)
        if new.on_existing == "fail":
            raise RunExists(run_id=existing.id, flow=existing.flow, status=existing.status)
    _require_definition(transaction, new)
    created = transaction.now
    if existing is not None:
        created = created_at(created, after=remove_tree(transaction, existing.place))
    added = _add(transaction, _cooled(transaction, new), created)
    for key in {run.place_key for run in (existing, added) if run is not None}:
        if key is not None:
            start_next(transaction, new.namespace, key)
    return Submitted(run=added.as_run(), is_new=True)


def _require_definition(transaction: Transaction, new: NewRun) -> None:
    if not new.needs_definition:
        return
    use = transaction.state.records.definition_uses.get((new.namespace, new.flow, new.version))
    if use is None or use.at <= transaction.now - DEFINITION_FRESH:
        raise UnknownFlow(flow=f"{new.flow}@{new.version}", known=())


def _cooled(transaction: Transaction, new: NewRun) -> NewRun:
    """The run, or its skipped form while its flow is cooling down."""
    if new.cooldown is None:
        return new
    records, flow = transaction.state.records, (new.namespace, new.flow)
    last: list[LastRun] = []
    for index in (records.started, records.completed):
        for (at, id), _ in reversed(index.entries(flow)):
            if not is_ahead(at, transaction.now):
                last.append(LastRun(id=id, at=at, is_completed=index is records.completed))
                break
    return cooled(new, transaction.now, last)


def add_work(
    transaction: Transaction,
    place: Place,
    jobs: Iterable[NewJob],
    waits: Iterable[NewWait],
    children: Iterable[NewRun],
) -> None:
    """Insert the jobs, waits and children of a run."""
    for job in jobs:
        insert(transaction, job)
    for wait in waits:
        _open(transaction, place, wait)
    runs = transaction.state.records.runs
    for child in children:
        if (child.namespace, child.id) not in runs:
            created = created_at(transaction.now, parent=runs[place].created_at)
            _add(transaction, child, created)


def add_events(
    transaction: Transaction,
    place: Place,
    events: Iterable[NewEvent],
    token: int | None = None,
) -> None:
    """Append events, numbered after the last one."""
    records, now = transaction.state.records, transaction.now
    log = records.events.get(place)
    if log is None:
        log = []
        transaction.put(records.put_events, place, None, log)
    before = len(log)
    log += [
        StoredRunEvent(
            event=StoredEvent(number=number, at=now, data=event.data, value=event.value),
            token=token,
        )
        for number, event in enumerate(events, before + 1)
    ]
    transaction.on_undo(records.truncate_events, place, before)


def wake_parent(transaction: Transaction, child: StoredRun) -> None:
    """Make the parent's wait for an ended child due immediately."""
    if child.parent is None:
        return
    wait = transaction.state.records.wait(child.namespace, child.parent.run, child.parent.key)
    if wait is not None and wait.type is WaitType.CHILD and wait.name == child.id:
        make_due(transaction, wait)


def make_due(transaction: Transaction, wait: StoredWait, **changes: bool) -> None:
    records, now = transaction.state.records, transaction.now
    due_at = now if wait.due_at is None else min(wait.due_at, now)
    transaction.put(records.put_wait, wait.place, wait, replace(wait, due_at=due_at, **changes))
    transaction.hints.due()


def _add(transaction: Transaction, new: NewRun, created: datetime) -> StoredRun:
    records, now = transaction.state.records, transaction.now
    run = StoredRun(
        id=new.id,
        namespace=new.namespace,
        flow=new.flow,
        version=new.version,
        status=new.status,
        number=len(new.events),
        parent=new.parent,
        created_at=created,
        updated_at=now,
        finished_at=now if new.status in ENDED else None,
        summary=new.summary,
        has_cooldown=new.cooldown is not None,
        priority=new.priority,
        start_at=start_at_of(new, now),
        started_at=None if new.status in NOT_STARTED else now,
        place_key=new.place_key,
        place_limit=new.settings.max_running if new.place_key else None,
        rank=queue_rank(new, now),
        settings=new.settings,
    )
    transaction.put(records.put_run, run.place, None, run)
    add_events(transaction, run.place, new.events)
    add_work(transaction, run.place, new.jobs, new.waits, new.children)
    transaction.hints.stepped(run.id, is_moved=True)
    if run.is_ended:
        wake_parent(transaction, run)
    return run


def _open(transaction: Transaction, place: Place, new: NewWait) -> None:
    """Open a wait, replacing an open one of the same key; its opening time stays."""
    records, now = transaction.state.records, transaction.now
    namespace, run = place
    before = records.wait(namespace, run, new.key)
    wait = StoredWait(
        run=run,
        namespace=namespace,
        key=new.key,
        type=new.type,
        name=new.name,
        opened_at=now if before is None else before.opened_at,
        due_at=None if new.is_stopped else _due_at(new, now),
        deciders=new.deciders,
        detail=new.detail,
        remaining=new.delay if new.is_stopped else None,
    )
    transaction.put(records.put_wait, wait.place, before, wait)
    if wait.due_at is not None:
        transaction.hints.due()


def _due_at(wait: NewWait, now: datetime) -> datetime | None:
    if wait.due_at is not None:
        return nearest_storable(wait.due_at)
    return None if wait.delay is None else now + nearest_duration(wait.delay)
