"""Foreign rows in a store: claims of dead workers, unreadable events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure.model.event import NewEvent
from perdure.model.ids import RunId, WorkerId
from perdure.model.job import Claimed
from perdure.model.partition import Partition
from perdure.model.run import CommitState, RunCommit, RunStatus
from perdure.store.contract import Store
from perdure.testing.contract.builders import claim, new_job

DEAD = WorkerId("dead-worker")
"""It holds jobs, and is never heard of again."""


async def claimed_by(
    store: Store, task: str, *, worker: WorkerId = DEAD, lease: timedelta, **changes: Any
) -> Claimed:
    """Claim a job of a task in the default queue, as a worker does; ``changes`` are the claim's."""
    partition = Partition(queue="default", task=task)
    changes = {"namespace": "default", **changes}
    claimed = await claim(store, partition, worker=worker, lease=lease, limit=1, **changes)
    assert len(claimed.jobs) == 1
    return claimed


async def insert_call(store: Store, task: str, data: bytes, **changes: Any) -> str:
    """A job as a client of another version might have written it."""
    partition = Partition(queue="default", task=task)
    job = new_job(namespace="default", partition=partition, input=data, **changes)
    await store.jobs.insert([job])
    return job.id


async def append_event(
    store: Store,
    run: str,
    data: bytes = b"not JSON",
    *,
    expected: int = 1,
    status: RunStatus = RunStatus.RUNNING,
) -> None:
    """Write an event to a run that this version does not understand."""
    commit = RunCommit(
        namespace="default",
        run=RunId(run),
        expected=expected,
        token=77,
        events=(NewEvent(data=data),),
        status=status,
    )
    answer = await store.runs.commit([commit])
    assert answer.results[0].state is CommitState.DONE
