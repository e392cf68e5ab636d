"""A worker that starts under the id of another one takes over its jobs, and replaces it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import AsyncClient, AsyncJobHandle, Status, Task, Worker, WorkerSuperseded
from perdure.model.ids import WorkerId
from perdure.store.contract import Store
from perdure.worker.events import AttemptLost, AttemptStarted, JobTakenOver, WorkerStarted
from tests.support.held import claimed_by
from tests.support.tasks import gated, nothing
from tests.worker.harness import Running, until

pytestmark = pytest.mark.every_store

ID = WorkerId("w")


async def renewed(client: AsyncClient, worker: Worker) -> Running:
    """A worker that has renewed its lease once; with one of 1h, the next time is in 20 minutes."""
    running = await Running(worker).start()

    async def has_renewed() -> bool:
        [state] = await client.workers.list()
        return state.seen_at > state.started_at

    await until(has_renewed)
    return running


async def claimed_before(
    client: AsyncClient, store: Store, work: Task[..., Any], incarnation: int | None
) -> AsyncJobHandle:
    """A job as a worker left it that was killed, under a lease that does not expire here."""
    job = await client.enqueue(work)
    lease = timedelta(hours=1)
    await claimed_by(store, work.name, worker=ID, lease=lease, incarnation=incarnation)
    return job


class TestRestart:
    async def test_takes_former_claims_over_at_once_and_counts_a_crash(
        self, client, store, start_worker
    ):
        job = await claimed_before(client, store, nothing, incarnation=1)
        of_a_queue = await claimed_before(client, store, nothing, incarnation=None)

        worker = await start_worker(nothing, id=ID)

        await job.result(10)
        record = await job.record()
        assert (record.crashes, record.failures, record.attempt) == (1, 0, 2)
        [crash] = await job.attempts()
        assert crash.failure.code == "job.worker_restarted"
        assert [each.job_id for each in worker.all(JobTakenOver)] == [job.id]
        assert await of_a_queue.status() is Status.ACTIVE, "JobQueue has no incarnations"

    async def test_leaves_the_claims_of_other_workers_to_their_leases(
        self, client, store, start_worker
    ):
        job = await claimed_before(client, store, nothing, incarnation=1)

        worker = await start_worker(nothing, id="another")

        assert worker.all(JobTakenOver) == []
        assert await job.status() is Status.ACTIVE

    async def test_one_worker_object_may_serve_again(self, client, store_url):
        worker = Running(Worker(store_url, tasks=[nothing], id=ID))
        seen = []
        for count in (1, 2):
            await worker.start()
            await worker.emitted(WorkerStarted, count=count)
            [state] = await client.workers.list()
            seen.append(state.info.incarnation)
            await worker.stop()

        assert len(set(seen)) == 2
        assert None not in seen


class TestTwoWorkersWithOneId:
    async def test_the_older_one_loses_its_claims_and_stops(self, client, start_worker, store_url):
        gate, wait = gated()
        older = await renewed(client, Worker(store_url, tasks=[wait], id=ID, lease="1h"))
        job = await client.enqueue(wait)
        await gate.reached()

        newer = await start_worker(wait, id=ID)  # takes the job over
        older.worker.scale(5)  # writes its row at once, and learns that it was replaced
        with pytest.raises(WorkerSuperseded) as raised:
            await older.stopped()
        await newer.emitted(AttemptStarted, job.id)
        gate.open()

        assert raised.value.worker == ID
        await older.emitted(AttemptLost, job.id)
        await job.result(10)
        assert (await job.record()).crashes == 1
        [state] = await client.workers.list()
        assert state.status == "live", "signing off, the older one leaves the row of the newer"
        assert newer.worker.is_running

    async def test_what_the_older_one_claims_meanwhile_is_requeued_at_no_cost(
        self, client, start_worker, store_url
    ):
        _, wait = gated()
        older = await renewed(client, Worker(store_url, tasks=[wait], id=ID, lease="1h"))
        newer = await start_worker(nothing, id=ID)
        job = await client.enqueue(wait)
        await older.emitted(AttemptStarted, job.id)

        older.worker.scale(5)
        with pytest.raises(WorkerSuperseded):
            await older.stopped()

        record = await job.record()
        assert (record.status, record.attempt, record.crashes) == (Status.WAITING, 0, 0)
        assert newer.worker.is_running
