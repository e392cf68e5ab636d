"""What is wrong with a definition, told from its data alone."""

from __future__ import annotations

import itertools
import time

import pytest

from perdure.flows.check import NODES_MAX, check_graph
from perdure.model.graph import (
    Call,
    Definition,
    DelayNode,
    Edge,
    LoopNode,
    MapNode,
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


def faults(*nodes: Node | str, edges: str = "", labels: dict[str, str] | None = None) -> list[str]:
    """``edges`` are written as ``a>b c:port>d``."""
    made = tuple(a_task(node) if isinstance(node, str) else node for node in nodes)
    drawn = tuple(an_edge(text) for text in edges.split())
    return [*check_graph(Definition(name="f", nodes=made, edges=drawn), labels)]


def an_edge(text: str) -> Edge:
    source, target = text.split(">")
    id, _, port = source.partition(":")
    return Edge(source=id, target=target, port=port)


def test_a_sound_graph_has_no_faults() -> None:
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


def test_a_flow_without_nodes() -> None:
    assert faults() == ["it has no nodes: add one, for example with .then(task)"]


def test_too_many_nodes() -> None:
    nodes = tuple(DelayNode(id=f"n{n}", delay_ms=1) for n in range(NODES_MAX + 1))

    assert check_graph(Definition(name="f", nodes=nodes)) == [
        f"it has {NODES_MAX + 1} nodes, more than the {NODES_MAX} allowed"
    ]
    assert check_graph(Definition(name="f", nodes=nodes[1:])) == []


def test_ids_that_are_there_twice() -> None:
    assert faults("a", "b", "a") == ["node 'a': 2 nodes have this id; ids must differ"]


def test_edges_that_are_there_twice() -> None:
    assert faults("a", "b", edges="a>b a>b") == ["node 'b': follows 'a' 2 times alike"]


def test_an_unknown_predecessor_with_the_nearest_names() -> None:
    assert faults("charge", "b", edges="chrge>b") == [
        "node 'b': follows 'chrge', which is unknown; did you mean 'charge'? Known: 'charge'"
    ]


def test_an_unknown_predecessor_that_is_like_none_with_all_of_a_few() -> None:
    assert faults("charge", "pack", "ship", edges="xyz>ship charge>pack") == [
        "node 'ship': follows 'xyz', which is unknown; known: 'charge', 'pack'"
    ]


def test_an_unknown_predecessor_that_is_like_none_with_the_nearest_of_many() -> None:
    others = [f"other-{n}" for n in range(40)]

    assert faults("ship-it-all", *others, "b", edges="xship>b") == [
        "node 'b': follows 'xship', which is unknown; the nearest of 41: 'ship-it-all', "
        "'other-9', 'other-8'"
    ]


def test_a_node_that_follows_what_is_unknown_is_not_told_to_follow_itself() -> None:
    assert faults("charge", "pack", edges="chrge>charge charge>pack") == [
        "node 'charge': follows 'chrge', which is unknown; known: 'pack'"
    ]


def test_an_unknown_successor() -> None:
    assert faults("a", "pack", edges="a>pck") == [
        "node 'a': is followed by 'pck', unknown; did you mean 'pack'? Known: 'pack'"
    ]


def test_an_unknown_port_with_those_there_are() -> None:
    assert faults(a_route("r", "pay", "reject"), "b", edges="r:rejct>b") == [
        "node 'b': follows port 'rejct' of 'r', which is unknown; it has 'pay', 'reject'; "
        "did you mean 'reject'?"
    ]
    assert faults("a", "b", edges="a:failed>b") == [
        "node 'b': follows port 'failed' of 'a', which is unknown; it has none"
    ]


def test_a_route_that_is_followed_without_a_port() -> None:
    assert faults(a_route("r", "x", "y"), "b", edges="r>b") == [
        "node 'b': follows the route 'r', so it has to say from which port: 'r:x', 'r:y'"
    ]


@pytest.mark.parametrize(
    "node,fault",
    [
        (a_task("j", gathers=True), "it joins nothing"),
        (MapNode(id="m", body=CALL, concurrency=0), "concurrency=0 must be at least 1"),
        (LoopNode(id="l", body=CALL, check=CALL, iterations_max=0), "must be at least 1"),
        (a_route("r"), "a route needs at least one branch"),
        (a_route("r", "x", "x"), "two branches have the same key"),
        (a_route("r", ""), "the key of a branch must not be empty"),
        (
            RouteNode(id="r", call=CALL, ports=("x",), on_error="continue"),
            'on_error="continue" has no branch',
        ),
        (a_task("a b"), "'a b' cannot be an id"),
        (a_task("a\n"), "cannot be an id"),
        (a_task("a", on_error="failed"), "on_error='failed' is a port that nothing follows"),
        (
            SignalNode(id="s", signal="go", on_timeout="late"),
            "on_timeout='late' is a port that nothing follows",
        ),
        (
            LoopNode(id="l", body=CALL, check=CALL, iterations_max=1, on_max="more"),
            "on_max='more' is a port that nothing follows",
        ),
    ],
)
def test_faults_of_single_nodes(node: Node, fault: str) -> None:
    [found] = faults(node)

    assert found.startswith(f"node {node.id!r}: ")
    assert fault in found


class TestCycles:
    def test_name_the_nodes_on_them(self) -> None:
        [found] = faults("a", "b", "c", "d", edges="a>b b>c c>d d>b")

        assert found.startswith("a cycle: b → c → d → b; use .loop(...)")

    def test_may_be_of_one_node(self) -> None:
        assert faults("a", edges="a>a")[0].startswith("a cycle: a → a")

    def test_are_all_told(self) -> None:
        found = faults("a", "b", "c", "d", "e", edges="a>b b>a b>c c>d d>c d>e e>e")

        assert [each.split(";")[0] for each in found] == [
            "a cycle: a → b → a",
            "a cycle: c → d → c",
            "a cycle: e → e",
        ]

    def test_hide_what_is_only_behind_them(self) -> None:
        found = faults("a", "b", "c", "d", "e", "f", edges="a>b b>a b>c c>d e>f f>d")

        assert found[1:] == ["node 'c': cannot be reached, as everything before is part of a cycle"]

    def test_are_named_in_part_where_they_are_long(self) -> None:
        ids = [f"n{n}" for n in range(1_000)]
        edges = " ".join(f"{a}>{b}" for a, b in zip(ids, ids[1:] + ids[:1], strict=True))

        [found] = faults(*ids, edges=edges)

        assert "n19 → … → n0" in found
        assert "'n20'" not in found


def test_what_follows_an_unknown_node_is_not_told_again() -> None:
    assert len(faults("a", "b", "c", edges="zzzzzz>a a>b b>c")) == 1


def test_labels_say_where_nodes_are() -> None:
    label = "node 'm' (.map number 1)"

    [found] = faults(MapNode(id="m", body=CALL, concurrency=0), labels={"m": label})

    assert found.startswith(f"{label}: ")


@pytest.mark.parametrize("shape", ["chain", "fan", "layers", "cycle", "unknown"])
def test_ten_thousand_nodes_are_checked_in_well_under_a_second(shape: str) -> None:
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
