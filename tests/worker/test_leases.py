"""A live worker keeps its leases; a dead one's jobs are taken over; maintenance continues."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Flow,
    JobCancelled,
    JobDead,
    JobFailed,
    JobNotFound,
    Permanent,
    Retry,
    Status,
    StoreError,
    Worker,
    task,
)
from perdure.clock import system_clock
from perdure.model.ids import WorkerId
from perdure.model.job import Claim
from perdure.model.payload import PlainCodec
from perdure.model.worker import Renewal, WorkerInfo
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.store import MemoryStore
from perdure.store.opening import store_at
from perdure.tasks.node_type import TaskRegistry
from perdure.testing.contract.builders import worker_info
from perdure.testing.wrapped_store import wrap_store
from perdure.worker import claims, lease_renewal
from perdure.worker.claims import KnownPartitions
from perdure.worker.code import FlowCode, TaskCode
from perdure.worker.events import (
    AttemptCompleted,
    AttemptLost,
    AttemptRequeued,
    AttemptStarted,
    JobTakenOver,
    WorkerEvents,
)
from perdure.worker.janitor import PRUNE_BATCHES, Janitor, leader_row
from perdure.worker.live import LiveEvents
from perdure.worker.poller import MAINTENANCE_SECONDS, OUTAGE_SECONDS, Poller
from perdure.worker.secrets import Secrets
from tests.support.held import claimed_by
from tests.support.refusal import fails
from tests.support.tasks import gated, nothing
from tests.worker.conftest import StartWorker
from tests.worker.harness import Gate, Running, until
from tests.worker.watched_store import StoreWatch

pytestmark = pytest.mark.every_store  # processes, clocks and wake-ups differ by store


class SilentAtFirst(MemoryStore):
    """Never answers the first renewal of leases."""

    answered = threading.Event()

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.jobs = SilentJobs(self._session)

    def clone(self) -> SilentAtFirst:
        return SilentAtFirst(self.url)


class SilentJobs(MemoryJobs):
    has_been_silent = False

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        if not self.has_been_silent:
            self.has_been_silent = True
            await asyncio.Event().wait()
        renewal = await super().renew(worker, claims, lease)
        SilentAtFirst.answered.set()
        return renewal


async def claim_and_die(store: Store, job_id: str) -> None:
    """Hold a job for a moment as a worker that is never heard of again."""
    job = await store.queries.get_job(None, job_id)  # type: ignore[arg-type]
    assert job is not None
    lease = timedelta(milliseconds=200)
    held = await claimed_by(store, job.task, lease=lease, suspicion=job.suspicion, is_alone=True)
    assert held.jobs[0].claim.id == job_id


@task
async def attempt(ctx: AsyncContext = CONTEXT) -> int:
    return ctx.attempt


class TestLeases:
    """A live worker keeps its leases, a dead one's jobs are taken over within seconds."""

    async def test_survive_a_body_that_blocks_the_event_loop(self, client, store_url, start_worker):
        bodies: list[int] = []

        @task
        async def block(ctx: AsyncContext = CONTEXT) -> str:
            bodies.append(ctx.attempt)
            time.sleep(2.5)  # what is tested: nothing else on this worker's event loop moves
            return "done"

        handle = Worker(store_url, tasks=[block], lease="1s", poll="200ms").start()
        rival = await start_worker(nothing, lease="1s", poll="200ms")
        job = await client.enqueue(block)
        result = await job.result(15)
        handle.shutdown()
        assert await asyncio.to_thread(handle.join, 10)

        assert result == "done"
        assert bodies == [1]
        record = await job.record()
        assert (record.attempt, record.crashes, record.epoch) == (1, 0, 1)
        assert handle.stats().claims_lost == 0
        assert rival.worker.stats().started == 0

    async def test_survive_a_sync_body_that_blocks(self, client, start_worker):
        woken = threading.Event()

        @task
        def block() -> str:
            woken.wait(2)
            return "done"

        await start_worker(block, lease="600ms", poll="200ms")
        await start_worker(nothing, lease="600ms", poll="200ms")
        job = await client.enqueue(block)

        assert await job.result(15) == "done"
        record = await job.record()
        assert (record.attempt, record.crashes) == (1, 0)

    async def test_of_a_dead_worker_are_taken_over_soon(self, client, store, start_worker):
        job = await client.enqueue(attempt.options(max_attempts=1))
        await claim_and_die(store, job.id)
        worker = await start_worker(attempt)
        began = time.monotonic()

        assert await job.result(10) == 2
        assert time.monotonic() - began < 4
        record = await job.record()
        assert (record.crashes, record.failures, record.status) == (1, 0, Status.COMPLETED)
        [failed] = await job.attempts()
        assert failed.failure.type == "perdure.errors.WorkerCrashed"
        assert failed.worker == "dead-worker"
        [takeover] = worker.all(JobTakenOver)
        assert (takeover.holder, takeover.attempt_id) == ("dead-worker", f"{job.id}:1")

    async def test_lost_too_often_make_a_job_a_poison_pill(self, client, store, start_worker):
        await start_worker(attempt, max_crashes=2, poll="100ms")
        job = await client.enqueue(nothing)
        for _ in range(3):
            await claim_and_die(store, job.id)
            async for update in job.watch():
                if update.status is Status.WAITING:
                    break
        await start_worker(nothing, max_crashes=2, poll="100ms")

        await fails(job, "job.too_many_crashes", JobDead)
        assert (await job.record()).crashes == 3
        attempts = await job.attempts()
        assert [each.failure.code for each in attempts] == [
            *["job.lease_expired"] * 3,
            "job.too_many_crashes",
        ]

    async def test_of_suspects_get_room_on_a_busy_worker(
        self, client, store, start_worker, monkeypatch
    ):
        """Finding 35: beside a queue that is never empty, a suspect would never get alone."""
        monkeypatch.setattr(claims, "DRAIN_SECONDS_MIN", 0.0)
        monkeypatch.setattr(claims, "DRAIN_SECONDS_SPREAD", 0.0)
        order = []

        @task
        async def suspected() -> None:
            order.append("suspected")

        @task
        async def other() -> None:
            order.append("other")

        job = await client.enqueue(suspected)
        await claim_and_die(store, job.id)
        while not await store.maintenance.take_over_expired("default", 10):
            pass  # its lease has not expired yet
        others = [await client.enqueue(other) for _ in range(100)]
        await start_worker(suspected, other, concurrency=1)

        await job.result(20)
        await client.jobs.results(others, timeout=20)
        assert order.index("suspected") < 20

    def test_of_suspects_get_room_on_one_worker_after_another(self):
        seconds = {claims.drain_seconds(WorkerId(f"worker-{number}")) for number in range(50)}
        assert len(seconds) > 40
        assert min(seconds) >= 10
        assert max(seconds) <= 60

    async def test_that_ran_out_unnoticed_make_the_holder_stop(self, client, store, start_worker):
        gate = Gate()

        @task
        async def wait(ctx: AsyncContext = CONTEXT) -> str:
            if ctx.attempt == 1:
                await gate.pass_through()
            return f"attempt {ctx.attempt}"

        # A lease this long is not renewed during the test, so it can be ended under its holder.
        holder = await start_worker(wait, lease="1h", id="holder")
        job = await client.enqueue(wait)
        await gate.reached()
        held = await job.record()
        [moved] = await store.admin.change_jobs(Transition.DISABLE, None, [job.id])
        assert (moved.before, held.worker) == (Status.ACTIVE, "holder")
        other = await start_worker(wait, id="other")
        await client.queues.pause("default")
        await client.jobs.enable(job.id)
        lost = await holder.emitted(AttemptLost, job.id)
        await holder.stop()
        await client.queues.resume("default")

        assert lost.attempt == 1
        assert await job.result(10) == "attempt 2"
        assert (await job.record()).worker == "other"
        assert other.worker.stats().completed == 1

    async def test_of_a_claim_answered_too_late_are_requeued(self, client, start_worker, watch):
        watch.after["jobs.claim"] = lambda: asyncio.sleep(0.4)
        job = await client.enqueue(attempt)
        worker = await start_worker(attempt, store=watch.store, lease="300ms")

        assert await job.result(10) == 1
        assert [event.job_id for event in worker.all(AttemptRequeued)] == [job.id]
        assert len(worker.all(AttemptStarted)) == 1

    async def test_are_renewed_again_at_a_silent_store(self, memory_url, start_worker, monkeypatch):
        monkeypatch.setattr(lease_renewal, "ANSWER_SECONDS_MIN", 0.5)
        gate, hold_on = gated()
        silent = SilentAtFirst(memory_url)
        async with AsyncClient(memory_url) as client:
            job = await client.enqueue(hold_on)
            await start_worker(hold_on, store=silent, lease="1500ms")
            assert await asyncio.to_thread(SilentAtFirst.answered.wait, 10)
            gate.open()
            await job.result(10)
            record = await job.record()

        assert (record.epoch, record.crashes) == (1, 0)

    async def test_of_an_unanswered_claim_are_requeued(self, client, start_worker, watch):
        async def lose_the_answer() -> None:
            raise StoreError("lost before it answered")

        watch.after["jobs.claim"] = lose_the_answer
        job = await client.enqueue(attempt)
        await start_worker(attempt, store=watch.store, lease="1h", poll="200ms")

        assert await job.result(10) == 1
        assert (await job.record()).crashes == 0


