"""Limiters of the user's own are asked before a claim; what they grant is renewed and released."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Sequence
from concurrent import futures
from datetime import datetime, timedelta
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    AsyncJobHandle,
    CustomLimit,
    Flow,
    InvalidInput,
    JobDead,
    Status,
    StoreError,
    Task,
    Worker,
    task,
)
from perdure.clock import system_clock
from perdure.store.contract import Store
from perdure.worker import claims, limiters
from perdure.worker.events import AttemptStarted
from tests.support.refusal import fails, refused
from tests.support.tasks import gated, nothing
from tests.worker.harness import Peak, until
from tests.worker.test_leases import claim_and_die


class Shelf:
    """A limiter with ``size`` places per key, which notes what it was asked."""

    def __init__(self, size: int = 1, again_in: timedelta | None = None) -> None:
        self.size = size
        self.again_in = again_in
        self.taken: dict[str, set[str]] = {}
        self.acquired: list[tuple[str, int]] = []
        self.renewed: list[str] = []
        self._number = 0
        self._lock = threading.Lock()

    async def acquire(
        self, key: str, n: int, ttl: timedelta
    ) -> tuple[Sequence[str], datetime | None]:
        with self._lock:  # each worker has a thread of its own
            taken = self.taken.setdefault(key, set())
            places = []
            for _ in range(min(n, self.size - len(taken))):
                self._number += 1
                places.append(str(self._number))
            taken.update(places)
            self.acquired.append((key, n))
        return places, None if self.again_in is None else system_clock() + self.again_in

    async def renew(self, key: str, places: Sequence[str], ttl: timedelta) -> None:
        assert set(places) <= self.taken[key]
        self.renewed += places

    async def release(self, key: str, places: Sequence[str]) -> None:
        self.taken[key] -= set(places)

    async def was_renewed(self) -> bool:
        return len(self.renewed) > 1

    async def is_empty(self) -> bool:
        return not any(self.taken.values())


def limited(shelf: Shelf) -> Task[..., Any]:
    """A task that needs a place on the shelf."""

    @task(limits=[CustomLimit(shelf, key="gpu")])
    async def work() -> None:
        pass

    return work


async def test_never_runs_more_than_were_granted_to_all_workers(client, start_worker):
    shelf, peak = Shelf(2), Peak()

    @task(limits=[CustomLimit(shelf, key="gpu")])
    async def work(number: int) -> None:
        with peak:
            await asyncio.sleep(0.01)

    for _ in range(2):
        await start_worker(work, poll="1m")
    await client.jobs.results(await client.enqueue_many(work, range(20)), timeout=30)

    assert peak.most == 2
    await until(shelf.is_empty)


@pytest.mark.parametrize(
    "key, keys",
    [("gpu", {"gpu"}), (lambda host: f"on {host}", {"on a", "on b"}), ("{{ host }}", {"a", "b"})],
)
async def test_asks_for_the_key_of_the_jobs(client, start_worker, key, keys):
    shelf = Shelf(1)

    @task(limits=[CustomLimit(shelf, key=key)])
    async def work(host: str) -> None:
        pass

    await start_worker(work)
    await client.jobs.results(await client.enqueue_many(work, ["a", "b", "a"]), timeout=30)

    assert shelf.taken.keys() == keys


async def test_a_limit_of_a_worker_covers_the_queue_that_it_names(client, start_worker):
    shelf = Shelf(1)
    await start_worker(nothing, limits=[CustomLimit(shelf, queue="default")])
    await (await client.enqueue(nothing)).result(15)

    assert shelf.taken.keys() == {"queue:default"}


async def test_several_limiters_must_all_grant_a_place(client, start_worker):
    wide, narrow, peak = Shelf(5), Shelf(1), Peak()

    @task(limits=[CustomLimit(wide, key="a"), CustomLimit(narrow, key="b")])
    async def work(number: int) -> None:
        with peak:
            await asyncio.sleep(0.01)

    await start_worker(work)
    await client.jobs.results(await client.enqueue_many(work, range(5)), timeout=30)

    assert peak.most == 1
    await until(wide.is_empty)
    await until(narrow.is_empty)


async def test_renews_a_place_with_the_lease_until_the_attempt_ends(world):
    shelf = Shelf(1)
    gate, work = gated(limits=[CustomLimit(shelf, key="gpu")])
    job = await world.enqueue(work, lease="1s")
    await until(shelf.was_renewed)
    assert not await shelf.is_empty()

    gate.open()
    await job.result(15)
    await until(shelf.is_empty)


async def test_renews_the_place_of_a_body_that_blocks_the_event_loop(client, start_worker):
    renewed = threading.Event()

    class Telling(Shelf):
        async def renew(self, key, places, ttl):
            await super().renew(key, places, ttl)
            renewed.set()

    @task(limits=[CustomLimit(Telling(1), key="gpu")])
    async def work() -> bool:
        return renewed.wait(10)

    await start_worker(work, lease="1s")

    assert await (await client.enqueue(work)).result(15)


async def test_renews_a_place_that_was_granted_while_a_body_blocks_the_loop(client, start_worker):
    blocked, renewed = threading.Event(), threading.Event()

    class Late(Shelf):
        async def acquire(self, key, n, ttl):
            assert blocked.wait(10)
            return await super().acquire(key, n, ttl)

        async def renew(self, key, places, ttl):
            renewed.set()

    @task
    async def block() -> bool:
        blocked.set()
        return renewed.wait(10)

    work = limited(Late(1))
    await start_worker(work, block, lease="600ms")
    waiting = await client.enqueue(work)
    assert await (await client.enqueue(block)).result(15)
    await waiting.result(15)


async def test_a_limiter_that_blocks_its_thread_delays_no_renewals_of_others(client, start_worker):
    renewed = threading.Semaphore(0)

    class Telling(Shelf):
        async def renew(self, key, places, ttl):
            renewed.release()

    class Blocking(Shelf):
        async def acquire(self, key, n, ttl):
            while renewed.acquire(blocking=False):
                pass
            for _ in range(limiters.RENEWALS_PER_LEASE + 1):  # longer than the lease
                assert renewed.acquire(timeout=4)
            return await super().acquire(key, n, ttl)

    gate, work = gated(limits=[CustomLimit(Telling(1), key="gpu")])
    blocking = limited(Blocking(1))
    await start_worker(work, blocking, lease="600ms")
    first = await client.enqueue(work)
    await gate.reached()
    await (await client.enqueue(blocking)).result(15)
    gate.open()
    await first.result(15)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError,
        asyncio.CancelledError,
        futures.CancelledError,
        SystemExit,
        KeyboardInterrupt,
        None,
    ],
)
async def test_a_limiter_that_fails_or_hangs_delays_only_its_own_jobs(
    client, start_worker, monkeypatch, caplog, error
):
    monkeypatch.setattr(limiters, "ANSWER_SECONDS_MAX", 0.3)
    monkeypatch.setattr(limiters, "RETRY_SECONDS", 0.1)

    class Broken(Shelf):
        calls = 0

        async def fail(self):
            if error is not None:
                raise error("out of order")
            await asyncio.Event().wait()

        async def acquire(self, key, n, ttl):
            self.calls += 1
            if self.calls == 1:
                await asyncio.create_task(self.fail())
            return await super().acquire(key, n, ttl)

    work = limited(Broken(1))
    first = await client.enqueue(work)
    second = await client.enqueue(nothing)
    worker = await start_worker(work, nothing, concurrency=1)
    await second.result(15)
    await first.result(15)

    assert [each.job_id for each in worker.all(AttemptStarted)] == [second.id, first.id]
    assert "limiter failed" in caplog.text


async def test_places_are_released_if_the_answer_of_a_claim_is_lost(client, start_worker, watch):
    shelf = Shelf(3)

    work = limited(shelf)

    async def lose_the_answer() -> None:
        raise StoreError("the answer was lost")

    watch.after["jobs.claim"] = lose_the_answer
    job = await client.enqueue(work)
    await start_worker(work, store=watch.store)
    await job.result(15)
    await until(shelf.is_empty)


async def test_a_run_does_not_continue_in_place_under_a_limiter_and_releases_when_it_leaves(world):
    shelf, ran = Shelf(1), []

    @task
    async def before() -> int:
        ran.append(await shelf.is_empty())
        return 1

    @task(limits=[CustomLimit(shelf, key="gpu")])
    async def limited(number: int) -> int:
        ran.append(await shelf.is_empty())
        return number

    @task
    async def after(number: int) -> int:
        await until(shelf.is_empty)
        return number

    flow = Flow("limited").then(before).then(limited).then(after).build()
    run = await world.submit(flow)

    assert await run.result(15) == 1
    assert ran == [True, False]


async def test_a_stop_releases_everything(client, start_worker):
    shelf = Shelf(5)
    gate, work = gated(limits=[CustomLimit(shelf, key="gpu")])
    running = await start_worker(work)
    await client.enqueue(work)
    await gate.reached()
    await running.stop()

    assert await shelf.is_empty()


async def test_burst_mode_waits_for_a_limiter_that_says_when_it_opens(client, store_url):
    shelf = Shelf(0, again_in=timedelta(seconds=0.2))

    work = limited(shelf)
    await client.enqueue(work)
    worker = Worker(store_url, tasks=[work])
    asyncio.get_running_loop().call_later(0.1, setattr, shelf, "size", 1)
    done = await worker.serve_until_idle()

    assert (done.completed, done.is_idle) == (1, True)


async def test_burst_mode_does_not_wait_for_places_that_others_hold(client, store_url):
    work = limited(Shelf(0))
    await client.enqueue(work)
    done = await Worker(store_url, tasks=[work]).serve_until_idle()

    assert (done.started, done.is_idle) == (0, True)


async def test_explain_names_the_limit(client: AsyncClient, start_worker):
    shelf = Shelf(0)

    work = limited(shelf)
    await start_worker(work)
    job = await client.enqueue(work)

    findings = (await client.jobs.explain(job.id)).findings
    [found] = [each for each in findings if each.code == "explain.custom_limit"]
    assert found.args["limit"] == "gpu"


@pytest.mark.parametrize("method", ["acquire", "renew", "release"])
@pytest.mark.parametrize("flaw", [None, print], ids=["missing", "not async"])
def test_a_limiter_needs_all_three_methods_and_each_is_async(method, flaw):
    limiter = Shelf()
    setattr(limiter, method, flaw)
    with refused("argument.type", InvalidInput, name="limiter"):
        CustomLimit(limiter, key="gpu")


async def without_parameters() -> None:
    """A method that cannot be called as a worker does."""


async def test_a_release_that_cannot_be_called_takes_no_slot(client, start_worker, caplog):
    shelf = Shelf(2)
    setattr(shelf, "release", without_parameters)  # noqa: B010

    work = limited(shelf)
    await start_worker(work, concurrency=1)
    await client.jobs.results(await client.enqueue_many(work, [(), ()]), timeout=15)

    assert "limiter failed" in caplog.text


async def test_a_renewal_that_cannot_be_called_is_tried_again(caplog, world):
    shelf = Shelf(1)
    setattr(shelf, "renew", without_parameters)  # noqa: B010
    gate, work = gated(limits=[CustomLimit(shelf, key="gpu")])

    async def failed_twice() -> bool:
        return caplog.text.count("limiter failed") > 1

    job = await world.enqueue(work, lease="1s")
    await until(failed_twice)
    gate.open()
    await job.result(15)


async def test_forgets_the_keys_that_no_job_has_any_more(client, start_worker, monkeypatch):
    monkeypatch.setattr(claims, "JUDGED_MAX", 4)
    shelf = Shelf(1)

    @task(limits=[CustomLimit(shelf, key=lambda tenant: tenant)])
    async def work(tenant: str) -> None:
        pass

    async def are_few_after_one_more() -> bool:
        await (await client.enqueue(work, f"tenant {len(shelf.taken)}")).result(15)
        return sum(isinstance(each, limiters.Reservation) for each in gc.get_objects()) < 20

    await start_worker(work, poll="50ms")
    tenants = await client.enqueue_many(work, [f"tenant {number}" for number in range(40)])
    await client.jobs.results(tenants, timeout=15)
    assert len(shelf.taken) == 40
    await until(are_few_after_one_more)


async def crash(store: Store, job: AsyncJobHandle) -> None:
    """Die with a job; another worker takes it over."""
    await claim_and_die(store, job.id)
    async for update in job.watch():
        if update.status is Status.WAITING:
            break


@task
async def short(number: int) -> None:
    await asyncio.sleep(0.02)


async def test_a_suspect_that_gets_no_place_stops_no_other_jobs(
    client, store, start_worker, monkeypatch
):
    monkeypatch.setattr(claims, "DRAIN_SECONDS_MIN", 0.05)
    monkeypatch.setattr(claims, "DRAIN_SECONDS_SPREAD", 0.0)
    shelf = Shelf(0, again_in=timedelta(hours=1))

    work = limited(shelf)

    async def was_asked() -> bool:
        return bool(shelf.acquired)

    await start_worker(nothing, poll="100ms")
    await crash(store, await client.enqueue(work))
    await start_worker(work, short, concurrency=2)
    await until(was_asked)
    for number in range(10):
        await (await client.enqueue(short, number)).result(4)


async def test_no_place_is_asked_for_a_suspect_before_the_worker_has_room_for_it(
    client, store, start_worker
):
    shelf = Shelf(1)
    work, (gate, long) = limited(shelf), gated()
    await start_worker(nothing, poll="100ms")
    job = await client.enqueue(work)
    for _ in range(2):
        await crash(store, job)
    await client.enqueue(long)
    await start_worker(work, long, short, concurrency=3, poll="50ms")
    await gate.reached()
    for number in range(20):
        await (await client.enqueue(short, number)).result(15)
        if number < 10:
            shelf.acquired.clear()  # it may have asked before it had the long job

    assert shelf.acquired == []
    gate.open()
    await job.result(15)


@pytest.mark.parametrize("crashes, size", [(1, 1), (3, 0)], ids=["suspect", "condemned"])
async def test_a_suspect_needs_a_place_unless_it_is_dead_lettered(
    client, store, start_worker, crashes, size
):
    shelf = Shelf(size)

    work = limited(shelf)
    await start_worker(nothing, max_crashes=2, poll="100ms")
    job = await client.enqueue(work)
    for _ in range(crashes):
        await crash(store, job)
    await start_worker(work, max_crashes=2, poll="100ms")

    if size:
        await job.result(15)
        assert shelf.acquired
    else:
        await fails(job, "job.too_many_crashes", JobDead)
    await until(shelf.is_empty)
