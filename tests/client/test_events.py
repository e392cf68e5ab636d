"""Events for clients: streams and handlers, ends at least once, from any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    AsyncJobQueue,
    Context,
    EventsGap,
    Flow,
    InvalidInput,
    Progress,
    Retry,
    Status,
    StoreError,
    Worker,
    task,
)
from perdure.client import events as client_events
from perdure.model.client_event import (
    EVENTS,
    LIVE_RESULT_MAX_BYTES,
    RESULT_MAX_BYTES,
    ClientEvent,
    EventSource,
)
from perdure.model.event import NewEvent
from perdure.model.ids import RunId
from perdure.model.job import FINISHED
from perdure.model.outcome import Parked
from perdure.model.run import ENDED, RunStatus
from perdure.operations import ends, events
from perdure.operations.page import encode_cursor
from perdure.store.contract import SUBSCRIBER_LEASE, Store
from perdure.testing.contract.builders import child_wait, commit_next, new_child, submit
from tests.client.flows import add, asking, echo, failing, keep, outside
from tests.client.harness import CountedStore, PlayedWorker, held_next, job_that_is, worker_at
from tests.support.refusal import refused

pytestmark = pytest.mark.every_store

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(events, "SPACING_SECONDS", 0.0)


async def take(stream: AsyncGenerator[ClientEvent, None], count: int) -> list[ClientEvent]:
    async with asyncio.timeout(20):
        return [await anext(stream) for _ in range(count)]


@asynccontextmanager
async def received(client: AsyncClient, **filter: Any) -> AsyncIterator[asyncio.Queue[ClientEvent]]:
    """The events of a subscription, as they come."""
    queue: asyncio.Queue[ClientEvent] = asyncio.Queue()
    subscription = await client.events.subscribe(queue.put_nowait, **filter)
    async with asyncio.timeout(30):
        yield queue
    subscription.unsubscribe()


async def beginning(client: AsyncClient) -> str:
    """A cursor from before everything that follows."""
    return encode_cursor("events.stream", (await client.store.now(),) * 3 + (b"",))


class TestEnds:
    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_of_a_job_tell_what_it_was_and_how_it_ended(self, client, worker, status):
        async with received(client) as queue:
            job = await job_that_is(status, client, worker)
            event = await queue.get()

        assert (event.type, event.job, event.task) == (f"job.{status}", job.id, "add")
        assert (event.queue, event.namespace, event.at) == (
            "default",
            "default",
            await client.store.now(),
        )
        assert event.result == (2 if status is Status.COMPLETED else None)
        has_failed = status in {Status.FAILED, Status.DEAD}
        assert (event.failure and event.failure.message) == ("no money" if has_failed else None)

    async def test_of_runs_have_result_failure_and_reason(self, client, working):
        async with received(
            client, types=["run.completed", "run.failed", "run.cancelled"]
        ) as queue:
            failed = await client.submit(failing, 1)
            assert (event := await queue.get()).type == "run.failed"
            assert (event.run, event.flow, event.node) == (failed.id, "failing", "refuse")
            assert event.failure is not None
            cancelled = await client.submit(asking, 1)
            await cancelled.cancel(reason="too late", by="ann")
            event = await queue.get()
            assert (event.type, event.run) == ("run.cancelled", cancelled.id)
            assert (event.reason, event.by) == ("too late", "ann")
            answered = await client.submit(asking, 1)
            await answered.signal("answer", {"yes": True})
            event = await queue.get()
            assert (event.type, event.run, event.result) == (
                "run.completed",
                answered.id,
                {"yes": True},
            )

    async def test_of_child_runs_name_their_parent(self, client, store):
        async with received(client) as queue:
            await submit(store, namespace="default", waits=(child_wait(),))
            child = new_child(namespace="default", status=RunStatus.CANCELLED)
            await commit_next(store, namespace="default", children=(child,))
            event = await queue.get()

        assert (event.type, event.run, event.parent) == ("run.cancelled", child.id, "order-42")

    @pytest.mark.parametrize("end", [b'{"type":"RunDreamt"}', b"{"])
    async def test_an_end_that_cannot_be_read_does_not_hold_up_others(self, client, store, end):
        """Finding 20: a newer version may have written it."""
        async with received(client) as queue:
            await submit(store, namespace="default")
            await commit_next(
                store, namespace="default", status=RunStatus.COMPLETED, events=(NewEvent(data=end),)
            )
            await submit(store, namespace="default", id=RunId("other"))
            await commit_next(
                store, namespace="default", run=RunId("other"), status=RunStatus.CANCELLED
            )
            event, other = await queue.get(), await queue.get()

        assert (event.type, event.result, event.is_result_omitted) == ("run.completed", None, True)
        assert (other.type, other.run) == ("run.cancelled", "other")

    async def test_a_result_too_large_for_an_event_is_left_out(self, client, worker):
        async with received(client) as queue:
            await client.enqueue_many(echo, [1, 2])
            one, two = await worker.claim_all()
            await worker.complete(one, "x" * RESULT_MAX_BYTES)
            await worker.complete(two, "x")
            found = {event.job: event for event in (await queue.get(), await queue.get())}

        assert (found[one.claim.id].result, found[one.claim.id].is_result_omitted) == (None, True)
        assert (found[two.claim.id].result, found[two.claim.id].is_result_omitted) == ("x", False)


class TestFilter:
    async def test_selects_by_queue_task_flow_and_type(self, client, worker):
        start = await beginning(client)
        mail = await client.enqueue(add.options(queue="mail"), 1)
        await worker.complete(await worker.claim())
        lost = await client.enqueue(add, 1)
        await worker.dead_letter(await worker.claim(), OSError("lost"))
        other = await client.enqueue(echo, 1)
        await worker.complete(await worker.claim())
        run = await client.submit(asking, 1)
        await run.cancel()

        async def subjects(**filter: Any) -> list[str]:
            found: list[ClientEvent] = []
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(0.3),
                    aclosing(client.events.stream(**filter, after=start)) as stream,
                ):
                    while True:
                        found += [await anext(stream)]
            return [event.job or event.run or "" for event in found]

        assert sorted(await subjects()) == sorted([mail.id, lost.id, other.id, run.id])
        assert await subjects(queue="mail") == [mail.id]
        assert sorted(await subjects(task=add)) == sorted([mail.id, lost.id])
        assert await subjects(task="echo", queue="default") == [other.id]
        assert await subjects(flow=asking) == [run.id]
        assert await subjects(types=["job.dead"]) == [lost.id]
        assert sorted(await subjects(types=["job.dead", "run.cancelled"])) == sorted(
            [lost.id, run.id]
        )
        assert await subjects(types=[]) == []

    async def test_reads_the_rows_of_the_filter_alone(self, client, store):
        counted = CountedStore(store)
        async with (
            AsyncClient(counted.as_store()) as other,
            received(other, flow="asking", types=["run.failed"]),
        ):
            await asyncio.sleep(0)
        asked = [each for [each, _] in counted.arguments["queries.ended_runs"]]
        assert {(each.flow, each.statuses) for each in asked} == {("asking", ("failed",))}
        assert counted.calls["queries.ended_jobs"] == 0

    async def test_a_wrong_one_is_refused_at_once(self, client):
        with refused("events.unknown_type", InvalidInput, value="job.complete", where=("types",)):
            client.events.stream(types=["job.complete"])
        with refused("events.unknown_type", InvalidInput, value=("job.failed",)):
            client.events.stream(types=[["job.failed"]])
        with refused("events.invalid_cursor", InvalidInput, where=("after",)):
            client.events.stream(after="yesterday")
        with pytest.raises(InvalidInput):
            await client.events.subscribe("no function")
        with refused("client.namespace_required", InvalidInput):
            AsyncClient(client._backend.place._store, namespace="*").events.stream()

    def test_the_catalog_has_each_end_with_its_row(self):
        assert {name for name, source in EVENTS.items() if source is EventSource.JOB} == {
            f"job.{status}" for status in FINISHED
        }
        assert {name for name, source in EVENTS.items() if source is EventSource.RUN} == {
            f"run.{status}" for status in ENDED
        }


class TestCursor:
    async def test_continues_after_its_event_without_a_gap_and_without_repeats(
        self, client, worker, clock
    ):
        start = await beginning(client)
        jobs = []
        for _ in range(4):
            jobs += [each.id for each in await client.enqueue_many(echo, range(3))]
            for job in await worker.claim_all():
                await worker.complete(job)
            clock.advance(SECOND)

        found: list[str] = []
        for _ in range(6):
            async with aclosing(client.events.stream(after=start)) as stream:
                batch = await take(stream, 2)
            found += [event.job or "" for event in batch]
            start = batch[-1].cursor

        assert sorted(found) == sorted(jobs)

    async def test_names_few_enough_ends_to_stay_small(self, client, worker):
        start = await beginning(client)
        await client.enqueue_many(echo, range(300))
        for job in await worker.claim_all():
            await worker.complete(job)

        async with aclosing(client.events.stream(after=start)) as stream:
            found = await take(stream, 300)
        assert max(len(event.cursor) for event in found) < 1_500
        async with aclosing(client.events.stream(after=found[-1].cursor)) as stream:
            again = await take(stream, 300 - ends.CURSOR_ENDS_MAX // 3)
        assert {event.job for event in again} <= {event.job for event in found}

    async def test_older_than_what_was_pruned_is_a_gap(self, client, worker, clock, store):
        start = await beginning(client)
        clock.advance(SECOND)
        job = await client.enqueue(echo, 1)
        await worker.complete(await worker.claim())
        clock.advance(HOUR)
        await store.maintenance.prune_jobs("default", {Status.COMPLETED: SECOND}, 10)

        with refused("events.gap", EventsGap):
            await take(client.events.stream(after=start), 1)
        with refused("events.gap", EventsGap):
            await client.events.subscribe(print, after=start)
        # Nothing that this one asks for was pruned.
        await client.enqueue(add, 1)
        await worker.dead_letter(await worker.claim(), OSError())
        async with aclosing(client.events.stream(after=start, types=["job.dead"])) as stream:
            [event] = await take(stream, 1)
        assert (event.type, job.id != event.job) == ("job.dead", True)


class TestTime:
    async def test_an_end_is_seen_after_the_clock_was_set_back(self, client, worker, clock):
        async with received(client) as queue:
            await client.enqueue(echo, 1)
            await worker.complete(await worker.claim())
            first = await queue.get()
            clock.advance(-HOUR)
            await client.enqueue(echo, 2)
            await worker.complete(await worker.claim())
            second = await queue.get()

        assert (second.result, second.at) == (None, first.at - HOUR)

    async def test_a_cursor_from_before_a_clock_was_set_back_starts_over(
        self, client, worker, clock
    ):
        jobs = [(await job_that_is(Status.COMPLETED, client, worker)).id]
        start = await beginning(client)
        clock.advance(-HOUR)
        jobs.append((await job_that_is(Status.COMPLETED, client, worker)).id)

        async with aclosing(client.events.stream(after=start)) as stream:
            found = await take(stream, 1)
            clock.advance(HOUR)
            found += await take(stream, 1)
        assert {event.job for event in found} == set(jobs)

    def test_what_becomes_visible_late_is_read_again_for_a_minute(self, clock):
        each = ends.Ends(clock())
        reaches = []
        for _ in range(41):
            reaches.append(clock() - each.start(clock()))
            each.read_up_to(clock())
            clock.advance(SECOND)
        assert {reaches[n] for n in (0, 20, 40)} == {61 * SECOND, 60 * SECOND}
        assert {reaches[n] for n in range(41) if n % 20} == {6 * SECOND}


async def broken(*_: object) -> None:
    raise ZeroDivisionError


class TestSubscription:
    async def test_ends_with_unsubscribe(self, client, worker):
        seen: asyncio.Queue[ClientEvent] = asyncio.Queue()
        subscription = await client.events.subscribe(seen.put_nowait)
        await job_that_is(Status.COMPLETED, client, worker)
        await asyncio.wait_for(seen.get(), 20)
        async with received(client) as queue:
            subscription.unsubscribe()
            subscription.unsubscribe()
            await job_that_is(Status.COMPLETED, client, worker)
            await queue.get()
        assert (seen.empty(), subscription.is_active) == (True, False)

    async def test_once_is_for_one_event(self, client, worker):
        seen: list[ClientEvent] = []
        subscription = await client.events.once(seen.append, types=["job.dead"])
        for status in (Status.COMPLETED, Status.DEAD, Status.DEAD):
            await job_that_is(status, client, worker)
        await asyncio.wait_for(subscription._task, 20)
        assert [event.type for event in seen] == ["job.dead"]

    @pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
    async def test_continues_after_a_handler_failed_and_awaits_async_ones(
        self, client, worker, error
    ):
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def handle(event: ClientEvent) -> None:
            await seen.put(event.type)
            raise error("no")

        await client.events.subscribe(handle)
        for _ in range(2):
            await job_that_is(Status.COMPLETED, client, worker)
            assert await asyncio.wait_for(seen.get(), 20) == "job.completed"

    async def test_ends_with_its_client(self, store):
        async with AsyncClient(store) as client:
            subscription = await client.events.subscribe(print)
        assert not subscription.is_active

    async def test_fails_if_its_client_is_closed_meanwhile(self, store):
        counted = CountedStore(store)
        client = AsyncClient(counted.as_store())
        reading = asyncio.Event()

        async def hang() -> None:
            reading.set()
            await asyncio.Event().wait()

        counted.after["live.subscribe"] = hang
        subscribing = asyncio.create_task(client.events.subscribe(print))
        async with asyncio.timeout(20):
            await reading.wait()
            await client.close()
            with refused("client.closed_meanwhile", StoreError):
                await subscribing

    async def test_fails_with_what_kept_it_from_starting(self, store, monkeypatch):
        monkeypatch.setattr(type(store.live), "subscribe", broken)
        async with AsyncClient(store) as client:
            with pytest.raises(ZeroDivisionError):
                await asyncio.wait_for(client.events.subscribe(print), 20)

    async def test_continues_after_an_unexpected_error(self, client, worker, monkeypatch, store):
        monkeypatch.setattr(client_events, "RETRY_SECONDS", 0.0)
        failed = asyncio.Event()

        async def fail(*_: object) -> None:
            failed.set()
            raise ZeroDivisionError

        async with received(client) as queue:
            with monkeypatch.context() as for_now:
                for_now.setattr(type(store.live), "read", fail)
                await job_that_is(Status.COMPLETED, client, worker)
                await failed.wait()
            assert (await queue.get()).type == "job.completed"

    async def test_ends_after_its_handler_closed_the_client(self, store, worker):
        client = AsyncClient(store)
        closed = asyncio.Event()

        async def close(_: ClientEvent) -> None:
            await client.close()
            closed.set()

        subscription = await client.events.subscribe(close)
        other = await client.events.subscribe(print, types=["job.dead"])
        await job_that_is(Status.COMPLETED, client, worker)
        async with asyncio.timeout(20):
            await closed.wait()
            await subscription._task
        assert not subscription.is_active
        assert not other.is_active
        with refused("client.closed", StoreError):
            await client.events.subscribe(print)

    async def test_is_of_its_namespace(self, client, worker, store):
        async with AsyncClient(store, namespace="theirs") as other, received(other) as theirs:
            await job_that_is(Status.COMPLETED, client, worker)
            ours = await other.enqueue(add, 1)
            await PlayedWorker(store, "theirs").complete(
                await PlayedWorker(store, "theirs").claim()
            )
            assert (await theirs.get()).job == ours.id


@task(retries=Retry(1, first="5m", jitter=False))
def fail_once(job: str) -> None:
    raise ValueError("no route")


@task
def report(percent: int, ctx: Context = CONTEXT) -> int:
    ctx.progress(percent, "so far", {"percent": percent})
    return percent


@task
async def slow_report(percent: int, ctx: AsyncContext = CONTEXT) -> None:
    await ctx.progress(percent, "so far", {"percent": percent})
    await asyncio.sleep(60)


@pytest.fixture
def published(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is published on the store, by whichever handle."""
    found: list[bytes] = []
    part = type(store.live)
    publish = part.publish

    async def publish_too(live: Any, namespace: str, data: Sequence[bytes]) -> None:
        found.extend(data)
        await publish(live, namespace, data)

    monkeypatch.setattr(part, "publish", publish_too)
    return found


