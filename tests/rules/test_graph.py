"""Definitions: what is wrong with them, which exits exclude each other, and their version."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure import Flow, task
from perdure.diagnostics import Fault
from perdure.flows.analysis import Exclusion, Exit
from perdure.flows.built import BuiltFlow
from perdure.flows.check import (
    DUPLICATE_EDGE,
    DUPLICATE_NODE,
    EMPTY,
    NODES_MAX,
    PORT_NEEDED,
    TOO_MANY_NODES,
    UNKNOWN_NODE,
    UNKNOWN_PORT,
    UNREACHABLE,
    check_graph,
)
from perdure.model.graph import (
    Call,
    Definition,
    DelayNode,
    Edge,
    Graph,
    LoopNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
    ports_of,
)
from tests.rules.flow_samples import charge, fetch, pack

CALL = Call(task="t", queue="default", priority=3)


def a_task(id: str, *, gathers: bool = False, on_error: str = "fail") -> TaskNode:
    return TaskNode(id=id, call=CALL, gathers=gathers, on_error=on_error)


def a_route(id: str, *ports: str) -> RouteNode:
    return RouteNode(id=id, call=CALL, ports=ports)


def faults(*nodes: Node | str, edges: str = "") -> list[Fault]:
    """``edges`` are written as ``a>b c:port>d``."""
    made = tuple(a_task(node) if isinstance(node, str) else node for node in nodes)
    drawn = tuple(an_edge(text) for text in edges.split())
    return check_graph(Definition(name="f", nodes=made, edges=drawn))


def only_fault(*nodes: Node | str, edges: str = "") -> Fault:
    [fault] = faults(*nodes, edges=edges)
    return fault


def an_edge(text: str) -> Edge:
    source, target = text.split(">")
    id, _, port = source.partition(":")
    return Edge(source=id, target=target, port=port)


class TestCycles:
    def test_name_the_nodes_on_them(self):
        found = only_fault("a", "b", "c", "d", edges="a>b b>c c>d d>b")
        assert (found.code, found.args["ids"]) == ("flow.cycle", ("b", "c", "d"))
        assert found.args["cycle"] == "b → c → d → b"

    def test_are_all_reported(self):
        found = faults("a", "b", "c", "d", "e", edges="a>b b>a b>c c>d d>c d>e e>e")
        assert [each.args["ids"] for each in found] == [("a", "b"), ("c", "d"), ("e",)]
        assert found[2].args["cycle"] == "e → e"

    def test_hide_what_is_only_behind_them(self):
        found = faults("a", "b", "c", "d", "e", "f", edges="a>b b>a b>c c>d e>f f>d")
        assert found[1:] == [UNREACHABLE.fault(("nodes", "c"))]

    def test_are_named_in_part_where_they_are_long(self):
        ids = [f"n{n}" for n in range(1_000)]
        edges = " ".join(f"{a}>{b}" for a, b in zip(ids, ids[1:] + ids[:1], strict=True))
        found = only_fault(*ids, edges=edges)
        assert found.args["cycle"].endswith("n19 → … → n0")
        assert "'n20'" not in found.args["nodes"]


class TestCheck:
    """Faults of a definition, found from its data alone."""

    def test_a_sound_graph_has_no_faults(self):
        assert (
            faults(
                "a",
                a_route("r", "x", "y", "default"),
                "b",
                "c",
                a_task("d", gathers=True),
                SignalNode(id="s", signal="go", timeout_ms=1, on_timeout="late"),
                edges="a>r r:x>b r:y>c b>d c>d r:default>s s:late>c",
            )
            == []
        )

    def test_a_flow_without_nodes(self):
        assert only_fault() == EMPTY.fault()

    def test_too_many_nodes(self):
        nodes = tuple(DelayNode(id=f"n{n}", delay_ms=1) for n in range(NODES_MAX + 1))
        assert check_graph(Definition(name="f", nodes=nodes)) == [
            TOO_MANY_NODES.fault(count=NODES_MAX + 1, most=NODES_MAX)
        ]
        assert check_graph(Definition(name="f", nodes=nodes[1:])) == []

    def test_ids_that_are_there_twice(self):
        assert only_fault("a", "b", "a") == DUPLICATE_NODE.fault(("nodes", "a"))

    def test_edges_that_are_there_twice(self):
        assert only_fault("a", "b", edges="a>b a>b") == DUPLICATE_EDGE.fault(
            ("nodes", "b", "after"), source="a"
        )

    def test_an_unknown_predecessor_with_the_nearest_names(self):
        assert only_fault("charge", "b", edges="chrge>b") == UNKNOWN_NODE.fault(
            ("nodes", "b", "after"), name="chrge", nearest=("charge",)
        )

    def test_an_unknown_predecessor_that_is_like_none_with_all_of_a_few(self):
        found = only_fault("charge", "pack", "ship", edges="xyz>ship charge>pack")
        assert (found.code, found.args["known"]) == (UNKNOWN_NODE.name, ("charge", "pack"))

    def test_an_unknown_predecessor_that_is_like_none_with_the_nearest_of_many(self):
        others = [f"other-{n}" for n in range(40)]
        found = only_fault("ship-it-all", *others, "b", edges="xship>b")
        assert found.args["count"] == 41
        assert found.args["ranked"] == ("ship-it-all", "other-9", "other-8")

    def test_no_node_is_suggested_as_its_own_predecessor(self):
        found = only_fault("charge", "pack", edges="chrge>charge charge>pack")
        assert (found.args["name"], found.args["known"]) == ("chrge", ("pack",))

    def test_an_unknown_successor(self):
        assert only_fault("a", "pack", edges="a>pck") == UNKNOWN_NODE.fault(
            ("nodes", "a"), name="pck", nearest=("pack",)
        )

    def test_an_unknown_port_with_those_there_are(self):
        found = only_fault(a_route("r", "pay", "reject"), "b", edges="r:rejct>b")
        assert (found.code, found.where) == (UNKNOWN_PORT.name, ("nodes", "b", "after"))
        assert found.args["nearest"] == ("reject",)
        found = only_fault("a", "b", edges="a:failed>b")
        assert (found.code, found.args["ports"]) == (UNKNOWN_PORT.name, ())
        assert found.args["undeclared"] == "failed"

    def test_a_route_that_is_followed_without_a_port(self):
        assert only_fault(a_route("r", "x", "y"), "b", edges="r>b") == PORT_NEEDED.fault(
            ("nodes", "b", "after"), source="r", ports=("r:x", "r:y")
        )

    @pytest.mark.parametrize(
        "node, code, option",
        [
            (a_task("j", gathers=True), "flow.joins_nothing", "gathers"),
            (a_route("r"), "flow.empty_route", ""),
            (a_route("r", "x", "x"), "flow.duplicate_branch", ""),
            (a_route("r", ""), "flow.empty_branch_key", ""),
            (
                RouteNode(id="r", call=CALL, ports=("x",), on_error="continue"),
                "flow.route_continues",
                "on_error",
            ),
            (a_task("a b"), "flow.node_id", "name"),
            (a_task("a\n"), "flow.node_id", "name"),
            (a_task("a", on_error="failed"), "flow.unused_port", "on_error"),
            (SignalNode(id="s", signal="go", on_timeout="late"), "flow.unused_port", "on_timeout"),
            (
                LoopNode(id="l", body=CALL, check=CALL, iterations_max=1, on_max="more"),
                "flow.unused_port",
                "on_max",
            ),
        ],
    )
    def test_faults_of_single_nodes(self, node, code, option):
        found = only_fault(node)
        assert found.code == code
        assert found.where == (("nodes", node.id, option) if option else ("nodes", node.id))

    def test_what_follows_an_unknown_node_is_not_reported_again(self):
        assert len(faults("a", "b", "c", edges="zzzzzz>a a>b b>c")) == 1

    def test_faults_about_several_nodes_say_where_they_are(self):
        edges = (an_edge("a>b"), an_edge("b>a"))
        definition = Definition(name="f", nodes=(a_task("a"), a_task("b")), edges=edges)
        [found] = check_graph(definition, {"a": ".node number 1"})
        assert found.args["nodes"] == "node 'a' (.node number 1), node 'b'"

    @pytest.mark.parametrize("shape", ["chain", "fan", "layers", "cycle", "unknown"])
    def test_ten_thousand_nodes_are_checked_in_well_under_a_second(self, shape):
        ids = [f"n{n}" for n in range(10_000)]
        pairs = {
            "chain": list(itertools.pairwise(ids)),
            "fan": [(ids[0], id) for id in ids[1:-1]] + [(id, ids[-1]) for id in ids[1:-1]],
            "layers": [
                (ids[a], ids[b])
                for a in range(9_900)
                for b in range(a // 100 * 100 + 100, a // 100 * 100 + 103)
            ],
            "cycle": list(zip(ids, ids[1:] + ids[:1], strict=True)),
            "unknown": [(f"x{n}", id) for n, id in enumerate(ids)],
        }[shape]
        nodes = tuple(a_task(id) for id in ids)
        edges = tuple(Edge(source=a, target=b) for a, b in pairs)
        definition = Definition(name="f", nodes=nodes, edges=edges)

        before = time.process_time()
        found = check_graph(definition)

        assert (
            time.process_time() - before < 1.5
        )  # far above what it takes; quadratic would be more
        assert len(found) == {"cycle": 1, "unknown": 10_000}.get(shape, 0)


def a_graph(routes: set[int], edges: list[tuple[int, int, str]], size: int) -> Graph:
    nodes = tuple(
        RouteNode(id=f"n{n}", call=CALL, ports=("x", "y", "z"))
        if n in routes
        else TaskNode(id=f"n{n}", call=CALL)
        for n in range(size)
    )
    drawn = tuple(Edge(source=f"n{a}", target=f"n{b}", port=port) for a, b, port in edges)
    return Graph(Definition(name="f", nodes=nodes, edges=drawn))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 7))
    routes = draw(st.sets(st.integers(0, size - 1), max_size=3))
    pairs = list(combinations(range(size), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = [(a, b, draw(st.sampled_from("xyz")) if a in routes else "") for a, b in sorted(chosen)]
    return a_graph(routes, edges, size)


def passed_in_runs(graph: Graph) -> list[set[Exit]]:
    """The exits that are passed in each run, for every way in which its nodes may end."""
    every = [[(id, port) for port in ports_of(node)] for id, node in graph.nodes.items()]
    runs: list[set[Exit]] = []
    for choice in product(*every):
        passed: set[Exit] = set()
        for id, port in choice:
            incoming = graph.incoming[id]
            if not incoming or any((edge.source, edge.port) in passed for edge in incoming):
                passed.add((id, port))
        runs.append(passed)
    return runs


class TestExclusion:
    """Which exits can be passed together: the analysis against all runs that there can be."""

    @given(graphs())
    def test_what_is_called_exclusive_is_never_passed_together(self, graph):
        exclusion, runs = Exclusion(graph), passed_in_runs(graph)
        exits = [(id, port) for id, node in graph.nodes.items() for port in ports_of(node)]
        for pair in combinations(exits, 2):
            if exclusion.are_exclusive(pair):
                assert not any(passed.issuperset(pair) for passed in runs)

    @given(graphs())
    def test_several_are_exclusive_if_all_pairs_are(self, graph):
        exclusion = Exclusion(graph)
        exits = [(id, port) for id, node in graph.nodes.items() for port in ports_of(node)]
        for several in combinations(exits, 3):
            pairs = all(exclusion.are_exclusive(pair) for pair in combinations(several, 2))
            assert exclusion.are_exclusive(several) is pairs

    def test_branches_of_a_route_are_exclusive_however_they_continue(self):
        # n0 routes to n1 (x), n2 (y) and n3 (z); n4 takes x or y; n5 forks off n1
        graph = a_graph(
            {0}, [(0, 1, "x"), (0, 2, "y"), (0, 3, "z"), (1, 4, ""), (2, 4, ""), (1, 5, "")], 6
        )
        exclusion = Exclusion(graph)

        assert exclusion.are_exclusive([("n4", ""), ("n3", "")])
        assert exclusion.are_exclusive([("n5", ""), ("n2", ""), ("n3", "")])
        assert not exclusion.are_exclusive([("n4", ""), ("n5", "")])
        assert not exclusion.are_exclusive([("n1", ""), ("n5", "")])
        assert not exclusion.are_exclusive([("n1", ""), ("n1", "")])

    def test_routes_of_different_branches_are_not(self):
        graph = a_graph({1, 2}, [(0, 1, ""), (0, 2, "")], 3)
        exclusion = Exclusion(graph)
        assert not exclusion.are_exclusive([("n1", "x"), ("n2", "y")])
        assert exclusion.are_exclusive([("n1", "x"), ("n1", "y")])

    def test_a_long_ladder_is_analysed_quickly(self):
        size = 20_000
        rungs = [(n, n + 2, "") for n in range(size - 2)]
        across = [(n, n + 1, "") for n in range(0, size - 1, 2)]
        exclusion = Exclusion(a_graph(set(), rungs + across, size))
        assert not exclusion.are_exclusive([(f"n{size - 1}", ""), (f"n{size - 2}", "")])


BUILDS_A_FLOW = """
from perdure import Flow, task

