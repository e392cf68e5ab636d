"""``perdure store``: check, prune, export and import a store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from perdure.cli.command import (
    EVERY_NAMESPACE,
    JSON,
    PATH,
    STORE,
    STORE_VARIABLE,
    Argument,
    CommandOutput,
    OperationCommand,
    command,
    output_for,
    required,
    shared_store,
)
from perdure.cli.output import ExitCode, echo, echo_lines
from perdure.cli.renderer import quoted
from perdure.cli.terminal import Terminal
from perdure.cli.views.console import json_text, moment
from perdure.cli.views.diagnostics import health_fields, print_health
from perdure.cli.views.queues import stats_table
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, StoreError, without_password
from perdure.model import check
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE
from perdure.transfer import Progress as Advance

if TYPE_CHECKING:
    from perdure.client.sync import Client
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
"""The row types that are shown to users."""


@contextmanager
def bar(what: str) -> Iterator[Advance]:
    """A progress bar on stderr if it is a terminal, so that stdout stays clean."""
    console = Terminal(stderr=True)
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
    summary = [
        f"{counts[name]:,} {plural if counts[name] != 1 else singular}"
        for name, (singular, plural) in _WORDS.items()
        if counts.get(name)
    ]
    return ", ".join(summary) or "nothing"


@command(STORE, EVERY_NAMESPACE, JSON)
def health(store: str | None, namespace: str, as_json: bool) -> ExitCode:
    """Check the health of a store and its work.

    The exit code is 1 if there is an error, 3 if the store itself cannot be used, otherwise 0. A
    warning may be intended.
    """
    from perdure.client.sync import Client

    out = output_for(store, DEFAULT_NAMESPACE, as_json=as_json)
    try:
        with Client(shared_store(store), namespace=namespace) as client:
            found = client.store.health()
        code = ExitCode.OK if found.is_well else ExitCode.REFUSED
    except InvalidInput:
        raise
    except StoreError as error:  # part of the check, so it is a finding
        found, code = _unusable(store, error), ExitCode.STORE
    if as_json:
        echo_lines(json_text(health_fields(found, out)))
    else:
        print_health(found, out)
    return code


def _unusable(store: str | None, error: StoreError) -> Health:
    from perdure.diagnostics import Finding
    from perdure.operations.insight.health import Health

    found = error.diagnostic
    finding = Finding(code=found.code, args=found.args, actions=found.actions, about="store")
    return Health(url=without_password(required(store)), findings=(finding,))


PRUNABLE = ("cancelled", "completed", "dead", "disabled", "failed", "skipped")


def _prune(
    client: Client, out: CommandOutput, *, older_than: str, status: str | None, yes: bool
) -> dict[str, Any]:
    found = client.store.count_finished(older_than=older_than, status=status)
    removed = client.store.prune(older_than=older_than, status=status) if yes else None
    return {"jobs": found.jobs, "runs": found.runs, "removed": removed}


def _print_pruned(pruned: dict[str, Any], out: CommandOutput) -> None:
    found = f"{_counted('job', pruned['jobs'])} and {_counted('run', pruned['runs'])}"
    if pruned["removed"] is not None:
        echo(f"deleted {pruned['removed']} of {found}")
        return
    echo(found)
    if pruned["jobs"] or pruned["runs"]:
        echo("nothing was deleted: pass --yes to delete them for good", err=True)


def _print_counts(found: EndedCounts, out: CommandOutput) -> None:
    """``12 jobs (10 completed, 2 dead) and 3 runs (3 failed)``"""
    echo(f"{_counted('job', found.jobs)} and {_counted('run', found.runs)}")


def _counted(noun: str, counts: Mapping[Any, int]) -> str:
    total = sum(counts.values())
    summary = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{total} {noun}{'' if total == 1 else 's'}{f' ({summary})' if summary else ''}"


@command(
    Argument(
        ["store"], metavar="[STORE]", envvar=STORE_VARIABLE, about="Store URL", required=False
    ),
    EVERY_NAMESPACE,
    click.Option(["--pruned"], is_flag=True, help="Finished runs and jobs may have been pruned"),
    click.Option(["--grace"], metavar="60s", help="How late due work may be"),
    JSON,
)
def verify(
    store: str | None, namespace: str, pruned: bool, grace: str | None, as_json: bool
) -> ExitCode | None:
    """Check that a store satisfies Perdure's guarantees.

    Replays the log of every run, recomputes each decision, and compares the result with the stored
    rows. Only reads, so workers may keep running. The exit code is 1 if there are findings.
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
    found, counts = asyncio.run(_verified(url, settings, is_shown=not as_json))
    if as_json:
        fields = [as_data(finding) for finding in found]
        echo_lines(json_text({"findings": fields, "counts": counts}))
    else:
        # The fields of the counts are plurals: "2 runs, 1 ended run, 14 events …".
        verified = ", ".join(
            f"{count:,} {(name if count != 1 else name[:-1]).replace('_', ' ')}"
            for name, count in asdict(counts).items()
        )
        summary = (
            f"{len(found):,} finding{'' if len(found) == 1 else 's'}" if found else "no findings"
        )
        echo(f"{summary} in {verified}")
    return ExitCode.REFUSED if found else ExitCode.OK


