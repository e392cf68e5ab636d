"""A thousand runs wait while every worker is gone: what they wait for comes, and they continue."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure import (
    ApprovalDecided,
    AsyncClient,
    ReportOutcome,
    RunFailed,
    RunStatus,
    ScheduleRecord,
    Worker,
)
from perdure.flows.built import BuiltFlow
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.verify import verify_store
from tests.crash import waiting_flows as flows
from tests.crash.conftest import Launch, WorkerProcess
from tests.worker.harness import Running
from tests.worker.watched_store import StoreWatch

SETTINGS = {"flows": "tests.crash.waiting_flows:WAITING", "lease": "1s", "poll": "200ms"}
AT_ONCE = 20
SECOND = timedelta(seconds=1)
TICKS = flows.SPAN_SECONDS
LOOKS = 20
LONG_WAIT_SECONDS = 30.0

Act = Callable[[AsyncClient, str, int], Awaitable[object]]


async def nothing(_client: AsyncClient, _run: str, _number: int) -> None:
    """What it waits for comes by itself."""


@dataclass(frozen=True)
class Scene:
    """Some runs of one flow: what is done about each, and what it ends with."""

    flow: BuiltFlow
    count: int
    outcome: Callable[[int], Any]
    act: Act = nothing
    late: Act = nothing
    """What is tried when its time is over, and no worker has processed that yet."""

    def id(self, number: int) -> str:
        return f"{self.flow.name}-{number}"


def approved(number: int) -> dict[str, Any]:
    """The output of an approval that Ann approved."""
    answer = {"decision": "approve", "by": "ann", "note": None, "data": None}
    fields = {"decision": "approve", "data": number, "by": ["ann"], "answers": [answer]}
    return {**fields, "timed_out": False}


async def send_letter(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.signal(run, "letter", {"letter": number})


async def pay_for_others_too(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.signal(run, "paid", {"order": number + 1})
    await client.runs.signal(run, "paid", {"order": number, "by": "ann"})
    await client.runs.signal(run, "paid", {"order": number, "by": "bob"})


async def decide_twice(client: AsyncClient, run: str, _number: int) -> None:
    await client.approvals.decide(f"{run}:ask", "approve", by="ann")
    await decide_late(client, run, _number)


async def decide_late(client: AsyncClient, run: str, _number: int) -> None:
    with pytest.raises(ApprovalDecided):
        await client.approvals.decide(f"{run}:ask", "reject", by="bob")


async def decide_in_child(client: AsyncClient, run: str, _number: int) -> None:
    [child] = await client.runs.handle(run).children()
    await client.approvals.decide(f"{child.id}:ask", "approve", by="ann")


async def decide_and_post(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.signal(run, "post", number)
    await client.approvals.decide(f"{run}:person", "approve", by="ann")


async def report_twice(client: AsyncClient, run: str, number: int) -> None:
    node = "print_label"
    await client.runs.report(run, node, progress={"pages": number}, by="printer")
    fields: dict[str, Any] = {"status": "completed", "result": f"L-{number}", "key": "1"}
    receptions = [(await client.runs.report(run, node, **fields)).outcome for _ in range(2)]
    assert receptions == [ReportOutcome.ACCEPTED, ReportOutcome.REPEATED]


async def report_early(client: AsyncClient, run: str, number: int) -> None:
    await client.runs.report(run, "print_once", status="completed", result={"early": number})


PATIENT = [
    Scene(flows.letter, 200, lambda number: {"letter": number}, send_letter),
    Scene(flows.payment, 150, lambda number: {"order": number, "by": "ann"}, pay_for_others_too),
    Scene(flows.question, 260, approved, decide_twice),
    Scene(
        flows.label,
        150,
        lambda number: {"label": f"L-{number}", "pages": {"pages": number}},
        report_twice,
    ),
]
"""They wait until a client acts."""
TIMED = [
    Scene(flows.nap, 80, lambda number: number),
    Scene(flows.hurry, 60, lambda _: "too late"),
    Scene(
        flows.fail_in_time, 50, lambda _: "failed: perdure.errors.WaitTimedOut", late=decide_late
    ),
    Scene(
        flows.several,
        40,
        lambda number: {"person": approved(number), "post": number, "time": number},
        decide_and_post,
    ),
]
"""They end by themselves after a while."""
CHILDREN = Scene(flows.parent, 10, approved, decide_in_child)
"""Each waits for a run of its own, which waits for a person."""
EARLY = Scene(flows.early_label, 10, lambda number: {"early": number}, report_early)
"""The report comes before a worker was there to pause the body."""
WAITING = [*PATIENT, *TIMED, CHILDREN]


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
    await until(lambda: are_waiting(client, len(ids(WAITING)) + CHILDREN.count))
    await stop_all(others)
    due = max(wait.due_at for wait in await all_waits(client) if wait.due_at is not None)

    assert await store.now() < due
    await check_nothing_is_held(client, ids(WAITING))
    await run_all(client, [EARLY, *WAITING], lambda scene: scene.act)
    await until(lambda: is_past(store, due))
    await run_all(client, WAITING, lambda scene: scene.late)
    victim, _ = await launch_some(launch, 2, shared_url)
    await victim.emitted("AttemptStarted")
    await victim.kill()
    outcomes = await outcomes_of(client, ids([EARLY, *WAITING]))

    assert outcomes == {
        scene.id(number): scene.outcome(number)
        for scene in [EARLY, *WAITING]
        for number in range(scene.count)
    }
    await check_each_tick(client, ticks_of_each)
    await check_last_tick(client, ticks_of_last)
    assert await verify_store(store) == []
    assert (list(await client.waits.list()), await client.jobs.count()) == ([], 0)


async def test_a_thousand_runs_that_wait_for_people_hold_nothing(client, store, shared_url):
    watch = StoreWatch(shared_url)
    worker = Running(Worker(watch.store, flows=[flows.question], poll="20ms"))
    await worker.start()
    try:
        before = await calls_while_idle(watch)
        await some_at_once(
            client.submit(flows.question, number, id=f"{number}") for number in range(1000)
        )
        await until(lambda: are_waiting(client, 1000))
        after = await calls_while_idle(watch)
        [state] = await client.workers.list()

        assert before == after == Counter({"maintenance.poll": LOOKS})
        assert worker.worker.stats().running == 0
        assert state.running == ()
        await check_nothing_is_held(client, [f"{number}" for number in range(1000)])
        poll = await store.maintenance.poll("default")
        assert (poll.partitions, poll.next_lease_end_at, poll.next_wait_at) == ((), None, None)
    finally:
        await worker.stop()


async def check_nothing_is_held(client: AsyncClient, runs: Iterable[str]) -> None:
    """Runs that wait have no job at all, let alone one that a worker has claimed."""
    jobs = await client.jobs.list(limit=1000)
    assert {job.node.run for job in jobs if job.node is not None}.isdisjoint(runs)


async def calls_while_idle(watch: StoreWatch) -> Counter[str]:
    """The calls of an idle worker to the store during some polls."""
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


async def submit(client: AsyncClient, scenes: Iterable[Scene]) -> None:
    await some_at_once(
        client.submit(scene.flow, number, id=scene.id(number))
        for scene in scenes
        for number in range(scene.count)
    )


async def outcomes_of(client: AsyncClient, runs: Iterable[str]) -> dict[str, Any]:
    """The result of each, or what it failed with."""
    outcomes: dict[str, Any] = {}

    async def note(run: str) -> None:
        try:
            outcomes[run] = await client.runs.handle(run).result(LONG_WAIT_SECONDS)
        except RunFailed as error:
            outcomes[run] = f"failed: {error.failure and error.failure.type}"

    await some_at_once(note(run) for run in runs)
    return outcomes


async def run_all(
    client: AsyncClient, scenes: Iterable[Scene], act_of: Callable[[Scene], Act]
) -> None:
    await some_at_once(
        act_of(scene)(client, scene.id(number), number)
        for scene in scenes
        for number in range(scene.count)
    )


async def some_at_once(acts: Iterable[Awaitable[object]]) -> None:
    todo = iter(acts)

    async def do() -> None:
        for act in todo:
            await act

    await asyncio.gather(*(do() for _ in range(AT_ONCE)))


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, for what no event tells."""
    async with asyncio.timeout(LONG_WAIT_SECONDS):
        while not await is_so():  # noqa: ASYNC110 (nothing would set an event)
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