@asynccontextmanager
async def serving(store: Store, **settings: Any) -> AsyncIterator[Worker]:
    tasks = [fail_once, report, slow_report]
    async with worker_at(
        store, flows=[asking, checking, outside], tasks=tasks, **settings
    ) as worker:
        yield worker


checking = Flow("checking").then(keep).approve("Ship it?", name="check").build()


class TestLive:
    async def test_a_retry_tells_when_the_next_attempt_may_start(self, client, store):
        async with serving(store), received(client, types=["job.started", "job.retried"]) as queue:
            job = await client.enqueue(fail_once, "x")
            started, retried = await queue.get(), await queue.get()

        assert (started.type, started.job, started.attempt) == ("job.started", job.id, 1)
        assert (retried.type, retried.task, retried.queue) == (
            "job.retried",
            "fail_once",
            "default",
        )
        assert (retried.failure and retried.failure.message) == "no route"
        assert retried.next_at is not None
        assert retried.next_at - retried.at > timedelta(minutes=4)

    async def test_progress_comes_with_its_details(self, client, store):
        async with serving(store), received(client, types=["job.progressed"]) as queue:
            await client.enqueue(slow_report, 40)
            event = await queue.get()
        assert event.progress == Progress(percent=40, message="so far", details={"percent": 40})

    async def test_events_of_nodes_name_run_flow_and_node(self, client, store):
        types = ["job.started", "node.completed", "approval.opened"]
        async with serving(store), received(client, flow="checking", types=types) as queue:
            run = await client.submit(checking, 1)
            await client.submit(asking, 1)
            found = [await queue.get() for _ in range(3)]
        assert [each.type for each in found if each.type != "approval.opened"] == types[:2]
        assert {each.type for each in found} == set(types)
        assert {(each.run, each.flow) for each in found} == {(run.id, "checking")}
        nodes = {each.type: each.node for each in found}
        assert nodes == {
            "job.started": "keep",
            "node.completed": "keep",
            "approval.opened": "check",
        }
        [completed] = [each for each in found if each.type == "node.completed"]
        assert completed.result == 1

    @pytest.mark.parametrize("filter", [b"{", b'{"types": 5}', b"[" * 5_000])
    async def test_a_subscriber_that_a_worker_cannot_read_does_not_end_it(
        self, client, store, filter
    ):
        """Finding 31: it may be a client in a newer version."""
        await store.live.subscribe("default", "newer", filter, SUBSCRIBER_LEASE)
        async with serving(store), received(client, types=["node.completed"]) as queue:
            await client.submit(checking, 1)
            assert (await queue.get()).result == 1

    async def test_a_large_result_of_a_node_is_left_out(self, client, store):
        large = "x" * LIVE_RESULT_MAX_BYTES
        async with serving(store), received(client, types=["node.completed"]) as queue:
            await client.submit(checking, large)
            event = await queue.get()
        assert (event.result, event.is_result_omitted) == (None, True)

    async def test_a_takeover_of_a_node_names_run_and_node(self, client, worker, store, clock):
        run = await client.submit(asking, 1)
        await worker.claim()
        clock.advance(HOUR)
        async with received(client, types=["job.taken_over"]) as queue, serving(store):
            event = await queue.get()
        assert (event.run, event.flow, event.node) == (run.id, "asking", "keep")
        assert event.holder == worker.id
        assert event.failure is not None

    async def test_a_parked_job_is_told_from_a_requeued_one(self, client, store):
        async with received(client, types=["job.parked", "job.requeued"]) as queue:
            async with serving(store):
                parked = await client.submit(outside, 1)
                event = await queue.get()
                assert (event.type, event.run, event.node) == ("job.parked", parked.id, "hand_over")
                running = await client.enqueue(slow_report, 1)
                async for update in running.watch():
                    if update.progress.percent:
                        break
            event = await queue.get()
            assert (event.type, event.job) == ("job.requeued", running.id)

    async def test_commands_are_announced(self, client, worker):
        async with received(client, types=["job.disabled", "job.enabled", "job.resumed"]) as queue:
            job = await job_that_is(Status.DISABLED, client, worker)
            assert (event := await queue.get()).type == "job.disabled"
            assert (event.job, event.task) == (job.id, "add")
            await client.jobs.enable(job.id)
            assert (await queue.get()).type == "job.enabled"
            await worker.settle(await worker.claim(), Parked())
            await client.jobs.resume(job.id)
            assert (await queue.get()).type == "job.resumed"

    async def test_a_job_queue_tells_of_retried_and_parked_jobs(self, client, store, clock):
        types = ["job.retried", "job.parked", "job.completed"]
        async with AsyncJobQueue(store) as jobs, received(client, types=types) as queue:
            id = await jobs.enqueue("start", 1, max_attempts=9)
            await jobs.nack(await held_next(jobs), "no route", delay="5s")
            retried = await queue.get()
            clock.advance(5 * SECOND)
            await jobs.release(await held_next(jobs))
            found = [await queue.get()]
            await jobs.nack(id, "refused", delay=0)  # by whoever has its id
            found.append(await queue.get())
            await jobs.ack(await held_next(jobs))
            found.append(await queue.get())

        assert (retried.type, retried.job, retried.task) == ("job.retried", id, "start")
        assert (retried.attempt, retried.worker, retried.queue) == (1, "worker-1", "default")
        assert (retried.failure and retried.failure.message) == "no route"
        assert retried.next_at == retried.at + 5 * SECOND
        assert [each.type for each in found] == ["job.parked", "job.retried", "job.completed"]
        assert [each.job for each in found] == [id] * 3
        assert (found[1].failure and found[1].failure.message) == "refused"

    async def test_nothing_is_missed_from_when_subscribe_returns(self, client, store):
        async with serving(store):
            for _ in range(5):
                async with received(client, types=["job.started"]) as queue:
                    job = await client.enqueue(report, 1)
                    assert (await queue.get()).job == job.id

    async def test_is_filtered_where_it_happens(self, client, store, published):
        async with AsyncJobQueue(store) as jobs, received(client, task="other"):
            await jobs.enqueue("start", 1)
            await jobs.release(await held_next(jobs))
        assert published == []
        async with serving(store), received(client, task="other") as queue:
            await (await client.enqueue(report, 1)).result(timeout=20)
            assert queue.empty()
        assert len(published) == 1  # that it listens

    async def test_a_subscriber_that_is_gone_is_forgotten(self, client, store, clock):
        subscription = await client.events.subscribe(print)
        assert len(await store.live.subscribers("default")) == 1
        clock.advance(SUBSCRIBER_LEASE)
        assert await store.live.subscribers("default") == {}
        await client.store.now()
        subscription.unsubscribe()


