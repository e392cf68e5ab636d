"""The events of a run as lines: number, time, what happened, where, and what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from perdure.cli.present import as_json_line, shortened
from perdure.cli.run_view import VALUE_LENGTH_MAX, in_words
from perdure.client.run_records import EventRecord

_INNER = frozenset({"aging_ms", "has_progress", "poll_ms", "ref", "then", "token"})
"""What an event says for the engine, not for people."""
_HAS_VALUE = frozenset(
    {
        "run_submitted",
        "node_completed",
        "item_completed",
        "iteration_completed",
        "node_paused",
        "node_reported",
        "approval_answered",
        "signal_received",
        "run_completed",
        "output_changed",
    }
)
_KIND_STYLES = {
    "run_completed": "green",
    "run_failed": "red",
    "node_failed": "red",
    "undo_failed": "red",
    "node_retried": "yellow",
    "report_ignored": "yellow",
    "approval_reminded": "yellow",
    "node_skipped": "dim",
    "compensation_started": "yellow",
    "run_paused": "magenta",
    "run_cancelled": "dim",
    "run_skipped": "dim",
}


NARROW = 100
"""Below this width a line has no room for dates."""


class EventLines:
    """Prints events one a line, aligned as far as can be known when they come."""

    def __init__(self, console: Console, known: Sequence[EventRecord] = ()) -> None:
        self._console = console
        self._time = "%H:%M:%S" if console.width < NARROW else "%Y-%m-%d %H:%M:%S"
        self._number_width = max((len(str(event.number)) for event in known), default=4)
        self._kind_width = max((len(event.kind) for event in known), default=len("signal_received"))
        self._key_width = min(40, max((len(event.key or "") for event in known), default=16))

    def print(self, event: EventRecord) -> None:
        line = Text(f"{event.number:>{self._number_width}}  ")
        line.append(f"{event.at.astimezone().strftime(self._time)}  ", style="dim")
        style = _KIND_STYLES.get(event.kind, "")
        line.append(f"{event.kind:{self._kind_width}}  ", style=style)
        line.append(f"{event.key or '':{self._key_width}}  ")
        room = min(VALUE_LENGTH_MAX, max(20, self._console.width - len(line)))
        line.append(shortened(about(event), room))
        line.rstrip()
        self._console.print(line, soft_wrap=not self._console.is_terminal, no_wrap=True)


def about(event: EventRecord) -> str:
    """What an event is about, besides its node: ``port=pay by=ann {"ok":true}``."""
    parts = [f"{name}={_shown(value)}" for name, value in _told(event) if value]
    if event.failure is not None:
        parts.append(in_words(event.failure))
    if event.kind in _HAS_VALUE:
        parts.append(as_json_line(event.value))
    return " ".join(parts)


def _told(event: EventRecord) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name, value in event.details.items() if name not in _INNER)


def _shown(value: Any) -> str:
    match value:
        case {"run": run, "key": key}:
            return f"{run}:{key}"
        case {"run": run, "number": number}:
            return f"{run}:{number}"
        case list() | tuple():
            return ",".join(map(str, value))
        case str() if " " in value:
            return as_json_line(value)
        case _:
            return str(value)
