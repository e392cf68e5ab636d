"""Timelines as text: rows cut into equal slots, each showing the most telling thing in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from perdure.model.value import Value
from perdure.operations.insight.timeline import Bar, Doing, Ending, Timeline, TimelineRow
from perdure.render.diagram import Mark
from perdure.render.svg import SIGNS, shortened


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


_STEPS = (
    *(mantissa * 10.0**power for power in range(-3, 1) for mantissa in (1, 2, 5)),
    *(10.0, 15.0, 30.0),
    *(60.0 * each for each in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * each for each in (1, 2, 3, 6, 12)),
)
_DAY = 86_400.0


def ticks(span: timedelta, most: int) -> list[timedelta]:
    """Round times from the beginning on, at most so many."""
    seconds = span.total_seconds()
    step = next((each for each in _STEPS if seconds / each < most), None)
    if step is None:
        step = _DAY
        while seconds / step >= most:
            step *= 2
    return [timedelta(seconds=step * number) for number in range(int(seconds / step) + 1)]


def brief(span: timedelta) -> str:
    """A span in a few characters, with the digits that matter: ``350ms``, ``2.5s``, ``1h05m``."""
    seconds = span.total_seconds()
    if seconds < 0.0005:
        return "0s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    minutes = round(seconds / 60)
    if seconds < 3600 - 30:
        whole, rest = divmod(round(seconds), 60)
        return f"{whole}m{rest:02}s" if rest else f"{whole}m"
    if seconds < _DAY - 30:
        return f"{minutes // 60}h{minutes % 60:02}m" if minutes % 60 else f"{minutes // 60}h"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24}h" if hours % 24 else f"{hours // 24}d"


WIDTH_MIN = 30
_CHART_MIN = 8
_TICK_ROOM = 6
ERRORS_MAX = 10


class Glyphs(Value):
    """What bars are made of."""

    doings: dict[Doing, str]
    endings: dict[Ending, str]
    levels: str
    """For maps: the more at once, the higher."""
    signs: dict[Mark, str]
    ellipsis: str


UNICODE = Glyphs(
    doings={Doing.WORK: "█", Doing.WAIT: "░", Doing.CHILD: "▒", Doing.UNDO: "◀"},
    endings={Ending.RETRIED: "↻", Ending.FAILED: "✗", Ending.CANCELLED: "■"},
    levels="▁▂▃▄▅▆▇█",
    signs=SIGNS,
    ellipsis="…",
)
ASCII = Glyphs(
    doings={Doing.WORK: "#", Doing.WAIT: ".", Doing.CHILD: "=", Doing.UNDO: "<"},
    endings={Ending.RETRIED: "r", Ending.FAILED: "x", Ending.CANCELLED: "!"},
    levels="-+*#",
    signs={
        Mark.COMPLETED: "+",
        Mark.LIVE: ">",
        Mark.WAITING: "~",
        Mark.PAUSED: "=",
        Mark.FAILED: "x",
        Mark.SKIPPED: "-",
        Mark.BLOCKED: "o",
        Mark.CANCELLED: "!",
        Mark.NOT_REACHED: "",
    },
    ellipsis="~",
)


class Piece(Value):
    """Text, and what it stands for."""

    text: str
    mark: Mark | None = None


Line = list[Piece]


def timeline_lines(timeline: Timeline, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """An axis, a row for each node, the signs that were used, and what went wrong."""
    width = max(width, WIDTH_MIN)
    labels = [_label(row, glyphs) for row in timeline.rows]
    rights = [_right(timeline, row) for row in timeline.rows]
    right_width = max(map(len, rights), default=0)
    most = max(8, min(width // 3, width - right_width - _CHART_MIN - 4))
    label_width = min(most, max(map(len, labels), default=0))
    chart = max(_CHART_MIN, width - label_width - right_width - 4)
    yield _axis(timeline, label_width, chart)
    for row, label, right in zip(timeline.rows, labels, rights, strict=True):
        shown = _cut(label, label_width, glyphs)
        slots = slots_of(timeline, row, chart)
        yield [
            Piece(text=f"{shown:{label_width}}  ", mark=row.mark),
            *_bar(row, slots, glyphs),
            Piece(text=f"  {right:>{right_width}}"),
        ]
    yield [Piece(text="")]
    yield from _wrapped_legend(timeline, glyphs, width)
    yield from _errors(timeline, glyphs)


def _label(row: TimelineRow, glyphs: Glyphs) -> str:
    return f"{glyphs.signs[row.mark] or ' '} {row.node}"


def _cut(text: str, length: int, glyphs: Glyphs) -> str:
    return shortened(text, length).replace("…", glyphs.ellipsis)


def _right(timeline: Timeline, row: TimelineRow) -> str:
    span = total_of(timeline, row)
    took = "" if span is None else brief(span[1] - span[0])
    if row.items is not None:
        return f"{row.items_completed}/{row.items} {took}"
    return took or row.mark.value


def _axis(timeline: Timeline, label_width: int, chart: int) -> Line:
    """Round times since the beginning, each where it belongs."""
    span = timeline.until - timeline.begun_at
    text = ""
    for tick in ticks(span, max(2, chart // _TICK_ROOM)):
        at = round(tick / span * chart) if span else 0
        told = brief(tick)
        if at >= len(text) and at + len(told) <= chart:
            text = f"{text:{at}}{told} "
    return [Piece(text=f"{'':{label_width + 2}}{text.rstrip()}")]


def _bar(row: TimelineRow, slots: list[Slot], glyphs: Glyphs) -> Line:
    """One piece for all slots in a row that mean the same."""
    pieces: Line = []
    for mark, together in groupby(slots, lambda slot: _mark(row, slot)):
        pieces.append(
            Piece(text="".join(_glyph(row, each, glyphs) for each in together), mark=mark)
        )
    return pieces


def _glyph(row: TimelineRow, slot: Slot, glyphs: Glyphs) -> str:
    if slot.ending is not Ending.OPEN:
        return glyphs.endings[slot.ending]
    if slot.doing is None:
        return " "
    if row.items is not None and slot.doing in (Doing.WORK, Doing.CHILD):
        return glyphs.levels[min(len(glyphs.levels) - 1, int(slot.share * len(glyphs.levels)))]
    return glyphs.doings[slot.doing]


def _mark(row: TimelineRow, slot: Slot) -> Mark | None:
    match slot.ending:
        case Ending.RETRIED | Ending.FAILED:
            return Mark.FAILED
        case Ending.CANCELLED:
            return Mark.CANCELLED
    if slot.doing in (Doing.WAIT, Doing.CHILD):
        return Mark.WAITING
    return None if slot.doing is None else row.mark


def _wrapped_legend(timeline: Timeline, glyphs: Glyphs, width: int) -> Iterator[Line]:
    bars = [bar for row in timeline.rows for bar in row.bars]
    doings = {bar.doing for bar in bars}
    endings = {bar.ending for bar in bars}
    told = [f"{glyphs.doings[each]} {each.label}" for each in Doing if each in doings]
    told += [f"{glyphs.endings[each]} {each}" for each in glyphs.endings if each in endings]
    if any(row.items is not None for row in timeline.rows):
        told.append(f"{glyphs.levels[0]}-{glyphs.levels[-1]} items at once")
    line = ""
    for each in told:
        if line and len(line) + 3 + len(each) > width:
            yield [Piece(text=line)]
            line = ""
        line = f"{line}   {each}" if line else each
    if line:
        yield [Piece(text=line)]


def _errors(timeline: Timeline, glyphs: Glyphs) -> Iterator[Line]:
    failed = [bar for row in timeline.rows for bar in row.bars if bar.error]
    failed.sort(key=lambda bar: bar.ended_at or timeline.until)
    for bar in failed[:ERRORS_MAX]:
        after = brief((bar.ended_at or timeline.until) - timeline.begun_at)
        told = f"{glyphs.endings[bar.ending]} {bar.key}, attempt {bar.attempt}, at {after}: "
        yield [Piece(text=told, mark=Mark.FAILED), Piece(text=" ".join(bar.error.split()))]
    if len(failed) > ERRORS_MAX:
        yield [Piece(text=f"and {len(failed) - ERRORS_MAX} more errors")]
