"""The layers of a picture: which row each box is in, and the order within each row.

As Sugiyama does it: a box lies below all boxes that lead to it; a line that passes a row has a
place there, so that it need not cross boxes; places are ordered by where their neighbours are.
Lines to one box share their places, so that they come together before it. Boxes are numbers, and
no line may lead back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from perdure.model.value import Value

Line = tuple[int, int]

SWEEPS = 8
"""How often rows are put in order, from the top and from the bottom in turn."""


class Layers(Value):
    """Boxes come first in the numbering; what follows are places of lines that pass a row."""

    rows: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]
    """The places that each line goes through, both ends included."""
    above: tuple[tuple[int, ...], ...]
    below: tuple[tuple[int, ...], ...]
    """The neighbours of each place, in the rows next to its own."""


def layered(count: int, lines: Sequence[Line]) -> Layers:
    ranks = ranks_of(count, lines)
    routes = _routed(ranks, lines)
    segments = dict.fromkeys(
        pair for route in routes for pair in zip(route, route[1:], strict=False)
    )
    above: list[list[int]] = [[] for _ in ranks]
    below: list[list[int]] = [[] for _ in ranks]
    for upper, lower in segments:
        below[upper].append(lower)
        above[lower].append(upper)
    rows = _ordered(_first_order(ranks, below), above, below)
    return Layers(
        rows=tuple(map(tuple, rows)),
        routes=tuple(map(tuple, routes)),
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


def _routed(ranks: list[int], lines: Sequence[Line]) -> list[list[int]]:
    """The way of each line, row by row; adds the places between its ends to ``ranks``."""
    places: dict[tuple[int, int], int] = {}
    routes = []
    for source, target in lines:
        route = [source]
        for rank in range(ranks[source] + 1, ranks[target]):
            place = places.get((target, rank))
            if place is None:
                place = places[target, rank] = len(ranks)
                ranks.append(rank)
            route.append(place)
        routes.append([*route, target])
    return routes


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
    for upper, lower in zip(rows, rows[1:], strict=False):
        at = {place: number for number, place in enumerate(lower)}
        passed: list[int] = []
        for place in upper:
            ends = sorted(at[each] for each in below[place])
            count += sum(len(passed) - bisect_left(passed, end + 1) for end in ends)
            for end in ends:
                insort(passed, end)
    return count
