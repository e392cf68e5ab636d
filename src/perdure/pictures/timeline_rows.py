"""Rows of a timeline cut into equal slots, for renderers that draw with characters.

The most telling thing in a slot is what is shown of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from perdure.model.value import Value
from perdure.pictures.timeline import Bar, Doing, Ending, Timeline, TimelineRow


class Slot(Value):
    doing: Doing | None = None
    ending: Ending = Ending.OPEN
    """How a bar ended in this slot, if that was not well."""
    share: float = 0.0
    """Of a map: how many of its items were at it, compared with the fullest slot of the row."""


EMPTY = Slot()
_BAD = (Ending.RETRIED, Ending.FAILED, Ending.CANCELLED)


def slots_of(timeline: Timeline, row: TimelineRow, count: int) -> list[Slot]:
    """The row in so many slots, from the beginning of the run to its end, or to now."""
    doings: list[Doing | None] = [None] * count
    endings = [Ending.OPEN] * count
    steps = [0] * (count + 1)
    for bar in row.bars:
        first, last = _slots(timeline, bar, count)
        for at in range(first, last + 1):
            doings[at] = _more_telling(doings[at], bar.doing)
        steps[first] += 1
        steps[last + 1] -= 1
        if bar.ending in _BAD and endings[last] is not Ending.FAILED:
            endings[last] = bar.ending
    live = list(_running_sums(steps))
    most = max(live, default=0)
    return [
        Slot(doing=doing, ending=ending, share=at_once / most if most else 0.0)
        for doing, ending, at_once in zip(doings, endings, live, strict=False)
    ]


def total_of(timeline: Timeline, row: TimelineRow) -> tuple[datetime, datetime] | None:
    """From when to when something was in a row; None if nothing ever was."""
    if not row.bars:
        return None
    ends = [bar.ended_at or timeline.until for bar in row.bars]
    return min(bar.begun_at for bar in row.bars), max(ends)


def _slots(timeline: Timeline, bar: Bar, count: int) -> tuple[int, int]:
    span = (timeline.until - timeline.begun_at).total_seconds() or 1.0
    first = (bar.begun_at - timeline.begun_at).total_seconds() / span * count
    end = ((bar.ended_at or timeline.until) - timeline.begun_at).total_seconds() / span * count
    at = max(0, min(count - 1, int(first)))
    # A bar that ends where a slot begins has nothing in it.
    last = int(end) - 1 if end == int(end) and end > first else int(end)
    return at, max(at, min(count - 1, last))


def _more_telling(one: Doing | None, other: Doing) -> Doing:
    order: Sequence[Doing | None] = (None, Doing.WAIT, Doing.CHILD, Doing.WORK, Doing.UNDO)
    return other if one is None or order.index(other) > order.index(one) else one


def _running_sums(steps: Sequence[int]) -> list[int]:
    sums, total = [], 0
    for step in steps:
        total += step
        sums.append(total)
    return sums[:-1]
