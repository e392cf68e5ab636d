"""Coming from cycgraph: what the page says that Perdure does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    ApprovalDecided,
    AsyncContext,
    AsyncJobQueue,
    ClaimLost,
    Context,
    EventLogCorrupt,
    Flow,
    InvalidFlow,
    QueuedJob,
    RunFailed,
    RunStatus,
    Status,
    run_flow_async,
    task,
)
from perdure.model.event import NewEvent
from perdure.model.ids import RunId
from perdure.model.run import RunCommit
from tests.client.runs import until
from tests.worker.harness import Gate, soon

MINUTE = timedelta(minutes=1)


@task
def keep(value: Any) -> Any:
    return value


async def claimed(queue: AsyncJobQueue, worker: str = "worker-1") -> QueuedJob:
    job = await queue.dequeue(worker, lease="1m")
    assert job is not None
    return job


async def test_the_most_urgent_and_then_the_oldest_is_claimed_first(queue):
    for payload, priority in [("c", 3), ("a", 1), ("d", 3), ("b", 1)]:
        await queue.enqueue("work", payload, priority=priority)

    assert [(await claimed(queue)).payload for _ in range(4)] == ["a", "b", "c", "d"]


async def test_waiting_makes_up_for_priority(queue, clock):
    await queue.enqueue("work", "old", priority=4)
    clock.advance(timedelta(minutes=6))
    await queue.enqueue("work", "new", priority=3)

    assert (await claimed(queue)).payload == "old"


async def test_an_attempt_counts_from_its_claim(queue, clock):
    await queue.enqueue("work", 1)

    first = await claimed(queue)
    clock.advance(2 * MINUTE)
    await queue.reclaim_expired()
    second = await claimed(queue)

    assert (first.attempt, second.attempt) == (1, 2)


async def test_nack_waits_longer_each_time_and_ends_in_the_dead_letter(queue, clock):
    id = await queue.enqueue("work", 1, max_attempts=3)

    for seconds in (1, 2):
        assert await queue.nack(await claimed(queue), "no luck") is Status.SCHEDULED
        assert (await queue.get_job(id)).ready_at - clock() == timedelta(seconds=seconds)
        clock.advance(timedelta(seconds=seconds))

    assert await queue.nack(await claimed(queue), "over") is Status.DEAD


async def test_release_parks_a_job_without_costing_an_attempt(queue):
    id = await queue.enqueue("work", 1)

    assert await queue.release(await claimed(queue)) is Status.PAUSED
    assert await queue.dequeue("worker-2") is None
    await queue.resume(id)

    assert (await claimed(queue)).attempt == 1


async def test_a_job_of_a_silent_worker_is_taken_over(queue, clock):
    await queue.enqueue("work", 1)
    held = await claimed(queue)
    assert await queue.dequeue("worker-2") is None

    clock.advance(2 * MINUTE)
    await queue.reclaim_expired()

    assert (await claimed(queue, "worker-2")).id == held.id


async def test_a_worker_that_lost_its_job_writes_nothing(queue, clock):
    await queue.enqueue("work", 1)
    slow = await claimed(queue)
    clock.advance(2 * MINUTE)
    await queue.reclaim_expired()
    quick = await claimed(queue, "worker-2")

    with pytest.raises(ClaimLost):
        await queue.ack(slow, "late")
    with pytest.raises(ClaimLost):
        await queue.heartbeat(slow)
    await queue.ack(quick, "in time")

    assert slow.claim_epoch < quick.claim_epoch
    assert (await queue.get_job(quick.id)).result == "in time"


async def test_depth_tells_how_many_there_are_in_each_status(queue):
    for number in range(4):
        await queue.enqueue("work", number, max_attempts=1)
    await queue.ack(await claimed(queue))
    await queue.nack(await claimed(queue), "no luck")
    await queue.release(await claimed(queue))

    [stats] = await queue.stats()

    assert stats.counts == {
        Status.COMPLETED: 1,
        Status.DEAD: 1,
        Status.PAUSED: 1,
        Status.WAITING: 1,
    }


async def test_a_failed_run_is_final_until_somebody_retries_it(client, start_worker):
    calls: list[str] = []

    @task
    def first(value: int) -> int:
        calls.append("first")
        return value

    @task
    def second(value: int) -> int:
        calls.append("second")
        if calls.count("second") == 1:
            raise ValueError("no luck")
        return value

    flow = Flow("work").then(first).then(second).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 7)
    with pytest.raises(RunFailed):
        await run.result(timeout=10)
    await client.runs.retry(run.id)

    assert await run.result(timeout=10) == 7
    assert calls == ["first", "second", "second"]


async def test_a_run_goes_on_after_its_worker_is_gone(client, start_worker):
    calls: list[str] = []
    gate = Gate()

    @task
    async def first(value: int) -> int:
        calls.append("first")
        return value

    @task
    async def second(value: int) -> int:
        calls.append("second")
        if len(calls) == 2:
            await gate.pass_through()
        return value

    flow = Flow("work").then(first).then(second).build()
    worker = await start_worker(flows=[flow])
    run = await client.submit(flow, 7)
    await gate.reached()
    await worker.stop(grace=0)
    await start_worker(flows=[flow])

    assert await run.result(timeout=10) == 7
    assert calls == ["first", "second", "second"]


async def test_a_log_that_cannot_be_read_is_refused(client, store):
    flow = Flow("work").wait_for_signal("go").build()
    run = await client.submit(flow, 7)
    broken = RunCommit(
        namespace="default",
        run=RunId(run.id),
        expected=(await run.events())[-1].number,
        token=77,
        events=(NewEvent(data=b"not JSON"),),
        status=RunStatus.RUNNING,
    )
    await store.runs.commit([broken])

    with pytest.raises(EventLogCorrupt):
        await client.runs.cancel(run.id)


async def test_the_idempotency_key_names_run_node_and_iteration():
    keys: list[str] = []

    @task
    def count(number: int, ctx: Context = CONTEXT) -> int:
        keys.append(ctx.idempotency_key.partition(":")[2])
        return number + 1

    await run_flow_async(Flow("work").loop(count, until=lambda number: number == 2).build(), 0)

    assert keys == ["count:1", "count:2"]


async def test_a_run_that_waits_for_a_person_holds_no_worker(client, start_worker):
    asking = Flow("asking").approve("Go on?", name="review").then(keep).build()
    await start_worker(flows=[asking], tasks=[keep], concurrency=1)
    run = await client.submit(asking, 7)
    await until(run, RunStatus.WAITING)

    job = await client.enqueue(keep, "another")

    assert await job.result(timeout=10) == "another"
    assert await run.status() is RunStatus.WAITING


async def test_an_answer_lets_the_run_go_on_and_counts_once(client, start_worker):
    asking = Flow("asking").approve("Go on?", name="review").then(keep).build()
    await start_worker(flows=[asking])
    run = await client.submit(asking, 7, id="order-7")

    await client.approvals.decide("order-7:review", "approve", by="ann")
    with pytest.raises(ApprovalDecided):
        await client.approvals.decide("order-7:review", "reject", by="bob")

    assert (await run.result(timeout=10))["by"] == ["ann"]


async def test_the_data_of_an_answer_reaches_the_next_node(client, start_worker):
    form = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    asking = Flow("asking").approve("Pay?", name="review", form=form).then(keep).build()
    await start_worker(flows=[asking])
    run = await client.submit(asking, {"amount": 120, "to": "Ada"}, id="order-7")

    await client.approvals.decide("order-7:review", "approve", data={"amount": 90})

    assert (await run.result(timeout=10))["data"] == {"amount": 90, "to": "Ada"}


async def test_a_deadline_passes_without_anybody_resuming_the_run(client, start_worker, clock):
    asking = (
        Flow("asking")
        .approve("Go on?", name="review", deadline="1h", on_timeout="late")
        .node("late", keep, after="review:late")
        .build()
    )
    run = await client.submit(asking, 7)
    clock.advance(timedelta(hours=1))
    await start_worker(flows=[asking])

    assert (await run.result(timeout=10))["timed_out"] is True


async def test_a_stop_gives_back_what_it_could_not_finish(client, start_worker):
    gate = Gate()

    @task
    async def work(ctx: AsyncContext = CONTEXT) -> int:
        await gate.pass_through()
        return ctx.attempt

    worker = await start_worker(tasks=[work])
    job = await client.enqueue(work)
    await gate.reached()
    await worker.stop(grace=0)
    assert await job.status() is Status.WAITING
    gate.open()
    await start_worker(tasks=[work])

    assert await job.result(timeout=10) == 1


async def test_each_item_of_a_map_is_committed_by_itself(client, start_worker):
    called: list[int] = []

    @task
    def pack(item: int) -> int:
        called.append(item)
        if called == [1, 2]:
            raise ValueError("no box")
        return item * 10

    flow = Flow("packing").map(pack, concurrency=1).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, [1, 2, 3])
    with pytest.raises(RunFailed):
        await run.result(timeout=10)
    await client.runs.retry(run.id)

    assert await run.result(timeout=10) == [10, 20, 30]
    assert called == [1, 2, 2, 3]


async def test_branches_run_at_the_same_time(client, start_worker):
    meeting = asyncio.Barrier(2)

    @task
    async def meet(value: int) -> int:
        await soon(meeting.wait())
        return value

    flow = (
        Flow("meeting")
        .fork(left=Flow().then(meet, name="a"), right=Flow().then(meet, name="b"))
        .join(keep)
        .build()
    )
    await start_worker(flows=[flow])

    run = await client.submit(flow, 7)
    assert await run.result(timeout=10) == {"left": 7, "right": 7}


async def test_a_loop_has_a_bound_and_a_cycle_is_refused(client):
    endless = Flow("endless").loop(keep, until=lambda _: False, max_iterations=3).build()
    with pytest.raises(RunFailed, match="LoopExhausted"):
        await run_flow_async(endless, 1)

    with pytest.raises(InvalidFlow, match="cycle"):
        Flow("round").node("a", keep, after="b").node("b", keep, after="a").build()


async def test_undo_tasks_run_in_reverse_when_a_run_fails(client, start_worker):
    undone: list[str] = []

    @task
    def take_back(name: str) -> None:
        undone.append(name)

    @task
    def fail(_: Any) -> None:
        raise ValueError("no luck")

    flow = (
        Flow("trip")
        .then(lambda _: "flight", name="flight", undo=take_back)
        .then(lambda _: "car", name="car", undo=take_back)
        .then(fail)
        .build()
    )
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    with pytest.raises(RunFailed):
        await run.result(timeout=10)

    assert undone == ["car", "flight"]


async def test_a_fork_has_the_past_of_its_run_with_changed_outputs(client, start_worker):
    flow = Flow("sum").then(keep, name="first").then(lambda value: value + 1, name="second").build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    assert await run.result(timeout=10) == 2

    fork = await client.runs.handle(run.id).fork(after="first", patch={"first": 10})

    assert await fork.result(timeout=10) == 11
    assert await run.result(timeout=10) == 2
