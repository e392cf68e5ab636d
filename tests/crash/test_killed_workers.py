"""Workers that die or freeze beside others: their jobs are completed once, and no tick is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from perdure import AsyncClient, JobCancelled, JobDead, JobFailed, ScheduleRecord, Status
from perdure.worker.isolation import EXIT_SUPERSEDED
from tests.crash.crash_tasks import (
    EXITING,
    EXITS,
    STOPPING,
    climb,
    count,
    die,
    hang_in_process,
    hang_once,
    return_in_child,
    return_in_child_async,
    take_a_second,
    terminate_child,
    use_pool,
    wait_for_file,
    wait_for_file_in_thread,
)

BRISK = {"lease": "1s", "poll": "200ms"}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that is not reaped yet is dead, too.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


class TestKilledWorkers:
    """Workers that die or freeze: their jobs are completed by others, once in the record."""

    async def test_leases_of_a_killed_worker_are_taken_over_and_the_job_completed_once(
        self, client, shared_url, launch
    ):
        first = await launch(shared_url, **BRISK)
        job = await client.enqueue(hang_once.options(max_attempts=1))
        await first.emitted("AttemptStarted", job.id)
        second = await launch(shared_url, **BRISK)
        await first.kill()

        assert await job.result(20) == "attempt 2"
        await second.emitted("AttemptCompleted", job.id)
        record = await job.record()
        assert (record.crashes, record.failures, record.attempt) == (1, 0, 2)
        [failed] = await job.attempts()
        assert failed.failure.type == "perdure.errors.WorkerCrashed"

    async def test_restarting_under_its_id_continues_a_job_before_the_lease_expires(
        self, client, shared_url, launch
    ):
        first = await launch(shared_url, id="w", lease="1h")
        job = await client.enqueue(hang_once)
        await first.emitted("AttemptStarted", job.id)
        await first.kill()
        await launch(shared_url, id="w", lease="1h")

        assert await job.result(20) == "attempt 2"
        assert (await job.record()).crashes == 1

    async def test_sharing_one_id_the_older_of_two_live_workers_ends(
        self, client, shared_url, launch
    ):
        older = await launch(shared_url, id="w", **BRISK)
        job = await client.enqueue(hang_once)
        await older.emitted("AttemptStarted", job.id)
        newer = await launch(shared_url, id="w", **BRISK)

        assert await older.ended() == EXIT_SUPERSEDED
        assert "superseded by a newer one" in older.errors
        assert older.count("AttemptLost", job.id) == 1
        assert await job.result(20) == "attempt 2"
        assert newer.count("WorkerStopped") == 0

    @pytest.mark.parametrize(
        "wait", [wait_for_file, wait_for_file_in_thread], ids=["async", "sync"]
    )
    async def test_fencing_a_frozen_worker_that_comes_back_changes_nothing(
        self, client, shared_url, launch, tmp_path, wait
    ):
        go = tmp_path / "go"
        frozen = await launch(shared_url, **BRISK)
        job = await client.enqueue(wait, str(go))
        await frozen.emitted("AttemptStarted", job.id)
        other = await launch(shared_url, **BRISK)
        frozen.send(signal.SIGSTOP)
        assert await job.result(20) == "attempt 2"
        await other.emitted("AttemptCompleted", job.id)
        finished = await job.record()
        go.touch()
        frozen.send(signal.SIGCONT)
        await frozen.emitted("AttemptLost", job.id)
        frozen.send(signal.SIGTERM)

        assert await frozen.ended() == 0
        assert await job.record() == finished
        assert finished.result == "attempt 2"
        assert finished.crashes == 1
        assert frozen.count("AttemptCompleted") == 0

    async def test_bystanders_of_a_job_that_kills_its_workers_complete(
        self, client, shared_url, launch
    ):
        """Finding 35: 7 of 20 jobs beside one that ends its process became dead letters."""
        bystanders = [await client.enqueue(take_a_second) for _ in range(20)]
        culprit = await client.enqueue(die)
        settings = {**BRISK, "max_crashes": 2, "concurrency": 4}

        async def restarted() -> None:
            while True:
                worker = await launch(shared_url, **settings)
                await worker.ended()  # the last one gives up when the test has all it waits for

        workers = [asyncio.create_task(restarted()) for _ in range(2)]
        try:
            with pytest.raises(JobDead) as raised:
                await culprit.result(60)
            assert await client.jobs.results(bystanders, timeout=60) == ["done"] * 20
        finally:
            for each in workers:
                each.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        assert raised.value.failure is not None
        assert raised.value.failure.code == "job.too_many_crashes"
        # 4 >> 3 is none: alone from the third crash on.
        assert (await culprit.record()).crashes == 5

    async def test_preempted_between_its_steps_a_job_completes(self, client, shared_url, launch):
        """Finding 35: a long job that made progress each time was dead after three preemptions."""
        job = await client.enqueue(climb)
        for number in range(4):
            worker = await launch(shared_url, **BRISK, max_crashes=1, concurrency=1)
            if number < 3:
                await worker.emitted("AttemptProgressed", job.id)
                await worker.kill()

        assert await job.result(20) == [0, 1, 2, 3]
        record = await job.record()
        assert (record.status, record.crashes) == (Status.COMPLETED, 3)

    async def test_time_the_processes_of_a_killed_worker_end_with_it(
        self, client, shared_url, launch
    ):
        worker = await launch(shared_url)
        job = await client.enqueue(hang_in_process)
        await worker.emitted("AttemptProgressed", job.id)
        child = int((await job.progress()).message)
        await worker.kill()

        async with asyncio.timeout(10):
            while is_alive(child):  # noqa: ASYNC110 (no event tells the end of another's child)
                await asyncio.sleep(0.02)

    async def test_stop_that_reaches_child_processes_too_fails_no_job(
        self, client, shared_url, launch
    ):
        """As a service manager does that signals every process of a service."""
        worker = await launch(shared_url)
        job = await client.enqueue(hang_in_process)
        await worker.emitted("AttemptProgressed", job.id)
        child = int((await job.progress()).message)
        os.kill(child, signal.SIGTERM)
        worker.send(signal.SIGTERM)

        assert await worker.ended() == 0
        record = await job.record()
        assert (record.status, record.attempt, record.failures) == (Status.WAITING, 0, 0)


WAIT_SECONDS = 40.0

SECOND = timedelta(seconds=1)


async def ticked(client: AsyncClient, count: int) -> ScheduleRecord:
    """Look until so many ticks have started something."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (record := await client.schedules.get("often")).started < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return record


