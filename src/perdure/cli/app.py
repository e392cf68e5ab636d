"""All commands of the command line, in one tree."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import flows, jobs, queues, runs, schedules
from perdure.cli.check import check
from perdure.cli.decide import decide
from perdure.cli.exits import EXIT_CODES
from perdure.cli.inbox import inbox
from perdure.cli.report import broadcast, report
from perdure.cli.validate import validate
from perdure.cli.waits import waits
from perdure.cli.worker import worker

app = typer.Typer(
    name="perdure",
    help=f"Durable jobs and flows: run workers, look at work, act on it.\n\n{EXIT_CODES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Help without boxes: it comes sooner, and fits a narrow terminal.
    rich_markup_mode=None,
)
app.command()(worker)
app.add_typer(jobs.app)
app.add_typer(runs.app)
app.add_typer(schedules.app)
app.add_typer(flows.app)
app.command()(inbox)
app.command()(decide)
app.command()(report)
app.command()(broadcast)
app.command()(waits)
app.command()(check)
app.command()(validate)
app.command()(queues.depth)
app.command()(queues.workers)


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"perdure {version('perdure')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    pass
