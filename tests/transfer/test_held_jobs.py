"""Jobs that somebody holds are moved as given back, and their holders can write nowhere."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from perdure import AsyncClient, AsyncJobQueue, ClaimLost
from perdure.clock import ManualClock
from perdure.errors import StoreInUse
from perdure.model.job import Job, JobFilter
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.transfer import export_store, import_store
from tests.transfer.registered import register_worker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "work.jsonl"


async def job_in(url: str) -> Job:
    store = store_at(url)
    await store.open()
    [job] = await store.queries.list_jobs(JobFilter(), 2)
    await store.close()
    return job


async def moved(source: str | Store, target_url: str, file: Path) -> Job:
    await export_store(source, file, is_live=True)
    await import_store(target_url, file)
    return await job_in(target_url)


class TestHeldJobs:
    async def test_one_that_is_held_is_refused_unless_live(self, target_url, file):
        async with AsyncJobQueue(target_url) as queue:
            await queue.enqueue("print", 1)
            held = await queue.dequeue("own-worker", lease="1m")
            assert held is not None

            with pytest.raises(StoreInUse, match="jobs are held under leases for another"):
                await export_store(target_url, file)
        assert not file.exists()

    async def test_is_given_back_and_its_holder_is_too_late(
        self, sqlite_url, bare_postgres_url, file
    ):
        async with AsyncJobQueue(sqlite_url) as queue:
            await queue.enqueue("print", 1)
            held = await queue.dequeue("own-worker", lease="1m")
            assert held is not None

            job = await moved(sqlite_url, bare_postgres_url, file)

        assert (job.status, job.attempt, job.worker) == ("waiting", 0, None)
        assert job.epoch == held.claim_epoch + 1
        async with AsyncJobQueue(bare_postgres_url) as queue:
            with pytest.raises(ClaimLost):
                await queue.ack(held)
            taken = await queue.dequeue("another", lease="1m")
            assert taken is not None
            with pytest.raises(ClaimLost):
                await queue.ack(held)
            assert await queue.ack(taken) == "completed"

    async def test_one_asked_to_stop_is_cancelled(self, tmp_path, file):
        source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
        async with AsyncJobQueue(source) as queue, AsyncClient(source) as client:
            id = await queue.enqueue("print", 1)
            await queue.dequeue("own-worker", lease="1m")
            await client.jobs.cancel(id)

            job = await moved(source, target, file)

        assert (job.status, job.worker) == ("cancelled", "own-worker")
        assert job.finished_at is not None

    async def test_a_lease_that_ran_out_counts_as_a_death(self, tmp_path, file):
        clock = ManualClock()
        source = store_at(f"sqlite:///{tmp_path}/a.db", clock=clock)
        async with AsyncJobQueue(source) as queue:
            await queue.enqueue("print", 1)
            await queue.dequeue("own-worker", lease="1m")
        clock.advance(timedelta(minutes=2))

        job = await moved(source, f"sqlite:///{tmp_path}/b.db", file)

        assert (job.status, job.attempt, job.crashes) == ("waiting", 1, 1)

    async def test_a_live_worker_is_named(self, target_url, file):
        await register_worker(target_url, "bee")

        with pytest.raises(StoreInUse, match="worker 'bee' is live"):
            await export_store(target_url, file)
        await register_worker(target_url, "wasp")
        with pytest.raises(StoreInUse, match="worker 'bee' and 1 more are live"):
            await export_store(target_url, file)

    async def test_a_worker_that_is_gone_is_no_hindrance(self, sqlite_url, file):
        clock = ManualClock()
        store = store_at(sqlite_url, clock=clock)
        await register_worker(store, "bee")
        clock.advance(timedelta(minutes=1))

        await export_store(store, file)

        assert file.exists()
