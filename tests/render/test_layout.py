"""Layouts of whatever graph: nothing covers anything, and every line leads where it should."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings

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
from tests.render.drawings import graphs

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


@given(graphs())
@settings(max_examples=100)
def test_boxes_do_not_overlap(graph):
    layout = laid_out(*graph)

    assert not [pair for pair in combinations(layout.boxes, 2) if pair[0].overlaps(pair[1])]


@given(graphs())
@settings(max_examples=100)
def test_every_line_leads_down_from_its_source_to_its_target(
    graph,
):
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
            assert (before.segment.x2, before.segment.y2) == (after.segment.x1, after.segment.y1)


@given(graphs())
@settings(max_examples=60)
def test_no_line_crosses_a_box(graph):
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
def test_labels_stand_between_the_rows_and_all_is_in_the_picture(
    graph,
):
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
def test_a_box_is_below_all_that_lead_to_it(graph):
    lines = [(link.source, link.target) for link in graph[1]]
    ranks = ranks_of(len(graph[0]), lines)

    assert all(ranks[source] < ranks[target] for source, target in lines)
    assert min(ranks) >= 0


def test_a_chain_is_one_straight_line():
    layout = laid_out([SQUARE] * 5, chain_of(5))

    assert len({box.x for box in layout.boxes}) == 1
    assert layout.trunks == ()


def test_two_branches_lie_side_by_side_below_what_is_between_them():
    links = [Link(source=0, target=1), Link(source=0, target=2)]
    top, left, right = laid_out([SQUARE] * 3, links).boxes

    assert left.y == right.y > top.y
    assert left.x + right.x == pytest.approx(2 * top.x)


def test_a_start_that_is_needed_late_stands_late():
    assert ranks_of(4, [(0, 1), (1, 2), (3, 2)]) == [0, 1, 2, 1]


def test_branches_are_ordered_so_that_they_need_not_cross():
    lines = [(0, 1), (0, 2), (1, 4), (2, 3)]
    layers = layered(5, lines)

    assert crossings(layers.rows, layers.below) == 0


def test_lines_to_one_box_come_together_before_it():
    """So that the picture of a dense graph does not grow with all ways through it."""
    count = 40
    layout = laid_out([SQUARE] * count, complete(count))

    assert len(layout.lines) == count * (count - 1) // 2
    assert len(layout.trunks) == sum(range(count - 1))


def test_labels_of_lines_that_part_do_not_cover_each_other():
    label = Size(width=50, height=16)
    links = [Link(source=0, target=number, label=label) for number in range(1, 6)]
    labels = [each for each in laid_out([SQUARE] * 6, links).labels if each is not None]

    assert not [pair for pair in combinations(labels, 2) if pair[0].overlaps(pair[1])]


def test_nothing_at_all_is_a_layout_too():
    assert laid_out([], []).boxes == ()
