"""What happened in a run: its events, outputs and children, afterwards and while it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from perdure import EventLogCorrupt, EventRecord, RunNotFound, RunStatus, Worker
from perdure.clock import ManualClock
from perdure.model.event import (
    EdgeCounts,
    Effects,
    RunPaused,
    RunSubmitted,
    StoredEvent,
    encode_event,
)
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.operations.run_log import RunLog
from perdure.store.contract import Store
from tests.client.flows import LONG, asking, failing, long, ordering, parent, shouting
from tests.client.runs import until, worker_at


@pytest.fixture
async def working(store: Store) -> AsyncIterator[Worker]:
    async with worker_at(store) as worker:
        yield worker


def told(events: list[EventRecord]) -> list[tuple[int, str, str | None, RunStatus]]:
    return [(event.number, event.type, event.key, event.status) for event in events]


@pytest.mark.usefixtures("working")
class TestEvents:
    async def test_tell_everything_in_order(self, client):
        run = await client.submit(ordering, 3)
        await run.result(timeout=20)

        events = await run.events()

        assert told(events) == [
            (1, "run_submitted", None, RunStatus.RUNNING),
            (2, "node_completed", "read_order", RunStatus.RUNNING),
            (3, "node_completed", "total", RunStatus.RUNNING),
            (4, "run_completed", None, RunStatus.COMPLETED),
        ]
        assert [event.value for event in events] == [3, {"id": 3, "lines": ["book", "pen"]}, 6, 6]
        assert events[0].details["flow"] == "ordering"

    async def test_tell_items_and_signals(self, client):
        mapped = await client.submit(shouting, ["a", "b"])
        asked = await client.submit(asking, 1)
        await mapped.result(timeout=20)
        await until(asked, RunStatus.WAITING)
        await asked.signal("answer", "yes", by="ann")

        items = {event.key: event.value for event in await mapped.events() if event.node}
        [signal] = [each for each in await asked.events() if each.type == "signal_received"]

        assert items == {"shout[0]": "A", "shout[1]": "B", "shout": ["A", "B"]}
        assert (signal.value, signal.details) == ("yes", {"name": "answer", "by": "ann"})

    async def test_tell_what_a_node_failed_with(self, client):
        run = await client.submit(failing, 3)
        events = await until(run, RunStatus.FAILED)

        failed = next(event for event in events if event.type == "node_failed")
        assert failed.node == "refuse"
        assert failed.failure is not None
        assert failed.failure.message == "out of paper"
        assert "failure" not in failed.details

    async def test_of_no_run(self, client):
        with pytest.raises(RunNotFound):
            await client.runs.handle("order-3").events()


@pytest.mark.usefixtures("working")
class TestWatch:
    async def test_tells_what_was_there_and_what_comes(self, client):
        run = await client.submit(asking, 3)
        seen = []

        async with asyncio.timeout(20):
            async for event in run.watch():
                seen.append(event)
                if event.status is RunStatus.WAITING and event.type == "node_completed":
                    await run.signal("answer", 5)

        assert seen == await run.events()
        assert seen[-1].is_final

    async def test_of_an_ended_run_tells_it_all(self, client):
        run = await client.submit(ordering, 3)
        await run.result(timeout=20)

        assert [event async for event in run.watch()] == await run.events()

    async def test_of_no_run(self, client):
        with pytest.raises(RunNotFound):
            await anext(client.runs.handle("order-3").watch())


class TestWatchOfAReplacedRun:
    async def test_ends_with_an_error(self, client, clock):
        run = await client.submit(asking, 3, id="order-3")
        watching = run.watch()
        first = await anext(watching)

        clock.advance(timedelta(seconds=1))
        await client.submit(asking, 4, id="order-3", on_conflict="replace")

        assert first.value == 3
        with pytest.raises(RunNotFound):
            async for _ in watching:
                pass


@pytest.mark.usefixtures("working")
class TestOutputs:
    async def test_are_those_of_completed_nodes(self, client):
        run = await client.submit(failing, [0, False, None, ""])
        await until(run, RunStatus.FAILED)

        assert await run.outputs() == {"keep": [0, False, None, ""]}

    async def test_are_in_the_order_of_the_flow(self, client):
        run = await client.submit(long, 3)
        await run.result(timeout=20)

        outputs = await run.outputs()

        assert list(outputs) == [node.id for node in await run.nodes()]
        assert list(outputs) == LONG


@pytest.mark.usefixtures("working")
class TestChildren:
    async def test_are_listed_with_what_became_of_them(self, client):
        run = await client.submit(parent, 3, id="order-3")
        await until(run, RunStatus.WAITING)

        [child] = await run.children()
        await client.runs.signal(child.id, "answer", 9)

        assert (child.key, child.id) == ("asking", "order-3/asking")
        assert await run.result(timeout=20) == 9
        assert [each.status for each in await run.children()] == [RunStatus.COMPLETED]
        link = (await client.runs.get(child.id)).parent
        assert link is not None
        assert (link.run, link.key) == ("order-3", "asking")


class TestDetails:
    def test_have_effects_by_their_public_names(self):
        log = RunLog(RunId("order-3"), PlainCodec())
        effects = Effects(
            started=("fetch",), edge_counts=(EdgeCounts(node="ship", decided=1, active=1),)
        )

        [record] = log.take(
            [stored(1, RunSubmitted(flow="f", version="1", aging_ms=1, effects=effects))]
        )

        assert record.details["effects"] == {
            "started": ("fetch",),
            "edge_counts": (["ship", 1, 1, 0],),
        }
        assert set(record.details) == {"flow", "version", "aging_ms", "effects"}


class TestALogWithAGap:
    def test_is_refused(self):
        log = RunLog(RunId("order-3"), PlainCodec())
        submitted = RunSubmitted(flow="f", version="1", aging_ms=1)

        with pytest.raises(EventLogCorrupt, match="event 2 is missing: 3 follows"):
            log.take([stored(1, submitted), stored(3, RunPaused())])


def stored(number: int, event: RunSubmitted | RunPaused) -> StoredEvent:
    return StoredEvent(number=number, at=ManualClock()(), data=encode_event(event))