LONG = timedelta(minutes=5)


@pytest.fixture
async def poller(client: AsyncClient, store: Store, watch: StoreWatch) -> AsyncIterator[Poller]:
    """Its janitor hangs as soon as it has something to do."""
    await client.enqueue(nothing)
    await leave_behind(store)
    watch.hangs.add("maintenance.acquire_lease")
    watched = watch.store.clone()
    await watched.open()
    worker = Worker(store, tasks=[nothing], poll=LONG)
    partitions = KnownPartitions(
        TaskCode(TaskRegistry([nothing]), FlowCode([]), Secrets(None)), worker.settings, worker.id
    )
    events = WorkerEvents(worker.id)
    janitor = Janitor(watched, worker.settings, worker.id, events)
    live = LiveEvents(watched, worker.settings.namespace, PlainCodec(), events)
    poller = Poller(watched, partitions, worker.settings, janitor, [], live, lambda: None)
    yield poller
    poller.stop()
    await poller.run()  # which ends at once, and its maintenance with it
    await watched.close()


async def is_busy(watch: StoreWatch) -> bool:
    return watch.calls["maintenance.acquire_lease"] > 0


async def leave_behind(store: Store) -> None:
    """A job whose lease has expired."""
    await claimed_by(store, nothing.name, lease=timedelta(milliseconds=1))

    async def has_expired() -> bool:
        poll = await store.maintenance.poll("default")
        return poll.next_lease_end_at is not None and poll.next_lease_end_at <= poll.now

    await until(has_expired)


