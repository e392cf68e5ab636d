"""Runs whose log a worker cannot use: nothing is written to them, and nothing turns in circles."""

from __future__ import annotations

from typing import Any

from perdure import Flow, Status, task
from perdure.model.event import NewEvent
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.model.run import CommitState, RunCommit, RunStatus
from perdure.store.contract import Store
from perdure.worker.events import AttemptLost


@task
async def keep(value: Any) -> Any:
    return value


FLOW = Flow("kept").then(keep, name="first").then(keep, name="second").build()


async def append(store: Store, run: str, data: bytes) -> None:
    """Write an event that this version does not understand."""
    commit = RunCommit(
        namespace="default",
        run=RunId(run),
        expected=1,
        token=77,
        events=(NewEvent(data=data),),
        status=RunStatus.RUNNING,
    )
    answer = await store.runs.commit([commit])
    assert answer.results[0].state is CommitState.DONE


class TestALogThatCannotBeUsed:
    async def test_of_a_newer_version_is_left_to_newer_workers(self, client, start_worker, store):
        run = await client.submit(FLOW, 3)
        await append(store, run.id, b'{"type":"NodeDreamt"}')

        worker = await start_worker(flows=[FLOW])
        await worker.told(AttemptLost)

        [job] = await store.queries.run_jobs("default", run.id)
        assert job.status is Status.SCHEDULED
        assert (await run.record()).status is RunStatus.RUNNING

    async def test_that_is_corrupt_parks_the_job(self, client, start_worker, store):
        run = await client.submit(FLOW, 3)
        await append(store, run.id, b"not JSON")

        worker = await start_worker(flows=[FLOW])
        await worker.told(AttemptLost)

        [job] = await store.queries.run_jobs("default", run.id)
        assert job.status is Status.PAUSED
        assert job.attempt == 0


class Picky(PlainCodec):
    """Breaks, in a way that nobody foresees, over the values of one run."""

    def decode(self, data: bytes) -> bytes:
        if b"poison" in data:
            raise RuntimeError("this was not foreseen")
        return super().decode(data)


class TestWaitsOfARunThatRaises:
    async def test_stop_no_timer_of_another(self, client, start_worker):
        timer = Flow("timer").delay("10ms").then(keep).build()
        bad = [await client.submit(timer, f"poison {n}") for n in range(3)]
        good = [await client.submit(timer, n) for n in range(3)]

        await start_worker(flows=[timer], codec=Picky())

        assert [await run.result(timeout=20) for run in good] == [0, 1, 2]
        assert [(await run.record()).status for run in bad] == [RunStatus.WAITING] * 3
        later = await client.submit(timer, "later")
        assert await later.result(timeout=20) == "later"
