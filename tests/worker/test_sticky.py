"""Runs whose nodes stay with one worker while it lives and has room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure import CONTEXT, AsyncContext, Flow, InvalidInput, Retry, task
from perdure.flows.built import BuiltFlow
from perdure.model.worker import is_live
from perdure.store.contract import Store
from perdure.verify.verifier import verify_store
from perdure.worker.events import AttemptStarted
from tests.worker.harness import Gate, Running, until

pytestmark = pytest.mark.every_store  # hints, polls and clocks differ by store

AT_ONCE = timedelta(seconds=3)
"""Much less than the time for which nodes wait; a heartbeat is missed after a second."""

Start = Callable[..., Awaitable[Running]]


@pytest.fixture(autouse=True)
async def _is_sound(store: Store):
    yield
    assert await verify_store(store) == []


def session(gate: Gate, **settings: Any) -> BuiltFlow:
    """Three nodes that are ready at once, one of which is retried; a signal, and another node."""

    @task
    async def note(value: Any) -> Any:
        return value

    @task
    async def wait(value: Any) -> Any:
        await gate.pass_through()
        return value

    @task(retries=Retry(2, first="10ms"))
    async def flaky(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
        await gate.pass_through()
        if ctx.attempt < 3:
            raise ValueError("again")
        return value

    return (
        Flow("session", **settings)
        .then(note, name="first")
        .fork(
            a=Flow().then(wait, name="a"),
            b=Flow().then(flaky, name="b"),
            c=Flow().then(wait, name="c"),
        )
        .join(note, name="all")
        .wait_for_signal("go")
        .then(note, name="last")
        .build()
    )


@pytest.fixture
async def pair(start_worker: Start):
    """Start a worker, let it execute the first node, and start another one."""

    async def start(client: Any, flow: BuiltFlow, gate: Gate, **settings: Any) -> Any:
        first = await start_worker(flows=[flow], concurrency=1, **{"lease": "1s", **settings})
        run = await client.submit(flow, 1)
        await gate.reached()
        second = await start_worker(flows=[flow], lease="1s")
        return run, first, second

    return start


def started(worker: Running) -> list[str]:
    return sorted(str(event.node) for event in worker.all(AttemptStarted))


async def is_waiting(client: Any, run: Any) -> bool:
    return (await client.runs.get(run.id)).status == "waiting"


async def test_nodes_go_to_the_worker_that_executed_the_last_one(client, pair):
    gate = Gate()
    run, first, second = await pair(client, session(gate, sticky="1h"), gate)

    found = (await client.runs.explain(run.id)).findings
    waiting = [each for each in found if each.code == "explain.sticky"]
    assert {each.args["worker"] for each in waiting} == {first.id}
    assert len(waiting) == 2
    gate.open()
    await until(lambda: is_waiting(client, run))
    await run.signal("go", 2)
    await run.result(10)

    assert started(first) == ["a", "all", "b", "b", "b", "c", "first", "last"]
    assert started(second) == []


async def test_nodes_go_to_any_worker_once_they_have_waited_for_so_long(client, pair, store):
    gate = Gate()
    run, first, second = await pair(client, session(gate, sticky="400ms"), gate)
    jobs = await store.queries.run_jobs("default", run.id)
    until_when = max(each.sticky_until for each in jobs if each.sticky_until is not None)

    await second.emitted(AttemptStarted, count=2)

    assert timedelta(0) <= await store.now() - until_when < AT_ONCE
    gate.open()
    await until(lambda: is_waiting(client, run))
    assert len(started(first) + started(second)) == 7


async def test_nodes_go_to_any_worker_at_once_when_theirs_stops(client, pair, store):
    gate = Gate()
    run, first, second = await pair(client, session(gate, sticky="1h"), gate)

    await first.stop()
    stopped_at = await store.now()
    await second.emitted(AttemptStarted, count=3)

    assert await store.now() - stopped_at < AT_ONCE
    gate.open()
    await until(lambda: is_waiting(client, run))
    await run.signal("go", 2)
    await run.result(10)
    assert started(first) == ["a", "first"]


@pytest.mark.parametrize("is_signaled_first", [True, False])
async def test_nodes_go_to_any_worker_at_once_when_theirs_is_killed(
    client, pair, watch, store, is_signaled_first
):
    gate = Gate()
    gate.open()
    watch.hangs.add("maintenance.remove_worker")  # so that its row stays, without heartbeats
    flow = session(gate, sticky="1h")
    run, first, second = await pair(client, flow, gate, store=watch.store)
    await until(lambda: is_waiting(client, run))

    await first.stop()
    [killed] = [each for each in await store.queries.workers("default") if each.info.id == first.id]
    assert not is_live(killed, await store.now())
    if is_signaled_first:  # as if it had been killed just now
        await store.maintenance.register_worker(killed.info)
    await run.signal("go", 2)
    signaled_at = await store.now()
    jobs = await store.queries.run_jobs("default", run.id)
    assert [each.sticky_worker for each in jobs if each.status == "waiting"] in (
        [[first.id]] if is_signaled_first else [[], [None]]
    )
    await run.result(10)

    assert await store.now() - signaled_at < AT_ONCE
    assert started(second) == ["last"]


async def test_a_single_run_may_be_sticky_and_a_schedule_may_start_such_runs(client, store):
    flow = session(Gate())
    run = await client.submit(flow, 1, sticky="30s")
    await client.schedules.save("often", flow, every="1h", options={"sticky": "5s"})
    started_run = await client.schedules.trigger("often")

    assert (await client.runs.get(run.id)).settings.sticky_ms == 30_000
    assert (await client.runs.get(started_run.run)).settings.sticky_ms == 5_000
    with pytest.raises(InvalidInput) as refused:
        await client.submit(flow, 1, sticky=0)
    assert refused.value.code == "argument.not_positive"
