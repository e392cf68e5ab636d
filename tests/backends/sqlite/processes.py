"""What other processes do in these tests; run with the spawn method, on stores of their own."""

from __future__ import annotations

import asyncio
import multiprocessing.pool
import os
import resource
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from perdure.errors import RunExists, StoreError
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Status
from perdure.model.outcome import Completed, Settlement
from perdure.model.run import CommitState
from perdure.store.lifecycle import Transition
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.contract.builders import (
    commit,
    insert,
    insert_many,
    new_job,
    new_run,
    node_job,
    read_run,
    request,
)
from tests.support.stores import opened

T = TypeVar("T")


def processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def on_a_store(url: str, work: Callable[[SqliteStore], Awaitable[T]]) -> T:
    async def run() -> T:
        async with opened(SqliteStore(url)) as store:
            return await work(store)

    return asyncio.run(run())


def insert_one(url: str) -> JobId:
    return on_a_store(url, insert)


def abort_one(url: str, id: JobId) -> None:
    on_a_store(url, lambda store: store.admin.change_jobs(Transition.ABORT, None, [id]))


def work_through(url: str, number: int, jobs: int) -> list[JobId]:
    """Enqueue, claim and settle side by side until everything that was seen is done."""

    async def work(store: SqliteStore) -> list[JobId]:
        enqueueing = [asyncio.ensure_future(insert(store)) for _ in range(jobs)]
        completed: list[JobId] = []
        while True:
            claimed = await store.jobs.claim(request(worker=WorkerId(f"worker-{number}"), limit=7))
            if not claimed.jobs and all(task.done() for task in enqueueing):
                break
            settlements = [
                Settlement(claim=job.claim, outcome=Completed(output=b"1")) for job in claimed.jobs
            ]
            statuses = await store.jobs.settle(settlements)
            assert set(statuses) <= {Status.COMPLETED}
            completed += [job.claim.id for job in claimed.jobs]
        await asyncio.gather(*enqueueing)
        return completed

    return on_a_store(url, work)


def submit_one(url: str) -> bool:
    """Whether this process is the one whose run of that id there is."""

    async def work(store: SqliteStore) -> bool:
        try:
            return (await store.runs.submit(new_run(jobs=(node_job(),)))).is_new
        except RunExists:
            return False

    return on_a_store(url, work)


def commit_until(url: str, number: int) -> int:
    """Add events to a run until it has that many; how many of them are this process's."""

    async def work(store: SqliteStore) -> int:
        done = 0
        while (known := (await read_run(store)).number) < number:
            result = await commit(store, known, token=secrets.randbits(62))
            assert result.state in (CommitState.DONE, CommitState.CONFLICT)
            done += result.state is CommitState.DONE
        return done

    return on_a_store(url, work)


def insert_for_ever(url: str) -> None:
    """Print each id once its job is in the store, until killed."""

    async def work(store: SqliteStore) -> None:
        while True:
            print(*await insert_many(store, 3), sep="\n", flush=True)

    on_a_store(url, work)


def hit_a_full_disk(url: str) -> tuple[str, list[JobId]]:
    """The error of an insert that finds no room, and what came in before and after."""

    async def work(store: SqliteStore) -> tuple[str, list[JobId]]:
        before = await insert(store)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
        large = [new_job(input=b"x" * (1 << 20)) for _ in range(4)]
        try:
            await store.jobs.insert(large)
            code = ""
        except StoreError as error:
            code = error.code
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        return code, [before, await insert(store)]

    return on_a_store(url, work)


def use_a_store_across_a_fork(url: str) -> str:
    """A child's error with the store that its parent opened; it can open one of its own."""

    async def work(store: SqliteStore) -> str:
        await insert(store)
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, _in_the_child(store, url).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            said = await asyncio.to_thread(answer.read)
        os.wait()
        await insert(store)
        return said

    return on_a_store(url, work)


def _in_the_child(store: SqliteStore, url: str) -> str:
    # The parent's loop still counts as running in this thread; another thread has none.
    with multiprocessing.pool.ThreadPool(1) as threads:
        return threads.apply(lambda: asyncio.run(_use(store, url)))


async def _use(store: SqliteStore, url: str) -> str:
    try:
        await insert(store)
    except StoreError as error:
        await store.close()
        async with opened(SqliteStore(url)) as own:
            await insert(own)
        return error.code
    return ""
