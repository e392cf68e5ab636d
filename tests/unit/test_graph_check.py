"""What is wrong with a definition, told from its data alone."""

from __future__ import annotations

import itertools
import time

import pytest

from perdure.diagnostics import Fault
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
    LoopNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)

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


def test_a_sound_graph_has_no_faults():
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


def test_a_flow_without_nodes():
    assert only_fault() == EMPTY.fault()


def test_too_many_nodes():
    nodes = tuple(DelayNode(id=f"n{n}", delay_ms=1) for n in range(NODES_MAX + 1))

    assert check_graph(Definition(name="f", nodes=nodes)) == [
        TOO_MANY_NODES.fault(count=NODES_MAX + 1, most=NODES_MAX)
    ]
    assert check_graph(Definition(name="f", nodes=nodes[1:])) == []


def test_ids_that_are_there_twice():
    assert only_fault("a", "b", "a") == DUPLICATE_NODE.fault(("nodes", "a"))


def test_edges_that_are_there_twice():
    assert only_fault("a", "b", edges="a>b a>b") == DUPLICATE_EDGE.fault(
        ("nodes", "b", "after"), source="a"
    )


def test_an_unknown_predecessor_with_the_nearest_names():
    assert only_fault("charge", "b", edges="chrge>b") == UNKNOWN_NODE.fault(
        ("nodes", "b", "after"), name="chrge", nearest=("charge",)
    )


def test_an_unknown_predecessor_that_is_like_none_with_all_of_a_few():
    found = only_fault("charge", "pack", "ship", edges="xyz>ship charge>pack")

    assert (found.code, found.args["known"]) == (UNKNOWN_NODE.name, ("charge", "pack"))


def test_an_unknown_predecessor_that_is_like_none_with_the_nearest_of_many():
    others = [f"other-{n}" for n in range(40)]

    found = only_fault("ship-it-all", *others, "b", edges="xship>b")

    assert found.args["count"] == 41
    assert found.args["ranked"] == ("ship-it-all", "other-9", "other-8")


def test_a_node_that_follows_what_is_unknown_is_not_told_to_follow_itself():
    found = only_fault("charge", "pack", edges="chrge>charge charge>pack")

    assert (found.args["name"], found.args["known"]) == ("chrge", ("pack",))


def test_an_unknown_successor():
    assert only_fault("a", "pack", edges="a>pck") == UNKNOWN_NODE.fault(
        ("nodes", "a"), name="pck", nearest=("pack",)
    )


def test_an_unknown_port_with_those_there_are():
    found = only_fault(a_route("r", "pay", "reject"), "b", edges="r:rejct>b")
    assert (found.code, found.where) == (UNKNOWN_PORT.name, ("nodes", "b", "after"))
    assert found.args["nearest"] == ("reject",)

    found = only_fault("a", "b", edges="a:failed>b")
    assert (found.code, found.args["ports"]) == (UNKNOWN_PORT.name, ())
    assert found.args["undeclared"] == "failed"


def test_a_route_that_is_followed_without_a_port():
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
def test_faults_of_single_nodes(node, code, option):
    found = only_fault(node)

    assert found.code == code
    assert found.where == (("nodes", node.id, option) if option else ("nodes", node.id))


class TestCycles:
    def test_name_the_nodes_on_them(self):
        found = only_fault("a", "b", "c", "d", edges="a>b b>c c>d d>b")

        assert (found.code, found.args["ids"]) == ("flow.cycle", ("b", "c", "d"))
        assert found.args["cycle"] == "b → c → d → b"

    def test_may_be_of_one_node(self):
        assert faults("a", edges="a>a")[0].args["cycle"] == "a → a"

    def test_are_all_told(self):
        found = faults("a", "b", "c", "d", "e", edges="a>b b>a b>c c>d d>c d>e e>e")

        assert [each.args["ids"] for each in found] == [("a", "b"), ("c", "d"), ("e",)]

    def test_hide_what_is_only_behind_them(self):
        found = faults("a", "b", "c", "d", "e", "f", edges="a>b b>a b>c c>d e>f f>d")

        assert found[1:] == [UNREACHABLE.fault(("nodes", "c"))]

    def test_are_named_in_part_where_they_are_long(self):
        ids = [f"n{n}" for n in range(1_000)]
        edges = " ".join(f"{a}>{b}" for a, b in zip(ids, ids[1:] + ids[:1], strict=True))

        found = only_fault(*ids, edges=edges)

        assert found.args["cycle"].endswith("n19 → … → n0")
        assert "'n20'" not in found.args["nodes"]


def test_what_follows_an_unknown_node_is_not_told_again():
    assert len(faults("a", "b", "c", edges="zzzzzz>a a>b b>c")) == 1


def test_faults_about_several_nodes_say_where_they_are():
    edges = (an_edge("a>b"), an_edge("b>a"))
    definition = Definition(name="f", nodes=(a_task("a"), a_task("b")), edges=edges)

    [found] = check_graph(definition, {"a": ".node number 1"})

    assert found.args["nodes"] == "node 'a' (.node number 1), node 'b'"


@pytest.mark.parametrize("shape", ["chain", "fan", "layers", "cycle", "unknown"])
def test_ten_thousand_nodes_are_checked_in_well_under_a_second(shape):
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

    assert time.process_time() - before < 1.5  # far above what it takes; quadratic would be more
    assert len(found) == {"cycle": 1, "unknown": 10_000}.get(shape, 0)
