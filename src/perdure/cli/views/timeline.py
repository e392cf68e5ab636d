"""Print a timeline, fitted to the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from perdure.cli.views.console import STYLES
from perdure.model.run import ENDED
from perdure.model.text import visible
from perdure.model.times import brief
from perdure.render.diagram import NodeMark
from perdure.render.timeline import Timeline
from perdure.render.timeline_text import ASCII, UNICODE, timeline_lines

WIDTH_ELSEWHERE = 100
"""The width if stdout is not a terminal."""


def print_timeline(console: Console, timeline: Timeline) -> None:
    is_unicode = console.encoding.lower().replace("-", "").startswith("utf")
    width = console.width if console.is_terminal else WIDTH_ELSEWHERE
    head = Text(visible(f"{timeline.run} is "))
    head.append(timeline.status.value, style=STYLES[timeline.status])
    started = f"{timeline.started_at.astimezone():%Y-%m-%d %H:%M:%S}"
    took = brief(timeline.until - timeline.started_at)
    so_far = "" if timeline.status in ENDED else " so far"
    head.append(f"; started {started}, {took}{so_far}")
    console.print(head, soft_wrap=True)
    for line in timeline_lines(timeline, width, UNICODE if is_unicode else ASCII):
        text = Text()
        for piece in line:
            text.append(piece.text, style=_style(piece.mark))
        text.rstrip()
        console.print(text, soft_wrap=True)


def _style(mark: NodeMark | None) -> str:
    match mark:
        case None:
            return ""
        case NodeMark.NOT_REACHED:
            return "dim"
        case _:
            return STYLES[mark.value]
