"""Which exits can be passed together: the analysis against all runs that there can be."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from perdure.flows.analysis import Exclusion, Exit
from perdure.model.graph import Call, Definition, Edge, Graph, RouteNode, TaskNode, ports_of

CALL = Call(task="t", queue="default", priority=3)


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


@given(graphs())
def test_what_is_called_exclusive_is_never_passed_together(graph):
    exclusion, runs = Exclusion(graph), passed_in_runs(graph)
    exits = [(id, port) for id, node in graph.nodes.items() for port in ports_of(node)]

    for pair in combinations(exits, 2):
        if exclusion.are_exclusive(pair):
            assert not any(passed.issuperset(pair) for passed in runs)


@given(graphs())
def test_several_are_exclusive_if_all_pairs_are(graph):
    exclusion = Exclusion(graph)
    exits = [(id, port) for id, node in graph.nodes.items() for port in ports_of(node)]

    for several in combinations(exits, 3):
        pairs = all(exclusion.are_exclusive(pair) for pair in combinations(several, 2))
        assert exclusion.are_exclusive(several) is pairs


def test_branches_of_a_route_are_exclusive_however_they_go_on():
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


def test_branches_of_a_fork_are_not():
    graph = a_graph(set(), [(0, 1, ""), (0, 2, "")], 3)

    assert not Exclusion(graph).are_exclusive([("n1", ""), ("n2", "")])


def test_routes_of_different_branches_are_not():
    graph = a_graph({1, 2}, [(0, 1, ""), (0, 2, "")], 3)
    exclusion = Exclusion(graph)

    assert not exclusion.are_exclusive([("n1", "x"), ("n2", "y")])
    assert exclusion.are_exclusive([("n1", "x"), ("n1", "y")])


def test_a_long_ladder_is_analysed_quickly():
    size = 20_000
    rungs = [(n, n + 2, "") for n in range(size - 2)]
    across = [(n, n + 1, "") for n in range(0, size - 1, 2)]

    exclusion = Exclusion(a_graph(set(), rungs + across, size))

    assert not exclusion.are_exclusive([(f"n{size - 1}", ""), (f"n{size - 2}", "")])
