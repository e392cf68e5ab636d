"""Following one run to its end: drawn in place in a terminal, a line for each event elsewhere."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import typer
from rich.console import Console
from rich.live import Live

from perdure.cli.event_view import EventLines
from perdure.cli.exits import ExitCode, error_line, tell
from perdure.cli.live_nodes import waits_for
from perdure.cli.live_view import EVENTS_MAX, LiveView
from perdure.cli.present import as_json as as_json_text
from perdure.cli.present import as_json_line, took
from perdure.cli.renderer import CliRenderer
from perdure.cli.run_view import RunInFull, full_fields
from perdure.cli.terminal import make_console
from perdure.client.blocking import RunHandle
from perdure.client.run_records import EventRecord
from perdure.client.run_results import run_ended_badly
from perdure.client.run_sights import RunSight
from perdure.model.run import RunStatus, WaitKind

_EXITS = {
    RunStatus.COMPLETED: ExitCode.OK,
    RunStatus.FAILED: ExitCode.REFUSED,
    RunStatus.CANCELLED: ExitCode.CANCELLED,
    RunStatus.SKIPPED: ExitCode.SKIPPED,
}
_FOR_OTHERS = (WaitKind.APPROVAL, WaitKind.SIGNAL, WaitKind.OUTSIDE)
"""Waits that somebody has to end."""


class Screen(Protocol):
    """Where a run is seen."""

    def show(self, sight: RunSight) -> None: ...


class NoScreen:
    """Nobody looks on."""

    def show(self, sight: RunSight) -> None:
        pass


class PlainScreen:
    """A line for each event, and one for each thing that somebody has to do."""

    def __init__(self, console: Console, options: str = "") -> None:
        self._console = console
        self._renderer = CliRenderer(options)
        self._lines = EventLines(console)
        self._told: set[tuple[str, str]] = set()

    def show(self, sight: RunSight) -> None:
        for event in sight.events:
            self._lines.print(event)
        for wait in sight.waits:
            place = (wait.key, wait.opened_at.isoformat())
            if wait.kind in _FOR_OTHERS and place not in self._told:
                self._told.add(place)
                what, command = waits_for(wait, sight.now, self._renderer)
                self._console.print(f"      {wait.key} {what}: {command}", soft_wrap=True)


class LiveScreen:
    """The whole run, drawn anew in place with every sight."""

    def __init__(self, live: Live, options: str = "") -> None:
        self._live = live
        self._options = options
        self._events: deque[EventRecord] = deque(maxlen=EVENTS_MAX)

    def show(self, sight: RunSight) -> None:
        self._events.extend(sight.events)
        view = LiveView(sight, list(self._events), options=self._options)
        self._live.update(view, refresh=True)


@contextmanager
def screen(console: Console, options: str) -> Iterator[Screen]:
    """The screen that fits what stdout is."""
    if not console.is_terminal:
        yield PlainScreen(console, options)
        return
    # Drawn with each sight and not by a thread: between two there is nothing new to see.
    with Live(console=console, auto_refresh=False) as live:
        yield LiveScreen(live, options)


def follow(run: RunHandle, shown: Screen) -> RunSight:
    """Show a run until it has ended; its last sight."""
    for sight in run.sights():
        shown.show(sight)
    return sight


def see_through(run: RunHandle, options: str, *, as_json: bool) -> ExitCode:
    """Follow a run to its end, and say how it ended: its result on stdout, else why not.

    Whoever interrupts it is told how to come back; ``options`` are those of such commands.
    """
    try:
        if as_json:
            last = follow(run, NoScreen())
            full = RunInFull(run.record(), run.events(), run.nodes(), run.children())
            typer.echo(as_json_text(full_fields(full)))
            return exit_code_after(last.run.status)
        console = make_console()
        with screen(console, options) as shown:
            last = follow(run, shown)
        return tell_end(console, last, options)
    except KeyboardInterrupt:
        _tell_how_to_come_back(run.id, options)
        return ExitCode.INTERRUPTED


def _tell_how_to_come_back(id: str, options: str) -> None:
    run = f"{shlex.quote(id)}{options}"
    sys.stderr.write(
        f"\nLeft {id}: it goes on wherever a worker has its flow.\n"
        f"  watch it again   perdure runs watch {run}\n"
        f"  end it           perdure runs cancel {run}\n"
    )


def tell_end(console: Console, last: RunSight, options: str) -> ExitCode:
    record = last.run
    error = run_ended_badly(record)
    if error is None:
        duration = took((record.finished_at or last.now) - record.created_at)
        console.print(f"{record.id} is {record.status} after {duration}", soft_wrap=True)
        console.print(f"result {as_json_line(last.events[-1].value)}", soft_wrap=True)
    else:
        tell(f"{error_line(error)}. See perdure runs show {shlex.quote(record.id)}{options}")
    return exit_code_after(record.status)


def exit_code_after(status: RunStatus) -> ExitCode:
    return _EXITS[status]
