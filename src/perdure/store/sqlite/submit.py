"""Adding runs with all their first effects, and removing them with all their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from perdure.errors import RunExists, UnknownFlow
from perdure.model.graph import Graph, children_in
from perdure.model.ids import JobId, RunId
from perdure.model.job import CLAIMED
from perdure.model.run import ENDED, NewRun, NewWait, Run, Submitted
from perdure.model.settings import encode_settings
from perdure.model.times import nearest_storable
from perdure.store.admission import (
    CLOCK_STEP_MIN,
    NOT_STARTED,
    LastRun,
    cooled,
    created_at,
    queue_rank,
    start_at_of,
)
from perdure.store.contract import DEFINITION_FRESH
from perdure.store.sqlite.jobs import insert_jobs
from perdure.store.sqlite.places import start_next
from perdure.store.sqlite.rows import SqliteJobRow, as_json, micros, micros_in, moment, run_from
from perdure.store.sqlite.transaction import Transaction


def remove_jobs(transaction: Transaction, jobs: Sequence[tuple[int, JobId]]) -> None:
    """Remove jobs, given their rowids and ids."""
    if not jobs:
        return
    ids = as_json([id for _, id in jobs])
    transaction.write("remove_failures", ids=ids)
    transaction.write("remove_large_inputs", ids=ids)
    transaction.write("remove_steps_of_jobs", ids=ids)
    transaction.write("remove_jobs", numbers=as_json([number for number, _ in jobs]))


def remove_run_jobs(transaction: Transaction, jobs: Iterable[SqliteJobRow]) -> None:
    """Remove jobs of a run, claimed or not, and notify their workers."""
    taken = list(jobs)
    remove_jobs(transaction, [(job.number, job.id) for job in taken])
    hint_at_lost_claims(transaction, taken)


def hint_at_lost_claims(transaction: Transaction, jobs: Iterable[SqliteJobRow]) -> None:
    """Notify the workers of these jobs, and those that wait for room under a limit."""
    held = [job for job in jobs if job.status in CLAIMED]
    for job in held:
        transaction.hints.stopped(job.id)
    if any(job.is_limited for job in held):
        transaction.hints.frees_limit()


def remove_run(
    transaction: Transaction, namespace: str, id: RunId, *, is_pruned: bool = False
) -> int:
    """Remove a run and all its descendants, with their jobs, claimed or not.

    Return when the last of them was created.
    """
    family = transaction.rows("family_of_run", namespace=namespace, run=id)
    ids = [each for _, each, _ in family]
    for each in ids:
        rows = transaction.rows("jobs_of_run", namespace=namespace, run=each)
        remove_run_jobs(transaction, [SqliteJobRow._make(row[:-1]) for row in rows])
    transaction.write("remove_waits_of_runs", namespace=namespace, ids=as_json(ids))
    serials = as_json([serial for serial, _, _ in family])
    if is_pruned:
        transaction.write("record_pruned_runs", serials=serials)
    for name in ("remove_events", "remove_snapshots", "remove_steps", "remove_runs"):
        transaction.write(name, serials=serials)
    for each in ids:
        transaction.hints.stepped(each, is_moved=True)
    return max((created for _, _, created in family), default=0)


def cooled_run(transaction: Transaction, run: NewRun) -> NewRun:
    """The run, or its skipped form while its flow is cooling down."""
    if run.cooldown is None:
        return run
    until = transaction.now + micros_in(CLOCK_STEP_MIN)  # later ones: the clock was set back
    place = {"namespace": run.namespace, "flow": run.flow, "until": until}
    last = [
        LastRun(id=id, at=moment(at), is_completed=name == "last_completed")
        for name in ("last_started", "last_completed")
        for id, at in transaction.rows(name, **place)
    ]
    return cooled(run, transaction.moment, last)


def submit_run(transaction: Transaction, run: NewRun) -> Submitted:
    existing = _find(transaction, run)
    if existing is not None:
        if run.on_existing == "fail":
            raise RunExists(run_id=run.id, flow=existing.flow, status=existing.status)
        if run.on_existing == "use_existing":
            return Submitted(run=existing, is_new=False)
    _require_definition(transaction, run)
    keys = {run.place_key} if run.place_key is not None else set()
    created = transaction.moment
    if existing is not None:
        place = {"namespace": run.namespace, "run": run.id}
        keys.update(key for (key,) in transaction.rows("place_of_run", **place))
        last = remove_run(transaction, run.namespace, run.id)
        created = created_at(created, after=moment(last))
    _insert(transaction, cooled_run(transaction, run), created)
    for key in keys:
        start_next(transaction, run.namespace, key)
    submitted = _find(transaction, run)
    assert submitted is not None
    return Submitted(run=submitted, is_new=True)


def _require_definition(transaction: Transaction, run: NewRun) -> None:
    if not run.needs_definition:
        return
    place = run.namespace, run.flow, run.version
    used_at = [at for (at,) in transaction.run("definition_used_at", place)]
    if max(used_at, default=0) <= transaction.now - micros_in(DEFINITION_FRESH):
        raise UnknownFlow(flow=f"{run.flow}@{run.version}", known=())


def save_definition(
    transaction: Transaction, namespace: str, flow: str, version: str, data: bytes
) -> None:
    children = children_in(data)
    transaction.write(
        "save_definition",
        namespace=namespace,
        flow=flow,
        version=version,
        data=data,
        children=None if children is None else as_json(children),
        now=transaction.now,
    )


def submit_with_definitions(
    transaction: Transaction, run: NewRun, definitions: Sequence[Graph]
) -> Submitted:
    """Submit in a caller's transaction, which may roll back.

    Saving definitions, even known ones, takes the write lock before anything is read. They are not
    saved on the store's own connection: with one writer, that would wait for the caller's
    transaction.
    """
    for each in definitions:
        save_definition(transaction, run.namespace, each.name, each.version, each.data)
    return submit_run(transaction, run)


def insert_children(
    transaction: Transaction, children: Sequence[NewRun], parent_created: datetime
) -> None:
    """Add children of a run; existing ones stay as they are."""
    created = created_at(transaction.moment, parent=parent_created)
    for child in children:
        _insert(transaction, child, created)


def open_waits(
    transaction: Transaction, namespace: str, run: RunId, waits: Sequence[NewWait]
) -> None:
    now = transaction.now
    rows = [
        (
            namespace,
            run,
            wait.key,
            wait.type.value,
            wait.name,
            now,
            None if wait.is_stopped else _due_at(wait, now),
            as_json(wait.deciders),
            wait.detail,
            None if not wait.is_stopped or wait.delay is None else micros_in(wait.delay),
        )
        for wait in waits
    ]
    transaction.write_rows("open_waits", rows)
    if any(wait.delay is not None or wait.due_at is not None for wait in waits):
        transaction.hints.due()


def _due_at(wait: NewWait, now: int) -> int | None:
    if wait.due_at is not None:
        return micros(nearest_storable(wait.due_at))
    return None if wait.delay is None else now + micros_in(wait.delay)


def child_ended(
    transaction: Transaction, namespace: str, child: RunId, parent: RunId, key: str
) -> None:
    """Make the parent's wait due, so that a worker continues it."""
    if transaction.write(
        "child_ended",
        namespace=namespace,
        run=parent,
        key=key,
        child=child,
        now=transaction.now,
    ):
        transaction.hints.due()


