"""Child flows: runs of their own, whose ends their parents hear of, and which end with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    AsyncRunHandle,
    Flow,
    Permanent,
    RunCancelled,
    RunFailed,
    RunStatus,
    task,
)
from perdure.model.trigger import CancelRun
from tests.worker.harness import Gate, soon, until


@task
async def pass_on(value: Any) -> Any:
    return value


@task
async def fail(value: Any) -> Any:
    raise Permanent(f"not with {value}")


waiting = Flow("waiting").wait_for_signal("go").then(pass_on, name="after").build()
failing = Flow("failing").then(fail).build()


async def has_status(run: AsyncRunHandle, status: RunStatus) -> bool:
    return await run.status() is status


async def reaches(run: AsyncRunHandle, status: RunStatus) -> None:
    await until(lambda: has_status(run, status))


async def test_child_is_a_run_of_its_own_with_a_link_to_its_parent(client, start_worker):
    flow = Flow("parent").then(pass_on).flow(waiting, name="part").build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1, id="p")
    await reaches(run, RunStatus.WAITING)
    [child] = await run.children()
    await client.runs.signal(child.id, "go", 5)

    assert await run.result(10) == 5
    assert (child.key, child.id, child.status) == ("part", "p/part", RunStatus.WAITING)
    [after] = await run.children()
    assert after.status is RunStatus.COMPLETED
    record = await client.runs.get("p/part")
    assert record.parent is not None
    assert (record.parent.run, record.parent.key) == ("p", "part")


class TestFailure:
    async def test_of_a_child_fails_its_parent_and_is_in_the_ledger(self, client, start_worker):
        flow = Flow("parent").flow(failing, name="part").build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        with pytest.raises(RunFailed, match="not with 1") as raised:
            await run.result(10)

        assert raised.value.node == "part"
        [child] = await run.children()
        assert child.status is RunStatus.FAILED
        assert child.failure is not None
        assert child.failure.message == "not with 1"

    async def test_of_a_child_goes_where_its_node_says(self, client, start_worker):
        grandparent = (
            Flow("grandparent")
            .flow(Flow("parent").flow(failing).build(), on_error="sorry")
            .then(lambda error: error["message"], name="told", after="parent:sorry")
            .build()
        )
        await start_worker(flows=[grandparent])

        assert await (await client.submit(grandparent, 1)).result(10) == "not with 1"

    async def test_of_one_item_cancels_the_children_of_the_others(self, client, start_worker):
        either = Flow("either").route(
            lambda value: value, {"wait": Flow().wait_for_signal("go"), "fail": fail}
        )
        flow = Flow("items").map(either.build()).build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, ["wait", "wait", "fail"])
        with pytest.raises(RunFailed, match="not with fail"):
            await run.result(10)

        async def are_ended() -> bool:
            return {child.status for child in await run.children()} == {
                RunStatus.CANCELLED,
                RunStatus.FAILED,
            }

        await until(are_ended)

    async def test_of_a_parent_cancels_what_runs_below_it(self, client, start_worker):
        gate = Gate()
        cancelled = asyncio.Event()

        @task
        async def hold(value: Any) -> None:
            try:
                await gate.pass_through()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        @task
        async def fail_then(value: Any) -> None:
            await gate.reached()
            raise Permanent("enough")

        child = Flow("child").then(hold).build()
        flow = (
            Flow("parent")
            .fork(a=Flow().flow(Flow("middle").flow(child).build()), b=fail_then)
            .join(pass_on)
            .build()
        )
        await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        with pytest.raises(RunFailed, match="enough"):
            await run.result(10)

        await soon(cancelled.wait())
        await reaches(client.runs.handle(f"{run.id}/middle/child"), RunStatus.CANCELLED)


class TestCancel:
    async def test_of_a_child_by_an_operator_fails_the_node_of_its_parent(
        self, client, start_worker
    ):
        flow = Flow("parent").flow(waiting, name="part").build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        await client.runs.cancel(f"{run.id}/part", reason="by mistake", by="ops")
        with pytest.raises(RunFailed, match="cancelled") as raised:
            await run.result(10)

        assert raised.value.node == "part"
        [child] = await run.children()
        assert child.status is RunStatus.CANCELLED

    async def test_of_a_parent_cancels_its_children_and_theirs(self, client, start_worker):
        middle = Flow("middle").flow(waiting).build()
        flow = Flow("parent").then(lambda _: [1, 2], name="two").map(middle).build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        await reaches(run, RunStatus.WAITING)
        await client.runs.cancel(run.id, reason="stop", by="ops")
        with pytest.raises(RunCancelled, match="stop"):
            await run.result(10)

        assert {child.status for child in await run.children()} == {RunStatus.CANCELLED}
        for item in range(2):
            below = client.runs.handle(f"{run.id}/middle[{item}]/waiting")
            await reaches(below, RunStatus.CANCELLED)
            record = await below.record()
            assert (record.reason, record.by) == ("stop", "ops")

    async def test_of_a_parent_reaches_its_children_through_a_worker_that_comes_back(
        self, client, start_worker, store
    ):
        """As if whoever cancels was killed after the parent was."""
        flow = Flow("parent").flow(waiting, name="part").build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        child = client.runs.handle(f"{run.id}/part")
        await reaches(child, RunStatus.WAITING)
        await worker.stop()
        await cancel_alone(client, run)
        before = await child.status()
        await start_worker(flows=[flow])
        await reaches(child, RunStatus.CANCELLED)

        async def are_closed() -> bool:
            return await store.queries.run_waits("default", run.id) == []

        assert before is RunStatus.WAITING
        await until(are_closed)


class TestUndo:
    async def test_of_a_parent_undoes_its_live_children_too(self, client, start_worker):
        """Whether or not the parent itself has something to undo."""
        undone: list[str] = []

        @task
        async def undo(_: Any, ctx: AsyncContext = CONTEXT) -> None:
            undone.append(str(ctx.run_id))

        child = Flow("child").then(pass_on, undo=undo).wait_for_signal("go").build()
        own = Flow("own").then(pass_on, undo=undo).flow(child).build()
        none = Flow("none").flow(child).build()
        await start_worker(flows=[own, none])
        for flow in (own, none):
            run = await client.submit(flow, 1, id=flow.name)
            await reaches(run, RunStatus.WAITING)
            below = client.runs.handle(f"{flow.name}/child")
            await reaches(below, RunStatus.WAITING)
            await cancel_alone(client, run, compensates=True)
            await reaches(below, RunStatus.CANCELLED)
            await reaches(run, RunStatus.CANCELLED)

        assert sorted(undone) == ["none/child", "own", "own/child"]


class TestPause:
    async def test_of_a_parent_keeps_the_end_of_its_child_for_later(self, client, start_worker):
        flow = Flow("parent").flow(waiting, name="part").then(pass_on, name="last").build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, 1, id="p")
        await client.runs.pause("p")
        await client.runs.signal("p/part", "go", 5)
        assert await client.runs.handle("p/part").result(10) == 5
        during = await run.status()
        await client.runs.resume("p")

        assert during is RunStatus.PAUSED
        assert await run.result(10) == 5


async def test_retry_of_a_parent_starts_its_failed_child_anew(client, start_worker):
    is_mended = asyncio.Event()

    @task
    async def mend(value: int) -> int:
        if not is_mended.is_set():
            raise Permanent("broken")
        return value

    flow = Flow("parent").then(pass_on).map(Flow("child").then(mend).build()).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, [1, 2])
    with pytest.raises(RunFailed, match="broken"):
        await run.result(10)
    is_mended.set()
    await client.runs.retry(run.id)

    assert await run.result(10) == [1, 2]


async def test_many_children_report_back_together(client, start_worker):
    child = Flow("child").then(pass_on).build()
    flow = Flow("many").map(child).build()
    await start_worker(flows=[flow], concurrency=50)
    run = await client.submit(flow, list(range(100)))

    assert await run.result(20) == list(range(100))
    keys = [event.key for event in await run.events() if event.type == "item_completed"]
    assert len(keys) == len(set(keys)) == 100


async def cancel_alone(
    client: AsyncClient, run: AsyncRunHandle, *, compensates: bool = False
) -> None:
    """Cancel a run, and do nothing about its children."""
    runs = await client._backend.engine()
    await runs.apply("default", run.id, CancelRun(reason="stop", compensates=compensates))
