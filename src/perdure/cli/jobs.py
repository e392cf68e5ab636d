"""``perdure jobs``: look at jobs, and do what operators do to them."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.acting import act_on_each, given
from perdure.cli.exits import EXIT_CODES, ExitCode
from perdure.cli.options import JsonOption, NamespaceOption, StoreOption, connected, options_of
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE, Status

IDS_AND_GROUP = declare("cli.ids_and_group", "ids and --group exclude each other")


app = typer.Typer(
    name="jobs", help=f"Look at jobs and act on them.\n\n{EXIT_CODES}", no_args_is_help=True
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]
IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="ID...", help="Ids of jobs.", show_default=False)
]


@app.command("list")
def list_jobs(
    status: Annotated[
        Status | None, typer.Option(metavar="STATUS", help=f"Only {', '.join(Status)}.")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this queue.")] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this task.")] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this group.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Only jobs made before this one: page on.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """List jobs, newest first."""
    from perdure import clock
    from perdure.cli import present
    from perdure.cli.job_view import job_fields
    from perdure.cli.terminal import make_console, print_table, tell_more

    with connected(store, namespace) as client:
        jobs = client.jobs(
            status=status, queue=queue, task=task, group=group, limit=limit, before=before
        )
        console = make_console()
        if as_json:
            typer.echo(present.as_json([job_fields(job) for job in jobs]))
        elif not jobs:
            typer.echo("no jobs")
        else:
            is_across = namespace == ALL_NAMESPACES
            columns = present.job_columns(jobs, clock.system_clock(), is_across=is_across)
            print_table(console, columns)
            if len(jobs) == limit:
                tell_more(jobs[-1].id)


@app.command("show")
def show_job(
    id: IdArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Show everything about one job: input, result, progress, every failed attempt."""
    from perdure import clock
    from perdure.cli import job_view, present
    from perdure.cli.terminal import make_console

    with connected(store, namespace) as client:
        record, failures = client.job(id), client.failures(id)
        if as_json:
            typer.echo(present.as_json(job_view.record_fields(record, failures)))
        else:
            job_view.print_record(make_console(), record, failures, clock.system_clock())


@app.command("explain")
def explain_job(
    id: IdArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Say why a job stands where it stands, and what would let it go on."""
    from perdure.cli.explain import show_explanation

    with connected(store, namespace) as client:
        show_explanation(client.handle(id).explain(), store, namespace, as_json=as_json)


@app.command("retry")
def retry_jobs(
    ids: IdsArgument = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Start failed, dead or cancelled jobs anew, with a fresh budget of tries."""
    with connected(store, namespace) as client:
        act_on_each(
            lambda id: client.handle(id).retry(),
            given(ids, "jobs retry"),
            options_of(store, namespace),
            as_json=as_json,
        )


@app.command("abort")
def abort_jobs(
    ids: IdsArgument = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Every unfinished job of this group.")
    ] = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Stop jobs: waiting ones are cancelled, running ones are told to stop.

    A job that is finished already stays as it is.
    """
    from perdure.cli import present

    with connected(store, namespace) as client:
        if group is None:
            act_on_each(
                client.abort,
                given(ids, "jobs abort"),
                options_of(store, namespace),
                as_json=as_json,
            )
            return
        if ids:
            raise InvalidInput(IDS_AND_GROUP.fault())
        done = client.abort_group(group)
        typer.echo(
            present.as_json(done)
            if as_json
            else f"group {group}: {done.cancelled} cancelled, {done.aborting} told to stop"
        )


@app.command("disable")
def disable_jobs(
    ids: IdsArgument = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Keep jobs from running until they are enabled; running ones are taken from their workers."""
    with connected(store, namespace) as client:
        act_on_each(
            client.disable,
            given(ids, "jobs disable"),
            options_of(store, namespace),
            as_json=as_json,
        )


@app.command("enable")
def enable_jobs(
    ids: IdsArgument = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Let disabled jobs run again."""
    with connected(store, namespace) as client:
        act_on_each(
            client.enable, given(ids, "jobs enable"), options_of(store, namespace), as_json=as_json
        )


@app.command("resume")
def resume_jobs(
    ids: IdsArgument = None,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Put paused jobs back into the queue."""
    with connected(store, namespace) as client:
        act_on_each(
            client.resume, given(ids, "jobs resume"), options_of(store, namespace), as_json=as_json
        )


@app.command("watch")
def watch_job(
    id: IdArgument,
    store: StoreOption = None,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Follow one job until it is finished.

    Exits with 0 if it completed, and with 1 if it ended in any other way.
    """
    from perdure.cli import watching

    with connected(store, namespace) as client:
        if not watching.watch(client, id, as_json=as_json):
            raise typer.Exit(ExitCode.REFUSED)