def _insert(transaction: Transaction, run: NewRun, created: datetime) -> None:
    now, parent = transaction.now, run.parent
    start_at = start_at_of(run, transaction.moment)
    inserted = transaction.run(
        "insert_run",
        (
            run.id,
            run.namespace,
            run.flow,
            run.version,
            run.status.value,
            None if parent is None else parent.run,
            None if parent is None else parent.key,
            micros(created),
            now,
            now if run.status in ENDED else None,
            run.summary,
            run.cooldown is not None,
            len(run.events),
            run.priority,
            None if start_at is None else micros(start_at),
            None if run.status in NOT_STARTED else now,
            run.place_key,
            run.settings.max_running if run.place_key else None,
            queue_rank(run, transaction.moment),
            encode_settings(run.settings),
        ),
    )
    if not inserted:
        return
    [(serial,)] = inserted
    events = [
        (serial, number, now, None, event.data, event.value)
        for number, event in enumerate(run.events, start=1)
    ]
    transaction.write_rows("insert_events", events)
    if run.jobs:
        insert_jobs(transaction, run.jobs)
    if run.waits:
        open_waits(transaction, run.namespace, run.id, run.waits)
    insert_children(transaction, run.children, created)
    if parent is not None and run.status in ENDED:
        child_ended(transaction, run.namespace, run.id, parent.run, parent.key)
    transaction.hints.stepped(run.id, is_moved=True)


def _find(transaction: Transaction, run: NewRun) -> Run | None:
    rows = transaction.rows("get_run", namespace=run.namespace, run=run.id)
    return run_from(rows[0]) if rows else None
