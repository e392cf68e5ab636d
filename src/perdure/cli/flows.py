"""``perdure flows``: look at flows, in the code and files at hand and in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.exits import EXIT_CODES, errors_told
from perdure.cli.options import AppOption, JsonOption, NamespaceOption, StoreOption, connected
from perdure.cli.pictures import (
    GraphFormat,
    GraphFormatOption,
    OutputOption,
    chosen_format,
    write_graph,
)
from perdure.errors import InvalidInput
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE

app = typer.Typer(
    name="flows",
    help=f"Look at flows, in a module or file of yours or in a store.\n\n{EXIT_CODES}",
    no_args_is_help=True,
)


@app.command("list")
def list_flows(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FLOWS",
            help="MODULE[:NAME] or a file: what it has, with the flows they start; else the store.",
            show_default=False,
        ),
    ] = None,
    app: AppOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List flows and their versions: of a module, of a file, or with their runs, of a store."""
    from perdure import clock
    from perdure.cli import flow_view, present
    from perdure.cli.loading import APP_WITHOUT_FILE, flows_at
    from perdure.cli.terminal import make_console, print_table

    if target is not None or app is not None:
        with errors_told():
            if target is None:
                raise InvalidInput(APP_WITHOUT_FILE.fault())
            flows = flows_at(target, app)
        fields: object = [flow_view.listed_fields(each) for each in flows]
        columns = flow_view.module_columns(flows)
    else:
        with connected(store, namespace) as client:
            fields = counts = client.flows()
        is_across = namespace == ALL_NAMESPACES
        columns = flow_view.store_columns(counts, clock.system_clock(), is_across=is_across)
    if as_json:
        typer.echo(present.as_json(fields))
    elif not fields:
        typer.echo("no flows")
    else:
        print_table(make_console(), columns)


@app.command("show")
def show_flow(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FLOW",
            help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml.",
        ),
    ],
    app: AppOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a flow's version, its nodes, and a picture of it as text, in Mermaid's language."""
    from perdure.cli import flow_view, present
    from perdure.cli.loading import flow_at
    from perdure.cli.terminal import make_console

    with errors_told():
        flow = flow_at(target, app)
        if as_json:
            typer.echo(present.as_json(flow_view.flow_fields(flow)))
        else:
            flow_view.print_flow(make_console(), flow)


@app.command("graph")
def draw_flow(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FLOW",
            help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml.",
        ),
    ],
    app: AppOption = None,
    format: GraphFormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a flow: in Mermaid's language, as SVG, or as JSON to draw it yourself."""
    from perdure.cli.loading import flow_at
    from perdure.render.diagram import picture_of

    with errors_told():
        chosen = chosen_format(format, output, GraphFormat.MERMAID, as_json=as_json)
        write_graph(picture_of(flow_at(target, app).graph), chosen, output)
