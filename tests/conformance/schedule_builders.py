"""Schedules with defaults, and what tests do with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from msgspec.structs import replace

from perdure.clock import new_id
from perdure.model.event import NewEvent, RunSubmitted, encode_event
from perdure.model.ids import JobId, RunId
from perdure.model.run import NewRun
from perdure.model.schedule import (
    FlowCall,
    Schedule,
    ScheduleAnswer,
    ScheduleCommit,
    ScheduleDefinition,
    ScheduleState,
    Started,
    TickRecord,
    TickResult,
    Timetable,
)
from perdure.store.contract import Store
from tests.conformance.run_builders import FLOW, NAMESPACE, VERSION, new_run, node_job

NAME = "nightly"
HOUR = timedelta(hours=1)
START = datetime(2030, 1, 1, tzinfo=UTC)
"""Where the clock of these tests begins."""
TICK = RunId("nightly@2030-01-01T01:00:00Z")

_revisions = count(1_000)


def schedule(name: str = NAME, **state: Any) -> Schedule:
    """One that has started something, and is due in an hour unless told otherwise."""
    kept = ScheduleState(
        created_at=START - 9 * HOUR,
        changed_at=START - 8 * HOUR,
        anchor=START - 7 * HOUR,
        next_at=START + HOUR,
        due_at=START + HOUR,
        queued=(START - 2 * HOUR,),
        last_at=START - 3 * HOUR,
        last_run=RunId("nightly@before"),
        last_job=JobId("job-1"),
        looks=5,
        triggered=Started(at=START - 2 * HOUR, job=JobId("job-2")),
        started=1,
        skipped=2,
        missed=3,
        failed=4,
        history=(
            TickRecord(at=START - 4 * HOUR, result=TickResult.SKIPPED, reason="ünder way"),
            TickRecord(at=START - 3 * HOUR, result=TickResult.STARTED, run=RunId("nightly@before")),
        ),
    )
    return Schedule(
        namespace=NAMESPACE,
        name=name,
        revision=next(_revisions),
        definition=ScheduleDefinition(
            timetable=Timetable(
                cron="0 3 * * *", timezone="Europe/Berlin", end_at=START + 99 * HOUR
            ),
            call=FlowCall(flow=FLOW, version=VERSION, input=b"\x00\xff", aging_ms=7),
            overlap="queue",
            catch_up="all",
        ),
        state=replace(kept, **state),
    )


async def save(
    store: Store, name: str = NAME, *, namespace: str = NAMESPACE, **state: Any
) -> Schedule:
    """Write a new schedule."""
    new = replace(schedule(name, **state), namespace=namespace)
    answer = await store.schedules.commit(ScheduleCommit(schedule=new, expected=None))
    assert answer.state == "done"
    return new


def advanced(before: Schedule, **state: Any) -> Schedule:
    """The same schedule an hour further, with a revision of its own."""
    return replace(
        before,
        revision=next(_revisions),
        state=replace(before.state, **{"due_at": START + 2 * HOUR, **state}),
    )


async def start(store: Store, before: Schedule, **changes: Any) -> ScheduleAnswer:
    """Commit the next tick of a schedule, with a run unless told otherwise."""
    commit = ScheduleCommit(
        schedule=advanced(before),
        expected=before.revision,
        run=new_run(id=TICK, jobs=(node_job(run=TICK),)),
    )
    return await store.schedules.commit(replace(commit, **changes))


async def read(store: Store, name: str = NAME, namespace: str = NAMESPACE) -> Schedule:
    [found] = await store.schedules.list(namespace, name)
    assert isinstance(found, Schedule)
    return found


def cooling_run(cooldown: timedelta = HOUR, **changes: Any) -> NewRun:
    """A run with a job, of a flow that cools down."""
    id = changes.pop("id", None) or RunId(new_id())
    submitted = RunSubmitted(flow=FLOW, version=VERSION, aging_ms=1)
    run = new_run(
        id=id,
        events=(NewEvent(data=encode_event(submitted), value=b'"input"'),),
        jobs=(node_job(run=id),),
        cooldown=cooldown,
    )
    return replace(run, **changes)
