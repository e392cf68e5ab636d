"""Jobs in a list, and one job in full, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from rich.console import Console

from perdure.cli.output import echo
from perdure.cli.views.console import (
    NOT_READABLE,
    Column,
    json_line,
    moment,
    print_pairs,
    print_table,
)
from perdure.errors import PerdureError
from perdure.model.failure import Failure
from perdure.model.job import FailedAttempt, Job, Progress, Status
from perdure.model.text import visible_block
from perdure.model.times import ago, brief
from perdure.operations.records import JobRecord

if TYPE_CHECKING:
    from perdure.cli.command import CommandOutput
    from perdure.operations.records import JobChange, RunChange


def job_table(jobs: Sequence[Job], out: CommandOutput) -> None:
    print_table(out.console, job_columns(jobs, out.now, is_across=out.is_across))


def job_columns(jobs: Sequence[Job], now: datetime, *, is_across: bool) -> list[Column]:
    """Columns of jobs; ``is_across`` if they span several namespaces."""
    namespaces = [job.namespace if is_across else "" for job in jobs]
    return [
        Column(title="JOB", cells=[job.id for job in jobs]),
        Column(title="NAMESPACE", cells=namespaces, rank=3, room_min=9),
        Column(title="STATUS", cells=[job.status.value for job in jobs]),
        Column(title="TASK", cells=[job.task for job in jobs], rank=1, room_min=8),
        Column(title="QUEUE", cells=[job.queue for job in jobs], rank=4, room_min=7),
        Column(title="ATTEMPT", cells=[str(job.attempt) for job in jobs], rank=6, is_number=True),
        Column(title="DONE", cells=[percent(job.progress) for job in jobs], rank=5, is_number=True),
        Column(
            title="AGE", cells=[ago(job.created_at, now) for job in jobs], rank=2, is_number=True
        ),
        Column(title="GROUP", cells=[job.group or "" for job in jobs], rank=8, room_min=7),
        Column(
            title="RUN",
            cells=[job.node.run if job.node else "" for job in jobs],
            rank=7,
            room_min=7,
        ),
        Column(
            title="NODE",
            cells=[job.node.key if job.node else "" for job in jobs],
            rank=9,
            room_min=7,
        ),
    ]


def percent(progress: Progress) -> str:
    return f"{progress.percent:.0f}%" if progress.percent else ""


_STORED = ("input", "output", "codec")
"""Fields that are not shown: encoded payloads and their codec."""


def job_fields(job: Job, out: CommandOutput) -> dict[str, Any]:
    """A job as JSON, without its values."""
    return {name: value for name, value in asdict(job).items() if name not in _STORED}


def record_fields(
    found: tuple[JobRecord, Sequence[FailedAttempt]], out: CommandOutput
) -> dict[str, Any]:
    """A job as JSON, with its values and failed attempts."""
    record, failures = found
    args, kwargs = _call(record)
    return {
        **job_fields(record, out),
        "args": args,
        "kwargs": kwargs,
        "result": _result(record),
        "failed_attempts": failures,
    }


def print_record(found: tuple[JobRecord, Sequence[FailedAttempt]], out: CommandOutput) -> None:
    record, failures = found
    pairs = [*_identity(record), *_state(record), *_times(record, out.now), *_values(record)]
    print_pairs(out.console, [(name, value) for name, value in pairs if value])
    if failures:
        out.console.print()
        print_attempts(failures, out)


def print_attempts(failures: Sequence[FailedAttempt], out: CommandOutput) -> None:
    for number, failed in enumerate(failures):
        if number:
            out.console.print()
        print_failure(out.console, failed, out.now)


def print_change(change: JobChange | RunChange, out: CommandOutput) -> None:
    if change.before is change.after:
        echo(f"{change.id} was {change.before} already")
    else:
        echo(f"{change.id} is {change.after}, was {change.before}")


def print_failure(console: Console, failed: FailedAttempt, now: datetime) -> None:
    failure = failed.failure
    console.print(f"attempt {failed.attempt} failed", style="bold red")
    causes = [f"{cause.type}: {cause.message}" for cause in failure.causes]
    pairs = [
        ("error", f"{failure.type}: {failure.message}"),
        *(("caused by", cause) for cause in causes),
        ("at", moment(failed.at, now)),
        ("worker", failed.worker or ""),
    ]
    print_pairs(console, [(name, value) for name, value in pairs if value])
    print_traceback(console, failure)


def print_traceback(console: Console, failure: Failure) -> None:
    if failure.traceback:
        console.print(visible_block(failure.traceback.rstrip()), style="dim", soft_wrap=True)


def _identity(record: JobRecord) -> list[tuple[str, str]]:
    return [
        ("job", record.id),
        ("task", record.task),
        ("run", record.node.run if record.node else ""),
        ("node", record.node.key if record.node else ""),
        ("queue", record.queue),
        ("namespace", record.namespace),
        ("group", record.group or ""),
        ("fingerprint", record.fingerprint or ""),
        ("tags", ", ".join(record.tags)),
        ("priority", str(record.priority)),
    ]


def _state(record: JobRecord) -> list[tuple[str, str]]:
    progress = record.progress
    said = " ".join(filter(None, [f"{progress.percent:.0f}%", progress.message]))
    tries = str(record.attempt)
    if record.max_attempts is not None:
        tries += f" (at most {record.max_attempts} may fail)"
    return [
        ("status", record.status.value),
        ("progress", said if progress.percent or progress.message else ""),
        ("details", "" if progress.details is None else json_line(progress.details)),
        ("attempt", tries),
        ("failures", str(record.failures or "")),
        ("snoozes", str(record.snoozes or "")),
        ("worker crashes", str(record.crashes or "")),
        ("worker", record.worker or ""),
    ]


def _times(record: JobRecord, now: datetime) -> list[tuple[str, str]]:
    is_ahead = record.status is Status.SCHEDULED
    ended = moment(record.finished_at, now)
    if record.started_at is not None and record.finished_at is not None:
        ended += f", after {brief(record.finished_at - record.started_at)}"
    return [
        ("created", moment(record.created_at, now)),
        ("due", moment(record.ready_at, now) if is_ahead else ""),
        ("started", moment(record.started_at, now)),
        ("finished", ended),
        ("deadline", moment(record.deadline_at, now)),
        ("lease until", moment(record.lease_until, now)),
    ]


def _values(record: JobRecord) -> list[tuple[str, str]]:
    args, kwargs = _call(record)
    return [
        ("args", NOT_READABLE if args is None else json_line(args) if args else ""),
        ("kwargs", json_line(kwargs) if kwargs else ""),
        ("result", _shown_result(record)),
    ]


def _shown_result(record: JobRecord) -> str:
    if record.output is None:
        return ""
    try:
        return json_line(record.result)
    except PerdureError:
        return NOT_READABLE


def _call(record: JobRecord) -> tuple[Any, Any]:
    try:
        return record.args, record.kwargs
    except PerdureError:
        return None, None


def _result(record: JobRecord) -> Any:
    if record.output is None:
        return None
    try:
        return record.result
    except PerdureError:
        return None
