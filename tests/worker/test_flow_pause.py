"""Bodies that wait for a report: they occupy nothing, and any worker resumes them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Context,
    Flow,
    JobFailed,
    Permanent,
    Retry,
    RunFailed,
    RunStatus,
    task,
)
from perdure.model.job import ClaimedJob, Status
from perdure.model.outcome import Parked, Paused, Settlement
from perdure.model.payload import PlainCodec
from perdure.model.wait import Report, ReportStatus
from perdure.store.contract import Store
from perdure.tasks.node_type import NodeType
from perdure.tasks.result import complete, failed, paused, skipped
from perdure.worker.events import AttemptParked, AttemptRequeued
from perdure.worker.steps import past_pauses, save_checkpoint
from tests.support.held import claimed_by
from tests.support.refusal import fails
from tests.worker import process_tasks
from tests.worker.harness import Gate, until

AGAIN = Retry(3, first=0)


async def claimed(store: Store, lease: timedelta = timedelta(hours=1)) -> ClaimedJob:
    """The one job that waits, as a worker holds it that will not be heard of again."""
    return (await claimed_by(store, approved.name, lease=lease)).jobs[0]


@task
async def approved(ctx: AsyncContext = CONTEXT) -> Any:
    return (await ctx.pause("approval")).status


@task(name="work")
async def pause_twice(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
    return [(await ctx.pause()).result, (await ctx.pause()).result]


@task(name="work")
async def pause_side_by_side(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
    async with asyncio.TaskGroup() as group:
        pauses = [group.create_task(ctx.pause(name)) for name in ("one", "two")]
    return [each.result().result for each in pauses]


class TestPauseInANode:
    @pytest.mark.parametrize("work", [pause_twice, pause_side_by_side])
    async def test_is_told_from_others_by_order_or_name(self, client, start_worker, work):
        flow = Flow("twice").then(work).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow)
        for number in (1, 2):
            await worker.emitted(AttemptRequeued, count=number)
            await client.runs.report(run.id, "work", status="completed", result=number)

        assert await run.result(10) == [1, 2]

    @pytest.mark.parametrize("is_returned", [True, False])
    async def test_cannot_be_swallowed(self, client, start_worker, is_returned):
        @task(retries=AGAIN)
        async def stubborn(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            try:
                report = await ctx.pause("x")
            except BaseException:
                if is_returned:
                    return "went on all the same"
                raise ValueError("in the clean-up") from None
            return report.result

        flow = Flow("stubborn").then(stubborn).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow)
        await worker.emitted(AttemptRequeued)
        await client.runs.report(run.id, "stubborn", status="completed", result="told")

        assert await run.result(10) == "told"

    async def test_keeps_steps_and_retries_after_it(self, client, start_worker):
        ran: list[str] = []

        @task(retries=AGAIN)
        async def work(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            await ctx.step("begin", lambda: ran.append("begin"))
            report = await ctx.pause("x")
            if ctx.attempt == 1:
                raise ValueError("after the pause")
            return report.result

        flow = Flow("retried").then(work).build()
        worker = await start_worker(flows=[flow], hold_off="0s")
        run = await client.submit(flow)
        await worker.emitted(AttemptRequeued)
        await client.runs.report(run.id, "work", status="completed", result=3)

        assert await run.result(10) == 3
        assert ran == ["begin"]

    async def test_asks_for_news_while_nobody_reports(self, world):
        asked: list[Any] = []

        @task
        async def work(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            if ctx.part == "poll":
                assert ctx.last_pause is not None
                asked.append(ctx.last_pause.checkpoint)
                if len(asked) > 1:
                    return Report(status=ReportStatus.COMPLETED, result="found")
            return (await ctx.pause(checkpoint=9, poll="50ms")).result

        flow = Flow("polled").then(work).build()
        run = await world.submit(flow, poll="50ms")

        assert await run.result(10) == "found"
        assert asked == [9, 9]

    async def test_is_refused_in_an_undo(self, world):
        refused_as: list[str] = []

        @task
        async def take_back(_: Any, ctx: AsyncContext = CONTEXT) -> None:
            try:
                await ctx.pause("x")
            except Permanent as error:
                refused_as.append(error.code)
                raise

        @task
        async def work(_: Any) -> None: ...

        @task
        async def fail(_: Any) -> None:
            raise ValueError("no")

        flow = Flow("undoing").then(work, undo=take_back).then(fail).build()
        await fails(await world.submit(flow), None, RunFailed, type="ValueError")

        assert refused_as == ["node.cannot_pause"]

    async def test_of_a_stopped_worker_is_restarted(self, client, start_worker):
        gate = Gate()

        @task
        async def slow(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            try:
                return (await ctx.pause("x")).result
            finally:
                await gate.pass_through()

        flow = Flow("stopped").then(slow).build()
        first = await start_worker(flows=[flow])
        run = await client.submit(flow)
        await gate.reached()
        await first.stop()
        gate.open()
        second = await start_worker(flows=[flow])
        await second.emitted(AttemptRequeued)
        await client.runs.report(run.id, "slow", status="completed", result=1)

        assert await run.result(10) == 1


class Insist(NodeType):
    """Starts its work again when it failed: by a pause, or by an error that is retried."""

    name = "insist"

    def __init__(self, raises: bool) -> None:
        self.raises = raises
        self.attempts: list[int] = []

    def execute(self, config: Any, ctx: Context) -> Any:
        return paused(ctx.attempt)

    def resume(self, checkpoint: Any, report: Report, ctx: Context) -> Any:
        assert checkpoint == ctx.attempt
        self.attempts.append(ctx.attempt)
        if ctx.attempt == 3:
            return "gave up"
        if self.raises:
            raise ValueError("it failed")
        return paused(ctx.attempt + 1)


@pytest.mark.parametrize("raises", [False, True])
async def test_attempts_are_counted_on_when_a_node_is_resumed(client, start_worker, raises):
    insist = Insist(raises)
    flow = Flow("insisting").use(insist, name="ask", retries=Retry(5, first=0)).build()
    worker = await start_worker(flows=[flow])
    run = await client.submit(flow)
    for number in (1, 2, 3):
        await worker.emitted(AttemptParked, count=number)
        await client.runs.report(run.id, "ask", status="failed", error="no")

    assert await run.result(10) == "gave up"
    assert insist.attempts == [1, 2, 3]
    retried = [
        each.details["attempt"] for each in await run.events() if each.type == "node_retried"
    ]
    assert retried == ([1, 2] if raises else [])


class TestReturned:
    async def test_unknown_port_fails_the_node_for_good(self, client, start_worker):
        tries: list[int] = []

        @task(retries=AGAIN)
        async def judge(_: Any) -> Any:
            tries.append(1)
            return complete(1, port="lagre")

        some = Flow("some").then(judge, ports=["large"]).build()
        none = Flow("none").then(judge).build()
        await start_worker(flows=[some, none], hold_off="0s")

        await fails(await client.submit(some), "node.unknown_port", RunFailed)
        await fails(await client.submit(none), "node.no_ports", RunFailed)
        assert len(tries) == 2

    async def test_failure_is_for_good(self, client, start_worker):
        tries: list[int] = []

        @task(retries=AGAIN)
        def fail(_: Any) -> Any:
            tries.append(1)
            return failed("it is no use")

        flow = Flow("failing").then(fail).build()
        await start_worker(fail, flows=[flow], hold_off="0s")

        for waiting, error in (
            (await client.submit(flow), RunFailed),
            (await client.enqueue(fail, None), JobFailed),
        ):
            with pytest.raises(error) as caught:
                await waiting.result(10)
            assert caught.value.failure is not None
            assert caught.value.failure.message == "it is no use"
        assert len(tries) == 2

    async def test_checkpoint_that_is_no_json_fails_for_good(self, world):
        @task(retries=AGAIN)
        async def odd(_: Any) -> Any:
            return paused(object())

        flow = Flow("odd").then(odd).build()
        await fails(await world.submit(flow), "payload.not_serializable", RunFailed)


class TestPlainJob:
    async def test_is_parked_and_continues_when_resumed(self, client, start_worker):
        @task
        async def work(number: int, ctx: AsyncContext = CONTEXT) -> Any:
            await ctx.step("before", lambda: number)
            first = await ctx.pause("one", checkpoint={"n": number})
            second = await ctx.pause("two")
            assert ctx.last_pause is not None
            return [first.status, first.result, second.status, ctx.last_pause.name, ctx.attempt]

        first = await start_worker(work)
        job = await client.enqueue(work, 3)
        await first.emitted(AttemptRequeued)
        assert await job.status() is Status.PAUSED
        await first.stop()
        await client.jobs.resume(job.id, data={"approved": True})
        second = await start_worker(work)  # any worker
        await second.emitted(AttemptRequeued)
        await client.jobs.resume(job.id)

        answer = {"approved": True}
        assert await job.result(10) == ["completed", answer, "completed", "two", 1]

    async def test_works_in_threads_and_processes(self, client, start_worker):
        @task
        def in_thread(ctx: Context = CONTEXT) -> Any:
            ctx.pause("x", checkpoint=[1])
            assert ctx.last_pause is not None
            return ctx.last_pause.checkpoint

        in_process = process_tasks.pause_in_process
        worker = await start_worker(in_thread, in_process)
        jobs = [await client.enqueue(in_thread), await client.enqueue(in_process, 5)]
        for job in jobs:
            await worker.emitted(AttemptRequeued, job.id)
            await client.jobs.resume(job.id)

        assert await jobs[0].result(10) == [1]
        assert await jobs[1].result(30) == ["completed", None, {"kept": 5}, None]

    async def test_pauses_again_if_its_worker_crashed_first(self, client, start_worker, store):
        job = await client.enqueue(approved)
        dead = await claimed(store, lease=timedelta(milliseconds=50))
        checkpoint = Paused(checkpoint=b"null", name="approval")
        await save_checkpoint(store, dead, PlainCodec(), checkpoint)
        worker = await start_worker(approved, poll="50ms")
        await worker.emitted(AttemptRequeued)

        assert await job.status() is Status.PAUSED  # not resumed yet
        await client.jobs.resume(job.id)
        assert await job.result(10) == "completed"

    async def test_that_was_resumed_stays_so_whatever_crashes_later(
        self, client, start_worker, store
    ):
        job = await client.enqueue(approved)
        first = await claimed(store)
        checkpoint = Paused(checkpoint=b"null", name="approval")
        await save_checkpoint(store, first, PlainCodec(), checkpoint)
        await store.jobs.settle([Settlement(claim=first.claim, outcome=Parked())])
        await client.jobs.resume(job.id)
        second = await claimed(store, lease=timedelta(milliseconds=50))
        found = await past_pauses(store, second, PlainCodec())
        await start_worker(approved, poll="50ms")

        assert [pause.name for pause in found.pauses] == ["approval"]
        assert await job.result(10) == "completed"

    async def test_has_no_port_and_is_not_skipped(self, client, world):
        @task
        async def result(found_type: str) -> Any:
            return skipped("no") if found_type == "skip" else complete(1, port=found_type)

        assert await (await world.enqueue(result, "")).result(10) == 1
        assert await (await client.enqueue(result, "skip")).result(10) is None
        await fails(await client.enqueue(result, "x"), "job.no_ports", JobFailed)

    async def test_has_no_deadline(self, world):
        @task(retries=AGAIN)
        async def work(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.pause(deadline="1h")

        await fails(await world.enqueue(work), "job.pause_deadline", JobFailed)


class Order(NodeType):
    """Orders something, and takes the order back."""

    name = "order"

    def __init__(self, failures: int = 0, deadline: str = "1h") -> None:
        self.cancelled: list[Any] = []
        self.failures = failures
        self.deadline = deadline

    def execute(self, config: Any, ctx: Context) -> Any:
        return paused({"number": ctx.item}, deadline=self.deadline)

    def cancel(self, checkpoint: Any, ctx: Context) -> None:
        self.cancelled.append((checkpoint["number"], ctx.part))
        if len(self.cancelled) <= self.failures:
            raise ConnectionError("no answer")


class TestCancel:
    """What a node type started is cancelled once nothing waits for it, by any live worker."""

    @pytest.mark.parametrize("failures", [0, 1, 9])
    async def test_is_called_before_a_cancelled_run_ends(self, client, start_worker, failures):
        order = Order(failures)
        flow = Flow("orders").use(order, retries=Retry(2, first=0)).build()
        worker = await start_worker(flows=[flow], hold_off="0s")
        run = await client.submit(flow)
        await until(run.status, RunStatus.WAITING)
        await worker.stop()

        await client.runs.cancel(run.id, reason="enough", by="ann")

        assert (await client.runs.get(run.id)).status is RunStatus.COMPENSATING
        findings = (await client.runs.explain(run.id)).findings
        assert "cancel:order" in [each.about for each in findings]
        assert [(node.id, node.status) for node in await run.nodes()] == [("order", "cancelled")]
        assert order.cancelled == []
        await start_worker(flows=[flow], hold_off="0s")
        await until(run.status, RunStatus.CANCELLED)
        assert order.cancelled == [(None, "cancel")] * min(failures + 1, 3)
        record = await client.runs.get(run.id)
        assert (record.reason, record.by) == ("enough", "ann")
        [event] = [each for each in await run.events() if each.type == "node_cancelled"]
        assert (event.failure is None) == (failures < 3)
        await run.timeline()

    async def test_is_called_at_the_deadline_and_with_a_failed_run(self, world):
        order = Order(deadline="50ms")
        late = Flow("late").use(order, on_timeout="late").then(stumbles, after="order:late").build()
        run = await world.submit(late)

        with pytest.raises(RunFailed):
            await run.result(20)
        assert order.cancelled == [(None, "cancel")]


@task
def stumbles(_: Any) -> None:
    raise Permanent("no")