class TestPoller:
    """When the next poll comes, with jobs of a dead worker to take over."""

    async def test_is_soon_if_a_lease_has_expired(self, poller):
        assert [await poller._poll() for _ in range(2)] == [MAINTENANCE_SECONDS] * 2

    async def test_is_at_the_end_of_the_grace_even_if_the_janitor_is_busy(self, poller, watch):
        """Finding 33: the poll after an outage depended on whether the janitor is busy."""
        poller._grace.note_delay(OUTAGE_SECONDS + 1)
        idle = await poller._poll()
        await until(lambda: is_busy(watch))
        busy = await poller._poll()
        left = poller._grace.seconds_left
        assert busy <= idle < LONG.total_seconds()
        assert busy == pytest.approx(left, abs=1)


@pytest.mark.parametrize(
    "call", ["maintenance.poll", "jobs.claim", "jobs.check"], ids=["poller", "claims", "monitor"]
)
async def test_a_worker_ends_with_any_of_its_loops(watch, client, call):
    """Finding 31: what serves many attempts must not die unnoticed, and leave a deaf worker."""

    async def end() -> None:
        raise asyncio.CancelledError  # no error of the store, which would be retried

    _, wait = gated()
    await client.enqueue(wait)
    watch.after[call] = end
    worker = Running(Worker(watch.store, tasks=[wait], grace=0))
    with pytest.raises(RuntimeError):
        await (await worker.start()).stopped()


# Any worker keeps house, one at a time: retention, due jobs, idle worker rows.


SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
OTHER = WorkerId("other-worker")
LEADER = leader_row("default")


@task
async def end(how: str) -> str:
    if how == "fail":
        raise Permanent("failed")
    if how == "die":
        raise ValueError("again")
    return how


