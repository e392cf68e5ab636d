"""Queues and workers: how much there is to do, who does it, and what is held back."""

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
from perdure.cli.views.console import json_text
from perdure.cli.views.queues import queue_columns, worker_columns, worker_fields
from perdure.model.job import ALL_NAMESPACES, Status


@command
@argument("queue", metavar="QUEUE", help="The queue's name.")
@click.option("--by", metavar="NAME", help="Who does it; told to whoever asks why.")
@store_option
@namespace_option
@json_option
def pause_queue(
    queue: str, by: str | None, store: str | None, namespace: str, as_json: bool
) -> None:
    """Start no job of a queue until it is resumed."""
    with connected(store, namespace) as client:
        client.queues.pause(queue, by=by)
        _tell(queue, "paused", as_json=as_json)


@command
@argument("queue", metavar="QUEUE", help="The queue's name.")
@store_option
@namespace_option
@json_option
def resume_queue(queue: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Start jobs of a paused queue again."""
    with connected(store, namespace) as client:
        client.queues.resume(queue)
        _tell(queue, "open", as_json=as_json)


def _tell(queue: str, state: str, *, as_json: bool) -> None:

    fields = {"queue": queue, "state": state}
    click.echo(json_text(fields) if as_json else f"queue {queue} is {state}")


@command
@store_option
@namespace_option
@json_option
def depth(store: str | None, namespace: str, as_json: bool) -> None:
    """Count jobs by queue and status."""
    from perdure.cli.views.console import json_text, make_console, print_table

    with connected(store, namespace) as client:
        found = client.queues.list()
        if as_json:
            click.echo(json_text(found.items))
        elif not found:
            click.echo("no jobs")
        else:
            paused = {each.name for each in found if each.is_paused}
            queues: dict[str, dict[Status, int]] = {}
            for each in found:  # of all namespaces, if there are several
                counts = queues.setdefault(each.name, {})
                for status, count in each.counts.items():
                    counts[status] = counts.get(status, 0) + count
            console = make_console()
            print_table(console, queue_columns(queues, paused, console.width))


@command
@store_option
@namespace_option
@json_option
def workers(store: str | None, namespace: str, as_json: bool) -> None:
    """List workers and what they run."""
    from perdure.cli.views.console import json_text, make_console, print_table

    with connected(store, namespace) as client:
        found, now = client.workers.list(), client.store.now()
        if as_json:
            click.echo(json_text([worker_fields(each, now) for each in found]))
        elif not found:
            click.echo("no workers")
        else:
            is_across = namespace == ALL_NAMESPACES
            print_table(make_console(), worker_columns(found, now, is_across=is_across))
