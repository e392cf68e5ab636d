"""The contents of a timeline of a run, and its time slots, independent of its format."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate

from perdure.model.ids import RunId
from perdure.model.run import RunStatus
from perdure.model.value import Value
from perdure.render.diagram import NodeMark


class Doing(StrEnum):
    WORK = "work"
    WAIT = "wait"
    """For a time, a signal, a person, or an external callback."""
    CHILD = "child"
    UNDO = "undo"

    @property
    def label(self) -> str:
        """The label for people: a log does not record when a worker claimed a job."""
        return "queued or running" if self is Doing.WORK else self.value


class BarEnd(StrEnum):
    OPEN = ""
    """It has not ended."""
    COMPLETED = "completed"
    RETRIED = "retried"
    """The attempt failed; another one follows."""
    FAILED = "failed"
    PAUSED = "paused"
    """The run was paused, or the task, to wait for an external callback."""
    CANCELLED = "cancelled"


class Bar(Value, omit_defaults=True):
    """A period of time in a row."""

    doing: Doing
    started_at: datetime
    key: str
    ended_at: datetime | None = None
    """None: it has not ended."""
    ending: BarEnd = BarEnd.OPEN
    attempt: int = 1
    error: str = ""


class TimelineRow(Value, omit_defaults=True):
    """The bars of one node of a run."""

    node: str
    mark: NodeMark
    bars: tuple[Bar, ...] = ()
    items: int | None = None
    """The number of items of a map."""
    items_completed: int = 0


class Timeline(Value, omit_defaults=True):
    """When each node of a run was queued, running or waiting."""

    run: RunId
    flow: str
    status: RunStatus
    started_at: datetime
    until: datetime
    """When the run ended, or the time of the snapshot if it has not."""
    rows: tuple[TimelineRow, ...] = ()
    """In the order in which the run reached the nodes."""

    def svg(self) -> str:
        """The timeline as a self-contained SVG."""
        from perdure.render.timeline_svg import timeline_svg  # imported only when used

        return timeline_svg(self)


class Slot(Value):
    doing: Doing | None = None
    ending: BarEnd = BarEnd.OPEN
    """How a bar ended in this slot, unless it succeeded."""
    share: float = 0.0
    """For a map: its active items relative to the fullest slot of the row."""


_BAD = (BarEnd.RETRIED, BarEnd.FAILED, BarEnd.CANCELLED)
_PRIORITY = (None, Doing.WAIT, Doing.CHILD, Doing.WORK, Doing.UNDO)
"""Priority among several activities in a slot: the last of these wins."""


def slots_of(timeline: Timeline, row: TimelineRow, count: int) -> list[Slot]:
    """The row in ``count`` slots, from the start of the run to its end, or to now."""
    span = (timeline.until - timeline.started_at).total_seconds() or 1.0
    doings: list[Doing | None] = [None] * count
    endings = [BarEnd.OPEN] * count
    changes = [0] * (count + 1)
    for bar in row.bars:
        begin, end = (
            (at - timeline.started_at).total_seconds() / span * count
            for at in (bar.started_at, bar.ended_at or timeline.until)
        )
        first = max(0, min(count - 1, int(begin)))
        # A bar that ends where a slot starts is not in that slot.
        last = int(end) - 1 if end == int(end) and end > begin else int(end)
        last = max(first, min(count - 1, last))
        for at in range(first, last + 1):
            doings[at] = max(doings[at], bar.doing, key=_PRIORITY.index)
        changes[first] += 1
        changes[last + 1] -= 1
        if bar.ending in _BAD and endings[last] is not BarEnd.FAILED:
            endings[last] = bar.ending
    live = list(accumulate(changes[:-1]))
    most = max(live, default=0)
    return [
        Slot(doing=doing, ending=ending, share=at_once / most if most else 0.0)
        for doing, ending, at_once in zip(doings, endings, live, strict=True)
    ]


def total_of(timeline: Timeline, row: TimelineRow) -> tuple[datetime, datetime] | None:
    """The first start and last end in a row; None if it is empty."""
    if not row.bars:
        return None
    ends = [bar.ended_at or timeline.until for bar in row.bars]
    return min(bar.started_at for bar in row.bars), max(ends)


_STEPS = (
    *(mantissa * 10.0**power for power in range(-3, 1) for mantissa in (1, 2, 5)),
    *(10.0, 15.0, 30.0),
    *(60.0 * each for each in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * each for each in (1, 2, 3, 6, 12)),
)
_DAY = 86_400.0


def ticks(span: timedelta, most: int) -> list[timedelta]:
    """Up to ``most`` round times since the start."""
    seconds = span.total_seconds()
    step = next((each for each in _STEPS if seconds / each < most), None)
    if step is None:
        step = _DAY
        while seconds / step >= most:
            step *= 2
    return [timedelta(seconds=step * number) for number in range(int(seconds / step) + 1)]
