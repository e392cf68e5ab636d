"""A store moves with all its work; claimed jobs are requeued; a killed import leaves nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from perdure import AsyncClient, AsyncJobQueue, Client
from perdure.clock import ManualClock
from perdure.errors import StoreInUse
from perdure.model.job import Job, JobFilter
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.transfer import export_store, import_store
from perdure.transfer.format import NAMES
from perdure.verify import Finding, verify_store
from tests.support.refusal import refused
from tests.support.stores import opened
from tests.transfer.conftest import kinds_in, rows_of
from tests.transfer.flows import Gate, flaky
from tests.transfer.registered import register_worker
from tests.transfer.scene import LARGE, RESULTS, act, results, seen_of, working


async def found_in(url: str) -> list[Finding]:
    """What the checker of invariants has to say."""
    async with opened(store_at(url)) as store:
        return await verify_store(store)


class TestMove:
    async def test_everything_looks_as_it_did(self, source_url, export, target_url):
        await import_store(target_url, export)
        assert await seen_of(target_url) == await seen_of(source_url)
        assert await found_in(target_url) == []

    async def test_the_work_continues(self, export, target_url):
        await import_store(target_url, export)

        fetched = Gate.fetched
        with Client(target_url) as client:
            ticked = client.schedules.get("ticks").started
        with Client(target_url) as client, working(target_url):
            act(client)
            assert results(client) == RESULTS
            [retried] = client.jobs.list(task="flaky", status="completed")
            assert client.jobs.handle(retried.id).result() == LARGE.upper()
            [resumed] = client.jobs.list(task="stopped")
            assert client.jobs.handle(resumed.id).result(timeout=20) == 7
            assert client.schedules.get("ticks").started > ticked
            assert client.runs.get("too-soon").status == "skipped"
        assert Gate.fetched == fetched, "a step that was stored was done again"
        assert await found_in(target_url) == []

    async def test_a_worker_that_is_there_already_continues_at_once(self, tmp_path, target_url):
        source_url, file = f"sqlite:///{tmp_path}/other.db", tmp_path / "other.jsonl"
        Gate.is_open = True
        with Client(source_url) as client:
            job = client.enqueue(flaky, "hello")
        await export_store(source_url, file)

        with working(target_url, poll="1h"), Client(target_url) as client:
            await import_store(target_url, file)
            assert client.jobs.handle(job.id).result(timeout=20) == "HELLO"

    async def test_the_same_rows_come_out_of_each_store(
        self, export, tmp_path, postgres_url, bare_postgres_url
    ):
        """From SQLite to SQLite, to PostgreSQL, to PostgreSQL, and back to SQLite."""
        urls = [
            f"sqlite:///{tmp_path}/first.db",
            postgres_url,
            bare_postgres_url,
            f"sqlite:///{tmp_path}/last.db",
        ]
        moved = export
        for number, url in enumerate(urls):
            await import_store(url, moved)
            moved = tmp_path / f"{number}.jsonl.gz"
            await export_store(url, moved)

        assert rows_of(moved) == rows_of(export)

    def test_every_row_type_is_in_the_export(self, export):
        """But snapshots, limits, their starts and pruned ends, which have tests of their own."""
        others = {"snapshot", "limit", "limit_start", "pruned_end"}
        assert kinds_in(rows_of(export)) == set(NAMES) - others


# Claimed jobs are exported as requeued, and their workers can no longer write.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "work.jsonl"


async def job_in(url: str) -> Job:
    async with opened(store_at(url)) as store:
        [job] = await store.queries.list_jobs(JobFilter(), 2)
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
            with refused("store.in_use", StoreInUse):
                await export_store(target_url, file)
        assert not file.exists()

    async def test_one_asked_to_stop_is_cancelled(self, tmp_path, file):
        source, target = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
        async with AsyncJobQueue(source) as queue, AsyncClient(source) as client:
            id = await queue.enqueue("print", 1)
            await queue.dequeue("own-worker", lease="1m")
            await client.jobs.cancel(id)

            job = await moved(source, target, file)

        assert (job.status, job.worker) == ("cancelled", "own-worker")
        assert job.finished_at is not None

    async def test_a_lease_that_ran_out_counts_as_a_crash(self, tmp_path, file):
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
        with pytest.raises(StoreInUse, match="bee"):
            await export_store(target_url, file)
        await register_worker(target_url, "wasp")
        with pytest.raises(StoreInUse, match="bee"):
            await export_store(target_url, file)

    async def test_a_worker_that_is_gone_is_no_hindrance(self, sqlite_url, file):
        clock = ManualClock()
        store = store_at(sqlite_url, clock=clock)
        await register_worker(store, "bee")
        clock.advance(timedelta(minutes=1))
        await export_store(store, file)
        assert file.exists()


ROOT = Path(__file__).parents[2]


class TestKilledImport:
    """An import whose process is killed leaves nothing behind, and can be done again."""

    async def test_a_killed_import_leaves_the_store_empty(self, source_url, export, target_url):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.transfer.killed_import", target_url, str(export), cwd=ROOT
        )
        assert await process.wait() == -signal.SIGKILL

        seen = await seen_of(target_url)
        assert [name for name, found in seen.items() if found] == []

        await import_store(target_url, export)
        assert await seen_of(target_url) == await seen_of(source_url)
