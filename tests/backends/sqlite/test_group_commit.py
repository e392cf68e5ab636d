"""Group commit: operations that share a transaction, and stand alone nevertheless."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import FingerprintTaken
from perdure.model.hint import Hint, HintType
from perdure.model.job import Inserted, JobFilter
from perdure.store.sqlite import connection
from perdure.store.sqlite.connection import BYTES
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.writer import PAGES, ROWS_PER_PAGE
from perdure.testing.contract.builders import PARTITION, insert, insert_many, new_job
from tests.backends.sqlite.files import Rival, connected
from tests.support.stores import opened

TOGETHER = 50
WRITES_MAX = 300
"""They take far longer than small writes may keep the event loop."""


async def queue_up(
    store: SqliteStore, rival: Rival, *operations: Coroutine[Any, Any, object]
) -> list[object]:
    """Let operations come in while the file is locked, so that the writer finds them all."""
    rival.lock()
    first = asyncio.ensure_future(insert(store))
    tasks = [asyncio.ensure_future(operation) for operation in operations]
    # The reader answers after everything above was handed to the writer.
    await store.queries.count_jobs(JobFilter())
    rival.unlock()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


class TestGroupCommit:
    async def test_shares_one_transaction(self, store, rival):
        ready: list[Hint] = []
        store.subscribe(lambda hint: ready.append(hint) if hint.type is HintType.READY else None)

        await queue_up(store, rival, *(insert(store) for _ in range(TOGETHER)))
        await asyncio.sleep(0)

        # Hints are given once for each commit: one for the first insert, one for all others,
        # and one for noticing, at the first look, that the rival was there.
        assert len(ready) <= 3
        assert rival.count() == TOGETHER + 1

    async def test_undoes_only_the_operation_that_fails(self, store, rival):
        await insert(store, fingerprint="taken")
        fine = new_job()
        refused = [new_job(), new_job(fingerprint="taken", on_conflict="raise")]

        answers = await queue_up(
            store,
            rival,
            store.jobs.insert([new_job()]),
            store.jobs.insert(refused),
            store.jobs.insert([fine]),
        )

        assert isinstance(answers[1], FingerprintTaken)
        assert answers[2] == [Inserted(id=fine.id, is_new=True)]
        assert await store.queries.get_job(None, refused[0].id) is None
        assert await store.queries.get_job(None, fine.id) is not None

    async def test_answers_when_it_is_written(self, store, path):
        id = await insert(store)
        with connected(path) as other:
            found = other.execute("SELECT id FROM perdure_jobs").fetchall()
        assert found == [(id,)]

    async def test_leaves_out_what_its_caller_gave_up(self, store, rival):
        rival.lock()
        first = asyncio.ensure_future(insert(store))
        given_up = asyncio.ensure_future(insert(store))
        await store.queries.count_jobs(JobFilter())

        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        rival.unlock()
        await first
        await insert(store)

        assert rival.count() == 2

    async def test_reads_do_not_wait_for_a_writer(self, store, rival):
        await insert(store)
        rival.lock()
        waiting = asyncio.ensure_future(insert(store))
        assert await store.queries.count_jobs(JobFilter()) == 1
        assert not waiting.done()
        rival.unlock()
        await waiting


class TestWaitingForTheLock:
    async def test_says_in_the_log_what_it_waits_for(self, store, rival, monkeypatch, caplog):
        monkeypatch.setattr(connection, "COMPLAIN_EVERY_SECONDS", 0.0)
        rival.lock()
        waiting = asyncio.ensure_future(insert(store))

        async with asyncio.timeout(10):
            while "another process is in a transaction" not in caplog.text:
                await store.queries.count_jobs(JobFilter())

        rival.unlock()
        await waiting


class TestSharing:
    async def test_handles_of_one_process_share_one_writer(self, store, path):
        async with opened(store.clone()) as target:
            await insert(target)
            await insert(store)
            assert len(threads_on(path, "writes")) == 1

    async def test_the_last_handle_ends_the_threads_and_empties_the_log(self, url, path):
        store, target = SqliteStore(url), SqliteStore(url)
        await store.open()
        await target.open()
        await insert(store)

        await store.close()
        assert threads_on(path, "writes")
        await target.close()

        assert not threads_on(path, "")
        assert not path.with_name("work.db-wal").exists()

    async def test_what_was_asked_for_is_done_before_it_closes(self, store, url, rival):
        other = SqliteStore(f"{url}?synchronous=full")
        await other.open()
        rival.lock()
        inserting = asyncio.ensure_future(insert(other))
        await other.queries.count_jobs(JobFilter())

        closing = asyncio.ensure_future(other.close())
        rival.unlock()
        await closing

        assert await store.queries.get_job(None, await inserting) is not None


def threads_on(path: Path, found_type: str) -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if str(path) in name and found_type in name]


class TestSmallWrites:
    async def test_let_others_run_while_one_caller_writes_on_and_on(self, store):
        await insert(store)
        has_run = asyncio.Event()
        asyncio.get_running_loop().call_soon(has_run.set)

        for _ in range(WRITES_MAX):
            await insert(store)
            if has_run.is_set():
                break

        assert has_run.is_set()


# The WAL stays small, whatever its rows are like.


LARGE = b"x" * 1_000_000


def wal_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def test_large_rows_do_not_make_the_wal_grow_for_ever(store, path):
    largest = 0
    for _ in range(8 * BYTES // len(LARGE)):
        await insert(store, partition=PARTITION, input=LARGE)
        largest = max(largest, wal_bytes(path))

    assert path.stat().st_size > 4 * BYTES
    assert largest < 3 * BYTES


async def test_many_small_rows_are_moved_into_the_file(store, path):
    before = path.stat().st_size
    for _ in range(3):
        await insert_many(store, PAGES * ROWS_PER_PAGE // 2, partition=PARTITION)
    assert path.stat().st_size > before
