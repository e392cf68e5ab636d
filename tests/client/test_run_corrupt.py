"""Runs whose log cannot be read: nothing is done with them, but they can be got rid of."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure import EventLogCorrupt, RunStatus, UnknownEvent
from perdure.model.event import NewEvent
from perdure.model.ids import RunId
from perdure.model.run import CommitState, RunCommit
from perdure.store.contract import Store
from tests.client.flows import asking, grandparent, ordering


async def spoil(
    store: Store, id: str, data: bytes = b"not JSON", status: RunStatus = RunStatus.RUNNING
) -> None:
    """Write an event that nobody can read."""
    commit = RunCommit(
        namespace="default",
        run=RunId(id),
        expected=1,
        token=77,
        events=(NewEvent(data=data),),
        status=status,
    )
    answer = await store.runs.commit([commit])
    assert answer.results[0].state is CommitState.DONE


async def test_is_refused_by_acts(client, store):
    await client.submit(ordering, 3, id="order-3")
    await spoil(store, "order-3")

    with pytest.raises(EventLogCorrupt, match="event 2 cannot be read"):
        await client.runs.cancel("order-3")


async def test_with_an_event_that_does_not_follow_is_refused_by_whoever_reads(client, store):
    handle = await client.submit(ordering, 3, id="order-3")
    await spoil(
        store, "order-3", b'{"type":"NodeCompleted","node":"x","then":{"started":["y[7]"]}}'
    )

    for read in (handle.events, handle.nodes, handle.lineage):
        with pytest.raises(EventLogCorrupt, match="event 2 does not follow from those before"):
            await read()
    with pytest.raises(EventLogCorrupt, match="event 2 does not follow"):
        await client.runs.handle("order-3").fork()


async def test_makes_room_for_a_new_one(
    client,
    store,
    worker,
    caplog,
):
    await client.submit(ordering, 3, id="order-3")
    await spoil(store, "order-3")

    again = await client.submit(asking, 4, id="order-3", on_conflict="replace")

    assert [event.value for event in await again.events()] == [4]
    assert (await again.record()).flow == "asking"
    assert len(await worker.claim_all()) == 1
    assert "run 'order-3' is replaced without being cancelled: the event log" in caplog.text


async def test_makes_room_with_all_below_it(client, store):
    await client.submit(grandparent, 3, id="order-3")
    await spoil(store, "order-3/parent")

    await client.submit(ordering, 4, id="order-3", on_conflict="replace")

    assert [run.id for run in await client.runs.list()] == ["order-3"]


async def test_of_a_newer_version_is_left_to_newer_clients(client, store):
    await client.submit(ordering, 3, id="order-3")
    await spoil(store, "order-3", b'{"type":"NodeDreamt"}')

    with pytest.raises(UnknownEvent):
        await client.submit(ordering, 4, id="order-3", on_conflict="replace")


async def test_is_removed_in_time_once_it_has_ended(client, store, clock):
    for id in ("live", "ended"):
        await client.submit(ordering, 3, id=id)
    await spoil(store, "live")
    await spoil(store, "ended", status=RunStatus.FAILED)
    clock.advance(timedelta(hours=2))

    kept = dict.fromkeys([RunStatus.COMPLETED, RunStatus.FAILED], timedelta(hours=1))
    removed = await store.maintenance.prune_runs("default", kept, 10)

    assert removed == 1
    assert [run.id for run in await client.runs.list()] == ["live"]
