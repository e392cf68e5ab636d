"""``perdure doctor``: how the store is and the work in it, with what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from perdure.cli.exits import ExitCode, errors_told
from perdure.cli.options import (
    JsonOption,
    NamespaceOption,
    StoreOption,
    options_of,
    required,
    shared_store,
)
from perdure.errors import InvalidInput, StoreError, without_password
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.operations.insight.health import Health


def doctor(
    store: StoreOption = None,
    namespace: NamespaceOption = ALL_NAMESPACES,
    as_json: JsonOption = False,
) -> None:
    """Look for what is wrong with a store and the work in it, and say what would help.

    Exits with 1 if there is an error, with 3 if it is the store itself. A warning is something
    that somebody may have meant so.
    """
    from perdure.cli import health_view, present
    from perdure.cli.terminal import make_console

    with errors_told():
        health, code = _examined(store, namespace)
    options = options_of(store, DEFAULT_NAMESPACE)
    if as_json:
        typer.echo(present.as_json(health_view.health_fields(health, options)))
    else:
        health_view.print_health(make_console(), health, options)
    raise typer.Exit(code)


def _examined(store: str | None, namespace: str) -> tuple[Health, ExitCode]:
    """How it is. A store that cannot be used is what was looked for, so it is no failure here."""
    from perdure.client.blocking import Client
    from perdure.diagnostics import Finding
    from perdure.operations.insight.health import Health

    try:
        with Client(shared_store(store), namespace=namespace) as client:
            health = client.health()
    except InvalidInput:
        raise
    except StoreError as error:
        found = error.diagnostic
        finding = Finding(code=found.code, args=found.args, actions=found.actions, about="store")
        url = without_password(required(store))
        return Health(url=url, findings=(finding,)), ExitCode.STORE
    return health, ExitCode.OK if health.is_well else ExitCode.REFUSED
