"""``perdure runs``: look at runs of flows."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import run_acts
from perdure.cli.exits import EXIT_CODES
from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected, options_of
from perdure.cli.pictures import (
    GraphFormat,
    GraphFormatOption,
    OutputOption,
    TimelineFormat,
    TimelineFormatOption,
    chosen_format,
    write_graph,
)
from perdure.cli.run_acts import IdArgument
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE
from perdure.model.run import RunStatus

app = typer.Typer(
    name="runs",
    help=f"Look at runs of flows and act on them.\n\n{EXIT_CODES}",
    no_args_is_help=True,
)


@app.command("list")
def list_runs(
    status: Annotated[
        RunStatus | None, typer.Option(metavar="STATUS", help=f"Only {', '.join(RunStatus)}.")
    ] = None,
    flow: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this flow.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Only runs made before this one: page on.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first."""
    from perdure import clock
    from perdure.cli import present, run_view
    from perdure.cli.terminal import make_console, print_table, tell_more

    with connected(store, namespace) as client:
        runs = client.runs(status=status, flow=flow, limit=limit, before=before)
        if as_json:
            typer.echo(present.as_json([run_view.run_fields(run) for run in runs]))
        elif not runs:
            typer.echo("no runs")
        else:
            is_across = namespace == ALL_NAMESPACES
            columns = run_view.run_columns(runs, clock.system_clock(), is_across=is_across)
            print_table(make_console(), columns)
            if len(runs) == limit:
                tell_more(runs[-1].id)


@app.command("show")
def show_run(
    id: IdArgument,
    graph: Annotated[
        bool, typer.Option("--graph", help="A picture of it instead, with the states of nodes.")
    ] = False,
    format: GraphFormatOption = None,
    output: OutputOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Show one run: input, result, its nodes with their outputs, its children, its failure."""
    from perdure import clock
    from perdure.cli import present, run_view
    from perdure.cli.reading import ReadingCodec
    from perdure.cli.terminal import make_console

    with connected(store, namespace, codec=ReadingCodec()) as client:
        handle = client.run_handle(id)
        if graph or format is not None or output is not None:
            chosen = chosen_format(format, output, GraphFormat.MERMAID, as_json=as_json)
            write_graph(handle.picture(), chosen, output)
            return
        record, events = handle.record(), handle.events()
        run = run_view.RunInFull(record, events, handle.nodes(), handle.children())
        if as_json:
            typer.echo(present.as_json(run_view.full_fields(run)))
        else:
            run_view.print_run(make_console(), run, clock.system_clock())


@app.command("events")
def show_events(
    id: IdArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens, until the run ends.")
    ] = False,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line for each event.")
    ] = False,
) -> None:
    """Show what happened in a run, an event a line.

    With --follow it exits with 0 if the run completed, 1 if it failed, 4 if it was cancelled, 5 if
    it was skipped.
    """
    from perdure.cli.event_view import EventLines
    from perdure.cli.following import exit_code_after
    from perdure.cli.present import as_json_line
    from perdure.cli.reading import ReadingCodec
    from perdure.cli.terminal import make_console

    with connected(store, namespace, codec=ReadingCodec()) as client:
        handle = client.run_handle(id)
        known = [] if follow else handle.events()
        lines = EventLines(make_console(), known)
        status = None
        for event in handle.watch() if follow else known:
            if as_json:
                typer.echo(as_json_line(event))
            else:
                lines.print(event)
            status = event.status
    if follow and status is not None:
        raise typer.Exit(exit_code_after(status))


@app.command("watch")
def watch_run(
    id: IdArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the run as JSON, once it has ended.")
    ] = False,
) -> None:
    """Follow a run to its end: drawn in place in a terminal, a line for each event elsewhere.

    Exits with 0 if it completed, 1 if it failed, 4 if it was cancelled, 5 if it was skipped.
    """
    from perdure.cli.following import see_through
    from perdure.cli.reading import ReadingCodec

    with connected(store, namespace, codec=ReadingCodec()) as client:
        code = see_through(client.run_handle(id), options_of(store, namespace), as_json=as_json)
    raise typer.Exit(code)


@app.command("explain")
def explain_run(
    id: IdArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Say why a run stands where it stands, and what would let it go on."""
    from perdure.cli.explain import show_explanation

    with connected(store, namespace) as client:
        client.run(id)  # an id of a job is refused here
        show_explanation(client.explain(id), store, namespace, as_json=as_json)


@app.command("timeline")
def show_timeline(
    id: IdArgument,
    format: TimelineFormatOption = None,
    output: OutputOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Show when each node of a run was queued or at work, and when it waited: a row for each.

    Time in the queue and the pause before another attempt are not told apart from work.
    """
    from perdure.cli.timeline_view import write_timeline

    with connected(store, namespace) as client:
        chosen = chosen_format(format, output, TimelineFormat.TEXT, as_json=as_json)
        write_timeline(client.run_handle(id).timeline(), chosen, output)


@app.command("lineage")
def show_lineage(
    id: IdArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Show which upstream values each node of a run used. Secrets are shown by name only."""
    from perdure.cli import lineage_view, present
    from perdure.cli.reading import ReadingCodec
    from perdure.cli.terminal import make_console

    with connected(store, namespace, codec=ReadingCodec()) as client:
        lineage = client.lineage(id)
        if as_json:
            typer.echo(present.as_json(lineage))
        else:
            lineage_view.print_lineage(make_console(), lineage)


run_acts.add_to(app)
