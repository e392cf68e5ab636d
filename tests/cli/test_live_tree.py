"""Where nodes stand in the list: branches set in below their fork, joins back out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure import Flow
from perdure.cli.views.live import places
from perdure.model.graph import Call, Definition, Edge, Graph, TaskNode
from tests.cli.sights import shop, work


def drawn(graph: Graph) -> list[str]:
    return [f"{place.guide}{place.node}" for place in places(graph)]


def graph_of(count: int, edges: list[tuple[int, int]]) -> Graph:
    call = Call(task="work", queue="default", priority=3)
    nodes = tuple(TaskNode(id=f"n{number}", call=call) for number in range(count))
    lines = tuple(Edge(source=f"n{source}", target=f"n{target}") for source, target in edges)
    return Graph(Definition(name="made", nodes=nodes, edges=lines))


def test_sets_in_branches_and_brings_joins_back():
    assert drawn(shop().graph) == [
        "fetch",
        "├ pack",
        "╰ price",
        "  tax",
        "bill",
        "review",
        "├ refuse",
        "╰ ship",
    ]


def test_keeps_a_chain_in_one_column():
    flow = Flow("chain").then(work, name="a").then(work, name="b").then(work, name="c").build()

    assert drawn(flow.graph) == ["a", "b", "c"]


def test_sets_in_forks_within_forks():
    inner = Flow().then(work, name="b").fork(x=_named("c"), y=_named("d")).join(work, name="e")
    flow = (
        Flow("nested")
        .then(work, name="a")
        .fork(one=inner, two=_named("f"))
        .join(work, name="g")
        .build()
    )

    assert drawn(flow.graph) == ["a", "├ b", "│ ├ c", "│ ╰ d", "│ e", "╰ f", "g"]


def test_puts_a_join_below_what_all_ways_to_it_lead_through():
    # 0 forks into 1, 2, 3; 4 joins 1 and 2, 5 joins 2 and 3, and 6 those two.
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (2, 5), (3, 5), (4, 6), (5, 6)]

    assert drawn(graph_of(7, edges)) == ["n0", "├ n1", "├ n2", "╰ n3", "n4", "n5", "n6"]


def test_takes_several_starts():
    assert drawn(graph_of(3, [(0, 2), (1, 2)])) == ["n0", "n1", "n2"]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    pairs = [(source, target) for target in range(count) for source in range(target)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return graph_of(count, sorted(edges))


@given(graphs())
def test_has_every_node_once_and_behind_those_it_follows(graph):
    order = [place.node for place in places(graph)]

    assert sorted(order) == sorted(graph.nodes)
    for edge in graph.definition.edges:
        assert order.index(edge.source) < order.index(edge.target)


def _named(name: str) -> Flow:
    return Flow().then(work, name=name)
