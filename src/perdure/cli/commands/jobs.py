"""``perdure jobs``: enqueue, inspect and control jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import click

from perdure.cli.command import PRIORITY, Choice, CommandOutput, Moment, OperationCommand
from perdure.cli.output import ExitCode, echo, print_message
from perdure.cli.views.console import STYLES, json_line
from perdure.cli.views.diagnostics import explanation_fields, print_explanation
from perdure.cli.views.jobs import (
    job_fields,
    job_table,
    print_attempts,
    print_change,
    print_record,
    record_fields,
)
from perdure.diagnostics import Action
from perdure.model.job import CLAIMED, Status
from perdure.model.text import visible
from perdure.tasks.options import OnConflict

if TYPE_CHECKING:
    from perdure.client.sync import Client
    from perdure.model.job import FailedAttempt
    from perdure.operations.records import Enqueued, GroupChange, JobRecord, JobUpdate
    from perdure.tasks.task import Task


def _task(target: str, given: dict[str, Any]) -> Task[..., Any]:
    from perdure.cli.target import load_task

    options = {name: given.pop(name) for name in _OPTIONS}
    options["tags"] = options["tags"] or None
    return load_task(target).options(
        **{name: value for name, value in options.items() if value is not None}
    )


_OPTIONS: Mapping[str, click.Option] = {
    each.name: each
    for each in (
        click.Option(["--queue"], metavar="NAME", help="Queue, instead of the task's"),
        click.Option(["--delay"], metavar="5m", help="Start after this delay"),
        click.Option(["--run-at"], type=Moment(), metavar="TIME", help="Start at this time"),
        PRIORITY,
        click.Option(["--group"], metavar="NAME", help="Group, to list and cancel together"),
        click.Option(
            ["--tag", "tags"],
            multiple=True,
            metavar="NAME",
            help="Run only on workers with this tag",
        ),
        click.Option(
            ["--fingerprint"], metavar="TEXT", help="At most one live job per fingerprint"
        ),
        click.Option(
            ["--on-conflict"],
            type=Choice(get_args(OnConflict)),
            metavar="POLICY",
            help=f"If the fingerprint is taken: {', '.join(get_args(OnConflict))}",
        ),
        click.Option(["--timeout"], metavar="30s", help="How long an attempt may take"),
        click.Option(
            ["--deadline"], metavar="1h", help="Fail the job if it has not finished by then"
        ),
        click.Option(["--retries"], type=int, metavar="N", help="Retries after a failure"),
        click.Option(
            ["--max-attempts"], type=int, metavar="N", help="Failed attempts before the job is dead"
        ),
    )
    if each.name
}


def _enqueue(
    client: Client, out: CommandOutput, *, task: Task[..., Any], args: tuple[Any, ...], kwargs: Any
) -> Enqueued:
    return client.jobs.enqueue(task, args, kwargs)


def _print_enqueued(job: Enqueued, out: CommandOutput) -> None:
    echo(f"{job.id} is enqueued" if job.is_new else f"{job.id} was enqueued already")


def _get(client: Client, out: CommandOutput, *, id: str) -> tuple[JobRecord, list[FailedAttempt]]:
    job = client.jobs.get(id)
    # No attempt can have failed if the only finished claim is the one that completed it.
    claims_over = job.epoch - (job.status in (*CLAIMED, Status.COMPLETED))
    may_have_failed = claims_over > 0 or job.status in (Status.FAILED, Status.DEAD)
    return job, list(client.jobs.attempts(id)) if may_have_failed else []


def _print_group(change: GroupChange, out: CommandOutput) -> None:
    echo(f"group {change.group}: {change.cancelled} cancelled, {change.aborting} stopping")


def _watch(client: Client, out: CommandOutput, *, id: str) -> ExitCode:
    """Show every change until the job finishes: a live bar, or one line per change."""
    client.jobs.get(id)  # before a bar is drawn
    status = Status.WAITING
    with _shower(id, out) as show:
        for update in client.jobs.watch(id):
            show(update)
            status = update.status
    if status is Status.COMPLETED:
        return ExitCode.OK
    if not out.as_json:
        attempts = client.jobs.attempts(id)
        if attempts:
            print_message(f"{attempts[-1].failure.type}: {attempts[-1].failure.message}")
        print_message(f"see {out.renderer.action(Action('jobs.get', {'id': id}))}")
    return ExitCode.REFUSED


@contextmanager
def _shower(id: str, out: CommandOutput) -> Iterator[Callable[[JobUpdate], object]]:
    if out.as_json:
        yield lambda update: echo(json_line(update))
        return
    if not out.console.is_terminal:
        yield lambda update: echo(plain_line(update))
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}", style="dim", markup=False),
    )
    with Progress(*columns, console=out.console, expand=True) as progress:
        bar = progress.add_task(id, total=100, message="")
        yield lambda update: progress.update(
            bar,
            description=f"[{STYLES[update.status]}]{update.status}[/]",
            completed=update.progress.percent,
            message=visible(update.progress.message),
        )


def plain_line(update: JobUpdate) -> str:
    """``active    attempt 1   50%  half way``"""
    progress = update.progress
    line = f"{update.status:9}  attempt {update.attempt}  {progress.percent:3.0f}%"
    return f"{line}  {progress.message}".rstrip()


def print_count(count: int, out: CommandOutput) -> None:
    echo(str(count))


COMMANDS: Mapping[str, OperationCommand] = {
    "jobs.enqueue": OperationCommand(
        call=_enqueue,
        view=_print_enqueued,
        metavars={"task": "MODULE:TASK", "args": "[ARG]...", "kwargs": "--kwargs", "options": ""},
        convert={"task": _task},
        about={"task": "A task in a module", "args": "Arguments of the task, each as JSON"},
        extra=tuple(_OPTIONS.values()),
        makes_store=True,
    ),
    "jobs.list": OperationCommand(
        view=job_table, fields=job_fields, empty="no jobs", choices={"status": Status}
    ),
    "jobs.count": OperationCommand(view=print_count, choices={"status": Status}),
    "jobs.get": OperationCommand(call=_get, view=print_record, fields=record_fields),
    "jobs.attempts": OperationCommand(view=print_attempts, empty="no failed attempts"),
    "jobs.explain": OperationCommand(view=print_explanation, fields=explanation_fields),
    "jobs.watch": OperationCommand(
        call=_watch,
        view=lambda *_: None,
        more="The exit code is 0 if the job completed, otherwise 1.",
    ),
    "jobs.cancel": OperationCommand(each="id", view=print_change),
    "jobs.cancel_group": OperationCommand(view=_print_group),
    "jobs.retry": OperationCommand(each="id", view=print_change),
    "jobs.resume": OperationCommand(each="id", view=print_change),
    "jobs.disable": OperationCommand(each="id", view=print_change),
    "jobs.enable": OperationCommand(each="id", view=print_change),
}
