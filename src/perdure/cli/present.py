"""How jobs, queues and workers look in a terminal: pure functions from values to rows and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.model.job import Job, Progress, Status
from perdure.model.run import NodeStatus, RunStatus
from perdure.model.value import Value
from perdure.model.worker import WorkerState, is_live

NOT_REACHED = "-"
"""The status of a node that its run has not come to."""

STYLES: dict[str, str] = {
    Status.WAITING: "cyan",
    Status.SCHEDULED: "blue",
    Status.ACTIVE: "yellow",
    Status.PAUSED: "magenta",
    Status.ABORTING: "yellow",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.DEAD: "bold red",
    Status.DISABLED: "magenta",
    Status.CANCELLED: "dim",
    RunStatus.RUNNING: "yellow",
    RunStatus.COMPENSATING: "yellow",
    NodeStatus.LIVE: "yellow",
    NodeStatus.SKIPPED: "dim",
    NodeStatus.BLOCKED: "dim",
    NOT_REACHED: "dim",
}
"""By the words for statuses, which jobs, runs and nodes share."""


class Column(Value):
    """One column of a table: what it holds, and how soon it is left out for want of room."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    """0 is never left out; the highest goes first."""
    room_min: int | None = None
    """How far it may be shortened; None: not at all."""
    is_number: bool = False

    @property
    def width(self) -> int:
        return max(len(text) for text in (self.title, *self.cells))


GAP = 2


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """The columns that fit side by side, shortening before leaving out."""
    kept = [column for column in columns if any(column.cells)]
    while _least_width(kept) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept


def widths_of(columns: Sequence[Column], width: int) -> list[int]:
    """How wide each column is: the widest ones are shortened first, as far as they may be."""
    widths = [column.width for column in columns]
    least = [_least(column) for column in columns]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        spare = [at for at, column_width in enumerate(widths) if column_width > least[at]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _least_width(columns: Sequence[Column]) -> int:
    return sum(map(_least, columns)) + GAP * (len(columns) - 1)


def _least(column: Column) -> int:
    return column.width if column.room_min is None else min(column.width, column.room_min)


def job_columns(jobs: Sequence[Job], now: datetime, *, is_across: bool) -> list[Column]:
    """A list of jobs; ``is_across`` when they are of several namespaces."""
    namespaces = [job.namespace if is_across else "" for job in jobs]
    return [
        Column(title="JOB", cells=[job.id for job in jobs]),
        Column(title="NAMESPACE", cells=namespaces, rank=3, room_min=9),
        Column(title="STATUS", cells=[job.status.value for job in jobs]),
        Column(title="TASK", cells=[job.task for job in jobs], rank=1, room_min=8),
        Column(title="QUEUE", cells=[job.queue for job in jobs], rank=4, room_min=7),
        Column(title="TRY", cells=[str(job.attempt) for job in jobs], rank=6, is_number=True),
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


def depth_columns(
    queues: Mapping[str, Mapping[Status, int]], paused: set[str], width: int
) -> list[Column]:
    """Counts by queue and status: a column for each status that has jobs, or a row if too wide."""
    crossed = _crossed_depth(queues, paused)
    return crossed if _least_width(crossed) <= width else _listed_depth(queues, paused)


def _crossed_depth(queues: Mapping[str, Mapping[Status, int]], paused: set[str]) -> list[Column]:
    used = [status for status in Status if any(counts.get(status) for counts in queues.values())]
    names = [f"{name} (paused)" if name in paused else name for name in queues]
    columns = [Column(title="QUEUE", cells=[*names, "total"], room_min=10)]
    for status in used:
        counts = [each.get(status, 0) for each in queues.values()]
        cells = [str(count or "") for count in counts]
        columns.append(
            Column(title=status.value.upper(), cells=[*cells, str(sum(counts))], is_number=True)
        )
    return columns


def _listed_depth(queues: Mapping[str, Mapping[Status, int]], paused: set[str]) -> list[Column]:
    rows = [
        (f"{name} (paused)" if name in paused else name, status, str(count))
        for name, counts in queues.items()
        for status, count in (*sorted(counts.items()), *([] if counts else [("", 0)]))
    ]
    return [
        Column(title="QUEUE", cells=[row[0] for row in rows], room_min=10),
        Column(title="STATUS", cells=[row[1] for row in rows]),
        Column(title="COUNT", cells=[row[2] for row in rows], is_number=True),
    ]


def worker_fields(worker: WorkerState, now: datetime) -> dict[str, Any]:
    """A worker as JSON shows it."""
    return {"state": _state(worker, now), **msgspec.structs.asdict(worker)}


def _state(worker: WorkerState, now: datetime) -> str:
    return "live" if is_live(worker, now) else "silent"


def worker_columns(
    workers: Sequence[WorkerState], now: datetime, *, is_across: bool
) -> list[Column]:
    infos = [worker.info for worker in workers]
    running = [f"{len(worker.running)}/{worker.info.concurrency}" for worker in workers]
    namespaces = [info.namespace if is_across else "" for info in infos]
    return [
        Column(title="WORKER", cells=[info.id for info in infos], room_min=16),
        Column(title="NAMESPACE", cells=namespaces, rank=1, room_min=9),
        Column(title="HOST", cells=[info.host for info in infos], rank=5, room_min=8),
        Column(title="PID", cells=[str(info.pid) for info in infos], rank=3, is_number=True),
        Column(title="STATE", cells=[_state(worker, now) for worker in workers]),
        Column(title="RUNS", cells=running, is_number=True),
        Column(title="UP", cells=[ago(each.started_at, now) for each in workers], is_number=True),
        Column(
            title="SEEN", cells=[ago(each.seen_at, now) for each in workers], is_number=True, rank=2
        ),
        Column(title="QUEUES", cells=[",".join(each.queues) for each in infos], rank=4, room_min=8),
        Column(title="TAGS", cells=[",".join(each.tags or ()) for each in infos], rank=6),
    ]


def ago(moment: datetime, now: datetime) -> str:
    """How long ago in two or three characters; a moment ahead counts as now."""
    return brief(max(timedelta(0), now - moment))


def ahead(moment: datetime, now: datetime) -> str:
    """How far ahead, as near as one unit can say it: three days less a moment are three days."""
    seconds = max(timedelta(0), moment - now).total_seconds()
    for size, unit, most in ((1, "s", 60), (60, "m", 60), (3600, "h", 24)):
        if (count := round(seconds / size)) < most:
            return f"{count}{unit}"
    return f"{round(seconds / 86400)}d"


def brief(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"


def took(duration: timedelta) -> str:
    """How long something took, with the digits that matter."""
    seconds = duration.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def percent(progress: Progress) -> str:
    return f"{progress.percent:.0f}%" if progress.percent else ""


def moment(at: datetime | None, now: datetime) -> str:
    """A moment in local time, and how far away it is."""
    if at is None:
        return ""
    distance = f"in {ahead(at, now)}" if at > now else f"{ago(at, now)} ago"
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({distance})"


def as_json(value: object) -> str:
    """JSON for people and programs alike."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def shortened(text: str, length: int) -> str:
    """One line of at most this many characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: max(0, length - 1)]}…"


def as_json_line(value: object) -> str:
    return msgspec.json.encode(value).decode()
