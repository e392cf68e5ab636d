"""``perdure flows``: look at flows as they are in the code at hand."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.exits import EXIT_CODES, errors_told
from perdure.cli.options import JsonOption

app = typer.Typer(
    name="flows", help=f"Look at flows in a module of yours.\n\n{EXIT_CODES}", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Keeps the name of the one command."""


@app.command("show")
def show_flow(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:FLOW]",
            help="A flow that was built; a module alone means the only one in it.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show a flow's version, its nodes, and a picture of it as text, in Mermaid's language."""
    from perdure.cli import flow_view, present
    from perdure.cli.loading import load_flow
    from perdure.cli.terminal import make_console

    with errors_told():
        flow = load_flow(target)
        if as_json:
            typer.echo(present.as_json(flow_view.flow_fields(flow)))
        else:
            flow_view.print_flow(make_console(), flow)
