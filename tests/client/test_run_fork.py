"""Forking a run from any earlier point, and moving one to another version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import (
    AsyncRunHandle,
    EventRecord,
    Flow,
    InvalidInput,
    MigrationRefused,
    RunEnded,
    RunExists,
    RunStatus,
    Worker,
    task,
)
from perdure.store.contract import Store
from tests.client.flows import asking, failing, keep, ordering, parent
from tests.client.runs import until, worker_at
from tests.support.refusal import refused


@pytest.fixture
async def working(store: Store) -> AsyncIterator[Worker]:
    async with worker_at(store) as worker:
        yield worker


async def until_ended(run: AsyncRunHandle) -> list[EventRecord]:
    async with asyncio.timeout(20):
        return [event async for event in run.watch()]


@pytest.mark.usefixtures("working")
class TestFork:
    async def test_goes_on_after_a_node_with_its_output_changed(self, client):
        run = await client.submit(ordering, 3, id="order-3")
        await run.result(timeout=20)
        before = await run.events()

        changed = {"id": 100, "lines": ["book"]}
        fork = await client.runs.handle("order-3").fork(
            after="read_order", patch={"read_order": changed}
        )

        assert await fork.result(timeout=20) == 100
        assert await run.events() == before
        assert await run.result() == 6

    async def test_says_where_it_came_from(self, client):
        run = await client.submit(ordering, 3, id="order-3")
        await run.result(timeout=20)

        fork = await client.runs.handle("order-3").fork(after=2, new_id="order-3b", by="ann")

        events = await fork.events()
        assert (fork.id, fork.is_new) == ("order-3b", True)
        assert events[:2] == (await run.events())[:2]
        assert events[2].type == "run_forked"
        assert events[2].details["origin"] == {"run": "order-3", "number": 2, "by": "ann"}

    async def test_of_a_failed_run_tries_again(self, client):
        run = await client.submit(failing, 3)
        await until(run, RunStatus.FAILED)

        fork = await client.runs.handle(run.id).fork()

        node_types = [event.type for event in await until_ended(fork)]
        assert node_types.count("node_completed") == 1
        assert node_types[-2:] == ["node_failed", "run_failed"]
        assert node_types.count("run_failed") == 2

    async def test_of_a_completed_run_at_its_end_is_completed(self, client):
        run = await client.submit(ordering, 3)
        await run.result(timeout=20)

        fork = await client.runs.handle(run.id).fork()

        assert await fork.result(timeout=20) == 6

    async def test_waits_for_a_signal_of_its_own(self, client):
        run = await client.submit(asking, 3)
        await until(run, RunStatus.WAITING)

        fork = await client.runs.handle(run.id).fork()
        await fork.signal("answer", "mine")

        assert await fork.result(timeout=20) == "mine"
        assert await run.status() is RunStatus.WAITING

    async def test_has_children_of_its_own(self, client):
        run = await client.submit(parent, 3, id="order-3")
        await until(run, RunStatus.WAITING)

        fork = await client.runs.handle("order-3").fork(new_id="fork")
        [child] = await fork.children()
        await client.runs.signal(child.id, "answer", "yes")

        assert child.id.startswith("fork/asking")
        assert await fork.result(timeout=20) == "yes"
        assert [each.status for each in await run.children()] == [RunStatus.WAITING]

    async def test_of_a_child_is_no_child(self, client):
        run = await client.submit(parent, 3, id="order-3")
        await until(run, RunStatus.WAITING)

        fork = await client.runs.handle("order-3/asking").fork(new_id="fork")
        await fork.signal("answer", "yes")

        assert await fork.result(timeout=20) == "yes"
        assert (await fork.record()).parent is None
        assert await run.status() is RunStatus.WAITING

    @pytest.mark.parametrize(
        "options, code, args",
        [
            ({"after": "total"}, "run.node_not_completed", {"node": "total", "completed": ()}),
            ({"after": "nowhere"}, "run.node_not_completed", {"node": "nowhere"}),
            ({"after": 0}, "run.no_such_event", {"number": 0, "last": 1}),
            ({"after": 9}, "run.no_such_event", {"number": 9, "last": 1}),
            ({"after": True}, "argument.type", {"name": "after"}),
            ({"patch": {"total": 3}}, "run.node_not_completed", {"node": "total", "number": 1}),
            ({"patch": ["total"]}, "argument.type", {"name": "patch"}),
            (
                {"patch": {"total": object()}},
                "payload.not_serializable",
                {"what": "the output of node 'total' in patch"},
            ),
            ({"new_id": "a/b"}, "run.id_reserved", {"id": "a/b", "mark": "/"}),
        ],
    )
    async def test_is_refused_where_it_cannot_begin(self, client, options, code, args):
        unserved = Flow("unserved").then(keep, name="total").build()
        await client.submit(unserved, 3, id="order-3")

        with refused(code, InvalidInput, **args):
            await client.runs.handle("order-3").fork(**options)
        assert await client.runs.count() == 1

    async def test_is_refused_where_its_id_is_taken(self, client):
        run = await client.submit(ordering, 3, id="order-3")

        with refused("run.exists", RunExists, run_id="order-3", flow="ordering"):
            await client.runs.handle(run.id).fork(new_id="order-3")


@task
def keep_anew(value: Any) -> Any:
    return value


extended = Flow("asking").then(keep).wait_for_signal("answer").then(keep_anew).build()
different = Flow("asking").then(keep_anew).wait_for_signal("answer").build()


class TestMigrate:
    async def test_goes_on_in_the_new_version(self, client, store):
        run = await client.submit(asking, 3)
        async with worker_at(store):
            await until(run, RunStatus.WAITING)

        await client.runs.migrate(run.id, to=extended, by="ann")
        await run.signal("answer", "yes")

        record = await run.record()
        assert (record.version, record.status) == (extended.version, RunStatus.RUNNING)
        [migrated] = [event for event in await run.events() if event.type == "run_migrated"]
        assert migrated.details["by"] == "ann"
        [job] = await store.queries.run_jobs("default", run.id)
        assert job.task == "keep_anew"

    async def test_lets_workers_of_the_new_version_have_what_waits(self, client, worker):
        run = await client.submit(asking, 3)

        await client.runs.migrate(run.id, to=extended)

        assert (await worker.claim()).partition.flow == extended.graph.text

    async def test_is_refused_with_what_differs(self, client):
        run = await client.submit(asking, 3)

        with pytest.raises(MigrationRefused, match="node 'keep'") as refused:
            await client.runs.migrate(run.id, to=different)

        assert refused.value.differences
        assert (await run.record()).version == asking.version

    async def test_is_refused_to_another_flow(self, client):
        run = await client.submit(asking, 3)

        with pytest.raises(MigrationRefused, match="flow 'asking', not of 'ordering'"):
            await client.runs.migrate(run.id, to=ordering)

    async def test_is_refused_while_a_job_is_held_and_done_once_it_is_paused(self, client, worker):
        run = await client.submit(asking, 3)
        await worker.claim()

        with pytest.raises(MigrationRefused, match=r"node 'keep' is being executed; pause"):
            await client.runs.migrate(run.id, to=extended)

        await run.pause()
        await client.runs.migrate(run.id, to=extended)
        assert (await run.record()).version == extended.version

    async def test_is_refused_by_a_run_that_has_ended(self, client):
        run = await client.submit(asking, 3)
        await run.cancel()

        with pytest.raises(RunEnded, match="cannot migrate"):
            await client.runs.migrate(run.id, to=extended)

    async def test_to_the_version_it_has_changes_nothing(self, client):
        run = await client.submit(asking, 3)

        await client.runs.migrate(run.id, to=asking)

        assert len(await run.events()) == 1
