"""Bodies that wait for somebody outside: nothing is held meanwhile, and they go on anywhere."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Context,
    Flow,
    JobFailed,
    Permanent,
    Retry,
    RunFailed,
    task,
)
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob, Status
from perdure.model.outcome import Parked, Paused, Settlement
from perdure.model.payload import PlainCodec
from perdure.model.run import RunStatus
from perdure.model.wait import Report, ReportStatus
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.tasks.result import complete, failed, paused, skipped
from perdure.worker.events import AttemptRequeued
from perdure.worker.steps import past_pauses, save_checkpoint
from tests.worker import process_tasks
from tests.worker.harness import Gate, until

AGAIN = Retry(3, first=0)


async def wait_until(client: AsyncClient, run: str, status: RunStatus) -> None:
    async def is_so() -> bool:
        return (await client.runs.get(run)).status is status

    await until(is_so)


async def claimed(store: Store, lease: timedelta = timedelta(hours=1)) -> ClaimedJob:
    """The one job that waits, as a worker holds it that will not be heard of again."""
    [partition] = (await store.maintenance.poll("default")).partitions
    partitions = [PartitionClaim(partition=partition, queue="default")]
    worker = WorkerId("silent")
    request = ClaimRequest(
        namespace="default", worker=worker, partitions=partitions, limit=1, lease=lease
    )
    [job] = (await store.jobs.claim(request)).jobs
    return job


class TestPauseInANode:
    async def test_returns_the_report_once_the_body_is_executed_again(self, client, start_worker):
        begun: list[int] = []

        @task
        async def order(number: int, ctx: AsyncContext = CONTEXT) -> Any:
            begun.append(number)
            report = await ctx.pause("supplier", checkpoint={"number": number})
            assert ctx.last_pause is not None
            return [report.status, report.result, ctx.last_pause.checkpoint, ctx.attempt]

        flow = Flow("ordering").then(order).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 7)
        await worker.told(AttemptRequeued)
        await wait_until(client, run.id, RunStatus.WAITING)
        await client.runs.report(run.id, "order", status="completed", result={"sent": True})

        assert await run.result(10) == ["completed", {"sent": True}, {"number": 7}, 1]
        assert begun == [7, 7]

    async def test_works_in_threads(self, client, start_worker):
        @task
        def order(number: int, ctx: Context = CONTEXT) -> Any:
            return [ctx.pause("a").result, ctx.pause("b").result, number]

        flow = Flow("threads").then(order).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 7)
        await worker.told(AttemptRequeued)
        await client.runs.report(run.id, "order", status="completed", result=1)
        await worker.told(AttemptRequeued, count=2)
        await client.runs.report(run.id, "order", status="completed", result=2)

        assert await run.result(10) == [1, 2, 7]

    async def test_works_in_processes(self, client, start_worker):
        flow = Flow("processes").then(process_tasks.pause_in_process).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 5)
        await worker.told(AttemptRequeued)
        await client.runs.report(run.id, "pause_in_process", progress={"half": True})
        await client.runs.report(run.id, "pause_in_process", status="failed", error="no paper")

        found = await run.result(30)

        assert found == ["failed", "no paper", {"kept": 5}, {"half": True}]

    async def test_tells_pauses_of_one_name_apart_by_their_order(self, client, start_worker):
        @task
        async def work(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            return [(await ctx.pause()).result, (await ctx.pause()).result]

        flow = Flow("twice").then(work).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow)
        for number in (1, 2):
            await worker.told(AttemptRequeued, count=number)
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
        await worker.told(AttemptRequeued)
        await client.runs.report(run.id, "stubborn", status="completed", result="told")

        assert await run.result(10) == "told"

    async def test_ends_bodies_that_wait_side_by_side(self, client, start_worker):
        @task
        async def both(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            async with asyncio.TaskGroup() as group:
                one = group.create_task(ctx.pause("one"))
                two = group.create_task(ctx.pause("two"))
            return [one.result().result, two.result().result]

        flow = Flow("both").then(both).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow)
        for number in (1, 2):
            await worker.told(AttemptRequeued, count=number)
            await client.runs.report(run.id, "both", status="completed", result=number)

        assert await run.result(10) == [1, 2]

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
        await worker.told(AttemptRequeued)
        await client.runs.report(run.id, "work", status="completed", result=3)

        assert await run.result(10) == 3
        assert ran == ["begin"]

    async def test_gives_partial_progress_to_a_later_try(self, client, start_worker):
        @task
        async def work(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            partial = ctx.partial
            await ctx.pause(checkpoint=partial)
            return partial

        flow = Flow("partial").then(work).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow)
        await worker.told(AttemptRequeued)
        await client.runs.report(run.id, "work", progress={"pages": 3})
        await client.runs.report(run.id, "work", status="completed")

        assert await run.result(10) == {"pages": 3}

    async def test_waits_in_items_each_by_itself(self, client, start_worker):
        @task
        async def each(number: int, ctx: AsyncContext = CONTEXT) -> Any:
            return [number, (await ctx.pause()).result]

        flow = Flow("items").map(each).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, [1, 2])
        await worker.told(AttemptRequeued, count=2)
        await client.runs.report(run.id, "each[1]", status="completed", result="b")
        await client.runs.report(run.id, "each[0]", status="completed", result="a")

        assert await run.result(10) == [[1, "a"], [2, "b"]]

    async def test_goes_on_at_its_deadline_as_the_node_says(self, client, start_worker):
        @task
        async def work(_: Any, ctx: AsyncContext = CONTEXT) -> Any:
            return (await ctx.pause(deadline="50ms")).result

        late = Flow("late").then(work).build()
        calm = Flow("calm").then(work, on_timeout="continue").build()
        await start_worker(flows=[late, calm], poll="50ms")

        assert await (await client.submit(calm)).result(10) is None
        with pytest.raises(RunFailed, match="nobody reported on node 'work' in time"):
            await (await client.submit(late)).result(10)

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
        with pytest.raises(RunFailed, match="no"):
            await (await world.submit(flow)).result(10)

        assert refused_as == ["node.cannot_pause"]

    async def test_of_a_stopped_worker_is_begun_anew(self, client, start_worker):
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
        await second.told(AttemptRequeued)
        await client.runs.report(run.id, "slow", status="completed", result=1)

        assert await run.result(10) == 1


class TestReturned:
    async def test_pause_is_resumed_with_its_checkpoint(self, client, start_worker):
        @task
        async def work(number: int, ctx: AsyncContext = CONTEXT) -> Any:
            if (last := ctx.last_pause) is None:
                return paused({"number": number}, name="x")
            return complete([last.name, last.checkpoint, last.report.result])

        flow = Flow("returned").then(work).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 4)
        await worker.told(AttemptRequeued)
        await client.runs.report(run.id, "work", status="completed", result=5)

        assert await run.result(10) == ["x", {"number": 4}, 5]

    async def test_port_chooses_the_way(self, client, world):
        @task
        async def judge(number: int) -> Any:
            return complete(number, port="large" if number > 5 else "")

        flow = (
            Flow("ways")
            .then(judge, ports=["large"])
            .then(lambda value: f"small {value}", name="small")
            .then(lambda value: f"large {value}", name="big", after="judge:large")
            .build()
        )

        assert await (await world.submit(flow, 3)).result(10) == "small 3"
        assert await (await client.submit(flow, 9)).result(10) == "large 9"

    async def test_unknown_port_fails_the_node_for_good(self, client, start_worker):
        tries: list[int] = []

        @task(retries=AGAIN)
        async def judge(_: Any) -> Any:
            tries.append(1)
            return complete(1, port="lagre")

        some = Flow("some").then(judge, ports=["large"]).build()
        none = Flow("none").then(judge).build()
        await start_worker(flows=[some, none], hold_off="0s")

        with pytest.raises(RunFailed, match=r"no port 'lagre'; it has 'large'"):
            await (await client.submit(some)).result(10)
        with pytest.raises(RunFailed, match="chose port 'lagre', but it has no ports"):
            await (await client.submit(none)).result(10)
        assert len(tries) == 2

    async def test_skip_takes_what_follows_with_it(self, world):
        @task
        async def maybe(_: Any) -> Any:
            return skipped("nothing to do")

        @task
        async def never(_: Any) -> str:
            return "never"

        flow = (
            Flow("skipping")
            .fork(one=Flow().then(maybe).then(never), two=Flow().then(lambda _: 2, name="two"))
            .join(lambda parts: parts, name="all")
            .build()
        )

        assert await (await world.submit(flow)).result(10) == {"two": 2}

    async def test_skip_of_an_item_leaves_null_in_its_place(self, world):
        @task
        async def odd(number: int) -> Any:
            return number if number % 2 else skipped("even")

        flow = Flow("items").map(odd).build()
        assert await (await world.submit(flow, [1, 2, 3])).result(10) == [1, None, 3]

    async def test_failure_is_for_good(self, client, start_worker):
        tries: list[int] = []

        @task(retries=AGAIN)
        def fail(_: Any) -> Any:
            tries.append(1)
            return failed("it is no use")

        flow = Flow("failing").then(fail).build()
        await start_worker(fail, flows=[flow], hold_off="0s")

        with pytest.raises(RunFailed, match="it is no use"):
            await (await client.submit(flow)).result(10)
        with pytest.raises(JobFailed, match="it is no use"):
            await (await client.enqueue(fail, None)).result(10)
        assert len(tries) == 2

    async def test_checkpoint_that_is_no_json_fails_for_good(self, world):
        @task(retries=AGAIN)
        async def odd(_: Any) -> Any:
            return paused(object())

        flow = Flow("odd").then(odd).build()
        with pytest.raises(RunFailed, match="checkpoint of a pause cannot be stored"):
            await (await world.submit(flow)).result(10)


class TestPlainJob:
    async def test_is_parked_and_goes_on_when_resumed(self, client, start_worker):
        @task
        async def work(number: int, ctx: AsyncContext = CONTEXT) -> Any:
            await ctx.step("before", lambda: number)
            first = await ctx.pause("one", checkpoint={"n": number})
            second = await ctx.pause("two")
            assert ctx.last_pause is not None
            return [first.status, first.result, second.status, ctx.last_pause.name, ctx.attempt]

        first = await start_worker(work)
        job = await client.enqueue(work, 3)
        await first.told(AttemptRequeued)
        assert await job.status() is Status.PAUSED
        await first.stop()
        await client.jobs.resume(job.id)
        second = await start_worker(work)  # any worker
        await second.told(AttemptRequeued)
        await client.jobs.resume(job.id)

        assert await job.result(10) == ["completed", None, "completed", "two", 1]

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
            await worker.told(AttemptRequeued, job.id)
            await client.jobs.resume(job.id)

        assert await jobs[0].result(10) == [1]
        assert await jobs[1].result(30) == ["completed", None, {"kept": 5}, None]

    async def test_pauses_again_if_its_worker_died_first(self, client, start_worker, store):
        @task
        async def work(ctx: AsyncContext = CONTEXT) -> Any:
            return (await ctx.pause("approval")).status

        job = await client.enqueue(work)
        dead = await claimed(store, lease=timedelta(milliseconds=50))
        checkpoint = Paused(checkpoint=b"null", name="approval")
        await save_checkpoint(store, dead, PlainCodec(), checkpoint)
        worker = await start_worker(work, poll="50ms")
        await worker.told(AttemptRequeued)

        assert await job.status() is Status.PAUSED  # nobody has resumed it
        await client.jobs.resume(job.id)
        assert await job.result(10) == "completed"

    async def test_that_was_resumed_is_so_whatever_dies_later(self, client, start_worker, store):
        @task
        async def work(ctx: AsyncContext = CONTEXT) -> Any:
            return (await ctx.pause("approval")).status

        job = await client.enqueue(work)
        first = await claimed(store)
        checkpoint = Paused(checkpoint=b"null", name="approval")
        await save_checkpoint(store, first, PlainCodec(), checkpoint)
        await store.jobs.settle([Settlement(claim=first.claim, outcome=Parked())])
        await client.jobs.resume(job.id)
        second = await claimed(store, lease=timedelta(milliseconds=50))
        found = await past_pauses(store, second, PlainCodec())
        await start_worker(work, poll="50ms")

        assert [pause.name for pause in found.pauses] == ["approval"]
        assert await job.result(10) == "completed"

    async def test_has_no_port_and_is_not_skipped(self, client, world):
        @task
        async def result(found_type: str) -> Any:
            return skipped("no") if found_type == "skip" else complete(1, port=found_type)

        assert await (await world.enqueue(result, "")).result(10) == 1
        assert await (await client.enqueue(result, "skip")).result(10) is None
        with pytest.raises(JobFailed, match="port 'x', but a plain job has none"):
            await (await client.enqueue(result, "x")).result(10)

    async def test_has_no_deadline(self, world):
        @task(retries=AGAIN)
        async def work(ctx: AsyncContext = CONTEXT) -> None:
            await ctx.pause(deadline="1h")

        with pytest.raises(JobFailed, match="it has no deadline and no poll"):
            await (await world.enqueue(work)).result(10)
