"""Where everything in a picture stands: boxes that do not overlap, and lines between them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.value import Value
from perdure.pictures.layering import Layers, layered
from perdure.pictures.placing import Extent, placed

MARGIN = 16.0
ROW_GAP = 46.0
LABEL_ROOM = 20.0
"""How much more there is between rows where lines have labels."""
EXIT_GAP = 26.0
"""Between the points at which lines leave a box."""
ARROW = 8.0
LINE_EXTENT = Extent(left=1.0, right=1.0)
_CANDIDATES = (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78)
"""Where on its line a label may stand, the best place first."""


class Size(Value):
    width: float
    height: float
    aside: float = 0.0
    """What stands out to the right of the box, and is not to be stood on."""


class Rectangle(Value):
    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Rectangle) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


class Link(Value):
    """A line to draw: the numbers of its ends, and how large its label is."""

    source: int
    target: int
    label: Size | None = None


class Segment(Value):
    """From one row to the next: straight down to ``turn_y``, then a curve to (x2, y2)."""

    x1: float
    y1: float
    turn_y: float
    x2: float
    y2: float

    def at(self, share: float) -> tuple[float, float]:
        """A point on the curve."""
        eased = share * share * (3 - 2 * share)
        middle = (self.turn_y + self.y2) / 2
        rest = 1 - share
        y = (
            rest**3 * self.turn_y
            + 3 * rest * rest * share * middle
            + 3 * rest * share * share * middle
            + share**3 * self.y2
        )
        return self.x1 + (self.x2 - self.x1) * eased, y


class Layout(Value):
    boxes: tuple[Rectangle, ...]
    lines: tuple[tuple[Segment, ...], ...]
    labels: tuple[Rectangle | None, ...]
    width: float
    height: float


def laid_out(sizes: Sequence[Size], links: Sequence[Link]) -> Layout:
    """Top to bottom. Links that share both ends are to be merged by the caller."""
    layers = layered(len(sizes), [(link.source, link.target) for link in links])
    extents = [Extent(left=each.width / 2, right=each.width / 2 + each.aside) for each in sizes]
    extents += [LINE_EXTENT] * (len(layers.above) - len(sizes))
    across = [MARGIN + each for each in placed(layers, extents, len(sizes))]
    bands = _bands(layers, sizes, links, across)
    boxes = _boxes(layers, sizes, across, bands)
    lines = _lines(layers, boxes, across, bands)
    labels = _labels(links, lines)
    rights = [across[each] + extents[each].right for each in range(len(across))]
    rights += [label.x + label.width for label in labels if label is not None]
    return Layout(
        boxes=tuple(boxes),
        lines=tuple(lines),
        labels=tuple(labels),
        width=max(rights, default=0.0) + MARGIN,
        height=(bands[-1][1] if bands else MARGIN) + MARGIN,
    )


def _bands(
    layers: Layers, sizes: Sequence[Size], links: Sequence[Link], across: Sequence[float]
) -> list[tuple[float, float]]:
    """From where to where each row reaches; far-reaching lines get more room to turn."""
    row_of = {place: number for number, row in enumerate(layers.rows) for place in row}
    labelled = {row_of[link.source] for link in links if link.label is not None}
    bands = []
    top = MARGIN
    for number, row in enumerate(layers.rows):
        height = max((sizes[place].height for place in row if place < len(sizes)), default=0.0)
        bands.append((top, top + height))
        reach = max(
            (abs(across[place] - across[next]) for place in row for next in layers.below[place]),
            default=0,
        )
        top += height + ROW_GAP + min(60.0, reach * 0.05)
        top += LABEL_ROOM if number in labelled else 0.0
    return bands


def _boxes(
    layers: Layers,
    sizes: Sequence[Size],
    across: Sequence[float],
    bands: Sequence[tuple[float, float]],
) -> list[Rectangle]:
    boxes: dict[int, Rectangle] = {}
    for row, (top, bottom) in zip(layers.rows, bands, strict=True):
        for place in row:
            if place < len(sizes):
                size = sizes[place]
                boxes[place] = Rectangle(
                    x=across[place] - size.width / 2,
                    y=(top + bottom - size.height) / 2,
                    width=size.width,
                    height=size.height,
                )
    return [boxes[number] for number in range(len(sizes))]


def _lines(
    layers: Layers,
    boxes: Sequence[Rectangle],
    across: Sequence[float],
    bands: Sequence[tuple[float, float]],
) -> list[tuple[Segment, ...]]:
    row_of = {place: number for number, row in enumerate(layers.rows) for place in row}
    exits = _exits(layers, boxes, across)
    lines = []
    for number, route in enumerate(layers.routes):
        segments = []
        for place, next in zip(route, route[1:], strict=False):
            top, bottom = bands[row_of[place]]
            is_first, is_last = place == route[0], next == route[-1]
            box = boxes[place] if is_first else None
            segments.append(
                Segment(
                    x1=exits[number] if is_first else across[place],
                    y1=box.y + box.height if box is not None else top,
                    turn_y=bottom,
                    x2=across[next],
                    y2=boxes[next].y if is_last else bands[row_of[next]][0],
                )
            )
        lines.append(tuple(segments))
    return lines


def _exits(layers: Layers, boxes: Sequence[Rectangle], across: Sequence[float]) -> list[float]:
    """Where each line leaves its box: side by side, in the order of where they lead."""
    leaving: dict[int, list[int]] = {}
    for number, route in enumerate(layers.routes):
        leaving.setdefault(route[0], []).append(number)
    exits = [0.0] * len(layers.routes)
    for source, numbers in leaving.items():
        numbers.sort(key=lambda number: across[layers.routes[number][1]])
        gap = min(EXIT_GAP, boxes[source].width * 0.6 / len(numbers))
        first = across[source] - gap * (len(numbers) - 1) / 2
        for place, number in enumerate(numbers):
            exits[number] = first + gap * place
    return exits


def _labels(links: Sequence[Link], lines: Sequence[tuple[Segment, ...]]) -> list[Rectangle | None]:
    """Labels on the first part of their lines, where they cover no other label if that can be."""
    taken: list[Rectangle] = []
    labels: list[Rectangle | None] = []
    for link, segments in zip(links, lines, strict=True):
        if link.label is None:
            labels.append(None)
            continue
        places = [_label_at(link.label, segments[0], share) for share in _CANDIDATES]
        free = [place for place in places if not any(place.overlaps(each) for each in taken)]
        chosen = free[0] if free else places[0]
        taken.append(chosen)
        labels.append(chosen)
    return labels


def _label_at(size: Size, segment: Segment, share: float) -> Rectangle:
    x, y = segment.at(share)
    highest, lowest = segment.turn_y + 1, segment.y2 - ARROW - size.height
    return Rectangle(
        x=max(2.0, x - size.width / 2),
        y=min(max(y - size.height / 2, highest), max(highest, lowest)),
        width=size.width,
        height=size.height,
    )