class TestRetention:
    async def test_removes_each_finished_job_in_its_time(self, still_store, clock, start_worker):
        async with AsyncClient(still_store) as client:
            jobs = await one_of_each(client, start_worker, still_store)
            seen: dict[int, set[str]] = {}
            for days in (6, 8, 31, 1000):
                await still_store.maintenance.register_worker(idle_worker())
                clock.advance(days * DAY)
                worker = await start_worker(end, store=still_store)
                await until(lambda: has_pruned(still_store))
                await worker.stop()
                seen[days] = await left_of(jobs, client)
                clock.advance(-days * DAY)

        assert seen[6] == {"well", "cancelled", "fail", "die", "waiting"}
        assert seen[8] == {"fail", "die", "waiting"}
        assert seen[31] == {"die", "waiting"}
        assert seen[1000] == {"die", "waiting"}

    @pytest.mark.parametrize("keep, is_left", [(None, True), ("1h", False), ("3h", True)])
    async def test_keeps_disabled_jobs_for_as_long_as_it_says(
        self, still_store, clock, start_worker, keep, is_left
    ):
        async with AsyncClient(still_store) as client:
            job = await client.enqueue(end, "well")
            await client.jobs.disable(job.id)
            await still_store.maintenance.register_worker(idle_worker())
            clock.advance(timedelta(hours=2))
            await start_worker(end, store=still_store, keep_disabled=keep)
            await until(lambda: has_pruned(still_store))

            assert await client.jobs.count() == is_left

    async def test_of_zero_hides_a_job_but_its_waiter_gets_it(
        self, client, store_url, start_worker
    ):
        gate = Gate()

        @task
        async def work(how: str) -> str:
            await gate.pass_through()
            if how == "fail":
                raise Permanent("failed")
            return how

        worker = await start_worker(work, keep_completed=0, keep_failed=0)
        well = await client.enqueue(work, "well")
        bad = await client.enqueue(work, "fail")
        await gate.reached(2)
        waits = [asyncio.create_task(job.result(10)) for job in (well, bad)]
        await asyncio.sleep(0)
        gate.open()
        await worker.emitted(AttemptCompleted, well.id)

        assert await waits[0] == "well"
        with pytest.raises(JobFailed):
            await waits[1]
        assert list(await client.jobs.list()) == []
        assert await client.jobs.count() == 0
        async with AsyncClient(store_url) as other:
            with pytest.raises(JobNotFound):
                await other.jobs.get(well.id)

    async def test_of_zero_gives_the_result_to_a_waiter_just_after(self, client, start_worker):
        worker = await start_worker(end, keep_completed=0)
        job = await client.enqueue(end, "well")
        await worker.emitted(AttemptCompleted)
        assert await job.result(10) == "well"

    async def test_of_zero_frees_the_store_in_the_end(self, still_store, clock, start_worker):
        async with AsyncClient(still_store) as client:
            first = await start_worker(end, store=still_store, keep_completed=0)
            job = await client.enqueue(end, "well")
            await first.emitted(AttemptCompleted)
            await first.stop()
            clock.advance(timedelta(minutes=1))
            await start_worker(end, store=still_store, keep_completed=0)
            await until(lambda: still_store.queries.job_states([job.id]), {})


class RunningClock:
    """The time, with a step that the test makes."""

    def __init__(self) -> None:
        self.step = timedelta(0)

    def __call__(self) -> datetime:
        return system_clock() + self.step


@pytest.fixture
async def stepped(store_url: str) -> AsyncIterator[tuple[Store, RunningClock]]:
    clock = RunningClock()
    store = store_at(store_url, clock=clock)
    await store.open()
    yield store, clock
    await store.close()


class TestAClockSetBack:
    async def test_delays_no_takeover(self, stepped, start_worker, caplog):
        """Finding 36: a job of a killed worker was not taken over for as long as the step."""
        store, clock = stepped
        lease = timedelta(seconds=1)
        async with AsyncClient(store) as client:
            job = await client.enqueue(end, "well")
            await store.maintenance.register_worker(replace(idle_worker(), lease=lease))
            await hold(store, "end", lease=lease)
            assert await store.maintenance.acquire_lease(LEADER, OTHER, lease)
            clock.step = -timedelta(hours=1)
            worker = await start_worker(end, store=store, lease="1s", poll="100ms")

            assert await job.result(10) == "well"
            logged = [each for each in caplog.records if each.msg == "store clock was set back"]
            assert [each.fields["leases_bounded"] for each in logged] == [1]
            assert worker.all(AttemptLost) == []

    async def test_takes_no_job_from_a_live_worker(self, stepped, start_worker):
        """Finding 36: live holders are not robbed."""
        store, clock = stepped
        gate, work = gated()
        settings: dict[str, Any] = {"store": store, "lease": "1s", "poll": "100ms"}
        holder = await start_worker(work, **settings)
        await start_worker(end, **settings)
        async with AsyncClient(store) as client:
            job = await client.enqueue(work)
            await gate.reached()
            for _ in range(2):
                clock.step -= timedelta(hours=1)

                async def is_bounded() -> bool:
                    record = await store.queries.get_job(None, job.id)
                    return record.lease_until <= clock() + timedelta(seconds=1)

                await until(is_bounded)
                for _ in range(3):  # a delayed job runs only if a worker looked around
                    await (await client.enqueue(end.options(delay="500ms"), "marker")).result(10)
            gate.open()

            assert await job.result(10) == "done"
            assert holder.all(AttemptLost) == []


