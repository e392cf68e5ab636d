"""Adding runs with all their first effects, and removing them with all their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from secrets import randbits
from typing import NamedTuple

from perdure.errors import RunExists, UnknownFlow
from perdure.model.check import check_times
from perdure.model.ids import RunId
from perdure.model.run import ENDED, NewRun, NewWait, Run, RunStatus, Submitted
from perdure.model.settings import encode_settings
from perdure.model.times import nearest_duration, nearest_storable
from perdure.store.admission import CLOCK_STEP_MIN, LastRun, cooled, queued_unlocked
from perdure.store.contract import DEFINITION_FRESH
from perdure.store.hints import WriteHints, note_queued
from perdure.store.postgres.connection import Connection, Record, Transacting
from perdure.store.postgres.params import (
    AddEventsParams,
    AddRunsParams,
    ChildColumns,
    EndedColumns,
    FirstEventColumns,
    InsertParams,
    NewEventColumns,
    NodeJobColumns,
    OpenWaitsParams,
    PickOldRunsParams,
    RetentionColumns,
    SubmitParams,
    WaitColumns,
    WakeParentsParams,
)
from perdure.store.postgres.places import lock_places, start_next
from perdure.store.postgres.rows import as_array, job_columns, run_from
from perdure.store.postgres.session import Session
from perdure.store.sql.statements import Params, arguments_of


async def open_waits(
    connection: Connection,
    statements: Mapping[str, str],
    waits: Sequence[tuple[str, str, NewWait]],
    now: datetime,
    hints: WriteHints,
) -> None:
    """Open waits of runs, given by namespace and id; replaces open ones of the same key."""
    latest = {(run, namespace, wait.key): wait for namespace, run, wait in waits}
    if not latest:
        return
    # Every transaction locks waits in this order, so no two batches deadlock.
    ordered = sorted(latest.items(), key=lambda item: item[0])
    columns = WaitColumns(
        namespace=[namespace for (_, namespace, _), _ in ordered],
        run_id=[run for (run, _, _), _ in ordered],
        key=[wait.key for _, wait in ordered],
        type=[wait.type for _, wait in ordered],
        name=[wait.name for _, wait in ordered],
        delay=[
            None if wait.delay is None or wait.is_stopped else nearest_duration(wait.delay)
            for _, wait in ordered
        ],
        due_at=[
            None if wait.due_at is None else nearest_storable(wait.due_at) for _, wait in ordered
        ],
        deciders=[as_array(wait.deciders) for _, wait in ordered],
        detail=[wait.detail for _, wait in ordered],
        remaining=[
            None
            if wait.delay is None or not wait.is_stopped
            else nearest_duration(wait.delay) // timedelta(microseconds=1)
            for _, wait in ordered
        ],
    )
    params = OpenWaitsParams(now=now, opened=columns)
    await connection.fetch(statements["open_waits"], *arguments_of(params))
    if any(wait.delay is not None or wait.due_at is not None for wait in latest.values()):
        hints.due()


async def add_runs(
    connection: Connection,
    statements: Mapping[str, str],
    runs: Sequence[NewRun],
    now: datetime,
    hints: WriteHints,
) -> None:
    """Add runs with all their first effects; one whose id is taken is left out."""

    async def fetch(statement: str, params: Params) -> list[Record]:
        rows: list[Record] = await connection.fetch(statements[statement], *arguments_of(params))
        return rows

    while runs:
        wanted = {(run.namespace, run.id): run for run in runs}
        # Every transaction inserts ids in this order, so no two batches deadlock.
        ordered = [wanted[place] for place in sorted(wanted)]
        columns = ChildColumns(
            namespace=[run.namespace for run in ordered],
            id=[run.id for run in ordered],
            flow=[run.flow for run in ordered],
            version=[run.version for run in ordered],
            status=[run.status for run in ordered],
            number=[len(run.events) for run in ordered],
            parent_run=[None if run.parent is None else run.parent.run for run in ordered],
            parent_key=[None if run.parent is None else run.parent.key for run in ordered],
            summary=[run.summary for run in ordered],
            priority=[run.priority for run in ordered],
            start_at=[_Start.of(run).run_at for run in ordered],
            start_delay=[_Start.of(run).delay for run in ordered],
            settings=[encode_settings(run.settings) for run in ordered],
        )
        rows = await fetch(
            "add_runs", AddRunsParams(now=now, step=CLOCK_STEP_MIN, children=columns)
        )
        added = [(serial, wanted[namespace, id]) for namespace, id, serial in rows]
        new = [run for _, run in added]
        events = [
            (serial, number, event)
            for serial, run in added
            for number, event in enumerate(run.events, 1)
        ]
        if events:
            log = NewEventColumns(
                serial=[serial for serial, _, _ in events],
                number=[number for _, number, _ in events],
                data=[event.data for _, _, event in events],
                value=[event.value for _, _, event in events],
            )
            await fetch("add_events", AddEventsParams(now=now, events=log))
        jobs = [job for run in new for job in run.jobs]
        for job in jobs:
            check_times(job)
            note_queued(job, hints)
        if jobs:
            await fetch("insert_jobs", InsertParams(now=now, jobs=job_columns(jobs)))
        waits = [(run.namespace, run.id, wait) for run in new for wait in run.waits]
        await open_waits(connection, statements, waits, now, hints)
        # Every transaction locks waits in the order of their runs and keys.
        ended = sorted(
            (run.parent.run, run.namespace, run.parent.key, run.id)
            for run in new
            if run.status in ENDED and run.parent is not None
        )
        if ended:
            over = EndedColumns(
                namespace=[namespace for _, namespace, _, _ in ended],
                run_id=[parent for parent, _, _, _ in ended],
                key=[key for _, _, key, _ in ended],
                child=[id for _, _, _, id in ended],
            )
            if await fetch("wake_parents", WakeParentsParams(now=now, ended=over)):
                hints.due()
        for run in new:
            hints.stepped(run.id, is_moved=True)
        runs = [child for run in new for child in run.children]


class _Start(NamedTuple):
    """When a delayed run is to start, by the database's clock."""

    run_at: datetime | None
    delay: timedelta | None

    @staticmethod
    def of(run: NewRun) -> _Start:
        settings = run.settings
        if run.status is not RunStatus.QUEUED:
            return _Start(None, None)
        if settings.run_at is not None:
            return _Start(nearest_storable(settings.run_at), None)
        delay = settings.delay_ms
        if delay is None:
            return _Start(None, None)
        return _Start(None, nearest_duration(timedelta(milliseconds=delay)))


