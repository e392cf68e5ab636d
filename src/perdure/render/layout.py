"""Positions of the boxes and lines of a diagram.

A Sugiyama layout: a box lies below all boxes that lead to it; a line that passes a row has a place
in it, so that it does not cross boxes; places are ordered by their neighbors. Lines to one box
share their places, so that they merge before it. Boxes are numbers, and the graph must be acyclic.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Sequence

from perdure.model.value import Value

Line = tuple[int, int]

SWEEPS = 8
"""Ordering passes, alternately from the top and from the bottom."""


class Layers(Value):
    """Boxes come first in the numbering, then the places of lines that pass a row."""

    rows: tuple[tuple[int, ...], ...]
    heads: tuple[int, ...]
    """The first target of each line: its end, or a place in the next row."""
    onward: dict[int, int]
    """The next target after each place."""
    above: tuple[tuple[int, ...], ...]
    below: tuple[tuple[int, ...], ...]
    """The neighbors of each place in the adjacent rows."""


def layered(count: int, lines: Sequence[Line]) -> Layers:
    ranks = ranks_of(count, lines)
    heads, onward = _routed(ranks, lines)
    sources = [source for source, _ in lines]
    above: list[list[int]] = [[] for _ in ranks]
    below: list[list[int]] = [[] for _ in ranks]
    for upper, lower in dict.fromkeys([*zip(sources, heads, strict=True), *onward.items()]):
        below[upper].append(lower)
        above[lower].append(upper)
    rows = _ordered(_first_order(ranks, below), above, below)
    return Layers(
        rows=tuple(map(tuple, rows)),
        heads=tuple(heads),
        onward=onward,
        above=tuple(map(tuple, above)),
        below=tuple(map(tuple, below)),
    )


def ranks_of(count: int, lines: Sequence[Line]) -> list[int]:
    """The row of each box: below its predecessors, and close to its successors."""
    targets: list[list[int]] = [[] for _ in range(count)]
    left = [0] * count
    for source, target in lines:
        targets[source].append(target)
        left[target] += 1
    is_start = [not each for each in left]
    ranks = [0] * count
    ready = [box for box in range(count) if is_start[box]]
    for box in ready:  # grows during the iteration
        for target in targets[box]:
            ranks[target] = max(ranks[target], ranks[box] + 1)
            left[target] -= 1
            if not left[target]:
                ready.append(target)
    for box in range(count):
        if is_start[box] and targets[box]:
            ranks[box] = min(ranks[target] for target in targets[box]) - 1
    return ranks


def _routed(ranks: list[int], lines: Sequence[Line]) -> tuple[list[int], dict[int, int]]:
    """First and next targets of lines; appends the rows of their places to ``ranks``."""
    highest: dict[int, int] = {}
    for source, target in lines:
        highest[target] = min(ranks[source], highest.get(target, ranks[source]))
    places: dict[tuple[int, int], int] = {}
    onward: dict[int, int] = {}
    for target, top in highest.items():
        next = target
        for rank in range(ranks[target] - 1, top, -1):
            place = places[target, rank] = len(ranks)
            ranks.append(rank)
            onward[place] = next
            next = place
    return [places.get((target, ranks[source] + 1), target) for source, target in lines], onward


def _first_order(ranks: Sequence[int], below: Sequence[Sequence[int]]) -> list[list[int]]:
    """Each place near the first one that leads to it."""
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    seen = [False] * len(ranks)
    for start in sorted(range(len(ranks)), key=lambda place: ranks[place]):
        to_visit = [start]
        while to_visit:
            place = to_visit.pop()
            if not seen[place]:
                seen[place] = True
                rows[ranks[place]].append(place)
                to_visit.extend(reversed(below[place]))
    return rows


def _ordered(
    rows: list[list[int]], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The order with the fewest crossings among the sweeps."""
    best, least = rows, crossings(rows, below)
    for sweep in range(SWEEPS):
        if not least:
            break
        rows = _swept(rows, above) if sweep % 2 == 0 else _swept(rows[::-1], below)[::-1]
        count = crossings(rows, below)
        if count < least:
            best, least = rows, count
    return best


