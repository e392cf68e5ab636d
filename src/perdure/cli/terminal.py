"""Printing: tables that fit a narrow terminal, and whole lines where nobody looks at columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.cli.present import GAP, STYLES, Column, fitting, widths_of

UNBOUNDED = 10_000
"""The width when stdout is not a terminal: a pipe wants every line whole."""


def make_console() -> Console:
    """A console on stdout; rich leaves colours out for NO_COLOR and for pipes."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Names and values may have any characters: a question mark is better than no answer.
        sys.stdout.reconfigure(errors="replace")
    width = None if sys.stdout.isatty() else UNBOUNDED
    return Console(highlight=False, markup=False, emoji=False, width=width)


def print_table(console: Console, columns: Sequence[Column]) -> None:
    shown = fitting(columns, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    # Rich would take from every column alike, and leave short ones without any room.
    for column, width in zip(shown, widths_of(shown, console.width), strict=True):
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


def print_pairs(console: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one a line; long values go on below themselves."""
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, Text(value, style=STYLES.get(value, "")))
    console.print(table)


def tell_more(last: str) -> None:
    """Say how to see what a list left out; ``last`` is the id in its last line."""
    typer.echo(f"there may be more: --before {last}, or a higher --limit", err=True)
