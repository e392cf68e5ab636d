"""Pictures as SVG: whole, safe to embed, readable for everybody."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Flow, task
from perdure.render.diagram import NodeMark
from perdure.render.svg import INK, LINE, PAPER, PLAIN, STYLES, described, svg
from tests.render.drawings import SHAPES, all_marks, edge, node, picture

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "desc", "g", "path", "rect", "circle", "text"}


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def texts(text: str) -> list[str]:
    return [each.text or "" for each in parsed(text).iter(f"{SVG}text")]


def tooltips(text: str) -> list[str]:
    return [each.text or "" for each in parsed(text).iter(f"{SVG}title")]


@task
def fetch(order: str) -> str:
    return order


class TestWhatItShows:
    def test_nodes_ports_and_the_title(self):
        drawn = svg(picture([node("a", "route"), node("b")], edge("a", "b", label="pay")))

        assert texts(drawn) == ["orders@1", "route", "a", "b", "pay"]

    def test_a_flow_draws_itself(self):
        flow = Flow("orders").then(fetch).build()

        assert texts(flow.svg()) == [flow.graph.text, "fetch"]

    def test_each_kind_has_a_shape_of_its_own(self):
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

    def test_a_taken_edge_is_told_from_others_without_colour(self):
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

    def test_the_description_tells_what_there_is_to_see(self):
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