def _swept(rows: list[list[int]], neighbors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Sort each row by the mean position of its neighbors in the previous row."""
    swept: list[list[int]] = []
    at: dict[int, float] = {}
    for row in rows:
        keys = {}
        for number, place in enumerate(row):
            known = [at[each] for each in neighbors[place] if each in at]
            # A place without neighbors keeps roughly its position.
            keys[place] = sum(known) / len(known) if known else number / max(1, len(row))
        ordered = sorted(row, key=keys.__getitem__)
        swept.append(ordered)
        at = {place: number / len(row) for number, place in enumerate(ordered)}
    return swept


def crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """How many pairs of lines between adjacent rows cross."""
    count = 0
    for upper, lower in itertools.pairwise(rows):
        at = {place: number for number, place in enumerate(lower)}
        passed: list[int] = []
        for place in upper:
            ends = sorted(at[each] for each in below[place])
            count += sum(len(passed) - bisect_left(passed, end + 1) for end in ends)
            for end in ends:
                insort(passed, end)
    return count


GAP = 30.0
"""Between two boxes of a row."""
GAP_AT_LINE = 18.0
"""Between two places if one belongs to a line."""
STRAIGHT = 4.0
"""The weight of a line's place relative to a box."""
SWEEPS_MIN, SWEEPS_MAX = 3, 18
"""Passes over all rows, down and up."""
VISITS_MAX = 100_000
"""Maximum visits of places in total; larger diagrams get fewer passes."""


class Extent(Value):
    """How far a place extends to the left and right of its center line."""

    left: float
    right: float


def placed(layers: Layers, extents: Sequence[Extent], box_count: int) -> list[float]:
    """The center of each place; places of one row do not overlap."""
    at = [0.0] * len(layers.above)
    weights = [1.0 if place < box_count else STRAIGHT for place in range(len(at))]
    rows = [(row, _offsets(row, extents, box_count)) for row in layers.rows]
    for row, least in rows:
        _spread(row, at, least, [(each - least[-1] / 2, 1.0) for each in least])
    both = [(*up, *down) for up, down in zip(layers.above, layers.below, strict=True)]
    sweeps = max(SWEEPS_MIN, min(SWEEPS_MAX, VISITS_MAX // (2 * len(at) + 1)))
    for sweep in range(sweeps):
        # The first passes use only the previous row, so that positions propagate quickly.
        downward, upward = (layers.above, layers.below) if sweep < SWEEPS_MIN - 1 else (both, both)
        for row, least in rows:
            _spread(row, at, least, [_pull(place, downward[place], at, weights) for place in row])
        for row, least in reversed(rows):
            _spread(row, at, least, [_pull(place, upward[place], at, weights) for place in row])
    left = min((at[each] - extents[each].left for each in range(len(at))), default=0.0)
    return [each - left for each in at]


def _pull(
    place: int, neighbors: Sequence[int], at: Sequence[float], weights: Sequence[float]
) -> tuple[float, float]:
    """The position that neighbors pull a place to, and the weight. Long lines pull most."""
    total = sum([weights[each] for each in neighbors])
    if not total:
        return at[place], 0.5
    where = sum([at[each] * weights[each] for each in neighbors]) / total
    return where, total * weights[place]


def _offsets(row: Sequence[int], extents: Sequence[Extent], box_count: int) -> list[float]:
    """The minimum distance of each place from the first."""
    offsets = [0.0] * len(row)
    for number, (left, right) in enumerate(itertools.pairwise(row), 1):
        gap = GAP if left < box_count and right < box_count else GAP_AT_LINE
        offsets[number] = offsets[number - 1] + extents[left].right + gap + extents[right].left
    return offsets


def _spread(
    row: Sequence[int],
    at: list[float],
    offsets: Sequence[float],
    wanted: Sequence[tuple[float, float]],
) -> None:
    """Place a row: least squares of the deviations, with all distances kept.

    ``wanted`` has the desired position and weight of each. With the offsets subtracted this is
    isotonic regression: adjacent places in the wrong order are merged into blocks at their mean.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, size
    for (where, weight), offset in zip(wanted, offsets, strict=True):
        mean, count = where - offset, 1
        while blocks and blocks[-1][0] >= mean:
            other, other_weight, other_count = blocks.pop()
            mean = (mean * weight + other * other_weight) / (weight + other_weight)
            weight += other_weight
            count += other_count
        blocks.append((mean, weight, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    for place, mean, offset in zip(row, means, offsets, strict=True):
        at[place] = mean + offset


MARGIN = 16.0
ROW_GAP = 46.0
LABEL_ROOM = 20.0
"""Extra space between rows whose lines have labels."""
EXIT_GAP = 26.0
"""Between the points at which lines leave a box."""
ARROW = 8.0
LINE_EXTENT = Extent(left=1.0, right=1.0)
_CANDIDATES = (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78)
"""Positions of a label along its line, best first."""


class Size(Value):
    width: float
    height: float
    aside: float = 0.0
    """Reserved space to the right of the box."""


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
    """A line to draw: the numbers of its ends, and the size of its label."""

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
    """The first stretch of each link: to its target, or to where it joins others with that target.
    """
    trunks: tuple[Stretch, ...]
    """Stretches that links with one target share, top to bottom."""
    labels: tuple[Rectangle | None, ...]
    width: float
    height: float


def laid_out(sizes: Sequence[Size], links: Sequence[Link]) -> Layout:
    """Lay out boxes top to bottom. The caller merges links that share both ends."""
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
    """The vertical extent of each row; wide lines get more room to turn."""
    row_of = {place: number for number, row in enumerate(layers.rows) for place in row}
    labeled = {row_of[link.source] for link in links if link.label is not None}
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
        top += LABEL_ROOM if number in labeled else 0.0
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
    """Where each line leaves its box: side by side, ordered by target."""
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
    """Labels on the first stretch of their lines, without overlaps if possible."""
    taken: dict[float, list[Rectangle]] = {}
    labels: list[Rectangle | None] = []
    for link, line in zip(links, lines, strict=True):
        if link.label is None:
            labels.append(None)
            continue
        near = taken.setdefault(line.segment.turn_y, [])  # labels between the same rows
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
