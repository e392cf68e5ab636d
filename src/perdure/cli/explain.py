"""``perdure explain``: why a run or a job stands where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected, options_of
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from perdure.operations.insight.explain import Explanation

AnyIdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Of a run or of a job.", show_default=False)
]


def explain(
    id: AnyIdArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Say why a run or a job stands where it stands, and what would let it go on."""
    with connected(store, namespace) as client:
        show_explanation(client.explain(id), store, namespace, as_json=as_json)


def show_explanation(
    explanation: Explanation, store: str | None, namespace: str, *, as_json: bool
) -> None:
    from perdure import clock
    from perdure.cli import explanation_view, present
    from perdure.cli.terminal import make_console

    options = options_of(store, namespace)
    if as_json:
        fields = explanation_view.explanation_fields(explanation, options)
        typer.echo(present.as_json(fields))
    else:
        now = clock.system_clock()
        explanation_view.print_explanation(make_console(), explanation, options, now)
