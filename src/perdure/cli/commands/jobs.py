"""``perdure jobs``: list, inspect and change jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from perdure.cli.command import (
    Choice,
    argument,
    command,
    connected,
    json_option,
    namespace_option,
    renderer_for,
    store_option,
)
from perdure.cli.output import ExitCode, exit_code_of, tell, tell_error
from perdure.cli.views.console import STYLES, json_line, json_text, make_console
from perdure.client.sync import Client
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PerdureError
from perdure.model.job import ALL_NAMESPACES, Status
from perdure.operations.records import JobUpdate

if TYPE_CHECKING:
    from perdure.model.job import StatusChange
    from perdure.operations.records import JobChange, RunChange

    AnyMove = StatusChange | JobChange | RunChange

WHICH_IDS = declare("cli.which_ids", "no id was given", "Name at least one: perdure {command} ID")


def given(ids: tuple[str, ...], what: str) -> tuple[str, ...]:
    """The ids; ``what`` is the command, such as ``jobs retry``."""
    if not ids:
        raise InvalidInput(WHICH_IDS.fault(command=what))
    return ids


def act_on_each(act: Callable[[str], AnyMove], ids: Sequence[str], *, as_json: bool) -> ExitCode:
    """Act on each, whether or not others are refused."""
    renderer = renderer_for(click.get_current_context())
    worst = ExitCode.OK
    done = []
    for id in ids:
        try:
            moved = act(id)
        except PerdureError as error:
            tell_error(error, renderer)
            worst = max(worst, exit_code_of(error))
            continue
        done.append(change_fields(moved))
        if not as_json:
            click.echo(change_text(moved))
    if as_json:
        click.echo(json_text(done))
    return worst


def change_fields(moved: AnyMove) -> dict[str, str]:
    return {"id": moved.id, "before": moved.before, "after": moved.after}


def change_text(moved: AnyMove) -> str:
    if moved.before is moved.after:
        return f"{moved.id} was {moved.before} already"
    return f"{moved.id} is {moved.after}, was {moved.before}"


IDS_AND_GROUP = declare("cli.ids_and_group", "ids and --group exclude each other")


@command
@click.option("--status", metavar="STATUS", help=f"Only {', '.join(Status)}.", type=Choice(Status))
@click.option("--queue", metavar="NAME", help="Only of this queue.")
@click.option("--task", metavar="NAME", help="Only of this task.")
@click.option("--group", metavar="NAME", help="Only of this group.")
@click.option(
    "--limit", metavar="N", help="At most so many.", type=click.IntRange(min=1), default=50
)
@click.option("--cursor", metavar="CURSOR", help="Continue a list: the next page.")
@store_option
@namespace_option
@json_option
def list_jobs(
    status: Status | None,
    queue: str | None,
    task: str | None,
    group: str | None,
    limit: int,
    cursor: str | None,
    store: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    from perdure import clock
    from perdure.cli.views.console import json_text, make_console, print_table, tell_more
    from perdure.cli.views.jobs import job_columns, job_fields

    with connected(store, namespace) as client:
        jobs = client.jobs.list(
            status=status, queue=queue, task=task, group=group, limit=limit, cursor=cursor
        )
        console = make_console()
        if as_json:
            click.echo(json_text([job_fields(job) for job in jobs]))
        elif not jobs:
            click.echo("no jobs")
        else:
            is_across = namespace == ALL_NAMESPACES
            columns = job_columns(jobs, clock.system_clock(), is_across=is_across)
            print_table(console, columns)
            tell_more(jobs.next)


@command
@argument("id", metavar="ID", help="The job's id.")
@store_option
@namespace_option
@json_option
def show_job(id: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Show a job with its input, result and failures."""
    from perdure import clock
    from perdure.cli.views import jobs as view
    from perdure.cli.views.console import make_console

    with connected(store, namespace) as client:
        record, failures = client.jobs.get(id), client.jobs.attempts(id)
        if as_json:
            click.echo(json_text(view.record_fields(record, failures)))
        else:
            view.print_record(make_console(), record, failures, clock.system_clock())


@command
@argument("id", metavar="ID", help="The job's id.")
@store_option
@namespace_option
@json_option
def explain_job(id: str, store: str | None, namespace: str, as_json: bool) -> None:
    """Explain why a job is where it is."""
    from perdure.cli.commands.runs import show_explanation

    with connected(store, namespace) as client:
        show_explanation(client.jobs.handle(id).explain(), store, namespace, as_json=as_json)


