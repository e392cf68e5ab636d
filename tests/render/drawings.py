"""Pictures to draw, made of as little as matters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from perdure.render.diagram import Diagram, DiagramEdge, DiagramNode, NodeMark
from perdure.render.layout import Link, Size

SHAPES = ("task", "route", "map", "loop", "delay", "signal", "approval", "child")


def node(id: str, shape: str = "task", **fields: Any) -> DiagramNode:
    return DiagramNode(id=id, type=shape, shape=shape, **fields)


def picture(nodes: Iterable[DiagramNode], *edges: DiagramEdge, **fields: Any) -> Diagram:
    return Diagram(title="orders@1", nodes=tuple(nodes), edges=edges, **fields)


def edge(source: str, target: str, **fields: Any) -> DiagramEdge:
    return DiagramEdge(source=source, target=target, **fields)


def all_marks() -> Diagram:
    nodes = [node(f"n{number}", mark=mark) for number, mark in enumerate(NodeMark)]
    return picture(nodes, status="running")


_lengths = st.floats(min_value=40, max_value=300)
_sizes = st.builds(Size, width=_lengths, height=_lengths, aside=st.sampled_from([0.0, 22.0]))
_labels = st.none() | st.builds(Size, width=st.floats(10, 150), height=st.just(16.0))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[Link]]:
    """Boxes and links without a cycle, each pair of boxes linked at most once."""
    sizes = draw(st.lists(_sizes, min_size=1, max_size=25))
    count = len(sizes)
    order = draw(st.permutations(range(count)))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    drawn = draw(st.lists(pairs, max_size=2 * count, unique=True))
    ends = {(order[min(pair)], order[max(pair)]) for pair in drawn if pair[0] != pair[1]}
    links = [
        Link(source=source, target=target, label=draw(_labels)) for source, target in sorted(ends)
    ]
    return sizes, links
