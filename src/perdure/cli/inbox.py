"""``perdure inbox``: what people are to decide."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE


def inbox(
    id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Show this one, open or decided.", show_default=False),
    ] = None,
    for_: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="NAME", help="Only what this name or role may decide."),
    ] = None,
    flow: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this flow.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="Only those opened after this one: page on.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List open approvals, the longest open first, or show one."""
    from perdure import clock
    from perdure.cli import approval_view, present
    from perdure.cli.terminal import make_console, print_table

    with connected(store, namespace) as client:
        now = clock.system_clock()
        if id is not None:
            record = client.approval(id)
            if as_json:
                typer.echo(present.as_json(approval_view.approval_fields(record)))
            else:
                approval_view.print_approval(make_console(), record, now)
            return
        records = client.inbox(for_ or None, flow=flow, limit=limit, after=after)
        if as_json:
            fields = [approval_view.approval_fields(record) for record in records]
            typer.echo(present.as_json(fields))
        elif not records:
            typer.echo("nothing to decide")
        else:
            is_across = namespace == ALL_NAMESPACES
            columns = approval_view.approval_columns(records, now, is_across=is_across)
            print_table(make_console(), columns)
            if len(records) == limit:
                more = f"there may be more: --after {records[-1].id}, or a higher --limit"
                typer.echo(more, err=True)
