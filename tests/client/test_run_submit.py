"""Submitting runs: what is refused, and what an id that is taken means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure import (
    AsyncClient,
    Flow,
    InvalidInput,
    PayloadNotSerializable,
    PayloadTooLarge,
    RunExists,
    RunStatus,
    UnknownFlow,
)
from perdure.store.contract import Store
from tests.client.flows import asking, failing, keep, ordering, parent, shouting
from tests.support.refusal import refused


@pytest.fixture
async def client(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, flows=[ordering, asking]) as client:
        yield client


class TestSubmit:
    async def test_begins_a_run_under_the_id_of_the_caller(self, client):
        run = await client.submit(ordering, 3, id="order-3")

        record = await client.runs.get("order-3")
        assert (run.id, run.is_new) == ("order-3", True)
        assert (record.flow, record.version) == ("ordering", ordering.version)
        assert (record.status, record.number) == (RunStatus.RUNNING, 1)

    async def test_makes_up_an_id_where_none_is_given(self, client):
        first, second = await client.submit(ordering, 1), await client.submit(ordering, 1)

        assert first.id != second.id

    async def test_takes_the_name_of_a_flow_that_the_client_knows(self, client):
        run = await client.submit("ordering", 3)

        assert (await run.record()).version == ordering.version

    async def test_keeps_the_definitions_of_a_flow_and_of_those_below_it(self, client, store):
        await client.submit(parent, 1)

        for flow in (parent, asking):
            kept = await store.runs.get_definition("default", flow.name, flow.version)
            assert kept == flow.graph.data

    async def test_inserts_the_job_of_the_first_node(self, client, store):
        await client.submit(ordering, 3, id="order-3")

        [job] = await store.queries.run_jobs("default", (await client.runs.get("order-3")).id)
        assert (job.task, job.node and job.node.key) == ("read_order", "read_order")


class TestRefuses:
    @pytest.mark.parametrize(
        "id, code",
        [
            ("", "argument.name"),
            ("a/b", "run.id_reserved"),
            ("ü" * 129, "run.id_too_long"),
            ("x" * 257, "run.id_too_long"),
            ("a\x00b", "argument.name"),
            ("\ud800", "argument.name"),
            (7, "argument.name"),
        ],
    )
    async def test_an_id_that_cannot_be_used(self, client, id, code):
        with refused(code, InvalidInput):
            await client.submit(ordering, 3, id=id)

        assert await client.runs.count() == 0

    async def test_nothing_of_an_id_of_256_bytes(self, client):
        run = await client.submit(ordering, 3, id="ü" * 128)

        assert (await run.record()).id == "ü" * 128

    async def test_an_input_that_the_first_task_does_not_take(self, client, store):
        with pytest.raises(InvalidInput, match="argument 'id' of task 'read_order'") as caught:
            await client.submit(ordering, "three")  # type: ignore[misc]

        [fault] = caught.value.faults
        assert fault.where[:2] == ("nodes", "read_order")
        assert await client.runs.count() == 0
        assert await store.runs.get_definition("default", "ordering", ordering.version) is None

    @pytest.mark.parametrize("input, said", [(["a", 1], "'word' of task 'shout'"), (3, "list")])
    async def test_items_that_a_map_does_not_take(self, client, input, said):
        with pytest.raises(InvalidInput, match=said):
            await client.submit(shouting, input)

        assert await client.runs.count() == 0

    async def test_an_input_that_no_child_flow_takes(self, client):
        outer = Flow("outer").flow(ordering).build()

        with pytest.raises(InvalidInput, match="'id' of task 'read_order'"):
            await client.submit(outer, "three")

    async def test_an_input_that_cannot_be_stored(self, client):
        with pytest.raises(PayloadNotSerializable, match="the input of flow 'asking'"):
            await client.submit(asking, object())

    async def test_an_input_that_is_too_large(self, store):
        async with AsyncClient(store, payload_max_bytes=10) as client:
            with pytest.raises(PayloadTooLarge, match="the input of flow 'asking'"):
                await client.submit(asking, "long enough")

    async def test_a_flow_it_does_not_know_by_name(self, client):
        with refused("flow.unknown", UnknownFlow, flow="order", known=("asking", "ordering")):
            await client.submit("order")

    async def test_a_flow_that_was_not_built(self, client):
        flow = Flow("raw").then(keep)

        with refused("flow.not_built", InvalidInput, value=repr(flow)):
            await client.submit(flow)  # type: ignore[call-overload]

    async def test_a_client_of_all_namespaces(self, store):
        async with AsyncClient(store, namespace="*") as operator:
            with refused("client.namespace_required", InvalidInput, operation="runs.submit"):
                await operator.submit(ordering, 3)

    def test_two_versions_of_one_name_in_one_client(self, memory_url):
        other = Flow("ordering").then(keep).build()

        with refused("flow.two_versions", InvalidInput, flow="ordering"):
            AsyncClient(memory_url, flows=[ordering, other])

    @pytest.mark.parametrize("policy", ["return", None, 3])
    def test_a_policy_that_is_none(self, memory_url, policy):
        with refused("argument.choice", InvalidInput, name="on_conflict"):
            AsyncClient(memory_url, on_conflict=policy)


class TestConflicts:
    async def test_fail(self, client):
        await client.submit(ordering, 3, id="order-3")

        with pytest.raises(RunExists, match="flow 'ordering', running"):
            await client.submit(ordering, 4, id="order-3")

    async def test_fail_for_all_but_one_of_many_at_once(self, client):
        submits = [client.submit(ordering, number, id="order-3") for number in range(8)]

        answers = await asyncio.gather(*submits, return_exceptions=True)

        assert sum(isinstance(each, RunExists) for each in answers) == 7
        assert await client.runs.count() == 1

    async def test_use_what_is_there(self, client):
        await client.submit(ordering, 3, id="order-3")

        again = await client.submit(ordering, 4, id="order-3", on_conflict="use_existing")

        assert not again.is_new
        assert [event.value for event in await again.events()] == [3]

    async def test_never_use_a_run_of_another_flow(self, client):
        await client.submit(ordering, 3, id="order-3")

        with refused("run.other_flow", InvalidInput, existing="ordering", flow="asking"):
            await client.submit(asking, 4, id="order-3", on_conflict="use_existing")

    async def test_replace_what_is_there(self, client):
        await client.submit(ordering, 3, id="order-3")

        again = await client.submit(asking, 4, id="order-3", on_conflict="replace")

        [submitted] = await again.events()
        assert (again.is_new, submitted.value) == (True, 4)
        assert submitted.details["replaced"] is True
        assert await client.runs.count() == 1

    async def test_replace_what_has_ended(self, client):
        await client.submit(ordering, 3, id="order-3")
        await client.runs.cancel("order-3")

        again = await client.submit(ordering, 4, id="order-3", on_conflict="replace")

        assert await again.status() is RunStatus.RUNNING

    async def test_replace_nothing_where_nothing_is(self, client):
        run = await client.submit(ordering, 3, on_conflict="replace")

        [submitted] = await run.events()
        assert "replaced" not in submitted.details

    async def test_do_what_the_client_was_made_for(self, store):
        async with AsyncClient(store, on_conflict="use_existing") as client:
            await client.submit(failing, 3, id="order-3")

            assert not (await client.submit(failing, 3, id="order-3")).is_new
            with pytest.raises(RunExists):
                await client.submit(failing, 3, id="order-3", on_conflict="fail")
