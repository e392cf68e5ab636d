"""``perdure report`` and ``perdure broadcast``: tell runs what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import (
    JsonOption,
    NamespaceOption,
    StoreOption,
    connected,
    login_name,
    parsed_json,
)
from perdure.model.job import DEFAULT_NAMESPACE
from perdure.model.wait import ReportStatus

if TYPE_CHECKING:
    from perdure.client.broadcasting import BroadcastResult
    from perdure.client.reporting import ReportAnswer

LINES_MAX = 100
"""How many runs are named to people."""

LoginOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who says so; else your login name.")
]


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)],
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE", help="The node; a part of it as poll#2 or pack[7].", show_default=False
        ),
    ],
    status: Annotated[
        ReportStatus, typer.Option(metavar="STATUS", help=f"One of {', '.join(ReportStatus)}.")
    ] = ReportStatus.PROGRESS,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="What came out, if completed.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What went wrong, if failed.")
    ] = None,
    progress: Annotated[
        str | None, typer.Option(metavar="JSON", help="How far it is; kept for another try.")
    ] = None,
    port: Annotated[
        str | None, typer.Option(metavar="PORT", help="From which the run goes on.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Yours: repeated with it, it counts once.")
    ] = None,
    by: LoginOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Tell a run about the outside work that one of its nodes waits for."""
    from perdure.cli import present

    with connected(store, namespace) as client:
        answer = client.report(
            run,
            node,
            status=status.value,
            result=parsed_json(result, "--result"),
            error=error,
            progress=parsed_json(progress, "--progress"),
            port=port or "",
            key=key,
            by=by or login_name(),
        )
        typer.echo(present.as_json(answer) if as_json else _received(answer))


def broadcast(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)
    ],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="As JSON.", show_default="null")
    ] = None,
    flow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only to runs of this flow.")
    ] = None,
    by: LoginOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Bring a signal to every run that waits for one of its name just now."""
    from perdure.cli import present

    with connected(store, namespace) as client:
        value = parsed_json(payload, "PAYLOAD")
        done = client.broadcast(name, value, flow=flow, by=by or login_name())
        typer.echo(present.as_json(done) if as_json else _reached(done))


def _received(answer: ReportAnswer) -> str:
    place = f"{answer.run}, node {answer.node}"
    match answer.reception:
        case "accepted":
            return f"accepted: {place}; the run is {answer.status}"
        case "repeated":
            return f"was there already: {place}; the run is {answer.status}"
    first = f": {answer.first.status} came first" if answer.first else ""
    return f"ignored: {place}{first}; the run is {answer.status}"


def _reached(done: BroadcastResult) -> str:
    lines: list[str] = list(done.runs[:LINES_MAX])
    if done.count > LINES_MAX:
        lines.append(f"and {done.count - LINES_MAX} more: --json has them all")
    wait = "waits" if done.unmatched == 1 else "wait"
    others = f"; {done.unmatched} {wait} for another one of this name" if done.unmatched else ""
    if not done.count:
        return f"no run waits for this signal {done.name}{others}"
    runs = "1 run has" if done.count == 1 else f"{done.count} runs have"
    return "\n".join([*lines, f"{runs} the signal {done.name}{others}"])