class TestWithoutSubscribers:
    async def test_a_worker_publishes_nothing_and_creates_no_event(self, client, store, published):
        async with serving(store) as worker:
            await (await client.enqueue(report, 1)).result(timeout=20)
            assert worker._events._listeners == []
        assert published == []

    async def test_a_job_queue_publishes_nothing_and_an_ack_does_not_look(self, store):
        counted = CountedStore(store)
        async with AsyncJobQueue(counted.as_store()) as jobs:
            for looks, settle in ((0, jobs.ack), (1, jobs.release)):
                await jobs.enqueue("start", 1)
                await settle(await held_next(jobs))
                assert counted.calls["live.subscribers"] == looks
        assert counted.calls["live.publish"] == 0

    async def test_costs_no_call_of_the_store(self, store):
        counted = CountedStore(store)
        async with AsyncClient(counted.as_store()) as client:
            await client.enqueue(echo, 1)
            before = counted.calls.copy()
            subscription = await client.events.subscribe(print)
            subscription.unsubscribe()
            await asyncio.sleep(0)
            after = counted.calls.copy()
            await client.enqueue(echo, 1)
        assert set(before) == {"jobs.insert"}
        assert counted.calls - after == before


class TestProgress:
    async def test_is_told_until_it_is_no_longer_wanted(self, client, worker):
        job = await client.enqueue(add, 1)
        claimed = await worker.claim()
        await worker.report(claimed, 10)
        seen: asyncio.Queue[Progress] = asyncio.Queue()
        stop = job.on_progress(seen.put_nowait)
        async with asyncio.timeout(20):
            assert (await seen.get()).percent == 10
            await worker.report(claimed, 50, "half way")
            assert await seen.get() == Progress(percent=50, message="half way")
            stop()
            async for update in job.watch():
                if update.progress.percent == 60:
                    break
                await worker.report(claimed, 60)
        assert seen.empty()


# A client and a worker in different processes.


@pytest.mark.usefixtures("worker_process")
class TestAcrossProcesses:
    async def test_events_come_from_another_process_without_polling(self, shared_url, monkeypatch):
        monkeypatch.setattr(events, "POLL_SECONDS", 3600.0)
        types = ["job.completed", "run.completed", "job.started"]
        async with (
            AsyncClient(shared_url) as client,
            received(client, types=types[:2]) as queue,
            received(client, types=types[2:], task=add) as started,
        ):
            for number in range(3):
                job = await client.enqueue(add, number)
                assert (await started.get()).job == job.id
                event = await queue.get()
                assert (event.type, event.job, event.result) == (
                    "job.completed",
                    job.id,
                    number + 1,
                )
            run = await client.submit(asking, 1)
            await run.signal("answer", 42)
            event = await queue.get()
            assert (event.type, event.run, event.result) == ("run.completed", run.id, 42)
