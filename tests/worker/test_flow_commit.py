"""One commit a step, and going on in place: what it costs, and where it is not done."""

from __future__ import annotations

import asyncio
import logging
import threading
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import CONTEXT, AsyncContext, Concurrency, Flow, RunFailed, task
from perdure.flows.built import BuiltFlow
from perdure.model.partition import Partition
from perdure.worker.events import AttemptCompleted, AttemptRequeued, AttemptStarted
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
    async def test_of_a_chain_is_one_commit_a_step_under_one_claim(
        self, client, start_worker, watch
    ):
        flow = chain("ten", 10)
        worker = await start_worker(flows=[flow], store=watch.store)
        run = await client.submit(flow, 7)

        assert await run.result(10) == 7
        await worker.told(AttemptCompleted, count=10)
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

    async def test_of_branches_needs_no_read_on_one_worker(self, client, start_worker, watch):
        flow = (
            Flow("wide")
            .then(lambda _: list(range(20)), name="spread")
            .map(nothing)
            .then(nothing, name="last")
            .build()
        )
        await start_worker(flows=[flow], store=watch.store, concurrency=20)

        assert await (await client.submit(flow)).result(10) == list(range(20))
        assert watch.calls["runs.load"] == 1
        assert watch.calls["runs.event_values"] == 0


class TestALoopsCheck:
    async def test_is_run_at_once_only_if_it_is_a_plain_function(self, client, start_worker):
        """A task has settings of its own, and may block: it gets a job, whatever its name."""
        seen: dict[str, threading.Thread] = {}

        @task(name="named.count.until")
        def is_enough(number: int) -> bool:
            seen["task"] = threading.current_thread()
            return number >= 2

        def is_plenty(number: int) -> bool:
            seen["function"] = threading.current_thread()
            return number >= 2

        @task
        async def count(number: int) -> int:
            return number + 1

        named = Flow("named").loop(count, until=is_enough).build()
        plain = Flow("plain").loop(count, until=is_plenty).build()
        await start_worker(flows=[named, plain])

        assert await (await client.submit(named, 0)).result(10) == 2
        assert await (await client.submit(plain, 0)).result(10) == 2
        here = threading.current_thread()
        assert (seen["task"] is here, seen["function"] is here) == (False, True)


class TestGoingOnInPlace:
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

    async def test_is_not_done_onto_a_queue_that_the_worker_does_not_serve(
        self, client, start_worker
    ):
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
        await start_worker(flows=[flow], queues=["default"], tags=["gpu"], id="gpu")
        found = await (await client.submit(flow)).result(10)

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
            # Two more have begun, so that one of them began after the pause and is over.
            return watch.calls["maintenance.poll"] >= before + 2

        await until(is_known)
        gate.open()
        await worker.told(AttemptCompleted)

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

    async def test_leaves_the_order_of_priorities_across_runs(self, client, start_worker):
        order: list[str] = []
        gate = Gate()

        @task
        async def note(name: str, ctx: AsyncContext = CONTEXT) -> str:
            if name == "gate":
                await gate.pass_through()
            order.append(f"{name} {ctx.node}")
            return name

        mixed = (
            Flow("mixed")
            .then(note, name="first")
            .fork(
                relaxed=Flow().then(note, name="relaxed", priority=5),
                urgent=Flow().then(note, name="urgent", priority=1),
            )
            .build()
        )
        plain = Flow("plain").then(note, name="only").build()
        await start_worker(flows=[mixed, plain], concurrency=1)
        runs = [await client.submit(plain, "gate")]
        await gate.reached()
        runs += [await client.submit(mixed, "one")]
        runs += [await client.submit(plain, name) for name in ("two", "three")]
        gate.open()
        for run in runs:
            await run.result(10)

        expected = ["gate only", "one first", "one urgent", "two only", "three only", "one relaxed"]
        assert order == expected

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


async def test_a_flow_that_no_worker_has_waits_for_one(client, start_worker):
    mine = Flow("mine").then(nothing, name="a").build()
    changed = Flow("mine").then(nothing, name="a").then(nothing, name="b").build()
    await start_worker(flows=[changed])
    run = await client.submit(mine, 1)
    assert await (await client.submit(changed, 2)).result(10) == 2
    before = await run.status()
    await start_worker(flows=[mine])

    assert before == "running"
    assert await run.result(10) == 1


async def test_a_failing_node_frees_its_slot(client, start_worker):
    @task
    async def fail(_: Any) -> None:
        raise ValueError("no")

    flow = Flow("failing").then(fail).build()
    worker = await start_worker(flows=[flow], concurrency=1)
    for _ in range(3):
        with pytest.raises(RunFailed, match="no"):
            await (await client.submit(flow)).result(10)

    assert worker.worker.stats().running == 0


class TestAnErrorAfterTheCommit:
    """Of a store whose answer is not what it should be: nothing of it may be lost."""

    async def test_is_logged_if_all_outcomes_are_settled(
        self,
        client,
        start_worker,
        watch,
        caplog,
    ):
        flow = chain("two-results", 1)
        watch.answers["runs.commit"] = lambda answer: replace(answer, results=answer.results * 2)
        await start_worker(flows=[flow], store=watch.store)

        run = await client.submit(flow, 7)

        assert await run.result(10) == 7
        await until(partial(has_errors, caplog))
        [record] = errors(caplog)
        assert "after its outcomes were settled" in record.msg
        assert record.exc_info is not None
        assert record.exc_info[0] is ValueError

    async def test_frees_the_slot_of_the_attempt_that_it_is_about(
        self,
        client,
        start_worker,
        watch,
        caplog,
    ):
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