class TestDuties:
    async def test_drop_workers_that_were_not_seen_for_long(self, still_store, clock, start_worker):
        await still_store.maintenance.register_worker(idle_worker())
        clock.advance(timedelta(minutes=4))
        await still_store.maintenance.register_worker(idle_worker(id=WorkerId("seen-lately")))
        clock.advance(timedelta(minutes=2))
        worker = await start_worker(end, store=still_store)

        async def is_hidden() -> bool:
            rows = await still_store.queries.workers(None)
            return {row.info.id for row in rows} == {"seen-lately", worker.id}

        await until(is_hidden)

    async def test_forget_definitions_not_used_for_long(self, still_store, clock, start_worker):
        """Finding 21: definitions were stored for ever."""
        await still_store.runs.save_definition("default", "orders", "v1", b"{}")
        clock.advance(6 * DAY)
        await still_store.runs.save_definition("default", "orders", "v2", b"{}")
        await still_store.maintenance.register_worker(idle_worker())
        clock.advance(DAY)
        await start_worker(end, store=still_store)
        await until(lambda: has_pruned(still_store))
        flows = await still_store.admin.flow_stats("default")
        assert [each.version for each in flows] == ["v2"]

    async def test_are_led_apart_in_each_namespace(self, store, start_worker):
        assert await store.maintenance.acquire_lease(LEADER, OTHER, timedelta(hours=1))
        await store.maintenance.register_worker(idle_worker(namespace="team-a"))
        async with AsyncClient(store, namespace="team-a") as client:
            job = await client.enqueue(end, "well")
            await hold(store, "end", lease=timedelta(milliseconds=10), namespace="team-a")
            await start_worker(end, store=store, namespace="team-a", poll="50ms")

            assert await job.result(10) == "well"

    async def test_do_what_is_urgent_during_a_long_prune(self, still_store, clock, monkeypatch):
        monkeypatch.setattr("perdure.worker.janitor.BATCH", 1)
        worker = Worker(still_store, tasks=[end], keep_completed=0)
        events = WorkerEvents(worker.id)
        janitor = Janitor(still_store, worker.settings, worker.id, events)
        async with AsyncClient(still_store) as client:
            jobs = await client.enqueue_many(end, ["well"] * (PRUNE_BATCHES + 2))
            for job in jobs:
                await job.cancel()
            clock.advance(timedelta(hours=1))

            assert not await janitor.process(await still_store.maintenance.poll("default"))
            assert await client.jobs.count() == 2
            urgent = await client.enqueue(end, "well")
            await hold(still_store, "end", lease=timedelta(seconds=1))
            clock.advance(timedelta(seconds=2))
            assert await janitor.process(await still_store.maintenance.poll("default"))

            assert await urgent.status() is Status.WAITING
            assert (await client.jobs.count(), events.stats(0, 1).taken_over) == (1, 1)

    @pytest.mark.parametrize(
        "keep, earliest, latest", [(0, 10, 20), ("5s", 10, 20), ("20s", 20, 40)]
    )
    async def test_remove_runs_soon_after_a_short_retention(
        self, still_store, clock, monkeypatch, keep, earliest, latest
    ):
        """Finding 38: without retention, jobs disappeared at once, but runs after a minute."""
        monkeypatch.setattr("perdure.clock.monotonic", lambda: clock().timestamp())
        worker = Worker(still_store, tasks=[end], keep_completed=keep)
        janitor = Janitor(still_store, worker.settings, worker.id, WorkerEvents(worker.id))
        async with AsyncClient(still_store) as client:
            await janitor.process(await still_store.maintenance.poll("default"))
            run = await client.submit(Flow("waits").wait_for_signal("go").build())
            clock.advance(SECOND)
            await run.cancel()

            seconds = 0
            while await client.runs.count():
                seconds += 1
                clock.advance(SECOND)
                await janitor.process(await still_store.maintenance.poll("default"))

        assert earliest <= seconds <= latest

    async def test_prune_after_a_poll_if_a_takeover_failed_before_it(self, still_store, clock):
        """Finding 33: the next prune was put off by a minute, though none had happened."""
        failures = [StoreError("for a moment")]

        async def around(name: str, method: Any, args: Any, kwargs: Any) -> Any:
            if name == "maintenance.take_over_expired" and failures:
                raise failures.pop()
            return await method(*args, **kwargs)

        worker = Worker(still_store, tasks=[end], keep_completed=0)
        store = wrap_store(still_store, around)
        janitor = Janitor(store, worker.settings, worker.id, WorkerEvents(worker.id))
        async with AsyncClient(still_store) as client:
            await (await client.enqueue(end, "well")).cancel()
            await client.enqueue(end, "held")
            await hold(still_store, "end", lease=timedelta(seconds=1))
            clock.advance(timedelta(hours=1))

            await janitor.process(await still_store.maintenance.poll("default"))
            assert (await client.jobs.count(), failures) == (2, [])
            await janitor.process(await still_store.maintenance.poll("default"))

            assert await client.jobs.count() == 1

    async def test_are_done_by_one_worker_at_a_time(self, client, store, start_worker):
        job = await client.enqueue(end, "well")
        await hold(store, "end", lease=timedelta(milliseconds=50))
        assert await store.maintenance.acquire_lease(LEADER, OTHER, timedelta(hours=1))
        worker = await start_worker(end, poll="50ms")
        for _ in range(3):  # a delayed job runs only if the worker looked around
            await (await client.enqueue(end.options(delay="50ms"), "marker")).result(10)
        assert worker.all(AttemptStarted, job.id) == []
        assert await job.status() is Status.ACTIVE
        assert await store.maintenance.acquire_lease(LEADER, OTHER, timedelta(0))

        assert await job.result(10) == "well"

    async def test_are_left_to_others_as_soon_as_they_are_done(self, client, store, start_worker):
        await start_worker(end)
        await until(lambda: store.maintenance.acquire_lease(LEADER, OTHER, timedelta(hours=1)))

    async def test_promote_many_due_jobs_in_batches(self, still_store, clock, start_worker):
        async with AsyncClient(still_store) as client:
            jobs = await client.enqueue_many(end.options(delay="1h"), ["well"] * 1_500)
            clock.advance(timedelta(hours=2))
            worker = await start_worker(end, store=still_store, concurrency=100)
            await worker.emitted(AttemptCompleted, count=1_500)

            assert await client.jobs.count(status="completed") == len(jobs)


