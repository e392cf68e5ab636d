"""Tables, pairs, times and JSON in a terminal, fitted to its width."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from perdure.cli.renderer import one_line
from perdure.model.job import Status
from perdure.model.run import NodeStatus, RunStatus
from perdure.model.text import visible, visible_json, visible_lines
from perdure.model.times import ago, ahead
from perdure.model.value import Value

if TYPE_CHECKING:
    from rich.console import Console

NOT_REACHED = "-"
"""The status of a node that its run has not reached."""

STYLES: dict[str, str] = {
    Status.WAITING: "cyan",
    Status.SCHEDULED: "blue",
    Status.ACTIVE: "yellow",
    Status.PAUSED: "magenta",
    Status.ABORTING: "yellow",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.DEAD: "bold red",
    Status.DISABLED: "magenta",
    Status.CANCELLED: "dim",
    RunStatus.QUEUED: "blue",
    RunStatus.RUNNING: "yellow",
    RunStatus.COMPENSATING: "yellow",
    NodeStatus.LIVE: "yellow",
    NodeStatus.SKIPPED: "dim",
    NodeStatus.BLOCKED: "dim",
    NOT_REACHED: "dim",
}
"""By status; jobs, runs and nodes share the words."""


class Column(Value):
    """A column of a table, and how early it is dropped in a narrow terminal."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    """0 is never dropped; the highest is dropped first."""
    room_min: int | None = None
    """Minimum width when truncated; None if it must not be."""
    is_number: bool = False

    @property
    def width(self) -> int:
        return max(len(text) for text in (self.title, *self.cells))


GAP = 2


def fit_columns(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that fit side by side; they are truncated before any is dropped."""
    kept = [column for column in columns if any(column.cells)]
    while least_width(kept) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept


def column_widths(columns: Sequence[Column], width: int) -> list[int]:
    """The width of each column; the widest are truncated first, to their minimum."""
    widths = [column.width for column in columns]
    least = [_least(column) for column in columns]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        spare = [at for at, column_width in enumerate(widths) if column_width > least[at]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def least_width(columns: Sequence[Column]) -> int:
    return sum(map(_least, columns)) + GAP * (len(columns) - 1)


def _least(column: Column) -> int:
    return column.width if column.room_min is None else min(column.width, column.room_min)


def moment(at: datetime | None, now: datetime) -> str:
    """A time in the local time zone, and its distance from now."""
    if at is None:
        return ""
    distance = f"in {ahead(at, now)}" if at > now else f"{ago(at, now)} ago"
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({distance})"


def json_text(value: object) -> str:
    """JSON for people and programs alike."""
    return visible_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


NOT_READABLE = "(not readable here: it was stored with a codec of your own)"
_NOT_READABLE_JSON = msgspec.json.encode(NOT_READABLE)


class ReadingCodec:
    """Decodes plain JSON, and replaces other payloads by a note. Cannot encode."""

    def encode(self, data: bytes) -> bytes:
        raise AssertionError("a codec for reading does not write")

    def decode(self, data: bytes) -> bytes:
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _NOT_READABLE_JSON
        return data


def shortened(text: str, length: int) -> str:
    """One line of at most this many characters."""
    line = one_line(text)
    return line if len(line) <= length else f"{line[: max(0, length - 1)]}…"


def json_line(value: object) -> str:
    return visible_json(msgspec.json.encode(value).decode())


def print_table(console: Console, columns: Sequence[Column]) -> None:
    from rich.table import Table
    from rich.text import Text

    seen = [replace(each, cells=[visible(cell) for cell in each.cells]) for each in columns]
    shown = fit_columns(seen, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    # Rich would shrink all columns alike, and leave no room for short ones.
    for column, width in zip(shown, column_widths(shown, console.width), strict=True):
        table.add_column(
            column.title,
            no_wrap=True,
            overflow="ellipsis",
            width=width,
            justify="right" if column.is_number else "left",
        )
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    console.print(table)


def print_pairs(console: Console, pairs: Sequence[tuple[str, str]], indent: int = 0) -> None:
    """Names and values, one per line; long values wrap below themselves."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(visible(name), Text(visible_lines(value), style=STYLES.get(value, "")))
    console.print(Padding.indent(table, indent) if indent else table)
