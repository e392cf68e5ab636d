"""The builder: kinds of nodes other than tasks, arbitrary graphs, and plain functions."""

from __future__ import annotations

from typing import Any

from perdure import Flow
from perdure.model.graph import (
    Call,
    DelayNode,
    FlowNode,
    FlowRef,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
)
from tests.unit.flow_samples import (
    charge,
    decide,
    fetch,
    ids,
    links,
    pack,
    refuse,
    score,
    shipping,
    take_back,
    task_at,
)


class TestOtherKinds:
    def test_maps(self):
        flow = Flow("orders").map(pack, over="lines", concurrency=20, undo=take_back).build()

        node = flow.graph.nodes["pack"]
        assert isinstance(node, MapNode)
        assert (node.over, node.concurrency) == ("lines", 20)
        assert isinstance(node.body, Call)
        assert node.undo is not None

    def test_maps_a_child_flow(self):
        flow = Flow("orders").map(shipping, name="parcels").build()

        node = flow.graph.nodes["parcels"]
        assert isinstance(node, MapNode)
        assert node.body == FlowRef(name="shipping", version=shipping.version)
        assert flow.flows == {shipping.graph.text: shipping}

    def test_loops_until_a_function_says_so(self):
        flow = Flow("orders").loop(score, until=lambda n: n["left"], max_iterations=7).build()

        node = flow.graph.nodes["score"]
        assert isinstance(node, LoopNode)
        assert (node.iterations_max, node.on_max) == (7, "fail")
        assert node.check.task == "orders.score.until"
        check = flow.tasks["orders.score.until"]
        assert check({"left": [1]}) is True
        assert check({"left": []}) is False

    def test_loops_until_a_key_is_true(self):
        flow = Flow("orders").loop(score, until="done").build()

        node = flow.graph.nodes["score"]
        assert isinstance(node, LoopNode)
        assert flow.tasks[node.check.task]({"done": 1}) is True

    async def test_loops_until_an_async_function_says_so(self):
        async def is_done(order: Any) -> Any:
            return order

        flow = Flow("orders").loop(score, until=is_done).build()

        check = flow.tasks["orders.score.until"]
        assert check.is_async
        assert await check(["x"]) is True

    def test_loops_until_a_task_says_so(self):
        flow = Flow("orders").loop(fetch, until=score).build()

        node = flow.graph.nodes["fetch"]
        assert isinstance(node, LoopNode)
        assert node.check == Call(task="score", queue="slow", priority=1, tags=("gpu",))

    def test_delays(self):
        flow = Flow("orders").delay("2h").delay(1.5, name="breath").delay("1m").build()

        assert list(flow.graph.nodes.values()) == [
            DelayNode(id="delay", delay_ms=7_200_000),
            DelayNode(id="breath", delay_ms=1_500),
            DelayNode(id="delay-2", delay_ms=60_000),
        ]

    def test_waits_for_signals(self):
        flow = (
            Flow("orders")
            .wait_for_signal("approval", timeout="3d", on_timeout="continue")
            .wait_for_signal("approval")
            .wait_for_signal("not an id!")
            .build()
        )

        nodes: list[Node] = [
            SignalNode(
                id="approval", signal="approval", timeout_ms=259_200_000, on_timeout="continue"
            ),
            SignalNode(id="approval-2", signal="approval"),
            SignalNode(id="signal", signal="not an id!"),
        ]
        assert list(flow.graph.nodes.values()) == nodes

    def test_runs_child_flows(self):
        flow = Flow("orders").flow(shipping, name="send", on_error="continue", undo=take_back)

        node = flow.build().graph.nodes["send"]
        assert isinstance(node, FlowNode)
        assert (node.body, node.on_error) == (shipping.graph.ref, "continue")

    def test_knows_the_flows_of_flows(self):
        middle = Flow("middle").flow(shipping).build()
        flow = Flow("orders").flow(middle).build()

        assert set(flow.with_children()) == {
            flow.graph.text,
            middle.graph.text,
            shipping.graph.text,
        }