@command
@argument("ids", metavar="ID...", help="Ids of jobs.", nargs=-1)
@store_option
@namespace_option
@json_option
def retry_jobs(
    ids: tuple[str, ...], store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Retry failed, dead or cancelled jobs."""
    with connected(store, namespace) as client:
        return act_on_each(
            lambda id: client.jobs.handle(id).retry(),
            given(ids, "jobs retry"),
            as_json=as_json,
        )


@command
@argument("ids", metavar="ID...", help="Ids of jobs.", nargs=-1)
@click.option("--group", metavar="NAME", help="Every unfinished job of this group.")
@store_option
@namespace_option
@json_option
def abort_jobs(
    ids: tuple[str, ...], group: str | None, store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Cancel waiting jobs, and abort running ones.

    A job that is finished already stays as it is.
    """

    with connected(store, namespace) as client:
        if group is None:
            return act_on_each(client.jobs.cancel, given(ids, "jobs abort"), as_json=as_json)
        if ids:
            raise InvalidInput(IDS_AND_GROUP.fault())
        done = client.jobs.cancel_group(group)
        click.echo(
            json_text(done)
            if as_json
            else f"group {group}: {done.cancelled} cancelled, {done.aborting} told to stop"
        )
    return None


@command
@argument("ids", metavar="ID...", help="Ids of jobs.", nargs=-1)
@store_option
@namespace_option
@json_option
def disable_jobs(
    ids: tuple[str, ...], store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Keep jobs from running until they are enabled."""
    with connected(store, namespace) as client:
        return act_on_each(
            client.jobs.disable,
            given(ids, "jobs disable"),
            as_json=as_json,
        )


@command
@argument("ids", metavar="ID...", help="Ids of jobs.", nargs=-1)
@store_option
@namespace_option
@json_option
def enable_jobs(
    ids: tuple[str, ...], store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Let disabled jobs run again."""
    with connected(store, namespace) as client:
        return act_on_each(client.jobs.enable, given(ids, "jobs enable"), as_json=as_json)


@command
@argument("ids", metavar="ID...", help="Ids of jobs.", nargs=-1)
@store_option
@namespace_option
@json_option
def resume_jobs(
    ids: tuple[str, ...], store: str | None, namespace: str, as_json: bool
) -> ExitCode | None:
    """Put paused jobs back into the queue."""
    with connected(store, namespace) as client:
        return act_on_each(client.jobs.resume, given(ids, "jobs resume"), as_json=as_json)


@command
@argument("id", metavar="ID", help="The job's id.")
@store_option
@namespace_option
@json_option
def watch_job(id: str, store: str | None, namespace: str, as_json: bool) -> ExitCode | None:
    """Follow a job until it finishes.

    Exits with 0 if it completed, and with 1 if it ended in any other way.
    """

    with connected(store, namespace) as client:
        is_completed = watch(client, id, as_json=as_json)
    return ExitCode.OK if is_completed else ExitCode.REFUSED


_Show = Callable[[JobUpdate], None]


def watch(client: Client, id: str, *, as_json: bool) -> bool:
    """Show every change until the job is finished; True if it completed."""
    handle = client.jobs.handle(id)
    status = Status.WAITING
    with _shower(id, as_json) as show:
        for update in handle.watch():
            show(update)
            status = update.status
    if status is not Status.COMPLETED and not as_json:
        _tell_why(client, id)
    return status is Status.COMPLETED


def _shower(id: str, as_json: bool) -> AbstractContextManager[_Show]:
    if as_json:
        return _lines(json_line)
    console = make_console()
    return _bar(console, id) if console.is_terminal else _lines(plain_line)


@contextmanager
def _lines(shown: Callable[[JobUpdate], str]) -> Iterator[_Show]:
    yield lambda update: click.echo(shown(update))


@contextmanager
def _bar(console: Console, id: str) -> Iterator[_Show]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    message = TextColumn("{task.fields[message]}", style="dim")
    with Progress(*columns, message, console=console, expand=True) as progress:
        bar = progress.add_task(id, total=100, message="")

        def show(update: JobUpdate) -> None:
            style = STYLES[update.status]
            progress.update(
                bar,
                description=f"[{style}]{update.status}[/]",
                completed=update.progress.percent,
                message=update.progress.message,
            )

        yield show


def plain_line(update: JobUpdate) -> str:
    """``active    attempt 1   50%  half way``"""
    progress = update.progress
    line = f"{update.status:9}  attempt {update.attempt}  {progress.percent:3.0f}%"
    return f"{line}  {progress.message}".rstrip()


def _tell_why(client: Client, id: str) -> None:
    failures = client.jobs.attempts(id)
    if failures:
        last = failures[-1].failure
        tell(f"{last.type}: {last.message}")
    tell(f"see perdure jobs show {id}")
