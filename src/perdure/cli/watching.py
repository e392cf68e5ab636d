"""Following one job: a live bar in a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from perdure.cli.exits import tell
from perdure.cli.present import STYLES, as_json_line
from perdure.cli.terminal import make_console
from perdure.client.blocking import Client
from perdure.client.records import JobUpdate
from perdure.model.job import Status

_Show = Callable[[JobUpdate], None]


def watch(client: Client, id: str, *, as_json: bool) -> bool:
    """Show every change until the job is finished; True if it completed."""
    handle = client.handle(id)
    status = Status.WAITING
    with _shower(id, as_json) as show:
        for update in handle.watch():
            show(update)
            status = update.status
    if status is not Status.COMPLETED and not as_json:
        _tell_why(client, id)
    return status is Status.COMPLETED


def _shower(id: str, as_json: bool) -> AbstractContextManager[_Show]:
    if as_json:
        return _lines(as_json_line)
    console = make_console()
    return _bar(console, id) if console.is_terminal else _lines(plain_line)


@contextmanager
def _lines(shown: Callable[[JobUpdate], str]) -> Iterator[_Show]:
    yield lambda update: typer.echo(shown(update))


@contextmanager
def _bar(console: Console, id: str) -> Iterator[_Show]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    message = TextColumn("{task.fields[message]}", style="dim")
    with Progress(*columns, message, console=console, expand=True) as progress:
        bar = progress.add_task(id, total=100, message="")

        def show(update: JobUpdate) -> None:
            style = STYLES[update.status]
            progress.update(
                bar,
                description=f"[{style}]{update.status}[/]",
                completed=update.progress.percent,
                message=update.progress.message,
            )

        yield show


def plain_line(update: JobUpdate) -> str:
    """``active    attempt 1   50%  half way``"""
    progress = update.progress
    line = f"{update.status:9}  attempt {update.attempt}  {progress.percent:3.0f}%"
    return f"{line}  {progress.message}".rstrip()


def _tell_why(client: Client, id: str) -> None:
    failures = client.failures(id)
    if failures:
        last = failures[-1].failure
        tell(f"{last.type}: {last.message}")
    tell(f"see perdure jobs show {id}")
