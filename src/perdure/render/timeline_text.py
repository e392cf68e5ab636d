"""Timelines as text: rows of equal slots, each showing its most important activity."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from perdure.model.times import brief
from perdure.model.value import Value
from perdure.render.diagram import NodeMark
from perdure.render.svg import SIGNS, shortened
from perdure.render.timeline import (
    BarEnd,
    Doing,
    Slot,
    Timeline,
    TimelineRow,
    slots_of,
    ticks,
    total_of,
)

WIDTH_MIN = 30
_CHART_MIN = 8
_TICK_ROOM = 6
ERRORS_MAX = 10


class Glyphs(Value):
    """The characters of bars."""

    doings: dict[Doing, str]
    endings: dict[BarEnd, str]
    levels: str
    """For maps: higher for more active items."""
    signs: dict[NodeMark, str]
    ellipsis: str


UNICODE = Glyphs(
    doings={Doing.WORK: "█", Doing.WAIT: "░", Doing.CHILD: "▒", Doing.UNDO: "◀"},
    endings={BarEnd.RETRIED: "↻", BarEnd.FAILED: "✗", BarEnd.CANCELLED: "■"},
    levels="▁▂▃▄▅▆▇█",
    signs=SIGNS,
    ellipsis="…",
)
ASCII = Glyphs(
    doings={Doing.WORK: "#", Doing.WAIT: ".", Doing.CHILD: "=", Doing.UNDO: "<"},
    endings={BarEnd.RETRIED: "r", BarEnd.FAILED: "x", BarEnd.CANCELLED: "!"},
    levels="-+*#",
    signs={
        NodeMark.COMPLETED: "+",
        NodeMark.LIVE: ">",
        NodeMark.WAITING: "~",
        NodeMark.PAUSED: "=",
        NodeMark.FAILED: "x",
        NodeMark.SKIPPED: "-",
        NodeMark.BLOCKED: "o",
        NodeMark.CANCELLED: "!",
        NodeMark.NOT_REACHED: "",
    },
    ellipsis="~",
)


class Piece(Value):
    """A string with its meaning."""

    text: str
    mark: NodeMark | None = None


Line = list[Piece]


def timeline_lines(timeline: Timeline, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """An axis, a row for each node, a legend, and the failures."""
    width = max(width, WIDTH_MIN)
    labels = [f"{glyphs.signs[row.mark] or ' '} {row.node}" for row in timeline.rows]
    rights = []
    for row in timeline.rows:
        span = total_of(timeline, row)
        took = "" if span is None else brief(span[1] - span[0])
        is_map = row.items is not None
        rights.append(f"{row.items_completed}/{row.items} {took}" if is_map else took or row.mark)
    right_width = max(map(len, rights), default=0)
    most = max(8, min(width // 3, width - right_width - _CHART_MIN - 4))
    label_width = min(most, max(map(len, labels), default=0))
    chart = max(_CHART_MIN, width - label_width - right_width - 4)
    yield _axis(timeline, label_width, chart)
    for row, label, right in zip(timeline.rows, labels, rights, strict=True):
        shown = shortened(label, label_width).replace("…", glyphs.ellipsis)
        slots = slots_of(timeline, row, chart)
        yield [
            Piece(text=f"{shown:{label_width}}  ", mark=row.mark),
            *_bar(row, slots, glyphs),
            Piece(text=f"  {right:>{right_width}}"),
        ]
    yield [Piece(text="")]
    yield from _wrapped_legend(timeline, glyphs, width)
    yield from _errors(timeline, glyphs)


def _axis(timeline: Timeline, label_width: int, chart: int) -> Line:
    """Round times since the start, at their positions."""
    span = timeline.until - timeline.started_at
    text = ""
    for tick in ticks(span, max(2, chart // _TICK_ROOM)):
        at = round(tick / span * chart) if span else 0
        label = brief(tick)
        if at >= len(text) and at + len(label) <= chart:
            text = f"{text:{at}}{label} "
    return [Piece(text=f"{'':{label_width + 2}}{text.rstrip()}")]


def _bar(row: TimelineRow, slots: list[Slot], glyphs: Glyphs) -> Line:
    """One piece for adjacent slots with the same meaning."""
    pieces: Line = []
    for mark, together in groupby(slots, lambda slot: _mark(row, slot)):
        pieces.append(
            Piece(text="".join(_glyph(row, each, glyphs) for each in together), mark=mark)
        )
    return pieces


def _glyph(row: TimelineRow, slot: Slot, glyphs: Glyphs) -> str:
    if slot.ending is not BarEnd.OPEN:
        return glyphs.endings[slot.ending]
    if slot.doing is None:
        return " "
    if row.items is not None and slot.doing in (Doing.WORK, Doing.CHILD):
        return glyphs.levels[min(len(glyphs.levels) - 1, int(slot.share * len(glyphs.levels)))]
    return glyphs.doings[slot.doing]


def _mark(row: TimelineRow, slot: Slot) -> NodeMark | None:
    match slot.ending:
        case BarEnd.RETRIED | BarEnd.FAILED:
            return NodeMark.FAILED
        case BarEnd.CANCELLED:
            return NodeMark.CANCELLED
    if slot.doing in (Doing.WAIT, Doing.CHILD):
        return NodeMark.WAITING
    return None if slot.doing is None else row.mark


def _wrapped_legend(timeline: Timeline, glyphs: Glyphs, width: int) -> Iterator[Line]:
    bars = [bar for row in timeline.rows for bar in row.bars]
    doings = {bar.doing for bar in bars}
    endings = {bar.ending for bar in bars}
    entries = [f"{glyphs.doings[each]} {each.label}" for each in Doing if each in doings]
    entries += [f"{glyphs.endings[each]} {each}" for each in glyphs.endings if each in endings]
    if any(row.items is not None for row in timeline.rows):
        entries.append(f"{glyphs.levels[0]}-{glyphs.levels[-1]} items at once")
    line = ""
    for each in entries:
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
        after = brief((bar.ended_at or timeline.until) - timeline.started_at)
        heading = f"{glyphs.endings[bar.ending]} {bar.key}, attempt {bar.attempt}, at {after}: "
        yield [Piece(text=heading, mark=NodeMark.FAILED), Piece(text=" ".join(bar.error.split()))]
    if len(failed) > ERRORS_MAX:
        yield [Piece(text=f"and {len(failed) - ERRORS_MAX} more errors")]
