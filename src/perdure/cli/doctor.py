"""``perdure doctor``: how the store is and the work in it, with what would help."""

from __future__ import annotations

import typer

from perdure.cli.exits import ExitCode
from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE


def doctor(
    store: StoreOption = None,
    namespace: NamespaceOption = ALL_NAMESPACES,
    as_json: JsonOption = False,
) -> None:
    """Look for what is wrong with a store and the work in it, and say what would help.

    Exits with 1 if there is an error. A warning is something that somebody may have meant so.
    """
    from perdure.cli import health_view, present
    from perdure.cli.following import options_of
    from perdure.cli.terminal import make_console

    with connected(store, namespace) as client:
        health = client.health()
        if as_json:
            typer.echo(present.as_json(health_view.health_fields(health)))
        else:
            options = options_of(store, DEFAULT_NAMESPACE)
            health_view.print_health(make_console(), health, options)
        if not health.is_well:
            raise typer.Exit(ExitCode.REFUSED)