def made(name):
    return task(name=name, tags={"gpu", "eu", "ssd", "arm"})(lambda value: value)

a, b, c, d, e = map(made, "abcde")
child = Flow("child").then(a).build()
flow = (
    Flow("orders")
    .then(a, retries=2, timeout="5s")
    .fork(x=b, y=[c, child])
    .join(d, tags={"one", "two", "three"})
    .route("kind", {"p": None, "q": Flow().delay("1s"), "r": Flow().delay("2s")}, keys={*"pqr"})
    .map(e, over="lines")
    .build()
)
print(flow.version, flow.mermaid())
"""


@task
def takes_all(**fields: Any) -> Any: ...


def base() -> Flow:
    return Flow("orders").then(fetch).fork(a=charge, b=pack)


SAME: list[tuple[Callable[[], Flow], Callable[[], Flow]]] = [
    (base, base),
    (base, lambda: Flow("orders").then(fetch).fork(b=pack, a=charge)),
    (base, lambda: Flow("orders").then(fetch).fork({"b": [pack], "a": Flow().then(charge)})),
    (
        lambda: Flow("o").then(fetch).then(charge),
        lambda: Flow("o").node("charge", charge, after="fetch").node("fetch", fetch),
    ),
    (
        lambda: Flow("o").then(fetch).fork(a=charge, pack=pack).join(fetch, name="j"),
        lambda: (
            Flow("o")
            .node("pack", pack, after="fetch")
            .node("j", fetch, after={"pack": "pack", "a": "charge"})
            .node("charge", charge, after="fetch")
            .node("fetch", fetch)
        ),
    ),
    (
        lambda: Flow("o").route("kind", {"a": charge, "b": pack}, default=fetch),
        lambda: Flow("o").route("kind", {"default": fetch, "b": pack, "a": charge}),
    ),
    (
        lambda: Flow("o").fork(a=Flow().delay("1s"), b=Flow().delay("2s")),
        lambda: Flow("o").fork(b=Flow().delay("2s"), a=Flow().delay("1s")),
    ),
    (
        lambda: Flow("o").then(fetch, tags=["x", "y"]),
        lambda: Flow("o").then(fetch, tags=["y", "x"]),
    ),
    (lambda: Flow("o").then(fetch, timeout="60s"), lambda: Flow("o").then(fetch, timeout="1m")),
    (
        lambda: Flow("o").then(takes_all, inputs={"a": "input.a", "b": "input.b"}),
        lambda: Flow("o").then(takes_all, inputs={"b": "input.b", "a": {"from": "input.a"}}),
    ),
    (
        lambda: Flow("o").then(takes_all, config={"a": 1, "b": [2]}),
        lambda: Flow("o").then(takes_all, config={"b": (2,), "a": 1}),
    ),
    (
        lambda: Flow("o").then(fetch, inputs={}, on_missing="error", ports=[], check=None),
        lambda: Flow("o").then(fetch),
    ),
    (
        lambda: Flow("o").approve("Go?", deadline="24h", reminders=["2h", "1h"], policy="any"),
        lambda: Flow("o").approve("Go?", deadline="1d", reminders=["1h", "120m"], policy=1),
    ),
]

DIFFERENT: list[Callable[[], Flow]] = [
    base,
    lambda: Flow("others").then(fetch).fork(a=charge, b=pack),
    lambda: Flow("orders", on_failure="finish").then(fetch).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, name="get").fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, retries=1).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, timeout=1).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, queue="other").fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, on_error="continue").fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch, undo=pack).fork(a=charge, b=pack),
    lambda: Flow("orders").then(fetch).then(charge).then(pack),
    lambda: Flow("orders").then(fetch).fork(a=charge, b=pack).join(fetch, name="j"),
    lambda: Flow("orders").then(fetch).fork(a=charge, c=pack).join(fetch, name="j"),
    lambda: Flow("orders").route("kind", {"a": fetch}),
    lambda: Flow("orders").route("sort", {"a": fetch}),
    lambda: Flow("orders").loop(fetch, until="done"),
    lambda: Flow("orders").loop(fetch, until="ended"),
    lambda: Flow("orders").loop(fetch, until="done", max_iterations=3),
    lambda: Flow("orders").loop(fetch, until={"property": "done", "op": "exists"}),
    lambda: Flow("orders").loop(fetch, until={"property": "ended", "op": "exists"}),
    lambda: Flow("orders").then(takes_all),
    lambda: Flow("orders").then(takes_all, config={}),
    lambda: Flow("orders").then(takes_all, config={"a": 1}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "input"}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "input.a"}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "secret.a"}),
    lambda: Flow("orders").then(takes_all, inputs={"a": "input.a"}, on_missing="skip"),
    lambda: Flow("orders").then(fetch, ports=["a"]),
    lambda: Flow("orders").then(fetch, on_timeout="continue"),
    lambda: Flow("orders").then(fetch, input_schema={"type": "object"}),
    lambda: Flow("orders").then(fetch, output_schema={"type": "object"}),
    lambda: Flow("orders").then(fetch, check={"schema": {"type": "object"}}),
    lambda: Flow("orders").then(fetch, check={"schema": {"type": "object"}, "advisory": True}),
    lambda: Flow("orders").approve("Go?"),
    lambda: Flow("orders").approve("Go on?"),
    lambda: Flow("orders").approve("Go?", deciders=["a"]),
    lambda: Flow("orders").approve("Go?", deciders=["a"], policy="all"),
    lambda: Flow("orders").approve("Go?", form={"type": "object"}),
    lambda: Flow("orders").delay("1d"),
    lambda: Flow("orders").delay(until="{{ value }}"),
    lambda: Flow("orders").wait_for_signal("go"),
    lambda: Flow("orders").wait_for_signal("go", where={"property": "a", "op": "exists"}),
    lambda: Flow("orders").map(fetch),
    lambda: Flow("orders").map(fetch, concurrency=3),
    lambda: Flow("orders").flow(child_of(fetch)),
    lambda: Flow("orders").flow(child_of(charge)),
]


def child_of(task: Any) -> BuiltFlow:
    return Flow("child").then(task, name="x").build()


class TestVersion:
    """The version of a flow: the same for the same flow, told in whatever order, in any process."""

    def test_is_the_same_in_every_process(self):
        printed = {
            subprocess.run(
                [sys.executable, "-c", BUILDS_A_FLOW],
                env={**os.environ, "PYTHONHASHSEED": seed},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            for seed in ("1", "2", "3")
        }

        assert len(printed) == 1
        assert "flowchart TD" in printed.pop()

    @pytest.mark.parametrize("one,other", SAME)
    def test_does_not_change_with_the_order_of_telling(self, one, other):
        assert one().build().graph.definition == other().build().graph.definition
        assert one().build().version == other().build().version

    def test_changes_with_names_structure_and_policies(self):
        versions = [make().build().version for make in DIFFERENT]
        assert len(set(versions)) == len(DIFFERENT)

    def test_does_not_change_with_descriptions(self):
        @task(name="fetch")
        def fetch_otherwise(order: Any) -> Any:
            """Described in other words."""

        assert (
            Flow("o").then(fetch).build().version == Flow("o").then(fetch_otherwise).build().version
        )

    def test_comes_back_with_the_stored_definition(self):
        flow = base().build()
        assert Graph.parse(flow.graph.data).version == flow.version
