"""Queues and workers as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perdure.cli.output import echo
from perdure.cli.views.console import Column, least_width, print_table
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.model.times import ago, brief
from perdure.model.worker import AttemptCounts

if TYPE_CHECKING:
    from perdure.cli.command import CommandOutput
    from perdure.model.facts import RunStats
    from perdure.operations.page import Page
    from perdure.operations.records import (
        ClusterStats,
        QueuePage,
        QueueStats,
        TaskStats,
        WorkerRecord,
    )


def queue_table(queues: QueuePage, out: CommandOutput) -> None:
    """Jobs by queue and status; below, the runs by status, if there are any."""

    def name(queue: QueueStats) -> str:
        return f"{queue.namespace}/{queue.name}" if out.is_across else queue.name

    named = {f"{name(each)} (paused)" if each.is_paused else name(each): each for each in queues}
    if named:
        print_table(out.console, queue_columns(named, out.console.width))
    else:
        echo("no jobs")
    if queues.runs:
        echo("")
        print_table(out.console, run_columns(queues.runs))


def run_columns(runs: Sequence[RunStats]) -> list[Column]:
    """Runs by namespace: one column for each status with runs, for people and for orphans."""
    columns = [Column(title="RUNS OF", cells=[each.namespace for each in runs], room_min=10)]
    for status in RunStatus:
        if any(status in each.counts for each in runs):
            cells = [
                _count(each.counts.get(status, 0), has_more=status in each.more) for each in runs
            ]
            columns.append(Column(title=status.value.upper(), cells=cells, is_number=True))
    for title, counts in (
        ("FOR PEOPLE", [each.waiting_for_people for each in runs]),
        ("ORPHANED", [each.orphaned for each in runs]),
    ):
        if any(counts):
            cells = [f"{count:,}" for count in counts]
            columns.append(Column(title=title, cells=cells, is_number=True))
    return columns


def queue_columns(queues: Mapping[str, QueueStats], width: int) -> list[Column]:
    """Counts by queue and status: one column per status with jobs, or rows if too wide."""
    crossed = _queue_rows(queues)
    return crossed if least_width(crossed) <= width else _status_rows(queues)


def _queue_rows(queues: Mapping[str, QueueStats]) -> list[Column]:
    used = [status for status in Status if any(each.counts.get(status) for each in queues.values())]
    columns = [Column(title="QUEUE", cells=[*queues, "total"], room_min=10)]
    for status in used:
        cells = [
            _count(each.counts[status], has_more=status in each.more)
            if status in each.counts
            else ""
            for each in queues.values()
        ]
        total = _count(
            sum(each.counts.get(status, 0) for each in queues.values()),
            has_more=any(status in each.more for each in queues.values()),
        )
        columns.append(Column(title=status.value.upper(), cells=[*cells, total], is_number=True))
    return columns


def _count(count: int, *, has_more: bool) -> str:
    return f"{count:,}+" if has_more else f"{count:,}"


def _status_rows(queues: Mapping[str, QueueStats]) -> list[Column]:
    rows = [
        (name, status, _count(count, has_more=status in each.more))
        for name, each in queues.items()
        for status, count in (*sorted(each.counts.items()), *([] if each.counts else [("", 0)]))
    ]
    return [
        Column(title="QUEUE", cells=[row[0] for row in rows], room_min=10),
        Column(title="STATUS", cells=[row[1] for row in rows]),
        Column(title="COUNT", cells=[row[2] for row in rows], is_number=True),
    ]


def stats_table(stats: ClusterStats, out: CommandOutput) -> None:
    """What workers did, by task and queue: one column per counter that is not zero."""
    rows: list[TaskStats | ClusterStats] = [*stats.tasks, stats]
    columns = [
        Column(title="TASK", cells=[*(each.task for each in stats.tasks), "total"], room_min=10),
        Column(title="QUEUE", cells=[*(each.queue for each in stats.tasks), ""], room_min=8),
    ]
    if out.is_across:
        cells = [*(each.namespace for each in stats.tasks), ""]
        columns.insert(0, Column(title="NAMESPACE", cells=cells, room_min=9))
    for name in AttemptCounts.__struct_fields__:
        if getattr(stats, name):
            cells = [f"{getattr(each, name):,}" for each in rows]
            columns.append(
                Column(title=name.replace("_", " ").upper(), cells=cells, is_number=True)
            )
    averages = [each.average_duration for each in rows]
    took = ["" if average is None else brief(average) for average in averages]
    columns.append(Column(title="AVERAGE", cells=took, is_number=True))
    if stats.tasks:
        print_table(out.console, columns)
    else:
        echo("no attempts yet")
    workers = f"{stats.workers} live worker{'' if stats.workers == 1 else 's'}"
    echo(f"{workers}, {stats.running} of {stats.concurrency} slots in use")


def worker_table(workers: Page[WorkerRecord], out: CommandOutput) -> None:
    print_table(out.console, worker_columns(workers, is_across=out.is_across))


def worker_columns(workers: Sequence[WorkerRecord], *, is_across: bool) -> list[Column]:
    infos = [worker.info for worker in workers]
    running = [f"{len(worker.running)}/{worker.info.concurrency}" for worker in workers]
    namespaces = [info.namespace if is_across else "" for info in infos]
    now = [worker.seen_at + worker.silent_for for worker in workers]
    up = [ago(each.started_at, at) for each, at in zip(workers, now, strict=True)]
    seen = [ago(each.seen_at, at) for each, at in zip(workers, now, strict=True)]
    return [
        Column(title="WORKER", cells=[info.id for info in infos], room_min=16),
        Column(title="NAMESPACE", cells=namespaces, rank=1, room_min=9),
        Column(title="HOST", cells=[info.host for info in infos], rank=5, room_min=8),
        Column(title="PID", cells=[str(info.pid) for info in infos], rank=3, is_number=True),
        Column(title="STATE", cells=[worker.status for worker in workers]),
        Column(title="RUNS", cells=running, is_number=True),
        Column(title="UP", cells=up, is_number=True),
        Column(title="SEEN", cells=seen, is_number=True, rank=2),
        Column(title="QUEUES", cells=[",".join(each.queues) for each in infos], rank=4, room_min=8),
        Column(title="TAGS", cells=[",".join(each.tags or ()) for each in infos], rank=6),
    ]
