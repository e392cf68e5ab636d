"""Where the places of each row stand: as near to their neighbours as the others let them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.model.value import Value
from perdure.pictures.layering import Layers

GAP = 30.0
"""Between two boxes of a row."""
GAP_AT_LINE = 18.0
"""Between two places of which one is that of a line."""
SWEEPS_ONE_SIDED, SWEEPS_BOTH = 2, 10


class Extent(Value):
    """How far a place reaches to the left and to the right of where its lines meet it."""

    left: float
    right: float


def placed(layers: Layers, extents: Sequence[Extent], box_count: int) -> list[float]:
    """The middle of each place; places of one row do not overlap."""
    at = [0.0] * len(layers.above)
    offsets = [_offsets(row, extents, box_count) for row in layers.rows]
    for row, least in zip(layers.rows, offsets, strict=True):
        _spread(row, at, least, [at_least - least[-1] / 2 for at_least in least], [1.0] * len(row))
    for sweep in range(2 * (SWEEPS_ONE_SIDED + SWEEPS_BOTH)):
        is_downward = sweep % 2 == 0
        is_one_sided = sweep < 2 * SWEEPS_ONE_SIDED
        rows = list(zip(layers.rows, offsets, strict=True))
        for row, least in rows if is_downward else reversed(rows):
            wanted, weights = [], []
            for place in row:
                above, below = layers.above[place], layers.below[place]
                if is_one_sided:
                    above, below = (above, ()) if is_downward else ((), below)
                where, weight = _pull(place, (*above, *below), at, box_count)
                wanted.append(where)
                weights.append(weight)
            _spread(row, at, least, wanted, weights)
    left = min((at[each] - extents[each].left for each in range(len(at))), default=0.0)
    return [each - left for each in at]


def _pull(
    place: int, neighbours: Sequence[int], at: Sequence[float], box_count: int
) -> tuple[float, float]:
    """Where its neighbours want it, and how much. Long lines want most to be straight."""
    if not neighbours:
        return at[place], 0.5
    weights = [
        (1 if place < box_count else 3) * (1 if each < box_count else 3) for each in neighbours
    ]
    total = sum(weights)
    return sum(
        at[each] * weight for each, weight in zip(neighbours, weights, strict=True)
    ) / total, float(total)


def _offsets(row: Sequence[int], extents: Sequence[Extent], box_count: int) -> list[float]:
    """How far right of the first one each must stand at least."""
    offsets = [0.0] * len(row)
    for number, (left, right) in enumerate(zip(row, row[1:], strict=False), 1):
        gap = GAP if left < box_count and right < box_count else GAP_AT_LINE
        offsets[number] = offsets[number - 1] + extents[left].right + gap + extents[right].left
    return offsets


def _spread(
    row: Sequence[int],
    at: list[float],
    offsets: Sequence[float],
    wanted: Sequence[float],
    weights: Sequence[float],
) -> None:
    """Place a row: the least sum of squares of what each is off, with all distances kept.

    With the offsets taken away this is isotonic regression: neighbours in the wrong order are
    merged into blocks that stand at their mean.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
    for where, weight, offset in zip(wanted, weights, offsets, strict=True):
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
