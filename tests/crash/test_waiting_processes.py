"""A thousand runs wait while every worker is gone: what they wait for comes, and they go on."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure import AsyncClient, RunStatus, ScheduleRecord, Worker
from perdure.flows.built import BuiltFlow
from perdure.store.contract import Store
from perdure.store.opening import store_at
from tests.crash.conftest import Launch, WorkerProcess
from tests.crash.waiting_flows import SPAN_SECONDS, each_tick, last_tick, news, question
from tests.crash.waiting_scenes import (
    CHILDREN,
    EARLY,
    PATIENT,
    TIMED,
    WAITING,
    WAITING_RUNS,
    Act,
    Scene,
    check_logs,
    check_nothing_is_held,
    check_nothing_is_left,
    outcome_of,
    runs_of,
)
from tests.worker.harness import Running
from tests.worker.watched_store import StoreWatch

SETTINGS = {"flows": "tests.crash.waiting_flows:WAITING", "lease": "1s", "poll": "200ms"}
AT_ONCE = 20
SECOND = timedelta(seconds=1)
TICKS = SPAN_SECONDS
LOOKS = 20
LONG_WAIT_SECONDS = 30.0


@pytest.fixture
async def store(shared_url: str) -> AsyncIterator[Store]:
    store = store_at(shared_url)
    await store.open()
    yield store
    await store.close()


@pytest.mark.timeout(180)
async def test_a_thousand_waiting_runs_end_right_though_all_workers_were_gone(
    client, store, shared_url, launch
):
    first, *others = await launch_some(launch, 3, shared_url, queues=["default"])
    await submit(client, PATIENT)
    await first.kill()
    await submit(client, [EARLY, CHILDREN])
    ticks_of_each, ticks_of_last = await schedule_both(client, store)
    await submit(client, TIMED)
    # Each parent has a child, and both wait.
    await until(lambda: are_waiting(client, WAITING_RUNS + CHILDREN.count))
    await stop_all(others)
    due = await last_due(client)

    assert await store.now() < due
    await check_nothing_is_held(client, store, ids(WAITING))
    await act_on(client, [EARLY, *WAITING], lambda scene: scene.act)
    await broadcast_news(client)
    await until(lambda: is_past(store, due))
    await act_on(client, WAITING, lambda scene: scene.late)
    restarted_at = await store.now()
    victim, _ = await launch_some(launch, 2, shared_url)
    await victim.told("AttemptStarted")
    await victim.kill()
    scenes = [EARLY, *WAITING]
    outcomes = await outcomes_of(client, ids(scenes))

    assert outcomes == expected(scenes)
    await check_each_tick(client, ticks_of_each)
    await check_last_tick(client, ticks_of_last)
    counts = await check_logs(store)
    for scene in scenes:
        assert {run: counts[run] for run in ids([scene])} == dict.fromkeys(ids([scene]), scene.log)
    ended = await runs_of(store, ids(TIMED))
    assert all(run.finished_at and run.finished_at > restarted_at for run in ended)
    await check_nothing_is_left(client, store)


async def test_a_thousand_runs_that_wait_for_people_hold_nothing(client, store, shared_url):
    watch = StoreWatch(shared_url)
    worker = Running(Worker(watch.store, flows=[question], poll="20ms"))
    await worker.start()
    try:
        before = await calls_while_idle(watch)
        await some_at_once(
            client.submit(question, number, id=f"{number}") for number in range(1000)
        )
        await until(lambda: are_waiting(client, 1000))
        after = await calls_while_idle(watch)
        [state] = await client.workers.list()

        assert before == after == Counter({"maintenance.poll": LOOKS})
        assert worker.worker.stats().running == 0
        assert state.running == ()
        await check_nothing_is_held(client, store, [f"{number}" for number in range(1000)])
        poll = await store.maintenance.poll("default")
        assert (poll.partitions, poll.next_lease_end_at, poll.next_wait_at) == ((), None, None)
    finally:
        await worker.stop()


async def calls_while_idle(watch: StoreWatch) -> Counter[str]:
    """What a worker asks of the store during some looks for work, once it has come to rest."""
    counted: list[Counter[str]] = []
    for _ in range(2):
        counted.append(watch.calls.copy())
        async with asyncio.timeout(LONG_WAIT_SECONDS):
            while watch.calls["maintenance.poll"] < counted[-1]["maintenance.poll"] + LOOKS:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    return watch.calls - counted[-1]


async def launch_some(launch: Launch, count: int, url: str, **settings: Any) -> list[WorkerProcess]:
    workers = [launch(url, **SETTINGS, concurrency=20, **settings) for _ in range(count)]
    return await asyncio.gather(*workers)


def ids(scenes: Iterable[Scene]) -> list[str]:
    return [scene.id(number) for scene in scenes for number in range(scene.count)]


def expected(scenes: Iterable[Scene]) -> dict[str, Any]:
    return {
        scene.id(number): scene.result(number) for scene in scenes for number in range(scene.count)
    }


async def submit(client: AsyncClient, scenes: Iterable[Scene]) -> None:
    await some_at_once(
        client.submit(scene.flow, scene.input(number), id=scene.id(number))
        for scene in scenes
        for number in range(scene.count)
    )


async def outcomes_of(client: AsyncClient, runs: Iterable[str]) -> dict[str, Any]:
    outcomes: dict[str, Any] = {}

    async def note(run: str) -> None:
        outcomes[run] = await outcome_of(client, run, LONG_WAIT_SECONDS)

    await some_at_once(note(run) for run in runs)
    return outcomes


async def act_on(
    client: AsyncClient, scenes: Iterable[Scene], act_of: Callable[[Scene], Act]
) -> None:
    def acts() -> Iterable[Awaitable[object]]:
        for scene in scenes:
            for number in range(scene.count):
                yield act_of(scene)(client, scene.id(number), number)

    await some_at_once(acts())


async def some_at_once(acts: Iterable[Awaitable[object]]) -> None:
    todo = iter(acts)

    async def do() -> None:
        for act in todo:
            await act

    await asyncio.gather(*(do() for _ in range(AT_ONCE)))


async def broadcast_news(client: AsyncClient) -> None:
    """To two regions; the third has it already, and waits no more."""
    count = next(scene.count for scene in PATIENT if scene.flow is news) // 3
    north = await client.runs.broadcast("news", {"region": "north"}, by="radio")
    south = await client.runs.broadcast("news", {"region": "south"}, flow=news)
    again = await client.runs.broadcast("news", {"region": "south"})

    assert (north.count, north.unmatched) == (count, count)
    assert (south.count, south.unmatched) == (count, 0)
    assert (again.count, again.unmatched) == (0, 0)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, for what no event tells."""
    async with asyncio.timeout(LONG_WAIT_SECONDS):
        while not await is_so():  # noqa: ASYNC110 (nobody would set an event)
            await asyncio.sleep(0.02)


