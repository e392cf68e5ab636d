"""Schedules without waiting: a clock to turn, and what workers do when it is time."""

from __future__ import annotations

from perdure import AsyncClient, ScheduleRecord
from perdure.engine.runs import Graphs, RunEngine
from perdure.engine.ticks import ScheduleTicker
from perdure.model.payload import PlainCodec
from perdure.model.schedule import Schedule
from perdure.store.contract import Store

NAMESPACE = "default"


def ticking_at(store: Store) -> ScheduleTicker:
    """The part of a worker that fires schedules."""
    return ScheduleTicker(RunEngine(store, Graphs(), PlainCodec()))


async def tick(store: Store) -> int:
    """Process everything that is due now, as a worker does; return the number of steps."""
    ticking, steps = ticking_at(store), 0
    for due in await store.maintenance.due_schedules(NAMESPACE, 100):
        left: Schedule | None = due
        while left is not None:
            left = await ticking.advance(left, await store.now())
            steps += 1
    return steps


def outcomes(record: ScheduleRecord) -> list[tuple[int, str]]:
    """Hour and result of each tick that is remembered."""
    return [(each.at.hour, each.result.value) for each in record.history]


async def ids_of_runs(client: AsyncClient) -> list[str]:
    return sorted(run.id for run in await client.runs.list())
