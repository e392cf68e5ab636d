"""Several processes on one file: none is locked out, nothing is lost, all are notified."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from perdure.model.hint import Hint, HintType
from perdure.model.ids import JobId
from perdure.model.job import JobFilter, Status
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.contract.builders import claim_new, new_job
from tests.backends.sqlite import processes
from tests.backends.sqlite.files import connected

PROCESSES = 3
JOBS_EACH = 150
KILL = "from tests.backends.sqlite.processes import *; insert_for_ever(__import__('sys').argv[1])"


class TestTwoProcesses:
    async def test_open_an_empty_file_at_the_same_moment(self, url, path):
        with processes.processes(PROCESSES) as pool:
            opened = [pool.submit(processes.insert_one, url) for _ in range(PROCESSES * 2)]
            ids = {future.result() for future in opened}
        with connected(path) as connection:
            found = connection.execute("SELECT id FROM perdure_jobs").fetchall()
        assert {id for (id,) in found} == ids

    async def test_claim_each_job_once_and_never_find_the_file_locked(self, url, store):
        with processes.processes(PROCESSES) as pool:
            running = [
                pool.submit(processes.work_through, url, number, JOBS_EACH)
                for number in range(PROCESSES)
            ]
            completed = [id for future in running for id in future.result()]

        assert len(completed) == len(set(completed)) == PROCESSES * JOBS_EACH
        assert await store.queries.count_jobs(JobFilter(status=Status.COMPLETED)) == len(completed)

    async def test_keep_what_was_answered_when_one_is_killed(self, url, store):
        process = subprocess.Popen(
            [sys.executable, "-c", KILL, url], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        answered = {JobId(process.stdout.readline().strip()) for _ in range(30)}

        process.kill()
        answered |= {JobId(line.strip()) for line in process.stdout if len(line) == 27}
        process.wait()

        found = await store.queries.job_states(list(answered))
        assert found.keys() == answered
        process.stdout.close()


class TestWakeUps:
    async def test_announce_a_job_that_another_process_enqueued(self, url, store):
        ear = Ear(store)
        with processes.processes(1) as pool:
            inserting = pool.submit(processes.insert_one, url)
            await ear.hears(HintType.READY)
            await ear.hears(HintType.SCHEDULED)
            inserting.result()

    async def test_announce_a_job_that_another_process_aborted(self, url, store):
        held = await claim_new(store)
        with processes.processes(1) as pool:
            pool.submit(processes.insert_one, url).result()
            ear = Ear(store)
            await ear.hears(HintType.READY)  # of what came before
            aborting = pool.submit(processes.abort_one, url, held.id)

            await ear.hears(HintType.ABORTING)

            aborting.result()

    async def test_announce_a_commit_on_a_callers_own_connection(self, path, store):
        ear = Ear(store)
        await ear.hears(HintType.READY)  # the first look
        with connected(path) as connection:
            store.insert_in_blocking_transaction(connection, [new_job()])
            connection.commit()
        await ear.hears(HintType.READY)


class TestFork:
    def test_a_store_opened_before_a_fork_says_so_and_a_new_one_works(self, url):
        with processes.processes(1) as pool:
            code = pool.submit(processes.use_a_store_across_a_fork, url).result()
        assert code == "store.forked"


class TestAFullDisk:
    async def test_fails_that_operation_alone(self, url, store):
        with processes.processes(1) as pool:
            code, ids = pool.submit(processes.hit_a_full_disk, url).result()
        assert code == "store.refused"
        found = await store.queries.list_jobs(JobFilter(), 10)
        assert [job.id for job in found] == ids[::-1]


class Ear:
    """Gathers what one handle hears."""

    def __init__(self, store: SqliteStore) -> None:
        self._heard: asyncio.Queue[Hint] = asyncio.Queue()
        store.subscribe(self._heard.put_nowait)

    async def hears(self, found_type: HintType) -> None:
        async with asyncio.timeout(20):
            while (await self._heard.get()).type is not found_type:
                pass
