"""The builder: what each call adds to the graph."""

from __future__ import annotations

from datetime import timedelta

from perdure import Flow, Retry
from perdure.model.graph import (
    Call,
    FlowNode,
    MapNode,
    RouteNode,
)
from perdure.model.retry import decode_policy
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
    tick,
)


class TestThen:
    def test_makes_a_chain(self):
        flow = Flow("orders").then(fetch).then(score).then(decide).build()

        assert ids(flow) == ["fetch", "score", "decide"]
        assert links(flow) == {("fetch", "score"), ("score", "decide")}
        assert flow.graph.definition.gathers is False

    def test_calls_the_task_with_its_own_settings(self):
        flow = Flow("orders").then(score).build()

        assert task_at(flow, "score").call == Call(
            task="score", queue="slow", priority=1, tags=("gpu",)
        )
        assert flow.tasks == {"score": score}

    def test_overrides_settings(self):
        flow = (
            Flow("orders")
            .then(
                score,
                name="rated",
                queue="fast",
                priority=5,
                tags=["b", "a"],
                retries=Retry(2, first="3s"),
                timeout="1m",
            )
            .build()
        )

        call = task_at(flow, "rated").call
        assert (call.task, call.queue, call.priority, call.tags) == ("score", "fast", 5, ("a", "b"))
        assert call.policy is not None
        policy = decode_policy(call.policy.encode())
        assert policy.retry == Retry(2, first="3s")
        assert policy.timeout == timedelta(minutes=1)

    def test_calls_one_task_at_several_nodes(self):
        flow = Flow("orders").then(score, name="once").then(score, name="twice").build()

        assert [task_at(flow, id).call.task for id in ids(flow)] == ["score", "score"]
        assert flow.tasks == {"score": score}

    def test_notes_that_a_task_takes_no_input(self):
        flow = Flow("orders").then(tick).then(fetch).build()

        assert task_at(flow, "tick").call.takes_input is False
        assert task_at(flow, "fetch").call.takes_input is True

    def test_takes_a_plain_function_by_name(self):
        flow = Flow("orders").then(lambda number: number + 1, name="add").build()

        assert task_at(flow, "add").call.task == "orders.add"
        assert flow.tasks["orders.add"](1) == 2

    def test_keeps_what_follows_errors_and_what_undoes(self):
        flow = Flow("orders").then(charge, on_error="continue", undo=take_back).build()

        node = task_at(flow, "charge")
        assert node.on_error == "continue"
        assert node.undo is not None
        assert node.undo.task == "take_back"
        assert flow.tasks["take_back"] is take_back

    def test_names_a_plain_function_that_undoes(self):
        flow = Flow("orders").then(charge, undo=lambda order: None).build()

        node = task_at(flow, "charge")
        assert node.undo is not None
        assert node.undo.task == "orders.charge.undo"

    def test_adds_the_nodes_of_a_flow_that_is_not_built(self):
        flow = Flow("orders").then(fetch).then(Flow().then(score).then(decide)).then(pack).build()

        assert links(flow) == {("fetch", "score"), ("score", "decide"), ("decide", "pack")}

    def test_runs_a_built_flow_as_a_child(self):
        flow = Flow("orders").then(shipping).build()

        assert flow.graph.nodes["shipping"] == FlowNode(id="shipping", body=shipping.graph.ref)


