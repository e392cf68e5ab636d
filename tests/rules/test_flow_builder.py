"""The builder: what each call adds to the graph, and the graph as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from perdure import Flow, Retry, run_flow, task
from perdure.flows.built import BuiltFlow
from perdure.model.graph import (
    Call,
    DelayNode,
    FlowNode,
    FlowRef,
    Input,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
)
from perdure.model.retry import decode_policy
from perdure.tasks.node_type import NodeConfig, NodeType
from tests.rules.flow_samples import (
    charge,
    codes,
    decide,
    edges,
    faults,
    fetch,
    ids,
    links,
    node_at,
    only_fault,
    pack,
    path_of,
    refuse,
    score,
    shipping,
    take_back,
    task_at,
    tick,
)
from tests.support.older_names import older_names
from tests.support.refusal import refused


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

    @pytest.mark.parametrize(
        "undo, name", [(take_back, "take_back"), (lambda order: None, "orders.charge.undo")]
    )
    def test_keeps_what_follows_errors_and_what_undoes(self, undo, name):
        flow = Flow("orders").then(charge, on_error="continue", undo=undo).build()
        node = task_at(flow, "charge")
        assert node.on_error == "continue"
        assert node.undo is not None
        assert node.undo.task == name
        assert (flow.tasks[name] is take_back) is (undo is take_back)

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
        flow = Flow("orders").fork({"not a name": score, "b": charge}).join(decide).build()
        assert links(flow) == {("score", "decide", "not a name"), ("charge", "decide", "b")}
        assert flow.graph.starts == ["charge", "score"]

    def test_hands_the_value_before_on_in_an_empty_branch(self):
        flow = Flow("orders").then(fetch).fork(order=None, risk=score).join(decide).build()
        assert links(flow) == edges("fetch score, fetch decide as order, score decide as risk")

    def test_gives_an_object_where_a_fork_ends_the_flow(self):
        for branches in ({"a": score, "b": charge}, {"a": score}):
            flow = Flow("orders").then(fetch).fork(branches).build()
            assert flow.graph.definition.gathers is True
            assert set(flow.graph.ends) == {each.name for each in branches.values()}

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
        flow = Flow("orders").fork(a=score, b=charge)
        built = flow.node("decide", decide, after=["score", "charge"]).build()
        assert links(built) == edges("score decide, charge decide")
        assert built.graph.definition.gathers is False


KINDS: Any = {"pay": charge, "reject": refuse, "free": None}


class TestRoute:
    def test_leads_to_branches_which_meet_again(self):
        flow = (
            Flow("orders")
            .then(fetch)
            .route(lambda order: order["kind"], KINDS, default=score)
            .then(pack)
            .build()
        )

        node = node_at(flow, "route", RouteNode)
        assert node.ports == ("free", "pay", "reject", "default")
        assert node.key == ""
        assert node.call.task == "orders.route"
        assert links(flow) == edges(
            "fetch route, route:pay charge, route:reject refuse, route:default score, charge pack, "
            "refuse pack, score pack, route:free pack"
        )
        assert task_at(flow, "pack").gathers is False

    def test_takes_a_key_of_the_input(self):
        flow = Flow("orders").route("kind", {"pay": charge}).build()
        node = route_of(flow)
        assert node.key == "kind"
        assert flow.tasks[node.call.task]({"kind": "pay"}) == "pay"
        with refused("node.no_key", key="kind"):
            flow.tasks[node.call.task]({"sort": "pay"})

    def test_takes_a_task_for_its_key(self):
        flow = Flow("orders").route(score, {"pay": charge}, retries=3).build()
        node = node_at(flow, "route", RouteNode)
        assert (node.call.task, node.call.queue) == ("score", "slow")
        assert node.call.policy is not None

    def test_reads_whole_numbers_and_truths_as_the_engine_does(self):
        flow = (
            Flow("orders").route("kind", {True: charge, False: refuse, 7: None}, name="r").build()
        )
        node = node_at(flow, "r", RouteNode)
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
        node = node_at(flow, "pack", MapNode)
        assert (node.over, node.concurrency) == ("lines", 20)
        assert isinstance(node.body, Call)
        assert node.undo is not None

    def test_maps_a_child_flow(self):
        flow = Flow("orders").map(shipping, name="parcels").build()
        node = node_at(flow, "parcels", MapNode)
        assert node.body == FlowRef(name="shipping", version=shipping.version)
        assert flow.flows == {shipping.graph.text: shipping}

    def test_loops_until_a_function_says_so(self):
        flow = Flow("orders").loop(score, until=lambda n: n["left"], max_iterations=7).build()
        node = node_at(flow, "score", LoopNode)
        assert (node.iterations_max, node.on_max) == (7, "fail")
        assert node.check.task == "orders.score.until"
        check = flow.tasks["orders.score.until"]
        assert check({"left": [1]}) is True
        assert check({"left": []}) is False

    async def test_loops_until_an_async_function_says_so(self):
        async def is_done(order: Any) -> Any:
            return order

        flow = Flow("orders").loop(score, until=is_done).build()
        check = flow.tasks["orders.score.until"]
        assert check.is_async
        assert await check(["x"]) is True

    def test_loops_until_a_task_says_so(self):
        flow = Flow("orders").loop(fetch, until=score).build()
        node = node_at(flow, "fetch", LoopNode)
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
        node = node_at(flow.build(), "send", FlowNode)
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

    def test_start_wherever_nothing_is_named(self):
        flow = Flow("orders").then(fetch).node("b", score).build()
        assert flow.graph.starts == ["b", "fetch"]
        assert flow.graph.definition.gathers is True

    def test_continue_from_the_last_node(self):
        flow = Flow("orders").node("a", fetch).then(score).build()
        assert links(flow) == edges("a score")

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

        route = node_at(flow, "route", RouteNode)
        assert (route.call.queue, route.call.priority) == ("slow", 1)
        assert (task_at(flow, "f").call.queue, task_at(flow, "f").call.priority) == ("slow", 1)

    def test_run_where_requested(self):
        flow = Flow("orders").then(score).then(lambda o: o, name="f", queue="q", priority=4)
        call = task_at(flow.build(), "f").call
        assert (call.queue, call.priority) == ("q", 4)

    def test_that_check_and_undo_run_where_their_node_does(self):
        flow = Flow("orders").then(fetch).loop(score, until="done", undo=lambda o: None).build()
        loop = node_at(flow, "score", LoopNode)
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


def drawn(name: str, **names: str) -> str:
    """A picture in this folder."""
    text = (Path(__file__).parent / f"{name}.mmd").read_text("utf-8")
    for each, value in names.items():
        text = text.replace(f"{{{each}}}", value)
    return text


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

        assert flow.mermaid() == drawn("every_type", child=child.graph.text)

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

        assert flow.mermaid() == drawn("who_decides")

    def test_takes_no_text_for_markup(self):
        keys = {'a"]|<b>\n#1;': fetch}
        with older_names():
            flow = Flow("f").route("k", keys).wait_for_signal('go "now"').build()
        assert 'n1 -->|"a#34;]#124;#60;b#62;#10;#35;1#59;"| n2' in flow.mermaid()
        assert 'n3{{"signal<br/>signal go #34;now#34;"}}' in flow.mermaid()

    def test_does_not_trip_over_words_of_mermaid(self):
        ended = task(name="end")(lambda order: order)
        assert 'n1["end"]' in Flow("f").then(ended).build().mermaid()


@task
def collect(parts: dict[str, Any]) -> dict[str, Any]:
    return parts


@task
def double(number: int) -> int:
    return number * 2


@task
def square(number: int) -> int:
    return number * number


class TestResult:
    """Built flows run in process; ``tests/flows`` has one of each construct."""

    def test_a_graph_of_named_predecessors(self):
        flow = (
            Flow("f")
            .node("e", collect, after={"left": "b", "right": "d"})
            .node("d", collect, after=["b", "c"])
            .node("c", square, after="a")
            .node("b", double, after="a")
            .node("a", lambda number: number + 1)
            .build()
        )
        assert run_flow(flow, 2) == {"left": 6, "right": {"b": 6, "c": 9}}

    def test_a_skipped_branch_is_left_out_of_what_a_join_gets(self):
        flow = (
            Flow("f")
            .route(lambda number: number % 2 == 0, {True: None, False: None})
            .node("x", double, after="route:true")
            .node("y", square, after="route:false")
            .node("z", collect, after=["x", "y"])
            .build()
        )
        assert run_flow(flow, 3) == {"y": 9}

    def test_a_task_without_parameters_is_called_with_nothing(self):
        flow = Flow("f").then(lambda: 7, name="seven").then(double).build()
        assert run_flow(flow, {"ignored": True}) == 14


# Node types in the builder, and decisions that are told as data.


IS_LARGE: Any = {"conditions": {"property": "total", "op": "gt", "value": 100}}


class Translate(NodeType):
    """Says it in other words."""

    name = "translate"
    ports = ("unsure",)

    class Config(NodeConfig):
        text: str
        to: str = "en"

    def execute(self, config: Any, ctx: Any) -> Any: ...

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return (*self.ports, f"in_{config.get('to', 'en')}")


class Nameless(NodeType):
    def execute(self, config: Any, ctx: Any) -> Any: ...


class TestKinds:
    @pytest.mark.parametrize("found_type", [Translate, Translate()])
    def test_may_be_yours(self, found_type):
        flow = (
            Flow("o").use(found_type, {"text": "{{ text }}"}, inputs={"text": "input.text"}).build()
        )

        node = task_at(flow, "translate")
        assert node.type == "translate"
        assert node.config == {"text": "{{ text }}"}
        assert node.inputs == (Input(name="text", path=("text",)),)
        assert node.ports == ("unsure", "in_en")
        assert node.call.task == "o.translate"
        assert list(flow.tasks) == ["o.translate"]

    def test_may_be_those_that_come_with_it_by_name(self):
        flow = (
            Flow("o")
            .then(fetch)
            .use("match", IS_LARGE, inputs={"total": "fetch.output.total"})
            .then(charge, after="match:true")
            .then(decide, after="match:false")
            .build()
        )

        assert task_at(flow, "match").ports == ("true", "false")
        assert ("match:true", "charge") in links(flow)

    def test_have_ports_by_their_config_and_more(self):
        flow = Flow("o").use(Translate, {"text": "a", "to": "de"}, ports=["else"]).build()
        assert task_at(flow, "translate").ports == ("unsure", "in_de", "else")

    def test_stand_where_requested(self):
        flow = (
            Flow("o")
            .then(score)
            .use(Translate, {"text": "a"}, name="one", retries=2, timeout="5s", undo=charge)
            .use(Translate, {"text": "b"}, after="score")
            .use(Translate, {"text": "c"}, queue="other", priority=2)
            .build()
        )

        assert links(flow) == edges("score one, score translate, translate translate-2")
        assert (task_at(flow, "one").call.queue, task_at(flow, "one").call.priority) == ("slow", 1)
        assert task_at(flow, "translate-2").call.queue == "other"
        undo = task_at(flow, "one").undo
        assert undo is not None
        assert undo.task == "charge"

    def test_need_no_config_if_there_is_nothing_to_set(self):
        class Idle(NodeType):
            name = "idle"

            def execute(self, config: Any, ctx: Any) -> Any: ...

        assert task_at(Flow("o").use(Idle).build(), "idle").config == {}

    @pytest.mark.parametrize(
        "found_type, config, code",
        [
            (Translate, {}, "config.missing_setting"),
            (Translate, {"txt": "a", "text": "b"}, "config.unknown_setting"),
            (Translate, {"text": 7}, "config.type"),
            (Translate, ["text"], "argument.type"),
            ("match", {"conditions": {"op": "eq"}}, "condition.needs_property"),
            ("translate", {}, "flow.unknown_node_type"),
            ("htp", {}, "flow.unknown_node_type"),
            ("delay", {}, "flow.structural_type"),
            (Nameless, {}, "node_type.invalid_name"),
            (7, {}, "node_type.invalid"),
            (fetch, {}, "node_type.invalid"),
        ],
    )
    def test_are_refused_where_they_cannot_work(self, found_type, config, code):
        assert codes(Flow("o").use(found_type, config))[0] == code

    def test_report_everything_at_once(self):
        options: Any = {"ports": ["unsure"], "output_schema": {"type": "x"}, "retrys": 1}
        flow = Flow("o").use(Translate, {"text": "{{ a }}"}, on_error="bad", **options)

        assert sorted((each.code, each.where[2]) for each in faults(flow)) == [
            ("argument.unknown", "retrys"),
            ("flow.duplicate_name", "ports"),
            ("flow.unused_port", "on_error"),
            ("form.any_of", "output_schema"),
            ("template.undeclared_input", "config"),
        ]

    def test_that_are_added_as_tasks_are_refused(self):
        body: Any = Translate
        assert codes(Flow("o").then(body, name="a")) == ["flow.node_type_as_task"]

    def test_count_inputs_that_they_look_at_as_used(self):
        inputs = {"total": "fetch.output.total", "other": "fetch.output"}
        unused = only_fault(Flow("o").then(fetch).use("match", IS_LARGE, inputs=inputs))
        assert (unused.code, unused.where[-1]) == ("flow.unused_input", "other")
        checked = Flow("o").then(fetch).use("check", {"schema": {"type": "object"}}, inputs=inputs)
        assert checked.build().name == "o"

    def test_look_at_declared_inputs_only(self):
        fault = only_fault(Flow("o").use("match", IS_LARGE))
        assert (fault.code, fault.args["name"]) == ("flow.undeclared_input", "total")
        assert fault.where == ("nodes", "match", "config")

    def test_may_look_at_the_input_of_the_run(self):
        conditions = {"property": "input.total", "op": "gt", "value": 1}
        node = task_at(Flow("o").use("match", {"conditions": conditions}).build(), "match")
        assert node.inputs == (Input(name="input"),)


def route_of(flow: BuiltFlow) -> RouteNode:
    return node_at(flow, "route", RouteNode)


def loop_of(flow: BuiltFlow) -> LoopNode:
    return node_at(flow, "fetch", LoopNode)


class TestDecisionsAsData:
    def test_loops_keep_their_key_or_condition(self):
        condition = {"property": "done", "op": "eq", "value": True}
        flow = Flow("o").loop(fetch, until="done").build()
        assert loop_of(flow).until == "done"
        assert flow.tasks[loop_of(flow).check.task]({"done": 1}) is True
        assert loop_of(Flow("o").loop(fetch, until=condition).build()).until == condition
        assert loop_of(Flow("o").loop(fetch, until=[condition]).build()).until == [condition]
        assert loop_of(Flow("o").loop(fetch, until=lambda order: True).build()).until is None

    def test_a_condition_is_asked_about_the_output(self):
        condition = {"property": "order.total", "op": "ge", "value": 3}
        flow = Flow("o").loop(fetch, until=condition).build()
        is_done = flow.tasks[loop_of(flow).check.task]
        assert [is_done({"order": {"total": n}}) for n in (2, 3)] == [False, True]
        assert is_done("text") is False

    def test_functions_of_two_conditions_have_two_names(self):
        def check_of(value: int) -> str:
            condition = {"property": "total", "op": "ge", "value": value}
            return loop_of(Flow("o").loop(fetch, until=condition).build()).check.task

        assert check_of(1) == check_of(1)
        assert check_of(1) != check_of(2)
        assert check_of(1).startswith("o.fetch.until:")

    @pytest.mark.parametrize(
        "until, code, where",
        [
            ({"property": "a", "op": "is", "value": 1}, "condition.unknown_operator", "until.op"),
            ({"property": "a", "op": "eq"}, "condition.needs_value", "until"),
            ({"all": {}}, "condition.not_a_list", "until.all"),
            ({"property": "a", "op": "eq", "value": object()}, "payload.not_serializable", "until"),
        ],
    )
    def test_conditions_are_checked(self, until, code, where):
        fault = only_fault(Flow("o").loop(fetch, until=until))
        assert (fault.code, path_of(fault)) == (code, f"fetch.{where}")