class TestArbitraryGraphs:
    def test_follow_what_they_name(self):
        flow = (
            Flow("orders")
            .node("a", fetch)
            .node("b", score, after="a")
            .node("c", charge, after="a")
            .node("d", decide, after=["b", "c"])
            .node("e", pack, after={"left": "b", "d": "d"})
            .build()
        )

        assert links(flow) == {
            ("a", "b"),
            ("a", "c"),
            ("b", "d"),
            ("c", "d"),
            ("b", "e", "left"),
            ("d", "e"),
        }
        assert task_at(flow, "b").gathers is False
        assert task_at(flow, "d").gathers is True
        assert task_at(flow, "e").gathers is True

    def test_begin_wherever_nothing_is_named(self):
        flow = Flow("orders").then(fetch).node("b", score).build()

        assert flow.graph.starts == ["b", "fetch"]
        assert flow.graph.definition.gathers is True

    def test_go_on_from_the_last_node(self):
        flow = Flow("orders").node("a", fetch).then(score).build()

        assert links(flow) == {("a", "score")}

    def test_name_nodes_that_come_later(self):
        flow = Flow("orders").node("b", score, after="a").node("a", fetch).build()

        assert ids(flow) == ["a", "b"]

    def test_leave_from_ports(self):
        flow = (
            Flow("orders")
            .then(charge, on_error="declined")
            .node("remind", refuse, after="charge:declined")
            .then(pack, after=["charge", "remind"], gathers=False)
            .build()
        )

        assert links(flow) == {
            ("charge:declined", "remind"),
            ("charge", "pack"),
            ("remind", "pack"),
        }
        assert task_at(flow, "pack").gathers is False

    def test_attach_every_kind_elsewhere(self):
        flow = (
            Flow("orders")
            .route("kind", {"a": None, "b": None, "c:d": None})
            .delay("1s", after="route:a")
            .wait_for_signal("go", after="route:b")
            .map(pack, after="route:c:d")
            .loop(score, until="done", after=["delay", "go", "pack"])
            .route("speed", {"x": None}, name="second", after="score")
            .flow(shipping, after="second:x")
            .build()
        )

        assert links(flow) == {
            ("route:a", "delay"),
            ("route:b", "go"),
            ("route:c:d", "pack"),
            ("delay", "score"),
            ("go", "score"),
            ("pack", "score"),
            ("score", "second"),
            ("second:x", "shipping"),
        }

    def test_give_one_output_if_only_one_end_can_be_reached(self):
        flow = (
            Flow("orders")
            .then(charge, on_error="declined")
            .node("remind", refuse, after="charge:declined")
            .then(pack, after="charge")
            .build()
        )

        assert flow.graph.definition.gathers is False

    def test_give_an_object_if_several_ends_can_be_reached(self):
        flow = (
            Flow("orders")
            .then(fetch)
            .route("kind", {"a": None, "b": None})
            .node("x", score, after="route:a")
            .node("y", charge, after="route:a")
            .node("z", pack, after="route:b")
            .build()
        )

        assert flow.graph.definition.gathers is True


def test_the_name_and_what_follows_failure_are_kept():
    flow = Flow("orders", on_failure="finish").then(fetch).build()

    assert flow.name == "orders"
    assert flow.graph.on_failure == "finish"


def test_a_flow_may_go_on_growing_after_it_was_built():
    growing = Flow("orders").then(fetch)
    first = growing.build()
    second = growing.then(score).build()

    assert ids(first) == ["fetch"]
    assert ids(second) == ["fetch", "score"]


class TestPlainFunctions:
    def test_run_where_the_task_before_them_does(self):
        flow = (
            Flow("orders")
            .then(score)
            .delay("1s")
            .route("kind", {"a": None})
            .then(lambda order: order, name="f")
            .build()
        )

        route = flow.graph.nodes["route"]
        assert isinstance(route, RouteNode)
        assert (route.call.queue, route.call.priority) == ("slow", 1)
        assert (task_at(flow, "f").call.queue, task_at(flow, "f").call.priority) == ("slow", 1)

    def test_run_where_they_are_told_to(self):
        flow = Flow("orders").then(score).then(lambda o: o, name="f", queue="q", priority=4)

        call = task_at(flow.build(), "f").call
        assert (call.queue, call.priority) == ("q", 4)

    def test_that_check_and_undo_run_where_their_node_does(self):
        flow = Flow("orders").then(fetch).loop(score, until="done", undo=lambda o: None).build()

        loop = flow.graph.nodes["score"]
        assert isinstance(loop, LoopNode)
        assert loop.undo is not None
        assert (loop.check.queue, loop.check.priority) == ("slow", 1)
        assert (loop.undo.queue, loop.undo.priority) == ("slow", 1)

    def test_take_the_most_urgent_place_of_several(self):
        flow = Flow("orders").fork(a=fetch, b=score).join(lambda o: o, name="j").build()

        assert (task_at(flow, "j").call.queue, task_at(flow, "j").call.priority) == ("slow", 1)

    def test_leave_tasks_where_they_are(self):
        flow = Flow("orders").then(score).route("kind", {"a": charge}).build()

        call = task_at(flow, "charge").call
        assert (call.queue, call.priority) == ("default", 3)
