"""``perdure schedules``: look at schedules and act on them."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.exits import EXIT_CODES
from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE

app = typer.Typer(
    name="schedules",
    help=f"Look at schedules and act on them.\n\n{EXIT_CODES}",
    no_args_is_help=True,
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)
]
ByOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who does it; kept with the schedule.")
]


@app.command("list")
def list_schedules(
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List schedules by name, with their last and next times."""
    from perdure import clock
    from perdure.cli import present, schedule_view
    from perdure.cli.terminal import make_console, print_table

    with connected(store, namespace) as client:
        found = client.schedules()
        if as_json:
            typer.echo(present.as_json(found))
        elif not found:
            typer.echo("no schedules")
        else:
            is_across = namespace == ALL_NAMESPACES
            now = clock.system_clock()
            columns = schedule_view.schedule_columns(found, now, is_across=is_across)
            print_table(make_console(), columns)


@app.command("show")
def show_schedule(
    name: NameArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Show one schedule: its times, its counts, and what became of its last ticks."""
    from perdure import clock
    from perdure.cli import present, schedule_view
    from perdure.cli.terminal import make_console

    with connected(store, namespace) as client:
        record = client.schedule_record(name)
        if as_json:
            typer.echo(present.as_json(record))
        else:
            schedule_view.print_schedule(make_console(), record, clock.system_clock())


@app.command("pause")
def pause_schedule(
    name: NameArgument,
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let a schedule start nothing until it is resumed."""
    from perdure.cli import present

    with connected(store, namespace) as client:
        record = client.pause_schedule(name, by=by)
        who = f" by {record.paused_by}" if record.paused_by else ""
        typer.echo(present.as_json(record) if as_json else f"{name} is paused{who}")


@app.command("resume")
def resume_schedule(
    name: NameArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let a paused schedule go on with its next tick; those of the pause are left out."""
    from perdure import clock
    from perdure.cli import present

    with connected(store, namespace) as client:
        record = client.resume_schedule(name)
        next_at = present.moment(record.next_at, clock.system_clock()) or "never again"
        typer.echo(present.as_json(record) if as_json else f"{name} goes on; next: {next_at}")


@app.command("trigger")
def trigger_schedule(
    name: NameArgument,
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Start what a schedule starts now, whatever its times, and even if it is paused."""
    from perdure.cli import present
    from perdure.client.blocking import RunHandle

    with connected(store, namespace) as client:
        started = client.trigger(name, by=by)
        what = "run" if isinstance(started, RunHandle) else "job"
        status = started.status
        if as_json:
            typer.echo(present.as_json({what: started.id, "status": status}))
        else:
            typer.echo(f"{name} started {what} {started.id}, which is {status}")


@app.command("delete")
def delete_schedule(
    name: NameArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Remove a schedule; what it started goes on."""
    from perdure.cli import present

    with connected(store, namespace) as client:
        client.delete_schedule(name)
        typer.echo(present.as_json({"deleted": name}) if as_json else f"{name} is deleted")
