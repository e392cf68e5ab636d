"""Lineage: which upstream values each node of a run used, with the events they were kept with."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import (
    AsyncClient,
    Flow,
    Lineage,
    NodeLineage,
    RunNotFound,
    RunStatus,
    Use,
    UseOrigin,
    task,
)
from perdure.flows.built import BuiltFlow
from perdure.store.contract import Store
from tests.client.people import answering, both, keep, outside
from tests.client.runs import until, worker_at

SECRET = "hunter-two"


@task
def load(id: int) -> dict[str, Any]:
    return {"id": id, "lines": [{"sku": "pen"}, {"sku": "ink"}], "total": 40}


@task
def price(total: int, id: int) -> dict[str, Any]:
    return {"sum": total + id}


@task
def name_of(line: dict[str, str]) -> str:
    return line["sku"].upper()


@task
def charge(token: str, amount: int) -> str:
    return f"charged {amount} with {token}"


@task
def nothing() -> int:
    return 5


@task
def half(number: float) -> float:
    return number / 2


async def traced(
    client: AsyncClient, store: Store, flow: BuiltFlow, input: Any, **options: Any
) -> Lineage:
    """The lineage of a run of the flow, once it has ended."""
    run = await client.submit(flow, input, **options)
    async with worker_at(store, [flow]):
        await run.result(timeout=20)
    return await client.runs.lineage(run.id)


def told(node: NodeLineage) -> list[tuple[str, str, int, Any]]:
    return [(use.name, use.text, use.number, use.value) for use in node.uses]


class TestInputs:
    async def test_by_name_tell_source_path_event_and_value(self, client, store):
        flow = (
            Flow("named")
            .then(load)
            .then(price, inputs={"total": "load.output.total", "id": "input"})
            .build()
        )

        lineage = await traced(client, store, flow, 3, id="order-3")

        assert (lineage.run, lineage.flow, lineage.version) == ("order-3", "named", flow.version)
        assert [node.id for node in lineage.nodes] == ["load", "price"]
        assert told(lineage["load"]) == [("", "input", 1, 3)]
        assert told(lineage["price"]) == [
            ("id", "input", 1, 3),
            ("total", "load.output.total", 2, 40),
        ]
        assert (lineage["load"].output, lineage["price"].output) == (2, 3)
        assert (lineage["price"].type, lineage["price"].status) == ("task", "completed")

    async def test_that_were_missing_say_that_the_default_was_taken(self, client, store):
        flow = (
            Flow("lacking")
            .then(load)
            .then(
                price,
                inputs={"total": {"from": "load.output.tax", "default": 7}, "id": "input"},
                on_missing="default",
            )
            .build()
        )

        lineage = await traced(client, store, flow, 3)

        id, total = lineage["price"].uses
        assert (total.is_default, total.value) == (True, 7)
        assert id.is_default is False

    async def test_that_are_secret_are_told_by_name_only(self, client, store, monkeypatch):
        monkeypatch.setenv("PERDURE_SECRET_TOKEN", SECRET)
        flow = (
            Flow("secretive")
            .then(load)
            .then(
                charge,
                config={"token": "{{ token }}", "amount": "{{ amount }}"},
                inputs={"token": "secret.TOKEN", "amount": "load.output.total"},
            )
            .build()
        )

        lineage = await traced(client, store, flow, 3)

        amount, token = lineage["charge"].uses
        assert (token.origin, token.source, token.text) == ("secret", "TOKEN", "secret.TOKEN")
        assert (token.value, token.number) == (None, 0)
        assert amount.value == 40
        assert SECRET not in repr(lineage)


class TestEdges:
    async def test_hand_on_the_output_before(self, client, store):
        flow = Flow("edges").then(load).then(keep).build()

        lineage = await traced(client, store, flow, 3)

        [use] = lineage["keep"].uses
        assert (use.origin, use.source, use.port, use.path) == ("node", "load", "", ())
        assert use.value["total"] == 40

    async def test_of_a_route_name_the_port_and_leave_out_what_was_not_reached(self, client, store):
        flow = (
            Flow("routed")
            .route(lambda value: "big" if value > 5 else "small", {"big": keep, "small": nothing})
            .build()
        )

        lineage = await traced(client, store, flow, 9)

        reached = {node.id for node in lineage.nodes}
        assert "nothing" not in reached
        [use] = lineage["keep"].uses
        assert (use.port, use.number, use.value) == ("big", 1, 9)
        assert use.text.endswith(":big.output")

    async def test_that_are_gathered_are_told_by_branch(self, client, store):
        flow = Flow("gathering").fork(one=half, other=nothing).join(keep).build()

        lineage = await traced(client, store, flow, 8)

        gathered = {use.name: (use.source, use.value) for use in lineage["keep"].uses}
        assert gathered == {"one": ("half", 4.0), "other": ("nothing", 5)}
        assert lineage["nothing"].uses == ()  # it takes nothing


class TestParts:
    async def test_of_a_map_are_its_items(self, client, store):
        flow = Flow("mapping").then(load).map(name_of, over="lines").build()

        lineage = await traced(client, store, flow, 3)

        first, second = lineage["name_of"].parts
        assert (first.key, second.key) == ("name_of[0]", "name_of[1]")
        [use] = second.uses
        assert (use.text, use.value) == ("load.output.lines.1", {"sku": "ink"})
        assert second.output > 0

    async def test_of_a_map_over_a_named_input(self, client, store):
        flow = (
            Flow("named mapping")
            .then(load)
            .map(name_of, over="lines", inputs={"lines": "load.output.lines"})
            .build()
        )

        lineage = await traced(client, store, flow, 3)

        assert told(lineage["name_of"])[0][1] == "load.output.lines"
        [use] = lineage["name_of"].parts[0].uses
        assert (use.text, use.value) == ("load.output.lines.0", {"sku": "pen"})

    async def test_of_a_loop_are_its_iterations(self, client, store):
        flow = Flow("looping").loop(half, until=lambda number: number <= 1, name="halve").build()

        lineage = await traced(client, store, flow, 4)

        first, second = lineage["halve"].parts
        assert [use.text for use in first.uses] == ["input"]
        [use] = second.uses
        assert (use.source, use.number, use.value) == ("halve#1", first.output, 2.0)
        assert second.output == lineage["halve"].output


class TestFromOutside:
    async def test_a_signal_tells_who_sent_it(self, client, store):
        run = await client.submit(answering, 1, id="a")
        await run.signal("paid", {"sum": 5}, by="till")

        lineage = await client.runs.lineage("a")

        [use] = lineage["payment"].uses
        assert (use.origin, use.source, use.by) == (UseOrigin.SIGNAL, "paid", "till")
        assert (use.value, use.text) == ({"sum": 5}, "signal paid by till")

    async def test_an_approval_tells_who_answered(self, client):
        await client.submit(both, {"id": 1}, id="a")
        for name in ("ann", "bob"):
            await client.approvals.decide("a:review", "approve", by=name)

        lineage = await client.runs.lineage("a")

        asked, *answers = lineage["review"].uses
        assert asked == Use(origin=UseOrigin.INPUT, number=1, value={"id": 1})
        assert [(use.origin, use.by) for use in answers] == [("answer", "ann"), ("answer", "bob")]

    async def test_a_report_tells_who_gave_it(self, client, store):
        run = await client.submit(outside, 7, id="a")
        async with worker_at(store, [outside]):
            await until(run, RunStatus.WAITING)
        await client.runs.report("a", "hand_over", status="completed", result=1, by="agent")

        lineage = await client.runs.lineage("a")

        assert [(use.origin, use.by) for use in lineage["hand_over"].uses] == [
            ("input", None),
            ("report", "agent"),
        ]
        assert lineage["hand_over"].status == "live"

    async def test_a_child_is_named(self, client):
        parent = Flow("parent").flow(answering, name="below").build()
        run = await client.submit(parent, 1, id="a")

        lineage = await run.lineage()

        assert lineage["below"].child == "a/below"


class TestRuns:
    async def test_that_are_not_there_have_none(self, client):
        with pytest.raises(RunNotFound, match="'nope'"):
            await client.runs.lineage("nope")

    async def test_a_node_that_was_not_reached_is_no_part_of_it(self, client):
        await client.submit(outside, 1, id="a")

        lineage = await client.runs.lineage("a")

        assert [node.id for node in lineage.nodes] == ["hand_over"]
        with pytest.raises(KeyError, match="keep"):
            lineage["keep"]
