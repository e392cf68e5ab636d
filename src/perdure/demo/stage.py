"""Where the demo is seen: a picture drawn in place in a terminal, a plain log anywhere else."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from perdure.cli.following import PlainScreen
from perdure.cli.live_view import EVENTS_MAX, LiveView
from perdure.client.run_records import EventRecord
from perdure.client.run_sights import RunSight

TOLD_MAX = 3
"""What the demo said last stays in the picture."""


class Stage(Protocol):
    def tell(self, seconds: float, text: str) -> None:
        """Say what the demo does, or sees."""

    def show(self, sight: RunSight) -> None: ...

    def ask(self, question: str) -> bool | None:
        """Yes or no by whoever looks on; None if there is nobody to ask."""


class PlainStage:
    """A line for each event, and for each thing that the demo does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._screen = PlainScreen(console)

    def tell(self, seconds: float, text: str) -> None:
        self._console.print(f"demo  {seconds:4.1f} s  {text}", soft_wrap=True)

    def show(self, sight: RunSight) -> None:
        self._screen.show(sight)

    def ask(self, question: str) -> bool | None:
        return None


class LiveStage:
    """The run, and below it what the demo said."""

    def __init__(self, console: Console, live: Live, *, is_interactive: bool) -> None:
        self._console = console
        self._live = live
        self._is_interactive = is_interactive
        self._events: deque[EventRecord] = deque(maxlen=EVENTS_MAX)
        self._told: deque[Text] = deque(maxlen=TOLD_MAX)
        self._sight: RunSight | None = None

    def tell(self, seconds: float, text: str) -> None:
        line = Text().append(f"{seconds:4.1f} s  ", style="dim").append(text, style="bold cyan")
        self._told.append(line)
        self._draw()

    def show(self, sight: RunSight) -> None:
        self._sight = sight
        self._events.extend(sight.events)
        self._draw()

    def ask(self, question: str) -> bool | None:
        if not self._is_interactive:
            return None
        self._live.stop()
        try:
            answer = self._console.input(Text(f"\n{question} [Y/n] ", style="bold magenta"))
        except EOFError:
            return None
        finally:
            self._live.start()
        return not answer.strip().lower().startswith("n")

    def _draw(self) -> None:
        if self._sight is None:
            self._live.update(Text("\n").join(self._told), refresh=True)
        else:
            footer = [Text(), *self._told]
            view = LiveView(self._sight, list(self._events), footer=footer)
            self._live.update(view, refresh=True)


@contextmanager
def stage(console: Console, *, is_interactive: bool) -> Iterator[Stage]:
    """The stage that fits what stdout is."""
    if not console.is_terminal:
        yield PlainStage(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield LiveStage(console, live, is_interactive=is_interactive)
