"""``perdure waits``: what runs wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.cli.present import Column, ago, ahead, as_json_line, shortened
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE
from perdure.model.run import WaitKind

if TYPE_CHECKING:
    from perdure.client.waits import WaitRecord

_DETAIL_LENGTH_MAX = 200


def waits(
    kind: Annotated[
        WaitKind | None, typer.Option(metavar="KIND", help=f"Only {', '.join(WaitKind)}.")
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Only of this run.")] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this name, such as a signal's.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List what runs wait for, the longest first."""
    from perdure import clock
    from perdure.cli import present
    from perdure.cli.reading import ReadingCodec
    from perdure.cli.terminal import make_console, print_table

    with connected(store, namespace, codec=ReadingCodec()) as client:
        found = client.waits(kind=kind, run=run, name=name, limit=limit)
        if as_json:
            typer.echo(present.as_json(found))
        elif not found:
            typer.echo("nothing is waited for")
        else:
            is_across = namespace == ALL_NAMESPACES
            now = clock.system_clock()
            print_table(make_console(), wait_columns(found, now, is_across=is_across))
            if len(found) == limit:
                typer.echo("there may be more: a higher --limit shows them", err=True)


def wait_columns(found: Sequence[WaitRecord], now: datetime, *, is_across: bool) -> list[Column]:
    """A list of waits; ``is_across`` when they are of several namespaces."""
    namespaces = [each.namespace if is_across else "" for each in found]
    details = ["" if each.detail is None else as_json_line(each.detail) for each in found]
    shown = [shortened(each, _DETAIL_LENGTH_MAX) for each in details]
    return [
        Column(title="RUN", cells=[each.run for each in found], room_min=12),
        Column(title="NAMESPACE", cells=namespaces, rank=5, room_min=9),
        Column(title="NODE", cells=[each.key for each in found], room_min=8),
        Column(title="FOR", cells=[each.kind.value for each in found]),
        Column(title="NAME", cells=[each.name for each in found], rank=2, room_min=8),
        Column(
            title="SINCE",
            cells=[ago(each.opened_at, now) for each in found],
            rank=1,
            is_number=True,
        ),
        Column(title="DUE", cells=[_left(each, now) for each in found], rank=3, is_number=True),
        Column(title="DETAIL", cells=shown, rank=4, room_min=16),
    ]


def _left(wait: WaitRecord, now: datetime) -> str:
    if wait.due_at is None:
        return ""
    return ahead(wait.due_at, now) if wait.due_at > now else "over"
