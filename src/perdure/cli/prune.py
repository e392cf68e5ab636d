"""``perdure prune``: remove what ended long ago."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.model.facts import EndedCounts

_STATUSES = "completed, failed, dead, cancelled or skipped"


def prune(
    older_than: Annotated[
        str, typer.Option(metavar="30d", help="What ended longer ago than this.")
    ],
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help=f"Only what ended as {_STATUSES}.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do remove it.")] = False,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Remove jobs and runs that ended long ago, or count them.

    Without --yes nothing is removed. Workers prune too, by their keep settings.
    """
    from perdure.cli import present

    with connected(store, namespace) as client:
        found = client.count_ended(older_than=older_than, status=status)
        removed = client.prune(older_than=older_than, status=status) if yes else 0
        if as_json:
            fields = {"jobs": found.jobs, "runs": found.runs, "removed": removed}
            typer.echo(present.as_json(fields))
        elif yes:
            typer.echo(f"removed {removed} of {_told(found)}")
        else:
            typer.echo(_told(found))
            if found.jobs or found.runs:
                typer.echo("nothing was removed: --yes removes them for good", err=True)


def _told(found: EndedCounts) -> str:
    """``12 jobs (10 completed, 2 dead) and 3 runs (3 failed)``"""
    return f"{_counted('job', found.jobs)} and {_counted('run', found.runs)}"


def _counted(noun: str, counts: Mapping[Any, int]) -> str:
    total = sum(counts.values())
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{total} {noun}{'' if total == 1 else 's'}{f' ({told})' if told else ''}"
