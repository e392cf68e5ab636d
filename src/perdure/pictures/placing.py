"""Where the places of each row stand: as near to their neighbours as the others let them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from perdure.model.value import Value
from perdure.pictures.layering import Layers

GAP = 30.0
"""Between two boxes of a row."""
GAP_AT_LINE = 18.0
"""Between two places of which one is that of a line."""
STRAIGHT = 4.0
"""How much more a place of a line pulls, and is pulled, than a box."""
SWEEPS_MIN, SWEEPS_MAX = 3, 18
"""How often all rows are gone through, from the top and back again."""
VISITS_MAX = 100_000
"""How often places are looked at in all, before fewer sweeps have to do."""


class Extent(Value):
    """How far a place reaches to the left and to the right of where its lines meet it."""

    left: float
    right: float


def placed(layers: Layers, extents: Sequence[Extent], box_count: int) -> list[float]:
    """The middle of each place; places of one row do not overlap."""
    at = [0.0] * len(layers.above)
    weights = [1.0 if place < box_count else STRAIGHT for place in range(len(at))]
    rows = [(row, _offsets(row, extents, box_count)) for row in layers.rows]
    for row, least in rows:
        _spread(row, at, least, [(each - least[-1] / 2, 1.0) for each in least])
    both = [(*up, *down) for up, down in zip(layers.above, layers.below, strict=True)]
    sweeps = max(SWEEPS_MIN, min(SWEEPS_MAX, VISITS_MAX // (2 * len(at) + 1)))
    for sweep in range(sweeps):
        # At first each row goes by the one before it alone: what is far away is heard of sooner.
        downward, upward = (layers.above, layers.below) if sweep < SWEEPS_MIN - 1 else (both, both)
        for row, least in rows:
            _spread(row, at, least, [_pull(place, downward[place], at, weights) for place in row])
        for row, least in reversed(rows):
            _spread(row, at, least, [_pull(place, upward[place], at, weights) for place in row])
    left = min((at[each] - extents[each].left for each in range(len(at))), default=0.0)
    return [each - left for each in at]


def _pull(
    place: int, neighbours: Sequence[int], at: Sequence[float], weights: Sequence[float]
) -> tuple[float, float]:
    """Where its neighbours want it, and how much. Long lines want most to be straight."""
    total = sum([weights[each] for each in neighbours])
    if not total:
        return at[place], 0.5
    where = sum([at[each] * weights[each] for each in neighbours]) / total
    return where, total * weights[place]


def _offsets(row: Sequence[int], extents: Sequence[Extent], box_count: int) -> list[float]:
    """How far right of the first one each must stand at least."""
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
    """Place a row: the least sum of squares of what each is off, with all distances kept.

    ``wanted`` is where each wants to be, and how much. With the offsets taken away this is
    isotonic regression: neighbours in the wrong order are merged into blocks that stand at their
    mean.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
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
