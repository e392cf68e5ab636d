"""Runs whose log a worker cannot use: nothing is written to them, and nothing turns in circles."""

from __future__ import annotations

from typing import Any

from perdure import AsyncClient, Flow, Status, task
from perdure.model.event import NewEvent
from perdure.model.ids import RunId
from perdure.model.run import CommitState, RunCommit, RunStatus
from perdure.store.contract import Store
from perdure.worker.events import ClaimLost
from tests.worker.conftest import Hire


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
    answer = await store.commit_runs([commit])
    assert answer.results[0].state is CommitState.DONE


class TestALogThatCannotBeUsed:
    async def test_of_a_newer_version_is_left_to_newer_workers(
        self, client: AsyncClient, hire: Hire, store: Store
    ) -> None:
        run = await client.submit(FLOW, 3)
        await append(store, run.id, b'{"type":"NodeDreamt"}')

        worker = await hire(flows=[FLOW])
        await worker.told(ClaimLost)

        [job] = await store.run_jobs("default", run.id)
        assert job.status is Status.SCHEDULED
        assert (await run.record()).status is RunStatus.RUNNING

    async def test_that_is_corrupt_parks_the_job(
        self, client: AsyncClient, hire: Hire, store: Store
    ) -> None:
        run = await client.submit(FLOW, 3)
        await append(store, run.id, b"not JSON")

        worker = await hire(flows=[FLOW])
        await worker.told(ClaimLost)

        [job] = await store.run_jobs("default", run.id)
        assert job.status is Status.PAUSED
        assert job.attempt == 0
