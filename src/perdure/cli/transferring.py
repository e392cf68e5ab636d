"""What exporting and importing show: a bar while it lasts, and what was moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from perdure.transfer import Progress as Tell

_WORDS = {
    "run": ("run", "runs"),
    "event": ("event", "events"),
    "wait": ("wait", "waits"),
    "job": ("job", "jobs"),
    "schedule": ("schedule", "schedules"),
    "queue": ("paused queue", "paused queues"),
}
"""Of the kinds of rows, those that people know."""


@contextmanager
def bar(what: str) -> Iterator[Tell]:
    """A bar on stderr, where somebody looks at it: what is printed stays as it is."""
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    is_shown = console.is_terminal
    with Progress(
        *columns, console=console, expand=True, transient=True, disable=not is_shown
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def in_words(counts: Mapping[str, int]) -> str:
    """``2 runs, 14 events, 1 job``"""
    told = [
        f"{counts[name]:,} {plural if counts[name] != 1 else singular}"
        for name, (singular, plural) in _WORDS.items()
        if counts.get(name)
    ]
    return ", ".join(told) or "nothing"