async def all_waits(client: AsyncClient) -> list[Any]:
    page = await client.waits.list(limit=1000)
    found = [*page]
    while page.next is not None:
        page = await client.waits.list(limit=1000, cursor=page.next)
        found += page
    return found


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
    each = await client.schedules.save("each", flows.each_tick, **rules, catch_up="all")
    last = await client.schedules.save("last", flows.last_tick, **rules, catch_up="one")
    return ticks_until(each, end_at), ticks_until(last, end_at)


def ticks_until(record: ScheduleRecord, end_at: datetime) -> list[datetime]:
    """From its first tick on: on a busy machine that may be later than its start."""
    assert record.next_at is not None
    count = int((end_at - record.next_at) / SECOND) + 1
    return [record.next_at + number * SECOND for number in range(count)]


async def check_each_tick(client: AsyncClient, ticks: list[datetime]) -> None:
    """With "all" each tick has its run."""
    record, started = await after_last_tick(client, "each", flows.each_tick)

    assert [tick.at for tick in record.history] == ticks
    assert started == {tick.run for tick in record.history}
    counts = (record.started, record.missed, record.skipped, record.failed)
    assert counts == (len(ticks), 0, 0, 0)


async def check_last_tick(client: AsyncClient, ticks: list[datetime]) -> None:
    """With "one" those that no worker was there for have one run."""
    record, started = await after_last_tick(client, "last", flows.last_tick)

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
