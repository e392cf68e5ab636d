"""Workers and schedules: one run for each tick, regardless of workers and crashes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import AsyncClient, Flow, RunStatus, ScheduleRecord, Worker, task
from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.schedule import FlowCall, Schedule, ScheduleCommit
from perdure.store.contract import Store
from tests.worker.harness import Running, until
from tests.worker.ticking import NAMESPACE, ids_of_runs, outcomes, tick, ticking_at

HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2030, 1, 1, tzinfo=UTC)
POLL = 0.05
"""Seconds after which a worker looks at a clock that was turned."""


@task
async def keep(value: Any) -> Any:
    return value


@task
async def add(left: int, right: int = 0) -> int:
    return left + right


keeping = Flow("keeping").then(keep).build()
asking = Flow("asking").wait_for_signal("answer").build()
parent = Flow("parent").flow(asking).build()
cooling = Flow("cooling", cooldown="90m").then(keep).build()
cooling_long = Flow("cooling_long", cooldown="90m").wait_for_signal("answer").build()
FLOWS = [keeping, asking, parent, cooling, cooling_long]
StartWorker = Callable[..., Awaitable[Running]]


@pytest.fixture
def store(still_store: Store) -> Store:
    return still_store


@pytest.fixture
async def client(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, flows=FLOWS, tasks=[add]) as client:
        yield client


@pytest.fixture
async def start_worker(store: Store) -> AsyncIterator[StartWorker]:
    hired: list[Running] = []

    async def start(**settings: Any) -> Running:
        settings = {"flows": FLOWS, "tasks": [add], "poll": POLL, **settings}
        running = Running(Worker(store.clone(), **settings))
        hired.append(running)
        return await running.start()

    yield start
    for running in hired:
        await running.stop()


async def ticked(client: AsyncClient, name: str, count: int) -> ScheduleRecord:
    """Wait until so many ticks of a schedule have been processed."""

    async def is_so() -> bool:
        return len((await client.schedules.get(name)).history) >= count

    await until(is_so)
    return await client.schedules.get(name)


async def looked(client: AsyncClient, store: Store, clock: ManualClock, started: int) -> bool:
    """Go to when workers look next, unless so many ticks have been started."""
    if (await client.schedules.get("often")).started >= started:
        return True
    due_at = (await store.maintenance.poll(NAMESPACE)).next_tick_at
    now = await store.now()
    if due_at is not None and due_at > now:
        clock.advance(due_at - now)
    return False


async def reads(store: Store, name: str) -> Schedule:
    [found] = await store.schedules.list(NAMESPACE, name)
    assert isinstance(found, Schedule)
    return found


class TestWorkers:
    async def test_three_of_them_start_one_run_for_each_tick(self, client, clock, start_worker):
        for _ in range(3):
            await start_worker()
        await client.schedules.save("nightly", "keeping", every="1h", input=7)

        wanted = [f"nightly@2030-01-01T0{hour}:00:00Z" for hour in range(1, 6)]
        for count, id in enumerate(wanted, 1):
            clock.advance(HOUR)
            await ticked(client, "nightly", count)
            assert await client.runs.handle(id).result(20) == 7

        assert await ids_of_runs(client) == wanted
        record = await client.schedules.get("nightly")
        assert (record.started, record.skipped, record.missed, record.failed) == (5, 0, 0, 0)

    async def test_what_was_due_while_none_was_there_is_processed(
        self, client, clock, start_worker
    ):
        await client.schedules.save("nightly", "keeping", cron="0 * * * *", input=1)
        clock.advance(3.5 * HOUR)
        await start_worker()
        record = await ticked(client, "nightly", 3)
        assert outcomes(record) == [(1, "missed"), (2, "missed"), (3, "started")]
        assert await client.runs.handle("nightly@2030-01-01T03:00:00Z").result(20) == 1

    async def test_one_without_the_code_starts_the_run(self, client, clock, start_worker):
        await start_worker(flows=[], tasks=[add])
        await client.schedules.save("families", "parent", every="1h")

        clock.advance(HOUR)
        record = await ticked(client, "families", 1)

        assert record.last_run is not None
        handle = client.runs.handle(record.last_run)
        assert await handle.status() is RunStatus.WAITING
        assert len(await handle.children()) == 1

    async def test_one_that_cannot_start_stops_no_other(self, client, store, clock, start_worker):
        await start_worker()
        await client.schedules.save("good", "keeping", every="1h", input=1)
        await client.schedules.save("bad", "keeping", every="1h", input=1)
        await forget_definition(store, "bad")

        clock.advance(HOUR)
        await ticked(client, "good", 1)
        await client.runs.handle("good@2030-01-01T01:00:00Z").result(20)
        await ticked(client, "bad", 1)
        clock.advance(HOUR)
        await ticked(client, "good", 2)
        bad = await ticked(client, "bad", 2)

        assert (bad.failed, bad.started) == (2, 0)
        assert "keeping@gone" in bad.history[0].reason
        assert (await client.schedules.get("good")).started == 2


async def forget_definition(store: Store, name: str) -> None:
    """Let a schedule refer to a version that is not stored."""
    before = await reads(store, name)
    assert isinstance(before.definition.call, FlowCall)
    call = replace(before.definition.call, version="gone")
    after = replace(before, revision=1, definition=replace(before.definition, call=call))
    await store.schedules.commit(ScheduleCommit(schedule=after, expected=before.revision))


class TestOnceOnly:
    async def test_one_killed_before_it_wrote_leaves_the_tick_to_others(self, client, store, clock):
        await client.schedules.save("nightly", "keeping", every="1h", input=1)
        clock.advance(HOUR)
        [due] = await store.maintenance.due_schedules(NAMESPACE, 10)
        await ticking_at(store).start(due, RunId("never written"))
        await tick(store)
        assert await ids_of_runs(client) == ["nightly@2030-01-01T01:00:00Z"]

    async def test_one_killed_after_it_wrote_has_done_it(self, client, store, clock):
        await client.schedules.save("nightly", "keeping", every="1h", input=1)
        clock.advance(HOUR)
        [due] = await store.maintenance.due_schedules(NAMESPACE, 10)
        await ticking_at(store).advance(due, await store.now())
        assert await tick(store) == 0
        assert len(await ids_of_runs(client)) == 1

    async def test_a_taken_id_is_recorded_and_the_next_tick_starts(self, client, store, clock):
        await client.schedules.save("nightly", "keeping", every="1h", input=1)
        await client.submit("keeping", 0, id="nightly@2030-01-01T01:00:00Z")
        clock.advance(HOUR)
        await tick(store)
        clock.advance(HOUR)
        await tick(store)

        record = await client.schedules.get("nightly")
        assert outcomes(record) == [(1, "failed"), (2, "started")]
        assert "exists already" in record.history[0].reason


class TestOverlap:
    async def test_a_backlog_of_quick_runs_is_soon_gone(self, client, store, clock, start_worker):
        await client.schedules.save(
            "often", keeping, every="1s", input=1, overlap="queue", catch_up="all"
        )
        clock.advance(timedelta(seconds=6))
        await start_worker()
        began = await store.now()

        for count in range(1, 7):
            await until(partial(looked, client, store, clock, count))
            await client.runs.handle(f"often@2030-01-01T00:00:0{count}Z").result(20)

        assert await store.now() - began < timedelta(seconds=2)

    async def test_a_job_that_continues_counts_as_well(self, client, store, clock):
        await client.schedules.save("sums", add, every="1h", args=[1])
        clock.advance(HOUR)
        await tick(store)
        clock.advance(HOUR)
        await tick(store)
        record = await client.schedules.get("sums")
        assert outcomes(record) == [(1, "started"), (2, "skipped")]
        assert f"job {record.last_job} was still running" in record.history[1].reason

    async def test_a_job_is_aborted_where_the_next_one_cancels_it(self, client, store, clock):
        await client.schedules.save("sums", add, every="1h", args=[1], overlap="cancel")
        clock.advance(HOUR)
        await tick(store)
        clock.advance(HOUR)
        await tick(store)
        assert sorted(job.status for job in await client.jobs.list()) == ["cancelled", "waiting"]


class TestCancelling:
    """An unfinished run is cancelled only by a start that replaces it."""

    @pytest.fixture
    async def first(self, client: AsyncClient, store: Store, clock: ManualClock) -> str:
        await client.schedules.save("ask", asking, every="1h", overlap="cancel")
        clock.advance(HOUR)
        await tick(store)
        return "ask@2030-01-01T01:00:00Z"

    @pytest.mark.parametrize("is_paused", [False, True])
    async def test_by_others_if_the_starter_was_killed(
        self, client, store, clock, first, is_paused
    ):
        clock.advance(HOUR)
        [due] = await store.maintenance.due_schedules(NAMESPACE, 10)
        await ticking_at(store).advance(due, await store.now())
        assert (await client.runs.get(first)).status is RunStatus.WAITING
        if is_paused:
            await client.schedules.pause("ask")

        await tick(store)

        assert (await client.runs.get(first)).status is RunStatus.CANCELLED
        assert (await client.runs.get("ask@2030-01-01T02:00:00Z")).status is RunStatus.WAITING
        assert await tick(store) == 0
