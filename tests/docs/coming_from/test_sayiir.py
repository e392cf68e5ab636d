"""Coming from Sayiir: what the page says that Perdure does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Flow,
    InvalidFlow,
    InvalidInput,
    JobFailed,
    Retry,
    RunExists,
    RunFailed,
    RunStatus,
    run_flow_async,
    task,
)
from tests.client.runs import until
from tests.worker.harness import Gate, soon
from tests.worker.harness import until as until_so


@task
def double(number: int) -> int:
    return 2 * number


@task
def keep(value: Any) -> Any:
    return value


asking: Flow = Flow("asking").wait_for_signal("ok", timeout="1h", on_timeout="late").then(keep)
asking = asking.node("late", keep, after="ok:late")
ASKING = asking.build()


async def test_each_task_gets_what_the_one_before_returned():
    flow = Flow("twice").then(double).then(double, name="again").build()

    assert await run_flow_async(flow, 3) == 12


async def test_branches_of_a_fork_run_at_the_same_time():
    meeting = asyncio.Barrier(2)

    @task
    async def meet(value: int) -> int:
        await soon(meeting.wait())
        return value

    branches = {"left": Flow().then(meet, name="a"), "right": Flow().then(meet, name="b")}
    flow = Flow("meeting").fork(branches).join(keep).build()

    assert await run_flow_async(flow, 7, timeout=10) == {"left": 7, "right": 7}


async def test_a_join_gets_an_object_by_the_names_of_the_branches():
    flow = Flow("both").fork(doubled=double, same=keep).join(keep, name="joined").build()

    assert await run_flow_async(flow, 7) == {"doubled": 14, "same": 7}


async def test_a_route_hands_on_the_value_itself():
    flow = Flow("routes").route("kind", {"a": keep, "b": None}).build()

    assert await run_flow_async(flow, {"kind": "a", "n": 1}) == {"kind": "a", "n": 1}


async def test_a_key_without_a_branch_is_refused():
    with pytest.raises(InvalidFlow, match="c"):
        Flow("routes").route("kind", {"a": keep, "b": None}, keys=["a", "b", "c"]).build()

    flow = Flow("routes").route("kind", {"a": keep, "b": None}).build()
    with pytest.raises(RunFailed, match="'c'"):
        await run_flow_async(flow, {"kind": "c"})


async def test_a_loop_goes_on_until_its_condition_holds():
    flow = Flow("grow").loop(double, until=lambda number: number > 20).build()

    assert await run_flow_async(flow, 3) == 24


async def test_a_loop_that_is_not_done_may_go_on_with_its_last_value():
    def grow(on_max: str) -> Flow:
        return Flow("grow").loop(
            double, until=lambda _: False, max_iterations=3, on_max=on_max, name="grow"
        )

    assert await run_flow_async(grow("continue").build(), 1) == 8
    with pytest.raises(RunFailed, match="LoopExhausted"):
        await run_flow_async(grow("fail").build(), 1)
    elsewhere = grow("tired").node("rest", keep, after="grow:tired").build()
    assert await run_flow_async(elsewhere, 1) == 8


async def test_a_built_flow_is_a_run_of_its_own(client, start_worker):
    child = Flow("child").then(double)
    inlined = Flow("inlined").then(child).build()
    parent = Flow("parent").then(child.build()).build()
    await start_worker(flows=[inlined, parent])

    first = await client.submit(inlined, 3)
    second = await client.submit(parent, 3)

    assert [await first.result(timeout=10), await second.result(timeout=10)] == [6, 6]
    assert (await first.children(), len(await second.children())) == ([], 1)


async def test_the_same_task_twice_needs_two_names():
    with pytest.raises(InvalidFlow, match="double"):
        Flow("twice").then(double).then(double).build()


@pytest.mark.parametrize(
    "value", [[["a", [49, 50]]], 0, False, "", [], None, {"_loop": "again", "value": 1}], ids=repr
)
async def test_values_come_back_as_they_went_in(value):
    assert await run_flow_async(Flow("same").then(keep).build(), value) == value


async def test_of_many_submissions_of_one_id_one_wins(client):
    submissions = [client.submit(ASKING, 1, id="order-1") for _ in range(8)]

    answers = await asyncio.gather(*submissions, return_exceptions=True)

    assert sum(isinstance(answer, RunExists) for answer in answers) == 7


async def test_use_existing_gives_the_run_that_there_is(client):
    await client.submit(ASKING, 1, id="order-1")

    again = await client.submit(ASKING, 2, id="order-1", on_conflict="use_existing")

    assert again.is_new is False
    assert (await again.events())[0].value == 1


async def test_terminate_existing_takes_the_place_of_a_run(client):
    await client.submit(ASKING, 1, id="order-1")

    again = await client.submit(ASKING, 2, id="order-1", on_conflict="replace")

    assert again.is_new is True
    assert (await again.events())[0].value == 2
    assert await client.runs.count() == 1


async def test_a_signal_that_comes_early_is_kept(client, start_worker):
    flow = Flow("late").then(keep, name="first").wait_for_signal("ok").build()
    run = await client.submit(flow, 1)
    await run.signal("ok", "yes")

    await start_worker(flows=[flow])

    assert await run.result(timeout=10) == "yes"


async def test_a_signal_that_nobody_waits_for_is_refused(client):
    await client.submit(ASKING, 1, id="order-1")

    with pytest.raises(InvalidInput, match="'ok'"):
        await client.runs.signal("order-1", "okay")


async def test_a_signal_that_does_not_come_has_a_defined_end(client, start_worker, clock):
    strict = Flow("strict").wait_for_signal("ok", timeout="1h").build()
    runs = [await client.submit(ASKING, 1), await client.submit(strict, 1)]
    clock.advance(timedelta(hours=1))
    await start_worker(flows=[ASKING, strict])

    assert await runs[0].result(timeout=10) is None
    assert (await runs[0].outputs()).keys() == {"ok", "late"}
    with pytest.raises(RunFailed, match="WaitTimedOut"):
        await runs[1].result(timeout=10)


async def test_a_delay_is_seen_to_by_whoever_runs_then(client, start_worker, clock):
    flow = Flow("later").then(keep, name="first").delay("1d").then(keep, name="second").build()
    worker = await start_worker(flows=[flow])
    run = await client.submit(flow, 7)
    await until(run, RunStatus.WAITING)
    await worker.stop()
    clock.advance(timedelta(days=1))
    await start_worker(flows=[flow])

    assert await run.result(timeout=10) == 7


async def test_a_waiting_run_is_cancelled_at_once(client):
    run = await client.submit(ASKING, 1)

    await client.runs.cancel(run.id, reason="out of stock", by="ada")

    assert await run.status() is RunStatus.CANCELLED


async def test_a_paused_run_keeps_its_signals_and_goes_on(client, start_worker):
    await start_worker(flows=[ASKING])
    run = await client.submit(ASKING, 1)
    await run.pause(reason="maintenance")
    await run.signal("ok", "yes")
    assert await run.status() is RunStatus.PAUSED

    await run.resume()

    assert await run.result(timeout=10) == "yes"


async def test_priority_ages(queue, clock):
    await queue.enqueue("work", "old", priority=5)
    clock.advance(timedelta(minutes=9))
    await queue.enqueue("work", "urgent", priority=3)
    clock.advance(timedelta(minutes=2))
    await queue.enqueue("work", "late", priority=3)

    jobs = [await queue.dequeue("worker-1") for _ in range(3)]

    assert [job.payload for job in jobs if job] == ["urgent", "old", "late"]


async def test_a_retry_goes_to_another_worker(client, start_worker):
    ran_on: list[str] = []

    @task(retries=Retry(1, first=0))
    async def work(ctx: AsyncContext = CONTEXT) -> None:
        ran_on.append(ctx.worker)
        if len(ran_on) == 1:
            raise ValueError("not here")

    for name in ("one", "two"):
        await start_worker(tasks=[work], id=name, hold_off="1h")
    await (await client.enqueue(work)).result(timeout=10)

    assert sorted(ran_on) == ["one", "two"]


async def test_a_timeout_ends_an_attempt(client, start_worker):
    @task(timeout="20ms")
    async def hang(ctx: AsyncContext = CONTEXT) -> None:
        await ctx.abort_signal.wait_async()

    await start_worker(tasks=[hang])
    job = await client.enqueue(hang)

    with pytest.raises(JobFailed, match="AttemptTimeout"):
        await job.result(timeout=10)


async def test_a_task_may_outlast_its_lease(client, start_worker, clock):
    executions: list[int] = []
    gate = Gate()

    @task
    async def work(ctx: AsyncContext = CONTEXT) -> str:
        executions.append(ctx.attempt)
        await gate.pass_through()
        return "done"

    for _ in range(2):
        await start_worker(tasks=[work], lease="300ms")
    job = await client.enqueue(work)
    await gate.reached()

    async def is_renewed() -> bool:
        held_until = (await job.record()).lease_until
        return held_until is not None and held_until - clock() == timedelta(milliseconds=300)

    for _ in range(3):
        clock.advance(timedelta(milliseconds=200))
        await until_so(is_renewed)
    gate.open()

    assert await job.result(timeout=10) == "done"
    assert executions == [1]


async def test_retries_come_on_top_of_the_first_try(client, start_worker):
    executions: list[int] = []

    @task(retries=Retry(2, first=0))
    async def work(ctx: AsyncContext = CONTEXT) -> None:
        executions.append(ctx.attempt)
        raise ValueError("no luck")

    await start_worker(tasks=[work])
    job = await client.enqueue(work)

    with pytest.raises(JobFailed):
        await job.result(timeout=10)
    assert executions == [1, 2, 3]


async def test_a_failed_run_can_be_retried(client, start_worker):
    calls: list[int] = []

    @task
    def work(number: int) -> int:
        calls.append(number)
        if len(calls) == 1:
            raise ValueError("no luck")
        return number

    flow = Flow("work").then(work).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 7)
    with pytest.raises(RunFailed):
        await run.result(timeout=10)
    await run.retry()

    assert await run.result(timeout=10) == 7


async def test_the_name_is_part_of_the_version():
    flows = [Flow(name).then(double).build() for name in ("a", "b", "a")]

    assert flows[0].version == flows[2].version != flows[1].version


async def test_a_worker_leaves_alone_what_it_has_no_code_for(client, start_worker):
    known = Flow("work").then(double).build()
    other = Flow("work").then(double).then(double, name="again").build()
    await start_worker(flows=[known])

    stranger = await client.submit(other, 3)
    run = await client.submit(known, 3)

    assert await run.result(timeout=10) == 6
    [finding] = (await client.runs.explain(stranger.id)).headline
    assert finding.code == "explain.no_version"