class TestForkAndJoin:
    def test_gathers_branches_by_name(self):
        flow = Flow("orders").then(fetch).fork(a=score, b=[charge, pack]).join(decide).build()

        assert links(flow) == {
            ("fetch", "score"),
            ("fetch", "charge"),
            ("charge", "pack"),
            ("score", "decide", "a"),
            ("pack", "decide", "b"),
        }
        assert task_at(flow, "decide").gathers is True

    def test_takes_branches_as_an_object(self):
        flow = Flow("orders").fork({"not a name": score, "b": charge}).join(decide).build()

        assert links(flow) == {("score", "decide", "not a name"), ("charge", "decide", "b")}
        assert flow.graph.starts == ["charge", "score"]

    def test_hands_the_value_before_on_in_an_empty_branch(self):
        flow = Flow("orders").then(fetch).fork(order=None, risk=score).join(decide).build()

        assert links(flow) == {
            ("fetch", "score"),
            ("fetch", "decide", "order"),
            ("score", "decide", "risk"),
        }

    def test_gives_an_object_where_a_fork_ends_the_flow(self):
        flow = Flow("orders").then(fetch).fork(a=score, b=charge).build()

        assert flow.graph.definition.gathers is True
        assert set(flow.graph.ends) == {"score", "charge"}

    def test_gives_an_object_even_for_one_branch(self):
        assert Flow("orders").then(fetch).fork(a=score).build().graph.definition.gathers is True

    def test_nests(self):
        inner = Flow().fork(x=score, y=charge).join(pack)
        flow = Flow("orders").fork(a=[fetch, inner], b=refuse).join(decide).build()

        assert links(flow) == {
            ("fetch", "score"),
            ("fetch", "charge"),
            ("score", "pack", "x"),
            ("charge", "pack", "y"),
            ("pack", "decide", "a"),
            ("refuse", "decide", "b"),
        }

    def test_ends_a_branch_in_a_map(self):
        branch = Flow().then(fetch).map(score, over="lines")
        flow = Flow("orders").fork(a=branch, b=refuse).join(decide).build()

        assert ("score", "decide", "a") in links(flow)
        assert isinstance(flow.graph.nodes["score"], MapNode)

    def test_joins_a_fork_that_an_inlined_flow_ends_in(self):
        flow = Flow("orders").then(Flow().fork(a=score, b=charge)).join(decide).build()

        assert links(flow) == {("score", "decide", "a"), ("charge", "decide", "b")}

    def test_joins_a_branch_that_ends_in_a_route_under_one_name(self):
        branch = Flow().route("kind", {"pay": charge, "none": None})
        flow = Flow("orders").then(fetch).fork(a=branch, b=score).join(decide).build()

        assert links(flow) == {
            ("fetch", "route"),
            ("fetch", "score"),
            ("route:pay", "charge"),
            ("charge", "decide", "a"),
            ("route:none", "decide", "a"),
            ("score", "decide", "b"),
        }

    def test_may_be_followed_by_a_node_that_says_what_it_follows(self):
        flow = (
            Flow("orders")
            .fork(a=score, b=charge)
            .node("decide", decide, after=["score", "charge"])
            .build()
        )

        assert links(flow) == {("score", "decide"), ("charge", "decide")}
        assert flow.graph.definition.gathers is False


class TestRoute:
    def test_leads_to_branches_which_meet_again(self):
        flow = (
            Flow("orders")
            .then(fetch)
            .route(lambda order: order["kind"], {"pay": charge, "reject": refuse}, default=score)
            .then(pack)
            .build()
        )

        node = flow.graph.nodes["route"]
        assert isinstance(node, RouteNode)
        assert node.ports == ("pay", "reject", "default")
        assert node.call.task == "orders.route"
        assert links(flow) == {
            ("fetch", "route"),
            ("route:pay", "charge"),
            ("route:reject", "refuse"),
            ("route:default", "score"),
            ("charge", "pack"),
            ("refuse", "pack"),
            ("score", "pack"),
        }
        assert task_at(flow, "pack").gathers is False

    def test_gives_the_one_output_where_it_ends_the_flow(self):
        flow = Flow("orders").route("kind", {"pay": charge, "reject": refuse}).build()

        assert flow.graph.definition.gathers is False

    def test_goes_straight_on_from_an_empty_branch(self):
        flow = Flow("orders").route("kind", {"pay": charge, "free": None}).then(pack).build()

        assert links(flow) == {("route:pay", "charge"), ("charge", "pack"), ("route:free", "pack")}

    def test_takes_a_key_of_the_input(self):
        flow = Flow("orders").route("kind", {"pay": charge}).build()

        node = flow.graph.nodes["route"]
        assert isinstance(node, RouteNode)
        assert flow.tasks[node.call.task]({"kind": "pay"}) == "pay"

    def test_takes_a_task_for_its_key(self):
        flow = Flow("orders").route(score, {"pay": charge}, retries=3).build()

        node = flow.graph.nodes["route"]
        assert isinstance(node, RouteNode)
        assert (node.call.task, node.call.queue) == ("score", "slow")
        assert node.call.policy is not None

    def test_reads_whole_numbers_and_truths_as_the_engine_does(self):
        flow = (
            Flow("orders").route("kind", {True: charge, False: refuse, 7: None}, name="r").build()
        )

        node = flow.graph.nodes["r"]
        assert isinstance(node, RouteNode)
        assert node.ports == ("7", "false", "true")

    def test_numbers_the_unnamed(self):
        flow = (
            Flow("orders").route("a", {"x": None}).route("b", {"x": None}).route("c", {"x": None})
        ).build()

        assert ids(flow) == ["route", "route-2", "route-3"]

    def test_holds_forks_and_routes(self):
        inner = Flow().route("speed", {"fast": pack, "slow": shipping}, name="speed")
        forked = Flow().fork(a=inner, b=score).join(decide)
        flow = Flow("orders").route("kind", {"pay": [charge, forked], "no": refuse}).build()

        assert links(flow) == {
            ("route:pay", "charge"),
            ("route:no", "refuse"),
            ("charge", "speed"),
            ("charge", "score"),
            ("speed:fast", "pack"),
            ("speed:slow", "shipping"),
            ("pack", "decide", "a"),
            ("shipping", "decide", "a"),
            ("score", "decide", "b"),
        }
        assert flow.graph.definition.gathers is False