async def one_of_each(
    client: AsyncClient, start_worker: StartWorker, store: Store, **settings: Any
) -> dict[str, str]:
    """Jobs that ended in every way, and one that has not, by name."""
    worker = await start_worker(end, store=store, **settings)
    well = await client.enqueue(end, "well")
    fail = await client.enqueue(end, "fail")
    die = await client.enqueue(end.options(retries=Retry(0)), "die")
    waiting = await client.enqueue(end.options(queue="unserved"), "waiting")
    cancelled = await client.enqueue(end.options(queue="unserved"), "cancelled")
    await cancelled.cancel()
    assert await well.result(10) == "well"
    for job, error in ((fail, JobFailed), (die, JobDead), (cancelled, JobCancelled)):
        with pytest.raises(error):
            await job.result(10)
    await worker.stop()
    handles = [well, fail, die, waiting, cancelled]
    return {(await handle.record()).args[0]: handle.id for handle in handles}


async def has_pruned(store: Store) -> bool:
    """Idle workers are dropped last, so all that was to be removed is gone."""
    return OTHER not in {row.info.id for row in await store.queries.workers(None)}


async def left_of(jobs: dict[str, str], client: AsyncClient) -> set[str]:
    left = {job.id for job in await client.jobs.list(limit=100)}
    return {name for name, id in jobs.items() if id in left}


async def hold(store: Store, name: str, *, lease: timedelta, namespace: str = "default") -> None:
    await claimed_by(store, name, worker=OTHER, lease=lease, namespace=namespace)


def idle_worker(id: WorkerId = OTHER, namespace: str = "default") -> WorkerInfo:
    return worker_info(id=id, namespace=namespace, queues=("default",), tasks=("end",))