class TestSchedules:
    """Schedules whose workers are killed: each tick starts one job, and none is forgotten."""

    async def test_each_tick_starts_one_job_despite_kills(self, client, shared_url, launch):
        first, _ = [await launch(shared_url, **BRISK) for _ in range(2)]
        # Cancelling, each tick starts something, whatever became of the last one.
        await client.schedules.save(
            "often", hang_once, every="1s", overlap="cancel", catch_up="all"
        )
        await ticked(client, 1)
        await first.kill()

        await ticked(client, 4)
        record = await client.schedules.pause("often")

        ticks = [each.at for each in record.history]
        assert {after - before for before, after in pairwise(ticks)} == {SECOND}
        assert (record.missed, record.skipped, record.failed) == (0, 0, 0)
        jobs = {job.id for job in await client.jobs.list(task=hang_once)}
        assert {each.job for each in record.history} <= jobs
        assert record.started == len(jobs)


JOBS = 600


class TestSharedStores:
    """Several processes on one store: each job is run by one of them."""

    async def test_claim_two_processes_drain_one_queue_without_running_a_job_twice(
        self, client, shared_url, launch, tmp_path
    ):
        log = tmp_path / "log"
        workers = [await launch(shared_url, concurrency=8) for _ in range(2)]
        batches = await asyncio.gather(
            *(
                client.enqueue_many(count, [(number, str(log)) for number in numbers])
                for numbers in (range(start, start + 50) for start in range(0, JOBS, 50))
            )
        )
        jobs = [job for batch in batches for job in batch]
        results = await client.jobs.results(jobs, timeout=30)

        assert results == list(range(JOBS))
        ran = [line.split() for line in log.read_text().splitlines()]
        assert Counter(number for number, _ in ran) == Counter(map(str, range(JOBS)))
        assert {int(pid) for _, pid in ran} == {worker.pid for worker in workers}
        assert await client.jobs.count(status="completed") == JOBS
        assert [worker.errors for worker in workers] == ["", ""]


class TestAcrossProcesses:
    """What a client sees of a worker in another process, and how soon."""

    async def test_abort_fires_within_a_second_in_another_process(self, client, shared_url, launch):
        worker = await launch(shared_url, abort_grace="50ms", lease="1h", poll="1m")
        took = []
        for _ in range(3):
            job = await client.enqueue(hang_once)
            await worker.emitted("AttemptStarted", job.id)
            began = time.monotonic()
            await job.cancel()
            await worker.emitted("AttemptAborting", job.id)
            took.append(time.monotonic() - began)
            with pytest.raises(JobCancelled):
                await job.result(10)

        assert sorted(took)[1] < 1

    async def test_waiting_jobs_start_at_once_on_an_idle_worker_of_another_process(
        self, client, shared_url, launch, tmp_path
    ):
        log = str(tmp_path / "log")
        await launch(shared_url, poll="1m")
        took = []
        for number in range(5):
            began = time.monotonic()
            await (await client.enqueue(count, number, log)).result(10)
            took.append(time.monotonic() - began)

        assert sorted(took)[2] < 0.5