async def submit_run(session: Session, run: NewRun) -> Submitted:
    for job in run.jobs:
        check_times(job)
    submission = randbits(63)

    async def work(connection: Connection, is_repeated: bool) -> tuple[Submitted, WriteHints]:
        return await _submit(session, connection, run, submission, is_repeated)

    submitted, moves = await session.connections.run(work)
    session.publish_moves(moves)
    return submitted


async def submit_within(
    session: Session, connection: Connection, run: NewRun
) -> tuple[Submitted, WriteHints]:
    """Add the run in a caller's transaction. The caller has saved its definitions.

    Saved here, a new definition would block every other transaction that submits the flow until
    this one ends, and two that submit two flows in different orders would deadlock.
    """
    for job in run.jobs:
        check_times(job)
    run = queued_unlocked(run)  # the caller's transaction may last
    while True:
        moves = WriteHints()
        added = await _add_once(session, connection, run, randbits(63), moves, False)
        if added is not None:
            return Submitted(run=added, is_new=True), moves
        existing = await _existing(session, connection, run)
        if existing is not None and run.on_existing == "use_existing":
            return Submitted(run=existing, is_new=False), WriteHints()
        if existing is not None:
            raise RunExists(run_id=existing.id, flow=existing.flow, status=existing.status)
        await _require_definition(session, connection, run)

        # Removed concurrently: try again.


