"""``perdure check``: whether workers with the code at hand could go on with every run."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.exits import ExitCode
from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE
from perdure.model.run import ENDED, RunStatus


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE[:NAME]",
            help="A Worker, a flow or a list of flows; a module alone means all in it.",
        ),
    ],
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List the runs under way that the code at hand could not go on with.

    They are of versions that it does not have. Says which version is the nearest, and whether
    the runs could be migrated to it. Exits with 0 if there is no such run, else with 1.
    """
    from perdure.cli import check_view, present
    from perdure.cli.loading import load_flows
    from perdure.cli.terminal import make_console

    with connected(store, namespace) as client:
        flows = load_flows(target)
        found = client.stranded(flows)
        if as_json:
            typer.echo(present.as_json(check_view.check_fields(found)))
        else:
            live = sum(
                client.count_runs(status=status) for status in RunStatus if status not in ENDED
            )
            check_view.print_check(
                make_console(), found, live, is_across=namespace == ALL_NAMESPACES
            )
        if found:
            raise typer.Exit(ExitCode.REFUSED)
