"""Pictures of runs: what they show, their layout, and that they are safe to embed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import Flow
from perdure.model.graph import Graph
from perdure.render.diagram import (
    Diagram,
    DiagramEdge,
    DiagramNode,
    NodeMark,
    diagram_of,
    diagram_of_run,
)
from perdure.render.layout import (
    Layout,
    Link,
    Rectangle,
    Size,
    Stretch,
    crossings,
    laid_out,
    layered,
    ranks_of,
)
from perdure.render.mermaid import mermaid
from perdure.render.svg import INK, LINE, PAPER, PLAIN, STYLES, described, svg
from tests.rules.graphs import chain, child, delay, graph, loop, mapped, route, signal, task
from tests.rules.played import Played

# Pictures to draw, made of as little as matters.


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


# What a picture of a run shows: how far each node is, and which way it went.


def drawn(run: Played) -> Diagram:
    return diagram_of_run(run.id, run.graph, run.state)


def marks(run: Played) -> dict[str, NodeMark | None]:
    return {node.id: node.mark for node in drawn(run).nodes}


def progress(run: Played, id: str) -> str:
    return next(node.progress for node in drawn(run).nodes if node.id == id)


class TestMarks:
    def test_of_a_chain(self):
        run = Played(chain(task("a"), task("b"), task("c")))
        run.finish("a")
        assert marks(run) == {
            "a": NodeMark.COMPLETED,
            "b": NodeMark.LIVE,
            "c": NodeMark.NOT_REACHED,
        }

    def test_waiting_for_whatever_it_is(self):
        run = Played(graph(signal("s"), delay("d"), child("c")))
        assert set(marks(run).values()) == {NodeMark.WAITING}

    def test_paused(self):
        run = Played(chain(task("a"), task("b")))
        run.pause()
        assert marks(run)["a"] is NodeMark.PAUSED

    def test_failed_and_blocked(self):
        run = Played(graph(task("a"), task("b"), task("c"), edges="a b", on_failure="finish"))
        run.fail("a")
        assert marks(run) == {"a": NodeMark.FAILED, "b": NodeMark.BLOCKED, "c": NodeMark.LIVE}

    def test_skipped(self):
        run = Played(graph(route("r", "x", "y"), task("a"), task("b"), edges="r.x a, r.y b"))
        run.finish("r", "x")
        assert marks(run)["b"] is NodeMark.SKIPPED

    def test_cancelled(self):
        run = Played(chain(task("a")))
        run.cancel()
        assert marks(run) == {"a": NodeMark.CANCELLED}

    def test_a_flow_has_none(self):
        assert {node.mark for node in diagram_of(chain(task("a"))).nodes} == {None}


class TestProgress:
    def test_of_a_map(self):
        run = Played(chain(task("a"), mapped("m")))
        run.finish("a", [1, 2, 3])
        run.finish("m[1]", 2)
        assert progress(run, "m") == "1/3 items"

    def test_of_a_loop(self):
        run = Played(chain(loop("l")))
        run.finish("l#1", 1)
        run.finish("check:l#1", False)
        assert progress(run, "l") == "iteration 2"

    def test_of_a_node_that_failed_and_was_continued_from(self):
        run = Played(chain(task("a", on_error="continue"), task("b")))
        run.fail("a")
        assert progress(run, "a") == "after it failed"


class TestEdges:
    GRAPH: Graph = graph(
        route("r", "x", "y"), task("a", on_error="oops"), task("b"), task("c"),
        edges="r.x a, r.y b, a.oops c",
    )  # fmt: skip

    def test_those_that_were_taken(self):
        run = Played(self.GRAPH)
        run.finish("r", "x")
        assert {(edge.target, edge.is_taken) for edge in drawn(run).edges} == {
            ("a", True),
            ("b", False),
            ("c", None),
        }

    def test_those_that_an_error_leads_along(self):
        edges = diagram_of(self.GRAPH).edges
        assert {edge.target for edge in edges if edge.is_unusual} == {"c"}


class TestMermaid:
    def test_of_a_run_has_colours_signs_and_the_way_it_took(self):
        run = Played(chain(task("a"), mapped("m"), task("c")))
        run.finish("a", [1, 2])

        assert mermaid(drawn(run)) == (
            "flowchart TD\n"
            '    n1["a<br/>✓ completed"]\n'
            '    n2[/"m<br/>for each item<br/>▶ live 0/2 items"/]\n'
            '    n3["c<br/>not reached"]\n'
            "    n1 ==> n2\n"
            "    n2 --> n3\n"
            "    classDef completed fill:#c7ecdd,stroke:#00694c,color:#1f2328\n"
            "    class n1 completed\n"
            "    classDef live fill:#ffe29a,stroke:#7a4f00,color:#1f2328\n"
            "    class n2 live\n"
            "    classDef not_reached fill:#ffffff,stroke:#6e7781,color:#57606a\n"
            "    class n3 not_reached\n"
        )


SQUARE = Size(width=100, height=40)


def chain_of(count: int) -> list[Link]:
    return [Link(source=number, target=number + 1) for number in range(count - 1)]


def complete(count: int) -> list[Link]:
    return [Link(source=one, target=other) for one, other in combinations(range(count), 2)]


def route_of(layout: Layout, line: Stretch) -> list[Stretch]:
    """A line with all that it goes on in, to its last stretch."""
    onward = {trunk.start: trunk for trunk in layout.trunks}
    route = [line]
    while route[-1].end >= len(layout.boxes):
        route.append(onward[route[-1].end])
    return route


class TestLayout:
    """Layouts of whatever graph: nothing covers anything, and every line leads where it should."""

    @given(graphs())
    @settings(max_examples=100)
    def test_boxes_do_not_overlap(self, graph):
        layout = laid_out(*graph)
        assert not [pair for pair in combinations(layout.boxes, 2) if pair[0].overlaps(pair[1])]

    @given(graphs())
    @settings(max_examples=100)
    def test_every_line_leads_down_from_its_source_to_its_target(self, graph):
        layout = laid_out(*graph)

        for link, line in zip(graph[1], layout.lines, strict=True):
            route = route_of(layout, line)
            source, target = layout.boxes[link.source], layout.boxes[link.target]
            first, last = route[0].segment, route[-1].segment
            assert first.y1 == pytest.approx(source.y + source.height)
            assert source.x <= first.x1 <= source.x + source.width
            assert route[-1].end == link.target
            assert (last.x2, last.y2) == pytest.approx((target.x + target.width / 2, target.y))
            assert all(each.segment.turn_y < each.segment.y2 for each in route)
            for before, after in pairwise(route):
                assert (before.segment.x2, before.segment.y2) == (
                    after.segment.x1,
                    after.segment.y1,
                )

    @given(graphs())
    @settings(max_examples=60)
    def test_no_line_crosses_a_box(self, graph):
        """A line is upright where boxes are, and turns between rows."""
        layout = laid_out(*graph)

        for stretch in (*layout.lines, *layout.trunks):
            segment = stretch.segment
            upright = Rectangle(
                x=segment.x1, y=segment.y1, width=0.1, height=segment.turn_y - segment.y1
            )
            turning = Rectangle(
                x=min(segment.x1, segment.x2),
                y=segment.turn_y,
                width=abs(segment.x1 - segment.x2) + 0.1,
                height=segment.y2 - segment.turn_y,
            )
            others = [
                box
                for number, box in enumerate(layout.boxes)
                if number not in (stretch.start, stretch.end)
            ]
            assert not [box for box in others if upright.overlaps(box)]
            beside = [box for box in others if turning.overlaps(box)]
            # A target that is lower than others of its row is reached past them, from above.
            assert all(box.y < segment.y2 for box in beside)

    @given(graphs())
    @settings(max_examples=60)
    def test_labels_stand_between_the_rows_and_all_is_in_the_picture(self, graph):
        layout = laid_out(*graph)

        placed = [*layout.boxes, *(label for label in layout.labels if label is not None)]
        assert all(each.x >= 0 and each.x + each.width <= layout.width for each in placed)
        assert all(each.y >= 0 and each.y + each.height <= layout.height for each in placed)
        for link, line, label in zip(graph[1], layout.lines, layout.labels, strict=True):
            assert (label is None) == (link.label is None)
            if label is not None:
                assert line.segment.turn_y < label.y

    @given(graphs())
    @settings(max_examples=60)
    def test_a_box_is_below_all_that_lead_to_it(self, graph):
        lines = [(link.source, link.target) for link in graph[1]]
        ranks = ranks_of(len(graph[0]), lines)
        assert all(ranks[source] < ranks[target] for source, target in lines)
        assert min(ranks) >= 0

    def test_a_chain_is_one_straight_line(self):
        layout = laid_out([SQUARE] * 5, chain_of(5))
        assert len({box.x for box in layout.boxes}) == 1
        assert layout.trunks == ()

    def test_two_branches_lie_side_by_side_below_what_is_between_them(self):
        links = [Link(source=0, target=1), Link(source=0, target=2)]
        top, left, right = laid_out([SQUARE] * 3, links).boxes
        assert left.y == right.y > top.y
        assert left.x + right.x == pytest.approx(2 * top.x)

    def test_a_start_that_is_needed_late_stands_late(self):
        assert ranks_of(4, [(0, 1), (1, 2), (3, 2)]) == [0, 1, 2, 1]

    def test_branches_are_ordered_so_that_they_need_not_cross(self):
        lines = [(0, 1), (0, 2), (1, 4), (2, 3)]
        layers = layered(5, lines)
        assert crossings(layers.rows, layers.below) == 0

    def test_lines_to_one_box_come_together_before_it(self):
        """So that the picture of a dense graph does not grow with all ways through it."""
        count = 40
        layout = laid_out([SQUARE] * count, complete(count))
        assert len(layout.lines) == count * (count - 1) // 2
        assert len(layout.trunks) == sum(range(count - 1))

    def test_labels_of_lines_that_part_do_not_cover_each_other(self):
        label = Size(width=50, height=16)
        links = [Link(source=0, target=number, label=label) for number in range(1, 6)]
        labels = [each for each in laid_out([SQUARE] * 6, links).labels if each is not None]
        assert not [pair for pair in combinations(labels, 2) if pair[0].overlaps(pair[1])]

    def test_nothing_at_all_is_a_layout_too(self):
        assert laid_out([], []).boxes == ()


# Pictures as SVG: whole, safe to embed, readable for everybody.


SVG = "{http://www.w3.org/2000/svg}"

ALLOWED = {"svg", "title", "desc", "g", "path", "rect", "circle", "text"}


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def texts(text: str) -> list[str]:
    return [each.text or "" for each in parsed(text).iter(f"{SVG}text")]


def tooltips(text: str) -> list[str]:
    return [each.text or "" for each in parsed(text).iter(f"{SVG}title")]


@perdure.task
def fetch(order: str) -> str:
    return order


class TestWhatItShows:
    def test_nodes_ports_and_the_title(self):
        drawn = svg(picture([node("a", "route"), node("b")], edge("a", "b", label="pay")))
        assert texts(drawn) == ["orders@1", "route", "a", "b", "pay"]

    def test_a_flow_draws_itself(self):
        flow = Flow("orders").then(fetch).build()
        assert texts(flow.svg()) == [flow.graph.text, "fetch"]

    def test_each_type_has_a_shape_of_its_own(self):
        """With the same text in all of them, so that it is the outline that differs."""
        shown = set()
        for shape in SHAPES:
            root = parsed(svg(picture([node("x", shape, notes=("does a lot of work",))])))
            shown.add("".join(each.get("d", "") for each in root.iter(f"{SVG}path")))
        assert len(shown) == len(SHAPES)

    def test_every_mark_is_a_word_and_a_sign_and_is_in_the_legend(self):
        root = parsed(svg(all_marks()))
        words = [each.text for each in root.iter(f"{SVG}text")]
        assert all(words.count(mark.value) == 2 for mark in NodeMark)
        circles = list(root.iter(f"{SVG}circle"))
        assert len(circles) == 2 * len(NodeMark)

    def test_a_legend_only_where_there_are_marks(self):
        assert "completed" not in svg(picture([node("a")]))

    def test_edges_between_the_same_nodes_are_one_line(self):
        drawn = svg(
            picture(
                [node("a"), node("b")],
                edge("a", "b", label="low"),
                edge("a", "b", label="high"),
                edge("a", "b"),
            )
        )

        assert "low | high | ordinary" in tooltips(drawn)

    def test_a_taken_edge_is_distinguished_from_others_without_colour(self):
        nodes = [node(name) for name in "abcd"]
        edges = [
            edge("a", "b", is_taken=True),
            edge("a", "c", is_taken=False),
            edge("a", "d", is_taken=None),
        ]
        root = parsed(svg(picture(nodes, *edges)))

        lines = [each for each in root.iter(f"{SVG}path") if each.get("fill") == "none"]
        looks = {(line.get("stroke-width"), line.get("stroke-dasharray")) for line in lines}
        assert looks == {("2.2", None), ("1.4", "1.5 4"), ("1.4", None)}

    def test_equal_pictures_are_drawn_the_same(self):
        assert svg(all_marks()) == svg(all_marks())

    def test_no_node_at_all(self):
        assert texts(svg(picture([]))) == ["orders@1"]


class TestLongAndHostileTexts:
    def test_a_long_name_is_shortened_and_is_whole_in_the_tooltip(self):
        name = "read-the-whole-archive-" * 4 + "again"
        drawn = svg(picture([node(name, notes=("calls " + name,))]))
        assert all(len(text) <= 34 for text in texts(drawn))
        assert f"{name} (task)\ncalls {name}" in tooltips(drawn)
        assert texts(drawn)[1].endswith("again")

    @given(st.text(max_size=80))
    @settings(max_examples=100)
    def test_no_text_is_markup(self, text):
        drawn = svg(
            picture(
                [node(f"a{text}", notes=(text,)), node("b", mark=NodeMark.LIVE, progress=text)],
                edge(f"a{text}", "b", label=text),
                status=text,
            )
        )

        found = {each.tag.removeprefix(SVG) for each in parsed(drawn).iter()}
        assert found <= ALLOWED

    def test_it_fetches_nothing(self):
        drawn = svg(picture([node('<script src="https://evil.example/x.js">')]))
        root = parsed(drawn)
        assert not [name for each in root.iter() for name in each.attrib if "href" in name]
        assert "<script" not in drawn


class TestForEverybody:
    def test_it_has_a_role_a_title_and_a_description(self):
        root = parsed(svg(all_marks()))
        assert root.get("role") == "img"
        assert root.get("aria-label") == "orders@1 (running)"
        assert [child.tag.removeprefix(SVG) for child in root][:2] == ["title", "desc"]

    def test_the_description_says_what_there_is_to_see(self):
        shown = picture(
            [node("a", mark=NodeMark.COMPLETED), node("b", mark=NodeMark.FAILED)],
            edge("a", "b"),
            status="failed",
        )
        assert described(shown) == "The run is failed. 2 nodes, 1 edge: 1 completed, 1 failed."

    @pytest.mark.parametrize("mark", NodeMark)
    def test_texts_stand_out_from_their_boxes(self, mark):
        style = STYLES[mark]
        assert contrast(style.text, style.fill) >= 4.5
        assert contrast(LINE, style.fill) >= 4.5
        assert contrast(style.stroke, style.fill) >= 3

    def test_texts_stand_out_from_the_paper(self):
        assert contrast(INK, PAPER) >= 4.5
        assert contrast(INK, PLAIN.fill) >= 4.5

    def test_the_paper_is_part_of_the_picture(self):
        """So that it can be read on a dark page as on a light one."""
        first = next(parsed(svg(all_marks())).iter(f"{SVG}rect"))
        assert first.get("fill") == PAPER

    def test_texts_fit_into_their_boxes(self):
        """By the widths of DejaVu Sans, which is wider than most."""
        wide = "WWWWMMMM@@@@"
        drawn = parsed(svg(picture([node(wide)])))
        outline = next(drawn.iter(f"{SVG}path")).get("d", "")
        assert float(outline.split("h")[1].split("a")[0]) > len(wide) * 13 * 0.9


def contrast(one: str, other: str) -> float:
    """As the Web Content Accessibility Guidelines measure it."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[first:last], 16) / 255 for first, last in pairwise((1, 3, 5, 7))]
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