INTERRUPTING = """
import asyncio
from perdure import AsyncClient, JobFailed, Worker, task

@task
async def interrupt():
    raise KeyboardInterrupt

async def main():
    worker = Worker("memory://interrupting", tasks=[interrupt])
    serving = asyncio.create_task(worker.serve())
    async with AsyncClient("memory://interrupting") as client:
        job = await client.enqueue(interrupt.options(retries=0))
        try:
            await job.result(10)
        except JobFailed as error:
            print("failed:", error.failure.type)
    worker.shutdown()
    await serving

asyncio.run(main())
"""


class TestBodiesThatExit:
    """What a body does to its process does not stop its worker."""

    async def test_a_signal_to_a_forked_child_is_not_one_to_the_worker(
        self, client, shared_url, launch
    ):
        """Finding 34: terminating a forked child stopped the worker, without a trace in the job."""
        worker = await launch(shared_url, **BRISK)
        jobs = [await client.enqueue(terminate_child) for _ in range(8)]
        pool = await client.enqueue(use_pool)

        assert await client.jobs.results(jobs, timeout=20) == [-signal.SIGTERM] * 8
        assert await pool.result(20) == [1, 2]
        assert worker.count("WorkerStopping") == 0
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0

    async def test_a_forked_child_that_returns_from_the_body_records_nothing(
        self, client, shared_url, launch
    ):
        """Finding 34: a forked child returned into the code of the worker, as a second worker."""
        worker = await launch(shared_url, **BRISK)
        sync = await client.enqueue(return_in_child)
        on_loop = await client.enqueue(return_in_child_async)
        assert (await sync.result(20), await on_loop.result(20)) == (0, 7)
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        assert worker.count("AttemptCompleted") == 2

    async def test_an_exit_of_a_body_fails_its_attempt(self, client, shared_url, launch):
        """Finding 34: a ``KeyboardInterrupt`` of an async body stopped the worker, uncounted."""
        worker = await launch(shared_url, **BRISK)
        jobs = {
            (task.name, error): await client.enqueue(task.options(max_attempts=1), error)
            for task in EXITING
            for error in EXITS
        }
        for (_, error), job in jobs.items():
            with pytest.raises((JobFailed, JobDead)) as caught:
                await job.result(30)
            assert caught.value.failure is not None
            assert caught.value.failure.type == error
            assert (await job.record()).failures == 1

        assert worker.count("WorkerStopping") == 0
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
        assert worker.count("AttemptStarted") == len(jobs)

    def test_an_interrupt_by_a_body_fails_its_attempt_under_asyncio_run(self):
        """Finding 34: also with ``serve()``, on a loop that handles SIGINT."""
        done = subprocess.run(
            [sys.executable, "-c", INTERRUPTING], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "failed: KeyboardInterrupt\n"), done.stderr


class TestStops:
    """What a stop interrupts is requeued uncounted, unless a body caused the stop."""

    @pytest.mark.parametrize("task", STOPPING, ids=lambda task: task.name)
    async def test_a_job_that_stops_its_workers_becomes_a_dead_letter(
        self, client, shared_url, launch, task
    ):
        """Finding 34: such a job stopped one worker after the other, and was never counted."""
        settings = {**BRISK, "max_crashes": 1, "concurrency": 1, "grace": "0s"}
        job = await client.enqueue(task)

        async def restarted() -> None:
            while True:
                worker = await launch(shared_url, **settings)
                assert await worker.ended() == 0

        workers = asyncio.create_task(restarted())
        try:
            with pytest.raises(JobDead) as raised:
                await job.result(60)
        finally:
            workers.cancel()
            await asyncio.wait([workers])
        assert raised.value.failure is not None
        assert raised.value.failure.code == "job.too_many_crashes"
        assert (await job.record()).crashes == 2

    async def test_a_stop_from_outside_counts_for_no_job(self, client, shared_url, launch):
        """Finding 34: deploys and Ctrl-C count as no crash, however often they happen."""
        settings = {**BRISK, "max_crashes": 1, "concurrency": 1, "grace": "0s"}
        jobs = [await client.enqueue(each) for each in (hang_in_process, hang_once)]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            worker = await launch(shared_url, **settings)
            await worker.emitted("AttemptStarted", jobs[0].id)
            worker.send(number)
            assert await worker.ended() == 0

        for job in jobs:
            record = await job.record()
            assert (record.status, record.attempt, record.crashes) == (Status.WAITING, 0, 0)
