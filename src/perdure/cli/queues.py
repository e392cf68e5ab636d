"""``perdure depth`` and ``perdure workers``: how much there is to do, and who does it."""

from __future__ import annotations

import typer

from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE, Status


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
    """List the live workers, and how much they run."""
    from perdure import clock
    from perdure.cli import present
    from perdure.cli.terminal import make_console, print_table

    with connected(store, namespace) as client:
        found = client.workers()
        if as_json:
            typer.echo(present.as_json(found))
        elif not found:
            typer.echo("no workers")
        else:
            is_across = namespace == ALL_NAMESPACES
            columns = present.worker_columns(found, clock.system_clock(), is_across=is_across)
            print_table(make_console(), columns)
