"""``perdure runs``: begin runs of flows, and do to them what operators do."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.acting import act_on_each, fields_of, given
from perdure.cli.exits import errors_told
from perdure.cli.options import (
    AppOption,
    ByOption,
    JsonOption,
    NamespaceOption,
    ReasonOption,
    StoreOption,
    connected,
    options_of,
    parsed_json,
)
from perdure.model.job import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    pass

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The run's id.", show_default=False)]
IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID...", help="Ids of runs.", show_default=False)
]
FLOW_HELP = "A flow that was built; a module alone means the only one in it."


class OnConflict(StrEnum):
    """What it means that the id is taken."""

    FAIL = "fail"
    USE_EXISTING = "use_existing"
    TERMINATE_EXISTING = "terminate_existing"


def submit_run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FLOW", help="MODULE[:FLOW] of a flow that was built, or a file: ship.yaml."
        ),
    ],
    input: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="As JSON.", show_default="null")
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="ID", help="The run's id; else one is made up.")
    ] = None,
    on_conflict: Annotated[
        OnConflict,
        typer.Option(metavar="POLICY", help=f"If the id is taken: {', '.join(OnConflict)}."),
    ] = OnConflict.FAIL,
    app: AppOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Begin a run of a flow, and leave it to the workers."""
    from perdure.cli import present
    from perdure.cli.loading import flow_at

    with errors_told():  # before the store, which would be made for nothing
        flow = flow_at(target, app)
        value = parsed_json(input, "INPUT")
    with connected(store, namespace, is_new=True) as client:
        run = client.submit(flow, value, id=id, on_conflict=on_conflict.value)
        record = run.record()
        if as_json:
            fields = {"id": run.id, "flow": record.flow, "version": record.version}
            more = {"status": record.status, "is_new": run.is_new}
            typer.echo(present.as_json({**fields, **more}))
        elif run.is_new:
            typer.echo(f"{run.id} is {record.status}, a run of {record.flow}@{record.version}")
        else:
            typer.echo(f"{run.id} was there already and is {record.status}")


def signal_run(
    id: IdArgument,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)
    ],
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="As JSON.", show_default="null")
    ] = None,
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Bring a run a signal, which it keeps until a node takes it."""
    from perdure.cli import present

    with connected(store, namespace) as client:
        moved = client.signal(id, name, parsed_json(payload, "PAYLOAD"), by=by)
        typer.echo(
            present.as_json(fields_of(moved))
            if as_json
            else f"{id} has the signal {name}, and is {moved.after}"
        )


def pause_runs(
    ids: IdsArgument = None,
    reason: ReasonOption = None,
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Start nothing of runs until they are unpaused; what is running is stopped, and kept."""
    with connected(store, namespace) as client:
        act_on_each(
            lambda id: client.pause(id, reason=reason, by=by),
            given(ids, "runs pause"),
            options_of(store, namespace),
            as_json=as_json,
        )


def unpause_runs(
    ids: IdsArgument = None,
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let paused runs go on where they stood."""
    with connected(store, namespace) as client:
        act_on_each(
            lambda id: client.unpause(id, by=by),
            given(ids, "runs unpause"),
            options_of(store, namespace),
            as_json=as_json,
        )


def cancel_runs(
    ids: IdsArgument = None,
    reason: ReasonOption = None,
    by: ByOption = None,
    compensate: Annotated[
        bool, typer.Option("--compensate", help="Undo what was completed, first.")
    ] = False,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """End runs, and the runs below them."""
    with connected(store, namespace) as client:
        act_on_each(
            lambda id: client.cancel(id, reason=reason, by=by, compensate=compensate),
            given(ids, "runs cancel"),
            options_of(store, namespace),
            as_json=as_json,
        )


def retry_runs(
    ids: IdsArgument = None,
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let failed or cancelled runs go on from where they ended, keeping what is completed."""
    with connected(store, namespace) as client:
        act_on_each(
            lambda id: client.run_handle(id).retry(by=by),  # never a job that has this id too
            given(ids, "runs retry"),
            options_of(store, namespace),
            as_json=as_json,
        )


def fork_run(
    id: IdArgument,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="NODE", help="Part after this node, or after the event of this number."
        ),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="New outputs of completed nodes, by their ids."),
    ] = None,
    new_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The new run's id; else one is made up."),
    ] = None,
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Begin a new run with the past of another one, which stays as it is."""
    from perdure.cli import present

    with connected(store, namespace) as client:
        point = int(after) if after is not None and after.isdecimal() else after
        outputs = parsed_json(patch, "--patch")
        run = client.fork(id, after=point, patch=outputs, new_id=new_id, by=by)
        record = run.record()
        if as_json:
            typer.echo(present.as_json({"id": run.id, "status": record.status, "origin": id}))
        else:
            typer.echo(f"{run.id} is {record.status}, a fork of {id}")


def migrate_run(
    id: IdArgument,
    to: Annotated[str, typer.Option("--to", metavar="MODULE[:FLOW]", help=FLOW_HELP)],
    by: ByOption = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let a run go on in another version of its flow."""
    from perdure.cli import present
    from perdure.cli.loading import load_flow

    with connected(store, namespace) as client:
        flow = load_flow(to)
        before = client.run(id).version
        moved = client.migrate(id, to=flow, by=by)
        if as_json:
            fields = {"id": moved.id, "status": moved.after, "flow": flow.name}
            typer.echo(present.as_json({**fields, "before": before, "after": flow.version}))
        elif before == flow.version:
            typer.echo(f"{id} was of {flow.name}@{flow.version} already")
        else:
            typer.echo(f"{id} is of {flow.name}@{flow.version}, was of {flow.name}@{before}")


def add_to(app: typer.Typer) -> None:
    """Make these the commands of a group."""
    app.command("submit")(submit_run)
    app.command("signal")(signal_run)
    app.command("pause")(pause_runs)
    app.command("unpause")(unpause_runs)
    app.command("cancel")(cancel_runs)
    app.command("retry")(retry_runs)
    app.command("fork")(fork_run)
    app.command("migrate")(migrate_run)
