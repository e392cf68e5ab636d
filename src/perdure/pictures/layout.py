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


class Stretch(Value):
    """A line within one gap between rows, from one place to the next."""

    start: int
    end: int
    segment: Segment


class Layout(Value):
    boxes: tuple[Rectangle, ...]
    lines: tuple[Stretch, ...]
    """The first stretch of each link: to its target, or to where it joins others that go there."""
    trunks: tuple[Stretch, ...]
    """Those stretches that links to one target share, from top to bottom."""
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
    lines, trunks = _stretches(layers, links, boxes, across, bands)
    labels = _labels(links, lines)
    rights = [across[each] + extents[each].right for each in range(len(across))]
    rights += [label.x + label.width for label in labels if label is not None]
    return Layout(
        boxes=tuple(boxes),
        lines=tuple(lines),
        trunks=tuple(trunks),
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


def _stretches(
    layers: Layers,
    links: Sequence[Link],
    boxes: Sequence[Rectangle],
    across: Sequence[float],
    bands: Sequence[tuple[float, float]],
) -> tuple[list[Stretch], list[Stretch]]:
    band_of = {place: bands[number] for number, row in enumerate(layers.rows) for place in row}
    exits = _exits(layers, links, boxes, across)

    def stretch(start: int, end: int, x: float) -> Stretch:
        is_box, leads_to_box = start < len(boxes), end < len(boxes)
        top, bottom = band_of[start]
        segment = Segment(
            x1=x,
            y1=boxes[start].y + boxes[start].height if is_box else top,
            turn_y=bottom,
            x2=across[end],
            y2=boxes[end].y if leads_to_box else band_of[end][0],
        )
        return Stretch(start=start, end=end, segment=segment)

    lines = [
        stretch(link.source, head, x)
        for link, head, x in zip(links, layers.heads, exits, strict=True)
    ]
    places = [place for row in layers.rows for place in row if place in layers.onward]
    return lines, [stretch(place, layers.onward[place], across[place]) for place in places]


def _exits(
    layers: Layers, links: Sequence[Link], boxes: Sequence[Rectangle], across: Sequence[float]
) -> list[float]:
    """Where each line leaves its box: side by side, in the order of where they lead."""
    leaving: dict[int, list[int]] = {}
    for number, link in enumerate(links):
        leaving.setdefault(link.source, []).append(number)
    exits = [0.0] * len(links)
    for source, numbers in leaving.items():
        numbers.sort(key=lambda number: across[layers.heads[number]])
        gap = min(EXIT_GAP, boxes[source].width * 0.6 / len(numbers))
        first = across[source] - gap * (len(numbers) - 1) / 2
        for place, number in enumerate(numbers):
            exits[number] = first + gap * place
    return exits


def _labels(links: Sequence[Link], lines: Sequence[Stretch]) -> list[Rectangle | None]:
    """Labels on the first part of their lines, where they cover no other label if that can be."""
    taken: dict[float, list[Rectangle]] = {}
    labels: list[Rectangle | None] = []
    for link, line in zip(links, lines, strict=True):
        if link.label is None:
            labels.append(None)
            continue
        near = taken.setdefault(line.segment.turn_y, [])  # those between the same rows
        places = [_label_at(link.label, line.segment, share) for share in _CANDIDATES]
        free = [place for place in places if not any(place.overlaps(each) for each in near)]
        near.append(free[0] if free else places[0])
        labels.append(near[-1])
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
