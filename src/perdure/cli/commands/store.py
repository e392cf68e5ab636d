"""``perdure doctor``, ``verify``, ``prune``, ``export`` and ``import``: the store as a whole."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from perdure.cli.command import (
    PATH,
    STORE_VARIABLE,
    argument,
    command,
    connected,
    json_option,
    namespace_option,
    namespace_option_for,
    options_of,
    required,
    shared_store,
    store_option,
)
from perdure.cli.output import ExitCode
from perdure.cli.views.console import json_text, moment
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, StoreError, without_password
from perdure.model import check
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE
from perdure.transfer import Progress as Tell

if TYPE_CHECKING:
    from perdure.model.facts import EndedCounts
    from perdure.operations.insight.health import Health
    from perdure.verify import Counts, Finding, VerifySettings


_WORDS = {
    "run": ("run", "runs"),
    "event": ("event", "events"),
    "wait": ("wait", "waits"),
    "job": ("job", "jobs"),
    "schedule": ("schedule", "schedules"),
    "queue": ("paused queue", "paused queues"),
}
"""Of the kinds of rows, those that people know."""


@contextmanager
def bar(what: str) -> Iterator[Tell]:
    """A bar on stderr, where somebody looks at it: what is printed stays as it is."""
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    is_shown = console.is_terminal
    with Progress(
        *columns, console=console, expand=True, transient=True, disable=not is_shown
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def counts_text(counts: Mapping[str, int]) -> str:
    """``2 runs, 14 events, 1 job``"""
    told = [
        f"{counts[name]:,} {plural if counts[name] != 1 else singular}"
        for name, (singular, plural) in _WORDS.items()
        if counts.get(name)
    ]
    return ", ".join(told) or "nothing"


@command
@store_option
@namespace_option_for(ALL_NAMESPACES)
@json_option
def doctor(store: str | None, namespace: str, as_json: bool) -> ExitCode | None:
    """Check the health of a store and its work.

    Exits with 1 if there is an error, with 3 if it is the store itself. A warning is something
    that somebody may have meant so.
    """
    from perdure.cli.views import diagnostics as view
    from perdure.cli.views.console import make_console

    health, code = _examined(store, namespace)
    options = options_of(store, DEFAULT_NAMESPACE)
    if as_json:
        click.echo(json_text(view.health_fields(health, options)))
    else:
        view.print_health(make_console(), health, options)
    return code


def _examined(store: str | None, namespace: str) -> tuple[Health, ExitCode]:
    """How it is. A store that cannot be used is what was looked for, so it is no failure here."""
    from perdure.client.sync import Client
    from perdure.diagnostics import Finding
    from perdure.operations.insight.health import Health

    try:
        with Client(shared_store(store), namespace=namespace) as client:
            health = client.store.health()
    except InvalidInput:
        raise
    except StoreError as error:
        found = error.diagnostic
        finding = Finding(code=found.code, args=found.args, actions=found.actions, about="store")
        url = without_password(required(store))
        return Health(url=url, findings=(finding,)), ExitCode.STORE
    return health, ExitCode.OK if health.is_well else ExitCode.REFUSED


_STATUSES = "completed, failed, dead, cancelled or skipped"


@command
@click.option(
    "--older-than",
    metavar="30d",
    help="What ended longer ago than this.",
    required=True,
)
@click.option("--status", metavar="STATUS", help=f"Only what ended as {_STATUSES}.")
@click.option("--yes", "-y", help="Do remove it.", is_flag=True)
@store_option
@namespace_option
@json_option
def prune(
    older_than: str, status: str | None, yes: bool, store: str | None, namespace: str, as_json: bool
) -> None:
    """Delete jobs and runs that ended long ago.

    Without --yes nothing is removed. Workers prune too, by their keep settings.
    """

    with connected(store, namespace) as client:
        found = client.store.count_finished(older_than=older_than, status=status)
        removed = client.store.prune(older_than=older_than, status=status) if yes else 0
        if as_json:
            fields = {"jobs": found.jobs, "runs": found.runs, "removed": removed}
            click.echo(json_text(fields))
        elif yes:
            click.echo(f"removed {removed} of {_ended_text(found)}")
        else:
            click.echo(_ended_text(found))
            if found.jobs or found.runs:
                click.echo("nothing was removed: --yes removes them for good", err=True)


def _ended_text(found: EndedCounts) -> str:
    """``12 jobs (10 completed, 2 dead) and 3 runs (3 failed)``"""
    return f"{_ended_counts('job', found.jobs)} and {_ended_counts('run', found.runs)}"


def _ended_counts(noun: str, counts: Mapping[Any, int]) -> str:
    total = sum(counts.values())
    told = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{total} {noun}{'' if total == 1 else 's'}{f' ({told})' if told else ''}"


@command
@argument(
    "store", metavar="[STORE]", envvar=STORE_VARIABLE, help="The URL of the store.", required=False
)
@namespace_option_for(ALL_NAMESPACES)
@click.option("--pruned", help="Ended runs and jobs may have been pruned.", is_flag=True)
@click.option("--grace", metavar="60s", help="How late anything due may be.")
@json_option
def verify(
    store: str | None, namespace: str, pruned: bool, grace: str | None, as_json: bool
) -> ExitCode | None:
    """Verify that a store keeps what Perdure promises.

    Replays the log of every run, decides it again, and compares the result with all that is
    stored. It only reads, also while workers run. Exits with 1 if it finds a contradiction.
    """
    from msgspec.structs import asdict

    from perdure.diagnostics import as_data
    from perdure.verify import VerifySettings

    settings = VerifySettings(
        namespace=None if namespace == ALL_NAMESPACES else namespace,
        allows_pruned=pruned,
        grace=None if grace is None else check.span(grace, "grace"),
    )
    url = shared_store(store)
    found, counts = asyncio.run(_verified(url, settings, is_told=not as_json))
    if as_json:
        fields = [as_data(finding) for finding in found]
        click.echo(json_text({"findings": fields, "counts": counts}))
    else:
        # The fields of the counts are plurals: "2 runs, 1 ended run, 14 events …".
        verified = ", ".join(
            f"{count:,} {(name if count != 1 else name[:-1]).replace('_', ' ')}"
            for name, count in asdict(counts).items()
        )
        told = f"{len(found):,} finding{'' if len(found) == 1 else 's'}" if found else "no findings"
        click.echo(f"{told} in {verified}")
    return ExitCode.REFUSED if found else ExitCode.OK


async def _verified(
    url: str, settings: VerifySettings, *, is_told: bool
) -> tuple[list[Finding], Counts]:
    """What was found, each told as soon as it is, and how much was looked at."""
    from perdure.model.job import JobFilter
    from perdure.model.run import RunFilter
    from perdure.store.opening import store_at
    from perdure.verify import Verifier, finding_text

    store = store_at(url)
    await store.open()
    try:
        total = await store.queries.count_runs(RunFilter(namespace=settings.namespace))
        total += await store.queries.count_jobs(JobFilter(namespace=settings.namespace))
        found: list[Finding] = []
        with bar("verifying") as tell:
            verifier = Verifier(
                store, settings, on_progress=lambda counts: tell(counts.runs + counts.jobs, total)
            )
            async for finding in verifier.findings():
                found.append(finding)
                if is_told:
                    click.echo(finding_text(finding))
    finally:
        await store.close()
    return found, verifier.counts


NOT_A_FILE = declare(
    "cli.export_to_stdout", "export needs a file, not stdout", "Name one, such as work.jsonl.gz"
)


@command
@argument("file", metavar="FILE", help="A new file; gzipped if it ends in .gz.", type=PATH)
@store_option
@click.option("--live", help="Even while workers are at work: a copy as of now.", is_flag=True)
@json_option
def export(file: Path, store: str | None, live: bool, as_json: bool) -> None:
    """Export a whole store to a file.

    Runs, jobs, waits, schedules and all else, of every namespace, as of one moment. Stop the
    workers first.
    """
    from perdure.transfer import export_store

    if str(file) == "-":
        raise InvalidInput(NOT_A_FILE.fault())
    url = shared_store(store)
    with bar("exporting") as tell:
        done = asyncio.run(export_store(url, file, is_live=live, tell=tell))
    size = file.stat().st_size
    if as_json:
        fields = {"file": str(file), "bytes": size, "exported_at": done.exported_at}
        click.echo(json_text({**fields, "counts": done.counts}))
    else:
        click.echo(f"exported {counts_text(done.counts)} to {file} ({size:,} bytes)")
        named = shlex.quote(str(file))
        click.echo(f"to move it: perdure import {named} --store postgresql://...")


@command
@argument("file", metavar="FILE", help="What perdure export wrote.", type=PATH)
@store_option
@json_option
def import_(file: Path, store: str | None, as_json: bool) -> None:
    """Import an exported file into an empty store.

    Workers on the new store go on with it: waiting runs wait there, queued jobs are executed.
    """
    from perdure import clock
    from perdure.transfer import import_store

    url = shared_store(store, is_new=True)
    with bar("importing") as tell:
        done = asyncio.run(import_store(url, file, tell=tell))
    if as_json:
        fields = {"file": str(file), "exported_at": done.exported_at}
        click.echo(json_text({**fields, "counts": done.counts}))
    else:
        as_of = moment(done.exported_at, clock.system_clock())
        click.echo(f"imported {counts_text(done.counts)}, as of {as_of}")
        click.echo("workers on this store go on with it: perdure worker MODULE --store ...")
