"""``perdure schedules``: look at schedules and act on them."""

from __future__ import annotations

import click

from perdure.cli.command import (
    argument,
    command,
    connected,
    json_option,
    namespace_option,
    store_option,
)
from perdure.cli.views.console import json_text, moment
from perdure.model.job import ALL_NAMESPACES


@command
@store_option
@namespace_option
@json_option
def list_schedules(store: str | None, namespace: str, as_json: bool) -> None:
    """List schedules with their last and next times."""
    from perdure import clock
    from perdure.cli.views import schedules as view
    from perdure.cli.views.console import make_console, print_table

    with connected(store, namespace) as client:
        found = client.schedules.list()
        if as_json:
            click.echo(json_text(found.items))
        elif not found:
            click.echo("no schedules")
        else:
            is_across = namespace == ALL_NAMESPACES
            now = clock.system_clock()
            columns = view.schedule_columns(found, now, is_across=is_across)
            print_table(make_console(), columns)


@command
@argument("name", metavar="NAME", help="The schedule's name.")
@store_option
@namespace_option
@json_option
def show_schedule(name: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Show a schedule with its recent ticks."""
    from perdure import clock
    from perdure.cli.views import schedules as view
    from perdure.cli.views.console import make_console

    with connected(store, namespace) as client:
        record = client.schedules.get(name)
        if as_json:
            click.echo(json_text(record))
        else:
            view.print_schedule(make_console(), record, clock.system_clock())


@command
@argument("name", metavar="NAME", help="The schedule's name.")
@click.option("--by", metavar="NAME", help="Who does it; kept with the schedule.")
@store_option
@namespace_option
@json_option
def pause_schedule(
    name: str, by: str | None, store: str | None, namespace: str, as_json: bool
) -> None:
    """Pause a schedule until it is resumed."""

    with connected(store, namespace) as client:
        record = client.schedules.pause(name, by=by)
        who = f" by {record.paused_by}" if record.paused_by else ""
        click.echo(json_text(record) if as_json else f"{name} is paused{who}")


@command
@argument("name", metavar="NAME", help="The schedule's name.")
@store_option
@namespace_option
@json_option
def resume_schedule(name: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Resume a schedule with its next tick."""
    from perdure import clock

    with connected(store, namespace) as client:
        record = client.schedules.resume(name)
        next_at = moment(record.next_at, clock.system_clock()) or "never again"
        click.echo(json_text(record) if as_json else f"{name} goes on; next: {next_at}")


@command
@argument("name", metavar="NAME", help="The schedule's name.")
@click.option("--by", metavar="NAME", help="Who does it; kept with the schedule.")
@store_option
@namespace_option
@json_option
def trigger_schedule(
    name: str, by: str | None, store: str | None, namespace: str, as_json: bool
) -> None:
    """Start what a schedule starts, now."""
    with connected(store, namespace) as client:
        started = client.schedules.trigger(name, by=by)
        if started.run is not None:
            what, status = "run", str(client.runs.handle(started.run).status)
        else:
            what, status = "job", str(client.jobs.handle(started.id).status)
        if as_json:
            click.echo(json_text({what: started.id, "status": status}))
        else:
            click.echo(f"{name} started {what} {started.id}, which is {status}")


@command
@argument("name", metavar="NAME", help="The schedule's name.")
@store_option
@namespace_option
@json_option
def delete_schedule(name: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Delete a schedule."""

    with connected(store, namespace) as client:
        client.schedules.delete(name)
        click.echo(json_text({"deleted": name}) if as_json else f"{name} is deleted")
