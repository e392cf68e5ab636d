"""One commit a step; child runs; and logs that a worker cannot use."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    AsyncRunHandle,
    Concurrency,
    Flow,
    RunFailed,
    RunStatus,
    Status,
    task,
)
from perdure.flows.built import BuiltFlow
from perdure.model.partition import Partition
from perdure.model.payload import PlainCodec
from perdure.model.trigger import CancelRun
from perdure.worker.events import AttemptCompleted, AttemptLost, AttemptRequeued, AttemptStarted
from tests.support.held import append_event
from tests.support.refusal import fails
from tests.support.tasks import flaky
from tests.worker.harness import Gate, Peak, Running, until

BRIEFLY = 0.01


@task
async def nothing(value: Any) -> Any:
    return value


def chain(name: str, length: int) -> BuiltFlow:
    flow = Flow(name)
    for number in range(length):
        flow.then(nothing, name=f"step-{number}")
    return flow.build()


class TestCost:
    async def test_of_a_chain_is_one_commit_a_step_on_one_claim(self, client, start_worker, watch):
        flow = chain("ten", 10)
        worker = await start_worker(flows=[flow], store=watch.store)
        run = await client.submit(flow, 7)

        assert await run.result(10) == 7
        await worker.emitted(AttemptCompleted, count=10)
        assert watch.calls["runs.commit"] <= 10
        assert watch.calls["runs.load"] == 1
        assert len({event.job_id for event in worker.all(AttemptStarted)}) == 1
        assert {event.attempt for event in worker.all(AttemptStarted)} == {1}
        assert worker.all(AttemptRequeued) == []
        commits = [commit for (commits, *_) in watch.arguments["runs.commit"] for commit in commits]
        assert [len(commit.jobs) for commit in commits] == [0] * len(commits)

    async def test_of_many_runs_at_once_is_shared(self, client, start_worker, watch):
        flow = chain("shared", 5)
        runs = [await client.submit(flow, number) for number in range(40)]
        await start_worker(flows=[flow], store=watch.store, concurrency=40)
        assert [await run.result(10) for run in runs] == list(range(40))
        assert watch.calls["runs.commit"] < 40 * 5 / 2

    async def test_of_branches_needs_no_read_on_one_worker(self, watch, world):
        flow = (
            Flow("wide")
            .then(lambda _: list(range(20)), name="spread")
            .map(nothing)
            .then(nothing, name="last")
            .build()
        )
        assert await (await world.submit(flow, store=watch.store, concurrency=20)).result(
            10
        ) == list(range(20))
        assert watch.calls["runs.load"] == 1
        assert watch.calls["runs.event_values"] == 0


class TestContinuingInPlace:
    async def test_is_not_done_under_a_limit(self, client, start_worker):
        peak = Peak()

        @task(limits=[Concurrency(2)])
        async def limited(number: int) -> int:
            with peak:
                await asyncio.sleep(BRIEFLY)
            return number

        flow = (
            Flow("limited")
            .then(nothing)
            .then(limited)
            .then(lambda number: [number] * 4, name="spread")
            .map(limited, name="each")
            .build()
        )
        for _ in range(2):
            await start_worker(flows=[flow], concurrency=20, poll="1m")
        runs = [await client.submit(flow, number) for number in range(8)]

        assert [await run.result(15) for run in runs] == [[number] * 4 for number in range(8)]
        assert peak.most == 2

    async def test_not_onto_a_queue_that_the_worker_does_not_serve(self, start_worker, world):
        @task
        async def where(_: Any, ctx: AsyncContext = CONTEXT) -> str:
            return ctx.worker

        flow = (
            Flow("queues")
            .fork(
                here=Flow().then(nothing, name="a").then(where, name="here"),
                queue=Flow().then(nothing, name="b").then(where, name="queue", queue="other"),
                tags=Flow().then(nothing, name="c").then(where, name="tags", tags=["gpu"]),
            )
            .join(nothing, name="joined")
            .build()
        )
        await start_worker(flows=[flow], queues=["default"], tags=[], id="plain")
        await start_worker(flows=[flow], queues=["other"], tags=[], id="other")
        found = await (await world.submit(flow, queues=["default"], tags=["gpu"], id="gpu")).result(
            10
        )

        assert found["here"] in ("plain", "gpu")
        assert (found["queue"], found["tags"]) == ("other", "gpu")

    async def test_is_not_done_into_a_paused_queue(self, client, start_worker, watch):
        gate = Gate()

        @task
        async def guarded(value: int) -> int:
            await gate.pass_through()
            return value

        flow = Flow("stopped").then(guarded).then(nothing).build()
        worker = await start_worker(flows=[flow], store=watch.store, poll="50ms")
        run = await client.submit(flow, 7)
        await gate.reached()
        await client.queues.pause("default")
        before = watch.calls["maintenance.poll"]

        async def is_known() -> bool:
            # Two more have started, so one of them started after the pause and has ended.
            return watch.calls["maintenance.poll"] >= before + 2

        await until(is_known)
        gate.open()
        await worker.emitted(AttemptCompleted)

        [waiting] = await client.jobs.list(status="waiting")
        assert waiting.task == "nothing"
        await client.queues.resume("default")
        assert await run.result(10) == 7

    async def test_is_not_done_with_a_less_urgent_successor(self, client, start_worker):
        order: list[str] = []
        gate = Gate()

        @task
        async def note(name: str, ctx: AsyncContext = CONTEXT) -> str:
            if ctx.node == "gate":
                await gate.pass_through()
            order.append(f"{name} {ctx.node}")
            return name

        slow = (
            Flow("slow")
            .then(note, name="gate", priority=1)
            .then(note, name="later", priority=5)
            .build()
        )
        plain = Flow("plain").then(note, name="now", priority=3).build()
        await start_worker(flows=[slow, plain], concurrency=1)
        first = await client.submit(slow, "first")
        await gate.reached()
        second = await client.submit(plain, "second")
        gate.open()
        await asyncio.gather(first.result(10), second.result(10))

        assert order == ["first gate", "second now", "first later"]

    async def test_makes_more_urgent_work_wait_for_one_task_at_most(self, client, start_worker):
        order: list[str] = []
        gate = Gate()

        @task
        async def note(name: str, ctx: AsyncContext = CONTEXT) -> str:
            order.append(f"{name} {ctx.node}")
            if ctx.node == "two":
                await gate.pass_through()
            return name

        long = Flow("long")
        for node in ("one", "two", "three", "four"):
            long.then(note, name=node)
        flow = long.build()
        urgent = Flow("urgent").then(note, name="urgent", priority=1).build()
        worker = await start_worker(flows=[flow, urgent], concurrency=1, poll="1m")
        first = await client.submit(flow, "chain")
        await gate.reached()
        second = await client.submit(urgent, "other")
        await until(partial(knows_of, worker, "urgent"))
        gate.open()
        await asyncio.gather(first.result(10), second.result(10))

        expected = ["chain one", "chain two", "other urgent", "chain three", "chain four"]
        assert order == expected
        assert [event.node for event in worker.all(AttemptRequeued)] == ["three"]

    async def test_ends_when_the_worker_is_scaled_down(self, client, start_worker):
        gate, peak = Gate(), Peak()

        @task
        async def wait(number: int, ctx: AsyncContext = CONTEXT) -> int:
            if ctx.node == "first":
                await gate.pass_through()
                return number
            with peak:
                await asyncio.sleep(BRIEFLY)
            return number

        flow = Flow("scaled").then(wait, name="first").then(wait, name="second").build()
        worker = await start_worker(flows=[flow], concurrency=3)
        runs = [await client.submit(flow, number) for number in range(3)]
        await gate.reached(3)
        worker.worker.scale(1)
        gate.open()

        assert [await run.result(10) for run in runs] == [0, 1, 2]
        assert peak.most == 1

    async def test_follows_a_node_that_ran_into_its_timeout(self, client, start_worker):
        @task
        async def hang(_: Any) -> None:
            await asyncio.sleep(60)

        flow = (
            Flow("timeout")
            .then(hang, timeout="20ms", on_error="continue")
            .then(lambda value: [value], name="next")
            .build()
        )
        worker = await start_worker(flows=[flow], lease="1h")

        assert await (await client.submit(flow)).result(10) == [None]
        assert len({event.job_id for event in worker.all(AttemptStarted)}) == 1


async def knows_of(worker: Running, flow: str) -> bool:
    """Whether a worker has heard that there are jobs of a flow; no event tells."""
    service = worker.worker._service
    assert service is not None
    return any(
        Partition.parse(text).flow.startswith(flow) for text in service.runner.partitions.texts()
    )


class TestAnErrorAfterTheCommit:
    """Of a store whose answer is not what it should be: nothing of it may be lost."""

    async def test_is_logged_if_all_outcomes_are_settled(self, client, start_worker, watch, caplog):
        flow = chain("two-results", 1)
        watch.answers["runs.commit"] = lambda answer: replace(answer, results=answer.results * 2)
        await start_worker(flows=[flow], store=watch.store)

        run = await client.submit(flow, 7)

        assert await run.result(10) == 7
        await until(partial(has_errors, caplog))
        [record] = errors(caplog)
        assert record.msg == "processing a commit failed"
        assert len(vars(record)["fields"]["attempt_ids"]) == 1
        assert record.exc_info is not None
        assert record.exc_info[0] is ValueError

    async def test_frees_the_slot_of_its_attempt(self, client, start_worker, watch, caplog):
        flow = chain("unusable-rank", 2)
        watch.answers["runs.commit"] = lambda answer: replace(answer, most_urgent_rank="soon")
        await start_worker(nothing, flows=[flow], store=watch.store, concurrency=1)
        await client.submit(flow, 7)
        await until(partial(has_errors, caplog))

        job = await client.enqueue(nothing, 8)

        assert await job.result(10) == 8
        assert {type(each.exc_info[1]) for each in errors(caplog) if each.exc_info} == {TypeError}


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.levelno == logging.ERROR]


async def has_errors(caplog: pytest.LogCaptureFixture) -> bool:
    return bool(errors(caplog))


class TestCommit:
    """One commit per step, and continuing in place: what it costs, and where it is not done."""

    async def test_a_flow_that_no_worker_has_waits_for_one(self, client, start_worker):
        mine = Flow("mine").then(nothing, name="a").build()
        changed = Flow("mine").then(nothing, name="a").then(nothing, name="b").build()
        await start_worker(flows=[changed])
        run = await client.submit(mine, 1)
        assert await (await client.submit(changed, 2)).result(10) == 2
        before = await run.status()
        await start_worker(flows=[mine])

        assert before == "running"
        assert await run.result(10) == 1

    async def test_a_failing_node_frees_its_slot(self, client, start_worker):
        _, fail = flaky(*[ValueError("no")] * 3)
        flow = Flow("failing").then(fail).build()
        worker = await start_worker(flows=[flow], concurrency=1)
        for _ in range(3):
            await fails(await client.submit(flow), None, RunFailed, type="ValueError")

        assert worker.worker.stats().running == 0


waiting = Flow("waiting").wait_for_signal("go").then(nothing, name="after").build()


async def has_status(run: AsyncRunHandle, status: RunStatus) -> bool:
    return await run.status() is status


async def reaches(run: AsyncRunHandle, status: RunStatus) -> None:
    await until(lambda: has_status(run, status))


class TestCancel:
    async def test_of_a_parent_reaches_children_on_a_later_worker(
        self, client, start_worker, store
    ):
        """As if the caller was killed after cancelling the parent."""
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
        assert before is RunStatus.WAITING
        await until(lambda: store.queries.run_waits("default", run.id), [])


class TestUndo:
    async def test_of_a_parent_undoes_its_live_children_too(self, client, start_worker):
        """Whether or not the parent itself has something to undo."""
        undone: list[str] = []

        @task
        async def undo(_: Any, ctx: AsyncContext = CONTEXT) -> None:
            undone.append(str(ctx.run_id))

        child = Flow("child").then(nothing, undo=undo).wait_for_signal("go").build()
        own = Flow("own").then(nothing, undo=undo).flow(child).build()
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


async def cancel_alone(
    client: AsyncClient, run: AsyncRunHandle, *, compensates: bool = False
) -> None:
    """Cancel a run, and do nothing about its children."""
    runs = await client._backend.engine()
    await runs.apply("default", run.id, CancelRun(reason="stop", compensates=compensates))


# Runs whose log a worker cannot use: nothing is written to them, and nothing turns in circles.


FLOW = Flow("kept").then(nothing, name="first").then(nothing, name="second").build()


class TestALogThatCannotBeUsed:
    async def test_of_a_newer_version_is_left_to_newer_workers(self, client, start_worker, store):
        run = await client.submit(FLOW, 3)
        await append_event(store, run.id, b'{"type":"NodeDreamt"}')
        worker = await start_worker(flows=[FLOW])
        await worker.emitted(AttemptLost)
        [job] = await store.queries.run_jobs("default", run.id)
        assert job.status is Status.SCHEDULED
        assert (await run.record()).status is RunStatus.RUNNING

    async def test_that_is_corrupt_parks_the_job(self, client, start_worker, store):
        run = await client.submit(FLOW, 3)
        await append_event(store, run.id)
        worker = await start_worker(flows=[FLOW])
        await worker.emitted(AttemptLost)
        [job] = await store.queries.run_jobs("default", run.id)
        assert job.status is Status.PAUSED
        assert job.attempt == 0


class Picky(PlainCodec):
    """Raises an unexpected error for the values of one run."""

    def decode(self, data: bytes) -> bytes:
        if b"poison" in data:
            raise RuntimeError("this was not foreseen")
        return super().decode(data)


class TestWaitsOfARunThatRaises:
    async def test_stop_no_timer_of_another(self, client, start_worker):
        timer = Flow("timer").delay("10ms").then(nothing).build()
        bad = [await client.submit(timer, f"poison {n}") for n in range(3)]
        good = [await client.submit(timer, n) for n in range(3)]

        await start_worker(flows=[timer], codec=Picky())

        assert [await run.result(timeout=20) for run in good] == [0, 1, 2]
        assert [(await run.record()).status for run in bad] == [RunStatus.WAITING] * 3
        later = await client.submit(timer, "later")
        assert await later.result(timeout=20) == "later"