async def are_waiting(client: AsyncClient, count: int) -> bool:
    return await client.runs.count(status=RunStatus.WAITING) == count


async def is_past(store: Store, moment: datetime) -> bool:
    return await store.now() > moment


async def stop_all(workers: Iterable[WorkerProcess]) -> None:
    """Kill one, and let the other stop."""
    killed, stopped = workers
    stopped.send(signal.SIGTERM)
    await killed.kill()
    assert await stopped.ended() == 0


async def last_due(client: AsyncClient) -> datetime:
    """When the last of the waits ends that end by themselves."""
    found: list[datetime] = []
    cursor: str | None = None
    while True:
        page = await client.waits.list(limit=1000, cursor=cursor)
        found += [wait.due_at for wait in page if wait.due_at is not None]
        if (cursor := page.next) is None:
            return max(found)


async def schedule_both(client: AsyncClient, store: Store) -> tuple[list[datetime], list[datetime]]:
    """Two schedules that tick for as long as the timers wait; the ticks of each."""
    start_at = (await store.now()).replace(microsecond=0) + SECOND
    end_at = start_at + (TICKS - 1) * SECOND
    rules: dict[str, Any] = {
        "every": "1s",
        "start_at": start_at,
        "end_at": end_at,
        "overlap": "cancel",
    }
    each = await client.schedules.save("each", each_tick, **rules, catch_up="all")
    last = await client.schedules.save("last", last_tick, **rules, catch_up="one")
    return ticks_until(each, end_at), ticks_until(last, end_at)


def ticks_until(record: ScheduleRecord, end_at: datetime) -> list[datetime]:
    """From its first tick on: on a busy machine that may be later than its start."""
    assert record.next_at is not None
    count = int((end_at - record.next_at) / SECOND) + 1
    return [record.next_at + number * SECOND for number in range(count)]


async def check_each_tick(client: AsyncClient, ticks: list[datetime]) -> None:
    """With "all" each tick has its run."""
    record, started = await after_last_tick(client, "each", each_tick)

    assert [tick.at for tick in record.history] == ticks
    assert started == {tick.run for tick in record.history}
    counts = (record.started, record.missed, record.skipped, record.failed)
    assert counts == (len(ticks), 0, 0, 0)


async def check_last_tick(client: AsyncClient, ticks: list[datetime]) -> None:
    """With "one" those that nobody was there for have one run."""
    record, started = await after_last_tick(client, "last", last_tick)

    assert started == {tick.run for tick in record.history if tick.run is not None}
    assert (record.skipped, record.failed) == (0, 0)
    assert record.started + record.missed == len(ticks)
    assert record.missed > 0
    assert record.last_at == ticks[-1]


async def after_last_tick(
    client: AsyncClient, name: str, flow: BuiltFlow
) -> tuple[ScheduleRecord, set[str]]:
    """A schedule that is over, and the runs that it started, which have ended too."""

    async def is_over() -> bool:
        record = await client.schedules.get(name)
        return record.next_at is None and not record.queued

    async def have_ended() -> bool:
        return all(run.is_ended for run in await client.runs.list(flow=flow))

    await until(is_over)
    await until(have_ended)
    return await client.schedules.get(name), {run.id for run in await client.runs.list(flow=flow)}
