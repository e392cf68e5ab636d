"""A rich console that treats stored text as plain text; ``model.text.visible`` escapes it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from io import TextIOWrapper
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from perdure.model.text import visible_lines

UNBOUNDED = 10_000
"""The width when stdout is not a terminal: a pipe should get whole lines."""


class Terminal(Console):
    """Escapes control characters in all output; rich adds its own, for styles, afterwards.

    Rich omits colors for NO_COLOR and for pipes.
    """

    def __init__(
        self, *, file: IO[str] | None = None, width: int | None = None, stderr: bool = False
    ) -> None:
        super().__init__(
            file=file, width=width, stderr=stderr, highlight=False, markup=False, emoji=False
        )

    def render_str(self, text: str, **settings: Any) -> Text:
        # Before measuring, and before rich silently drops some of them.
        return super().render_str(visible_lines(text), **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_own = segment.control is not None
            yield segment if is_own else segment._replace(text=visible_lines(segment.text))


def stdout_terminal() -> Terminal:
    if isinstance(sys.stdout, TextIOWrapper):
        # Names and values may have any characters: a question mark is better than a failure.
        sys.stdout.reconfigure(errors="replace")
    return Terminal(width=None if sys.stdout.isatty() else UNBOUNDED)
