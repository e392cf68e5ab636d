"""The builder: what each call adds to the graph, and the graph as a picture."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure import Flow, Retry, task
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
from perdure.model.retry import decode_policy
from tests.rules.flow_samples import (
    charge,
    decide,
    edges,
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
from tests.support.older_names import older_names

# The builder: what each call adds to the graph.


class TestThen:
    def test_makes_a_chain(self):
        flow = Flow("orders").then(fetch).then(score).then(decide).build()
        assert ids(flow) == ["fetch", "score", "decide"]
        assert links(flow) == edges("fetch score, score decide")
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
        assert links(flow) == edges("fetch score, score decide, decide pack")

    def test_runs_a_built_flow_as_a_child(self):
        flow = Flow("orders").then(shipping).build()
        assert flow.graph.nodes["shipping"] == FlowNode(id="shipping", body=shipping.graph.ref)


class TestForkAndJoin:
    def test_gathers_branches_by_name(self):
        flow = Flow("orders").then(fetch).fork(a=score, b=[charge, pack]).join(decide).build()

        assert links(flow) == edges(
            "fetch score, fetch charge, charge pack, score decide as a, pack decide as b"
        )
        assert task_at(flow, "decide").gathers is True

    def test_takes_branches_as_an_object(self):
        flow = Flow("orders").fork({"not a name": score, "b": charge}).join(decide).build()
        assert links(flow) == {("score", "decide", "not a name"), ("charge", "decide", "b")}
        assert flow.graph.starts == ["charge", "score"]

    def test_hands_the_value_before_on_in_an_empty_branch(self):
        flow = Flow("orders").then(fetch).fork(order=None, risk=score).join(decide).build()
        assert links(flow) == edges("fetch score, fetch decide as order, score decide as risk")

    def test_gives_an_object_where_a_fork_ends_the_flow(self):
        flow = Flow("orders").then(fetch).fork(a=score, b=charge).build()
        assert flow.graph.definition.gathers is True
        assert set(flow.graph.ends) == {"score", "charge"}

    def test_gives_an_object_even_for_one_branch(self):
        assert Flow("orders").then(fetch).fork(a=score).build().graph.definition.gathers is True

    def test_nests(self):
        inner = Flow().fork(x=score, y=charge).join(pack)
        flow = Flow("orders").fork(a=[fetch, inner], b=refuse).join(decide).build()

        assert links(flow) == edges(
            "fetch score, fetch charge, score pack as x, charge pack as y, pack decide as a, "
            "refuse decide as b"
        )

    def test_ends_a_branch_in_a_map(self):
        branch = Flow().then(fetch).map(score, over="lines")
        flow = Flow("orders").fork(a=branch, b=refuse).join(decide).build()
        assert ("score", "decide", "a") in links(flow)
        assert isinstance(flow.graph.nodes["score"], MapNode)

    def test_joins_a_fork_that_an_inlined_flow_ends_in(self):
        flow = Flow("orders").then(Flow().fork(a=score, b=charge)).join(decide).build()
        assert links(flow) == edges("score decide as a, charge decide as b")

    def test_joins_a_branch_that_ends_in_a_route_under_one_name(self):
        branch = Flow().route("kind", {"pay": charge, "none": None})
        flow = Flow("orders").then(fetch).fork(a=branch, b=score).join(decide).build()

        assert links(flow) == edges(
            "fetch route, fetch score, route:pay charge, charge decide as a, "
            "route:none decide as a, score decide as b"
        )

    def test_may_be_followed_by_a_node_that_says_what_it_follows(self):
        flow = (
            Flow("orders")
            .fork(a=score, b=charge)
            .node("decide", decide, after=["score", "charge"])
            .build()
        )
        assert links(flow) == edges("score decide, charge decide")
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
        assert links(flow) == edges(
            "fetch route, route:pay charge, route:reject refuse, route:default score, charge pack, "
            "refuse pack, score pack"
        )
        assert task_at(flow, "pack").gathers is False

    def test_gives_the_one_output_where_it_ends_the_flow(self):
        flow = Flow("orders").route("kind", {"pay": charge, "reject": refuse}).build()
        assert flow.graph.definition.gathers is False

    def test_goes_straight_on_from_an_empty_branch(self):
        flow = Flow("orders").route("kind", {"pay": charge, "free": None}).then(pack).build()
        assert links(flow) == edges("route:pay charge, charge pack, route:free pack")

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

        assert links(flow) == edges(
            "route:pay charge, route:no refuse, charge speed, charge score, speed:fast pack, "
            "speed:slow shipping, pack decide as a, shipping decide as a, score decide as b"
        )
        assert flow.graph.definition.gathers is False


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

        assert links(flow) == edges("a b, a c, b d, c d, b e as left, d e")
        assert task_at(flow, "b").gathers is False
        assert task_at(flow, "d").gathers is True
        assert task_at(flow, "e").gathers is True

    def test_begin_wherever_nothing_is_named(self):
        flow = Flow("orders").then(fetch).node("b", score).build()
        assert flow.graph.starts == ["b", "fetch"]
        assert flow.graph.definition.gathers is True

    def test_continue_from_the_last_node(self):
        flow = Flow("orders").node("a", fetch).then(score).build()
        assert links(flow) == edges("a score")

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

        assert links(flow) == edges("charge:declined remind, charge pack, remind pack")
        assert task_at(flow, "pack").gathers is False

    def test_attach_every_type_elsewhere(self):
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

        assert links(flow) == edges(
            "route:a delay, route:b go, route:c:d pack, delay score, go score, pack score, "
            "score second, second:x shipping"
        )

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

    def test_run_where_requested(self):
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


class TestOtherCalls:
    """The builder: kinds of nodes other than tasks, arbitrary graphs, and plain functions."""

    def test_the_name_and_what_follows_failure_are_kept(self):
        flow = Flow("orders", on_failure="finish").then(fetch).build()
        assert flow.name == "orders"
        assert flow.graph.on_failure == "finish"

    def test_a_flow_may_continue_growing_after_it_was_built(self):
        growing = Flow("orders").then(fetch)
        first = growing.build()
        second = growing.then(score).build()
        assert ids(first) == ["fetch"]
        assert ids(second) == ["fetch", "score"]


class TestMermaid:
    """The picture of a flow as text."""

    def test_shows_every_type_and_what_leads_where(self):
        child = Flow("child").then(fetch).build()
        flow = (
            Flow("orders")
            .then(fetch)
            .fork(a=charge, b=Flow().map(pack, over="lines", concurrency=2))
            .join(fetch, name="decide")
            .route("kind", {"pay": None, "no": None})
            .delay("1h30m", after="route:pay")
            .loop(charge, until="done", max_iterations=3, name="poll")
            .wait_for_signal("approval", timeout="3d", on_timeout="late")
            .flow(child)
            .node("remind", charge, after="approval:late")
            .build()
        )

        assert flow.mermaid() == (
            "flowchart TD\n"
            '    n1["fetch"]\n'
            '    n2["charge"]\n'
            '    n3[/"pack<br/>for each of lines, 2 at once"/]\n'
            '    n4["decide<br/>calls fetch"]\n'
            '    n5{"route"}\n'
            '    n6("delay<br/>for 1h30m")\n'
            '    n7(["poll<br/>calls charge<br/>again until done, at most 3 times"])\n'
            '    n8{{"approval<br/>signal approval, within 3d"}}\n'
            f'    n9[["child<br/>flow {child.graph.text}"]]\n'
            '    n10["remind<br/>calls charge"]\n'
            "    n1 --> n2\n"
            "    n1 --> n3\n"
            '    n2 -->|"as a"| n4\n'
            '    n3 -->|"as b"| n4\n'
            "    n4 --> n5\n"
            '    n5 -->|"pay"| n6\n'
            "    n6 --> n7\n"
            "    n7 --> n8\n"
            "    n8 --> n9\n"
            '    n8 -.->|"late"| n10\n'
        )

    def test_shows_who_decides_and_what_a_node_is(self):
        flow = (
            Flow("orders")
            .use("note", {"text": "x"}, name="begin")
            .use("note", {"text": "y"})
            .approve("Pay?")
            .approve("Really?", name="b", deciders=["lead"], deadline="3d", on_reject="refused")
            .approve("Sure?", name="c", deciders=["lead", "cfo"], answers=["approve", "later"])
            .approve("All?", name="d", deciders=["lead", "cfo"], policy="all")
            .approve("Two?", name="e", deciders=["board"], policy=2)
            .delay(until="{{ value.due_at }}")
            .then(pack, after="b:refused")
            .then(charge, after="c:later")
            .build()
        )

        assert flow.mermaid() == (
            "flowchart TD\n"
            '    n1["begin<br/>type note"]\n'
            '    n2["note"]\n'
            '    n3[/"approve<br/>Pay?<br/>decided by anyone"\\]\n'
            '    n4[/"b<br/>Really?<br/>decided by lead, within 3d"\\]\n'
            '    n5[/"c<br/>Sure?<br/>decided by one of lead, cfo"\\]\n'
            '    n6["charge"]\n'
            '    n7[/"d<br/>All?<br/>decided by all of lead, cfo"\\]\n'
            '    n8[/"e<br/>Two?<br/>decided by 2 of board"\\]\n'
            '    n9("delay<br/>until {{ value.due_at }}")\n'
            '    n10["pack"]\n'
            "    n1 --> n2\n"
            "    n2 --> n3\n"
            "    n3 --> n4\n"
            "    n4 --> n5\n"
            '    n4 -.->|"refused"| n10\n'
            '    n5 -->|"later"| n6\n'
            "    n5 --> n7\n"
            "    n7 --> n8\n"
            "    n8 --> n9\n"
        )

    def test_takes_no_text_for_markup(self):
        keys = {'a"]|<b>\n#1;': fetch}
        with older_names():
            flow = Flow("f").route("k", keys).wait_for_signal('go "now"').build()
        assert 'n1 -->|"a#34;]#124;#60;b#62;#10;#35;1#59;"| n2' in flow.mermaid()
        assert 'n3{{"signal<br/>signal go #34;now#34;"}}' in flow.mermaid()

    def test_does_not_trip_over_words_of_mermaid(self):
        ended = task(name="end")(lambda order: order)
        assert 'n1["end"]' in Flow("f").then(ended).build().mermaid()
