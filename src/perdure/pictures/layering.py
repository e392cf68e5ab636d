"""The layers of a picture: which row each box is in, and the order within each row.

As Sugiyama does it: a box lies below all boxes that lead to it; a line that passes a row has a
place there, so that it need not cross boxes; places are ordered by where their neighbours are.
Lines to one box share their places, so that they come together before it. Boxes are numbers, and
no line may lead back.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Sequence

from perdure.model.value import Value

Line = tuple[int, int]

SWEEPS = 8
"""How often rows are put in order, from the top and from the bottom in turn."""


class Layers(Value):
    """Boxes come first in the numbering; what follows are places of lines that pass a row."""

    rows: tuple[tuple[int, ...], ...]
    heads: tuple[int, ...]
    """Where each line goes first: to its end, or to a place in the next row."""
    onward: dict[int, int]
    """Where it goes on from a place."""
    above: tuple[tuple[int, ...], ...]
    below: tuple[tuple[int, ...], ...]
    """The neighbours of each place, in the rows next to its own."""


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
    """The row of each box: below all that lead to it, and close to what it leads to."""
    targets: list[list[int]] = [[] for _ in range(count)]
    left = [0] * count
    for source, target in lines:
        targets[source].append(target)
        left[target] += 1
    is_start = [not each for each in left]
    ranks = [0] * count
    ready = [box for box in range(count) if is_start[box]]
    for box in ready:  # grows while it is read
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
    """Where lines go first, and from there; adds the places that they pass to ``ranks``."""
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
    """Each place near the one from which it is reached first."""
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
    """The order with the fewest crossings that the sweeps come across."""
    best, least = rows, crossings(rows, below)
    for sweep in range(SWEEPS):
        if not least:
            break
        rows = _swept(rows, above) if sweep % 2 == 0 else _swept(rows[::-1], below)[::-1]
        count = crossings(rows, below)
        if count < least:
            best, least = rows, count
    return best


def _swept(rows: list[list[int]], neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    """Each row by the middle of its neighbours in the row before."""
    swept: list[list[int]] = []
    at: dict[int, float] = {}
    for row in rows:
        keys = {}
        for number, place in enumerate(row):
            known = [at[each] for each in neighbours[place] if each in at]
            # One without neighbours stays about where it is.
            keys[place] = sum(known) / len(known) if known else number / max(1, len(row))
        ordered = sorted(row, key=keys.__getitem__)
        swept.append(ordered)
        at = {place: number / len(row) for number, place in enumerate(ordered)}
    return swept


def crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """How many pairs of lines between neighbouring rows cross."""
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