async def prune_runs(
    session: Session, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
) -> int:
    spans = {status: nearest_duration(span) for status, span in keep.items()}
    params = PickOldRunsParams(
        now=session.moment(),
        namespace=namespace,
        kept=RetentionColumns(status=list(spans), span=list(spans.values())),
        limit=limit,
    )
    arguments = arguments_of(params)

    async def work(connection: Connection, _: bool) -> tuple[int, WriteHints]:
        moves = WriteHints()
        async with Transacting(connection):
            roots = await connection.fetch(session.statements["pick_old_runs"], *arguments)
            if roots:
                places = [(row[0], row[1]) for row in roots]
                await _remove(session, connection, places, moves, is_pruned=True)
        return len(roots), moves

    count, moves = await session.connections.run(work)
    session.publish_moves(moves)
    return count


async def _submit(
    session: Session, connection: Connection, run: NewRun, submission: int, is_repeated: bool
) -> tuple[Submitted, WriteHints]:
    """Add the run, or resolve an existing id by ``on_existing``."""
    while True:
        moves = WriteHints()
        add = partial(_add_once, session, connection, run, submission, moves, is_repeated)
        if _needs_transaction(run):
            async with Transacting(connection) as transacting:
                places = await _lock_places(session, connection, run)
                added = await add()
                if added is None and run.on_existing == "replace":
                    await _require_definition(session, connection, run)
                    family = await _remove(session, connection, [(run.namespace, run.id)], moves)
                    freed = {(row[1], row[3]) for row in family if row[3] is not None}
                    if not freed <= places:
                        # Replaced meanwhile by a run with a place of another key, which is to be
                        # locked before runs.
                        transacting.undo()
                        continue
                    former = max((row[4] for row in family), default=None)
                    added = await add(former)
                await start_next(connection, session.statements, places, session.moment(), moves)
        else:
            added = await add()
        if added is not None:
            return Submitted(run=added, is_new=True), moves
        existing = await _existing(session, connection, run)
        if existing is not None and run.on_existing == "use_existing":
            return Submitted(run=existing, is_new=False), WriteHints()
        if existing is not None and run.on_existing == "fail":
            raise RunExists(run_id=existing.id, flow=existing.flow, status=existing.status)
        await _require_definition(session, connection, run)

        # Removed or replaced concurrently: try again.


async def _lock_places(
    session: Session, connection: Connection, run: NewRun
) -> set[tuple[str, str]]:
    """Lock the places that it needs, and those of the run that it replaces."""
    found = {(run.namespace, run.place_key)} if run.place_key is not None else set()
    if run.on_existing == "replace":
        rows = await connection.fetch(session.statements["place_of_run"], run.namespace, run.id)
        found |= {(run.namespace, row[0]) for row in rows}
    await lock_places(connection, session.statements, found)
    return found


async def _add_once(
    session: Session,
    connection: Connection,
    run: NewRun,
    submission: int,
    moves: WriteHints,
    is_repeated: bool,
    former: datetime | None = None,
) -> Run | None:
    """The run, added now or by an earlier attempt, whose jobs may be claimed by now."""
    allowed = await cooled_run(session, connection, run)
    added = await add_run(session, connection, allowed, submission, moves, former)
    if added is None and is_repeated:
        added = await own_run(session, connection, run, submission)
    return added


