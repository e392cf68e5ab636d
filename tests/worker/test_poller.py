"""When the next poll comes, with jobs of a dead worker to take over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from perdure import AsyncClient, Worker, task
from perdure.model.ids import WorkerId
from perdure.model.partition import Partition
from perdure.store.contract import ClaimRequest, PartitionClaim, Store
from perdure.tasks.node_type import TaskRegistry
from perdure.worker.claims import KnownPartitions
from perdure.worker.code import FlowCode, TaskCode
from perdure.worker.events import WorkerEvents
from perdure.worker.janitor import Janitor
from perdure.worker.poller import MAINTENANCE_SECONDS, OUTAGE_SECONDS, Poller
from perdure.worker.secrets import Secrets
from tests.worker.harness import until
from tests.worker.watched_store import StoreWatch

LONG = timedelta(minutes=5)


@task
async def work() -> None:
    pass


@pytest.fixture
async def poller(client: AsyncClient, store: Store, watch: StoreWatch) -> AsyncIterator[Poller]:
    """Its janitor hangs as soon as it has something to do."""
    await client.enqueue(work)
    await leave_behind(store)
    watch.hangs.add("maintenance.acquire_lease")
    watched = watch.store.clone()
    await watched.open()
    worker = Worker(store, tasks=[work], poll=LONG)
    partitions = KnownPartitions(
        TaskCode(TaskRegistry([work]), FlowCode([]), Secrets(None)), worker.settings
    )
    janitor = Janitor(watched, worker.settings, worker.id, WorkerEvents(worker.id))
    poller = Poller(watched, partitions, worker.settings, janitor, [], lambda: None)
    yield poller
    poller.stop()
    await poller.run()  # which ends at once, and its maintenance with it
    await watched.close()


async def test_is_soon_if_a_lease_has_expired(poller):
    assert [await poller._poll() for _ in range(2)] == [MAINTENANCE_SECONDS] * 2


async def test_is_at_the_end_of_the_takeover_grace_whether_the_janitor_is_busy_or_not(
    poller, watch
):
    poller._grace.note_delay(OUTAGE_SECONDS + 1)

    idle = await poller._poll()
    await until(lambda: is_busy(watch))
    busy = await poller._poll()

    left = poller._grace.seconds_left
    assert busy <= idle < LONG.total_seconds()
    assert busy == pytest.approx(left, abs=1)


async def is_busy(watch: StoreWatch) -> bool:
    return watch.calls["maintenance.acquire_lease"] > 0


async def leave_behind(store: Store) -> None:
    """A job whose lease has expired."""
    partition = Partition(queue="default", task="work")
    await store.jobs.claim(
        ClaimRequest(
            namespace="default",
            worker=WorkerId("dead"),
            partitions=[PartitionClaim(partition=partition.text, queue="default")],
            limit=1,
            lease=timedelta(milliseconds=1),
        )
    )

    async def has_expired() -> bool:
        poll = await store.maintenance.poll("default")
        return poll.next_lease_end_at is not None and poll.next_lease_end_at <= poll.now

    await until(has_expired)
