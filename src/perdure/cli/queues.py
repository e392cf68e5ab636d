"""Queues and workers: how much there is to do, who does it, and what is held back."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.exits import EXIT_CODES
from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE, Status

QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)
]

app = typer.Typer(
    name="queues",
    help=f"Hold queues back, and let them go on.\n\n{EXIT_CODES}",
    no_args_is_help=True,
)


@app.command("pause")
def pause_queue(
    queue: QueueArgument,
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who does it; told to whoever asks why.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let no job of a queue start until it is resumed; what runs goes on."""
    with connected(store, namespace) as client:
        client.pause_queue(queue, by=by)
        _tell(queue, "paused", as_json=as_json)


@app.command("resume")
def resume_queue(
    queue: QueueArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let jobs of a paused queue start again."""
    with connected(store, namespace) as client:
        client.resume_queue(queue)
        _tell(queue, "open", as_json=as_json)


def _tell(queue: str, state: str, *, as_json: bool) -> None:
    from perdure.cli import present

    fields = {"queue": queue, "state": state}
    typer.echo(present.as_json(fields) if as_json else f"queue {queue} is {state}")


def depth(
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Count the jobs in each status, by queue."""
    from perdure.cli import present
    from perdure.cli.terminal import make_console, print_table

    with connected(store, namespace) as client:
        depth, paused = client.depth(), client.paused_queues()
        if as_json:
            typer.echo(present.as_json({"queues": depth.entries, "paused": paused}))
        elif not depth.entries and not paused:
            typer.echo("no jobs")
        else:
            names = {each.queue for each in paused}
            queues: dict[str, dict[Status, int]] = {name: {} for name in sorted(names)}
            queues |= depth.by_queue
            console = make_console()
            print_table(console, present.depth_columns(queues, names, console.width))


def workers(
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List the workers: live or silent, how much they run."""
    from perdure.cli import present
    from perdure.cli.terminal import make_console, print_table

    with connected(store, namespace) as client:
        found, now = client.workers(), client.now()
        if as_json:
            typer.echo(present.as_json([present.worker_fields(each, now) for each in found]))
        elif not found:
            typer.echo("no workers")
        else:
            is_across = namespace == ALL_NAMESPACES
            print_table(make_console(), present.worker_columns(found, now, is_across=is_across))