async def add_run(
    session: Session,
    connection: Connection,
    run: NewRun,
    submission: int,
    moves: WriteHints,
    former: datetime | None = None,
) -> Run | None:
    """Add a run with its first effects; None if its id is taken or its definition is missing.

    It is created later than ``former``, when the run that it replaces was created.
    """
    jobs = job_columns(run.jobs)._asdict()
    del jobs["fingerprint"]  # only standalone jobs have one
    start = _Start.of(run)
    params = SubmitParams(
        now=session.moment(),
        namespace=run.namespace,
        id=run.id,
        flow=run.flow,
        version=run.version,
        status=run.status,
        submission=submission,
        parent_run=None if run.parent is None else run.parent.run,
        parent_key=None if run.parent is None else run.parent.key,
        summary=run.summary,
        events=FirstEventColumns(
            data=[event.data for event in run.events], value=[event.value for event in run.events]
        ),
        jobs=NodeJobColumns(**jobs),
        has_cooldown=run.cooldown is not None,
        priority=run.priority,
        start_at=start.run_at,
        start_delay=start.delay,
        place_key=run.place_key,
        place_limit=run.settings.max_running if run.place_key else None,
        aging=run.aging.total_seconds(),
        settings=encode_settings(run.settings),
        fresh=DEFINITION_FRESH if run.needs_definition else None,
        former=former,
        step=CLOCK_STEP_MIN,
    )
    rows = await connection.fetch(session.statements["submit_run"], *arguments_of(params))
    if not rows:
        return None
    added = run_from(rows[0])
    moves.stepped(run.id, is_moved=True)
    for job in run.jobs:
        note_queued(job, moves)
    waits = [(run.namespace, run.id, wait) for wait in run.waits]
    await open_waits(connection, session.statements, waits, added.updated_at, moves)
    await add_runs(connection, session.statements, run.children, added.updated_at, moves)
    return added


async def cooled_run(session: Session, connection: Connection, run: NewRun) -> NewRun:
    """The run, or its skipped form while its flow is cooling down."""
    if run.cooldown is None:
        return run
    # Two statements: only the second sees the rows committed while the first waited.
    await connection.fetch(session.statements["lock_flow"], run.namespace, run.flow)
    rows = await connection.fetch(
        session.statements["last_runs"],
        session.moment(),
        run.namespace,
        run.flow,
        CLOCK_STEP_MIN,
    )
    last = [LastRun(id=row[0], at=row[1], is_completed=row[2]) for row in rows]
    return cooled(run, rows[0][3], last) if rows else run


async def own_run(
    session: Session, connection: Connection, run: NewRun, submission: int
) -> Run | None:
    """The run that this submission added, if it exists.

    Checked after trying to add it: an earlier attempt may be committed while that waits.
    """
    row = await connection.fetchrow(
        session.statements["get_submitted"], run.namespace, run.id, submission
    )
    return None if row is None else run_from(row)


async def _require_definition(session: Session, connection: Connection, run: NewRun) -> None:
    place = run.namespace, run.flow, run.version
    if run.needs_definition and not await connection.fetch(
        session.statements["is_definition_fresh"], session.moment(), *place, DEFINITION_FRESH
    ):
        raise UnknownFlow(flow=f"{run.flow}@{run.version}", known=())


async def _existing(session: Session, connection: Connection, run: NewRun) -> Run | None:
    row = await connection.fetchrow(session.statements["get_run"], run.namespace, run.id)
    return None if row is None else run_from(row)


async def _remove(
    session: Session,
    connection: Connection,
    runs: Sequence[tuple[str, RunId]],
    moves: WriteHints,
    *,
    is_pruned: bool = False,
) -> list[Record]:
    """Remove runs with their children, in the open transaction of the connection.

    Return the rows of ``lock_families``.
    """
    places = [place[0] for place in runs], [place[1] for place in runs]
    family: list[Record] = await connection.fetch(session.statements["lock_families"], *places)
    serials, namespaces, ids = ([row[number] for row in family] for number in range(3))
    await connection.fetch(session.statements["lock_jobs"], namespaces, ids, [], [], [], [])
    if is_pruned:
        await connection.fetch(session.statements["record_pruned_runs"], serials)
    moves.taken(await connection.fetch(session.statements["remove_runs"], serials, namespaces, ids))
    return family


def _needs_transaction(run: NewRun) -> bool:
    """Whether adding it takes more than one statement."""
    replaces = run.on_existing == "replace"
    return bool(run.waits or run.children or replaces or run.cooldown is not None)