async def _verified(
    url: str, settings: VerifySettings, *, is_shown: bool
) -> tuple[list[Finding], Counts]:
    """Print each finding as it comes; return all of them and the counts."""
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
        with bar("verifying") as advance:
            verifier = Verifier(
                store,
                settings,
                on_progress=lambda counts: advance(counts.runs + counts.jobs, total),
            )
            async for finding in verifier.findings():
                found.append(finding)
                if is_shown:
                    echo(finding_text(finding))
    finally:
        await store.close()
    return found, verifier.counts


NOT_A_FILE = declare(
    "cli.export_to_stdout", "export needs a file, not stdout", "Name one, such as work.jsonl.gz"
)


@command(
    Argument(["file"], metavar="FILE", about="A new file; gzipped if it ends in .gz", type=PATH),
    STORE,
    click.Option(["--live"], is_flag=True, help="Export a snapshot even while workers run"),
    JSON,
)
def export(file: Path, store: str | None, live: bool, as_json: bool) -> None:
    """Export a whole store to a file.

    The file is a consistent snapshot of all namespaces. Stop the workers first. Use perdure store
    import to load it into another store.
    """
    from perdure.transfer import export_store

    if str(file) == "-":
        raise InvalidInput(NOT_A_FILE.fault())
    url = shared_store(store)
    with bar("exporting") as advance:
        done = asyncio.run(export_store(url, file, is_live=live, on_progress=advance))
    size = file.stat().st_size
    if as_json:
        fields = {"file": str(file), "bytes": size, "exported_at": done.exported_at}
        echo_lines(json_text({**fields, "counts": done.counts}))
    else:
        echo(f"exported {counts_text(done.counts)} to {file} ({size:,} bytes)")
        named = quoted(str(file))
        echo(f"to move it: perdure store import {named} --store postgresql://...")


@command(
    Argument(["file"], metavar="FILE", about="File written by perdure store export", type=PATH),
    STORE,
    click.Option(
        ["--line-max-bytes"],
        metavar="N",
        type=click.IntRange(min=1),
        help="Longest line of a trusted file, decompressed",
    ),
    JSON,
)
def import_(file: Path, store: str | None, line_max_bytes: int | None, as_json: bool) -> None:
    """Import an exported file into an empty store.

    The import is one transaction. Workers on the new store then continue its runs and jobs.
    """
    from perdure import clock
    from perdure.transfer import import_store
    from perdure.transfer.file import LINE_MAX_BYTES

    url, most = shared_store(store, is_new=True), line_max_bytes or LINE_MAX_BYTES
    with bar("importing") as advance:
        done = asyncio.run(import_store(url, file, line_max_bytes=most, on_progress=advance))
    if as_json:
        fields = {"file": str(file), "exported_at": done.exported_at}
        echo_lines(json_text({**fields, "counts": done.counts}))
    else:
        as_of = moment(done.exported_at, clock.system_clock())
        echo(f"imported {counts_text(done.counts)}, as of {as_of}")
        echo("workers on this store continue from here: perdure worker MODULE --store ...")


COMMANDS: Mapping[str, OperationCommand | click.Command] = {
    "store.health": health,
    "store.stats": OperationCommand(view=stats_table),
    "store.count_finished": OperationCommand(view=_print_counts, choices={"status": PRUNABLE}),
    "store.prune": OperationCommand(
        call=_prune,
        view=_print_pruned,
        choices={"status": PRUNABLE},
        extra=(
            click.Option(
                ["--yes", "-y"], is_flag=True, help="Delete them; the default is to count them"
            ),
        ),
        more="Without --yes, only counts them. Workers prune too, by their keep_… settings.",
    ),
    "store.verify": verify,
    "store.export": export,
    "store.import": import_,
}
