"""Timelines as self-contained SVG: a row for each node, a bar for each period."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

from perdure.model.times import brief
from perdure.render.diagram import NodeMark
from perdure.render.svg import (
    FAINT,
    INK,
    LINE,
    NOTE,
    PAPER,
    SIGN_RADIUS,
    STYLES,
    TITLE,
    badge,
    escaped,
    frame,
    n,
    shortened,
    text,
    width_of,
)
from perdure.render.timeline import (
    Bar,
    BarEnd,
    Doing,
    Timeline,
    TimelineRow,
    slots_of,
    ticks,
    total_of,
)

ROW = 24.0
BAR = 14.0
CHART = 640.0
MARGIN = 16.0
TOP = 58.0
LABEL_MAX = 32
MAP_SLOTS = 160
"""Columns into which the items of a map are grouped."""
_MARKS = {
    BarEnd.FAILED: NodeMark.FAILED,
    BarEnd.RETRIED: NodeMark.FAILED,
    BarEnd.CANCELLED: NodeMark.CANCELLED,
    BarEnd.PAUSED: NodeMark.PAUSED,
    BarEnd.COMPLETED: NodeMark.COMPLETED,
    BarEnd.OPEN: NodeMark.LIVE,
}


def timeline_svg(timeline: Timeline) -> str:
    """A timeline as SVG. Deterministic."""
    labels = [shortened(row.node, LABEL_MAX) for row in timeline.rows]
    left = MARGIN + 24 + max((width_of(each, NOTE) for each in labels), default=0.0) + 10
    rights = []
    for row in timeline.rows:
        span = total_of(timeline, row)
        took = row.mark.value if span is None else brief(span[1] - span[0])
        is_map = row.items is not None
        rights.append(f"{row.items_completed}/{row.items} items, {took}" if is_map else took)
    right = max((width_of(each, NOTE) for each in rights), default=0.0) + 10
    title = f"{timeline.run}: {timeline.flow} ({timeline.status})"
    width = max(left + CHART + right + MARGIN, width_of(shortened(title, 80), TITLE) + 2 * MARGIN)
    height = TOP + ROW * len(timeline.rows) + 34
    hatch = f"wait-{crc32(title.encode()):08x}"
    parts = [
        *frame(title, described(timeline), width, height),
        _hatching(hatch),
        *_axis(timeline, left, height - 34),
    ]
    for number, (row, label, note) in enumerate(zip(timeline.rows, labels, rights, strict=True)):
        y = TOP + ROW * number
        parts += _row(timeline, row, (left, y), hatch)
        parts += badge(row.mark, MARGIN + SIGN_RADIUS, y + ROW / 2)
        parts.append(text(MARGIN + 24, y + 16, label, NOTE, INK))
        parts.append(text(left + CHART + 8, y + 16, note, NOTE, LINE))
    parts += [*_legend(timeline, height - 20, hatch), "</svg>"]
    return "\n".join(parts) + "\n"


def described(timeline: Timeline) -> str:
    """The timeline in a sentence."""
    took = brief(timeline.until - timeline.started_at)
    started = timeline.started_at.isoformat(sep=" ", timespec="seconds")
    retries = sum(bar.ending is BarEnd.RETRIED for row in timeline.rows for bar in row.bars)
    status = f"The run is {timeline.status}; started {started}, {took} until its end or now. "
    return f"{status}{len(timeline.rows)} nodes were reached, {retries} attempts were retried."


def _axis(timeline: Timeline, left: float, bottom: float) -> Iterator[str]:
    span = timeline.until - timeline.started_at
    for tick in ticks(span, 9):
        x = left + (tick / span * CHART if span else 0.0)
        yield f'<path d="M{n(x)} {n(TOP - 8)}V{n(bottom)}" stroke="{FAINT}"/>'
        yield text(x, TOP - 13, brief(tick), NOTE, LINE, "middle")


def _row(
    timeline: Timeline, row: TimelineRow, corner: tuple[float, float], hatch: str
) -> Iterator[str]:
    left, y = corner
    if row.items is not None:
        yield from _map_row(timeline, row, corner)
        return
    span = (timeline.until - timeline.started_at).total_seconds() or 1.0
    ends = []
    for bar in row.bars:
        x1, x2 = (
            left + (at - timeline.started_at).total_seconds() / span * CHART
            for at in (bar.started_at, bar.ended_at or timeline.until)
        )
        yield _bar(bar, x1, max(2.0, x2 - x1), y + (ROW - BAR) / 2, hatch)
        ends.append((bar, x2))
    for bar, x in ends:  # on top of all bars, because the next one starts where this one ends
        if bar.ending in (BarEnd.FAILED, BarEnd.RETRIED, BarEnd.CANCELLED):
            yield from badge(_MARKS[bar.ending], x, y + ROW / 2)
        elif bar.ended_at is None:
            tip = f"M{n(x)} {n(y + 6)}l6 {n(ROW / 2 - 6)}l-6 {n(ROW / 2 - 6)}Z"
            yield f'<path d="{tip}" fill="{LINE}"/>'


def _bar(bar: Bar, x: float, width: float, y: float, hatch: str) -> str:
    is_wait = bar.doing in (Doing.WAIT, Doing.CHILD)
    style = STYLES[NodeMark.WAITING if is_wait else _MARKS[bar.ending]]
    fill = f"url(#{hatch})" if is_wait else style.fill
    parts = [f"{bar.key}: {bar.doing.label}", f"attempt {bar.attempt}" if bar.attempt > 1 else ""]
    parts += [bar.ending.value or "ongoing", bar.error]
    tooltip = escaped(", ".join(filter(None, parts)))
    return (
        f'<rect x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(BAR)}" rx="2" fill="{fill}" '
        f'stroke="{style.stroke}"><title>{tooltip}</title></rect>'
    )


def _map_row(timeline: Timeline, row: TimelineRow, corner: tuple[float, float]) -> Iterator[str]:
    """The number of active items over time, as height."""
    left, y = corner
    style = STYLES[row.mark]
    wide = CHART / MAP_SLOTS
    slots = slots_of(timeline, row, MAP_SLOTS)
    base = y + (ROW + BAR) / 2
    shape = "".join(
        f"M{n(left + wide * number)} {n(base)}v{n(-BAR * slot.share)}h{n(wide)}V{n(base)}Z"
        for number, slot in enumerate(slots)
        if slot.share
    )
    title = escaped(f"{row.node}: {row.items_completed} of {row.items} items")
    yield f'<path d="{shape}" fill="{style.stroke}"><title>{title}</title></path>'
    for number, slot in enumerate(slots):
        if slot.ending in (BarEnd.FAILED, BarEnd.RETRIED):
            x = left + wide * (number + 0.5)
            fill = STYLES[NodeMark.FAILED].stroke
            yield f'<path d="M{n(x - 3)} {n(y + 2)}h6l-3 5Z" fill="{fill}"/>'


def _legend(timeline: Timeline, y: float, hatch: str) -> Iterator[str]:
    bars = [bar for row in timeline.rows for bar in row.bars]
    x = MARGIN
    if any(bar.doing in (Doing.WAIT, Doing.CHILD) for bar in bars):
        stroke = STYLES[NodeMark.WAITING].stroke
        yield (
            f'<rect x="{n(x)}" y="{n(y - 7)}" width="18" height="{n(BAR)}" rx="2" '
            f'fill="url(#{hatch})" stroke="{stroke}"/>'
        )
        yield text(x + 24, y + 4, "waits", NOTE, INK)
        x += 24 + width_of("waits", NOTE) + 14
    for mark in NodeMark:
        is_shown = any(row.mark is mark for row in timeline.rows)
        if is_shown or any(bar.ending and _MARKS[bar.ending] is mark for bar in bars):
            yield from badge(mark, x + SIGN_RADIUS, y)
            yield text(x + 2 * SIGN_RADIUS + 5, y + 4, mark, NOTE, INK)
            x += 2 * SIGN_RADIUS + 5 + width_of(mark, NOTE) + 14


def _hatching(id: str) -> str:
    style = STYLES[NodeMark.WAITING]
    return (
        f'<defs><pattern id="{id}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<rect width="6" height="6" fill="{PAPER}"/>'
        f'<path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5" stroke="{style.stroke}" stroke-width="1.4"/>'
        "</pattern></defs>"
    )
