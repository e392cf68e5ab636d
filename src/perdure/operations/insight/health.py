"""The health of a store and its work: findings and actions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from perdure.diagnostics import Action, Code, Finding, Severity, declare
from perdure.model.facts import RunStats, StorageReport
from perdure.model.job import DEFAULT_NAMESPACE, QueueDepth, QueueInfo, Status
from perdure.model.partition import Partition
from perdure.model.run import RunStatus
from perdure.model.schedule import UnreadableSchedule
from perdure.model.value import Value
from perdure.model.worker import PollResult, WorkerState, has_code, has_tags, is_live


class Health(Value):
    """The result of all checks; ``about`` names each (``store``, ``workers``, ``leases``, ...).

    An error means that work is blocked or slow until an operator acts.
    """

    url: str
    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return all(each.severity is not Severity.ERROR for each in self.findings)


class Vitals(Value):
    """The measurements that the checks judge."""

    now: datetime
    """By the store's clock."""
    latency: timedelta
    """How long the store took to answer."""
    skew: timedelta
    """How much this machine's clock is ahead of the store's."""
    examination: StorageReport = StorageReport()
    workers: tuple[WorkerState, ...] = ()
    polls: Mapping[str, PollResult] = {}
    """By namespace, with all partitions."""
    depth: tuple[QueueDepth, ...] = ()
    runs: tuple[RunStats, ...] = ()
    paused_queues: tuple[QueueInfo, ...] = ()
    unreadable_schedules: tuple[UnreadableSchedule, ...] = ()


OVERDUE = timedelta(seconds=30)
"""How late work may be before it is reported; workers poll every few seconds."""
LATENCY_MAX = timedelta(milliseconds=100)
"""Each node of a chain waits for the store once."""
SKEW_MAX = timedelta(seconds=2)
LOG_BYTES_MAX = 256 * 1024 * 1024
NAMED_MAX = 5
"""Maximum items of one type that are listed; the rest are counted."""

STORE = declare("health.store", "the store responds in {latency}")
STORE_SLOW = declare(
    "health.store_slow",
    "the store responds in {latency}; every step of a chain waits this long",
    "Run this and the workers closer to it, or reduce its load",
)
SCHEMA = declare("health.schema", "the tables are at version {version}, which this Perdure knows")
CLOCK = declare("health.clock", "this machine and the store agree on the time")
CLOCK_AHEAD = declare(
    "health.clock_ahead",
    "this machine's clock is {skew} ahead of the store's: "
    "times entered or displayed here are wrong",
    "Synchronize the clock, for example with timedatectl set-ntp true",
)
CLOCK_BEHIND = declare(
    "health.clock_behind",
    "this machine's clock is {skew} behind the store's: times entered or displayed here are wrong",
    "Synchronize the clock, for example with timedatectl set-ntp true",
)
CLOCK_SET_BACK = declare(
    "health.clock_set_back",
    "the store's clock was set back by at least {step}: it recorded {newest_at} and shows {now}",
    "Leases and limits recover by themselves. Scheduled jobs, retries, timers, deadlines and "
    "schedules are due when the clock shows their time; correct the clock if it is wrong",
)
DAMAGED = declare(
    "health.damaged",
    "the database is damaged: {damage}",
    "Stop the workers, then run sqlite3 FILE .recover, or restore a backup",
)
INDEXES = declare("health.indexes", "all indexes are valid")
INDEX_MISSING = declare(
    "health.index_missing", "index {index} is missing: whole tables are read", "{statement}"
)
INDEX_INVALID = declare(
    "health.index_invalid", "index {index} is not valid, so it is not used", "{statement}"
)
LOG_LARGE = declare(
    "health.log_large",
    "the write-ahead log has {megabytes} MB: a long-running reader blocks its checkpoint",
    "Close long-lived readers of the file: lsof FILE lists them",
)
RUN_ORPHANED = declare(
    "health.run_orphaned",
    "run {run!r}[ of namespace {namespace!r}] has no job and waits for nothing",
    "Cancel it, then retry it",
)
MORE = declare("health.more", "{count:more finding|more findings}")
WORKERS = declare("health.workers", "{count:worker is|workers are} live")
NO_WORKER = declare("health.no_worker", "jobs are waiting, but no worker is live", "Start a worker")
NO_WORKER_IDLE = declare(
    "health.no_worker_idle", "no worker is live; there is nothing to do", "Start a worker"
)
WORKER_SILENT = declare(
    "health.worker_silent",
    "worker {worker} ({host}, process {pid}) has been silent for {silent}",
    "Check its log; other workers take over its jobs",
)
WORK = declare("health.work", "nothing is stuck")
LEASE_OVERDUE = declare(
    "health.lease_overdue",
    "a job[ of namespace {namespace!r}] has been held by a dead worker for {late}",
    "Start a worker",
)
JOB_OVERDUE = declare(
    "health.job_overdue",
    "a scheduled job[ of namespace {namespace!r}] has been due for {late} and is not ready",
    "Start a worker",
)
DEADLINE_OVERDUE = declare(
    "health.deadline_overdue",
    "a job[ of namespace {namespace!r}] has been past its deadline for {late} and is not ended",
    "Start a worker",
)
WAIT_OVERDUE = declare(
    "health.wait_overdue",
    "a wait of a run[ of namespace {namespace!r}] has been due for {late}, "
    "but its run has not resumed",
    "Start a worker",
)
SCHEDULE_OVERDUE = declare(
    "health.schedule_overdue",
    "a schedule[ of namespace {namespace!r}] has been due for {late} and has not started anything",
    "Start a worker",
)
NAMESPACE_UNSERVED = declare(
    "health.namespace_unserved",
    "jobs are waiting in namespace {namespace!r}, which no live worker serves",
    "Start a worker",
)
TASK_UNSERVED = declare(
    "health.task_unserved",
    "jobs of task {task!r}[ of namespace {namespace!r}] are waiting, and no live worker has it",
    "Start a worker with it",
)
FLOW_UNSERVED = declare(
    "health.flow_unserved",
    "jobs of flow {flow}[ of namespace {namespace!r}] are waiting, and no live worker has it",
    "Start a worker with it",
)
QUEUE_UNSERVED = declare(
    "health.queue_unserved",
    "jobs are waiting in queue {queue!r}[ of namespace {namespace!r}], which no live worker that "
    "has task {task!r}[ of {flow}] serves",
    "Start a worker for this queue",
)
TAGS_UNSERVED = declare(
    "health.tags_unserved",
    "jobs of task {task!r}[ of {flow}][ of namespace {namespace!r}] are waiting for a "
    "worker with the tags {tags:and}, and none is live",
    "Start a worker with these tags",
)
QUEUE_PAUSED = declare(
    "health.queue_paused",
    "queue {queue!r}[ of namespace {namespace!r}] was paused[ by {by}] {ago} ago; "
    "[{waiting:job waits|jobs wait}][at least {waiting_min:job waits|jobs wait}]",
)
DEAD_LETTERS = declare(
    "health.dead_letters",
    "[{count:dead letter|dead letters}][at least {count_min:dead letter|dead letters}]"
    "[ in namespace {namespace!r}]",
)
RUNS_FAILED = declare(
    "health.runs_failed",
    "[{count:failed run|failed runs}][at least {count_min:failed run|failed runs}]"
    "[ in namespace {namespace!r}]",
)
RUNS_WAITING = declare(
    "health.runs_waiting",
    "{count:run waits|runs wait} for people[ in namespace {namespace!r}]",
)
SCHEDULE_UNREADABLE = declare(
    "health.schedule_unreadable",
    "schedule {schedule!r}[ of namespace {namespace!r}] cannot be read: {reason}",
    "Upgrade Perdure here",
)


def judge(vitals: Vitals) -> tuple[Finding, ...]:
    """Return a finding for each check and for each problem."""
    alive = [each for each in vitals.workers if is_live(each, vitals.now)]
    return (
        *_place(vitals),
        *_storage(vitals.examination),
        *_workers(vitals, alive),
        *_work(vitals, alive),
        *_held_back(vitals),
    )


def _ok(code: Code, about: str, **args: Any) -> Finding:
    return code.finding(about, severity=Severity.OK, **args)


def _warning(code: Code, about: str, *actions: Action, **args: Any) -> Finding:
    return code.finding(about, *actions, severity=Severity.WARNING, **args)


def _place(vitals: Vitals) -> Iterator[Finding]:
    if vitals.latency <= LATENCY_MAX:
        yield _ok(STORE, "store", latency=vitals.latency)
    else:
        yield _warning(STORE_SLOW, "store", latency=vitals.latency)
    version = vitals.examination.schema_version
    if version is not None:
        yield _ok(SCHEMA, "schema", version=version)
    if abs(vitals.skew) <= SKEW_MAX:
        yield _ok(CLOCK, "clock")
    else:
        code = CLOCK_AHEAD if vitals.skew > timedelta(0) else CLOCK_BEHIND
        yield _warning(code, "clock", skew=_rounded(abs(vitals.skew)))
    newest_at = vitals.examination.newest_at
    if newest_at is not None and newest_at - vitals.now > SKEW_MAX:
        step = _rounded(newest_at - vitals.now)
        args = {"newest_at": newest_at, "now": vitals.now}
        yield _warning(CLOCK_SET_BACK, "clock", step=step, **args)


def _storage(found: StorageReport) -> Iterator[Finding]:
    for damage in found.damages:
        yield DAMAGED.finding("damage", damage=damage)
    for name, statement in found.missing_indexes.items():
        yield INDEX_MISSING.finding("indexes", index=name, statement=statement)
    for name, statement in found.invalid_indexes.items():
        yield INDEX_INVALID.finding("indexes", index=name, statement=statement)
    is_whole = not (found.damages or found.missing_indexes or found.invalid_indexes)
    if found.schema_version is not None and is_whole:
        yield _ok(INDEXES, "indexes")
    if found.log_bytes is not None and found.log_bytes > LOG_BYTES_MAX:
        yield _warning(LOG_LARGE, "log", megabytes=round(found.log_bytes / 1024 / 1024))
    for orphan in found.orphaned_runs[:NAMED_MAX]:
        namespace = _namespace(orphan.namespace)
        steps = [
            Action(each, {"id": orphan.run, **namespace}) for each in ("runs.cancel", "runs.retry")
        ]
        yield RUN_ORPHANED.finding("runs", *steps, run=orphan.run, **namespace)
    if len(found.orphaned_runs) > NAMED_MAX:
        yield MORE.finding("runs", count=len(found.orphaned_runs) - NAMED_MAX)


def _workers(vitals: Vitals, alive: Sequence[WorkerState]) -> Iterator[Finding]:
    dead = [each for each in vitals.workers if each not in alive]
    if alive:
        yield _ok(WORKERS, "workers", count=len(alive))
    elif _is_work_left(vitals):
        yield NO_WORKER.finding("workers", _start())
    else:
        yield _warning(NO_WORKER_IDLE, "workers", _start())
    for each in dead[:NAMED_MAX]:
        info = each.info
        silent = _rounded(vitals.now - each.seen_at)
        yield _warning(
            WORKER_SILENT, "workers", worker=info.id, host=info.host, pid=info.pid, silent=silent
        )
    if len(dead) > NAMED_MAX:
        yield _warning(MORE, "workers", count=len(dead) - NAMED_MAX)


def _is_work_left(vitals: Vitals) -> bool:
    return any(
        poll.partitions or any(at is not None and at <= vitals.now for at, _, _ in _due_times(poll))
        for poll in vitals.polls.values()
    )


def _due_times(poll: PollResult) -> tuple[tuple[datetime | None, str, Code], ...]:
    """When the first of each type is due, and the finding if it is late."""
    return (
        (poll.next_lease_end_at, "leases", LEASE_OVERDUE),
        (poll.next_due_at, "jobs", JOB_OVERDUE),
        (poll.next_deadline_at, "jobs", DEADLINE_OVERDUE),
        (poll.next_wait_at, "waits", WAIT_OVERDUE),
        (poll.next_tick_at, "schedules", SCHEDULE_OVERDUE),
    )


def _work(vitals: Vitals, alive: Sequence[WorkerState]) -> Iterator[Finding]:
    stuck: list[Finding] = []
    for namespace, poll in vitals.polls.items():
        within = _namespace(namespace)
        for at, about, code in _due_times(poll):
            if at is not None and vitals.now - at > OVERDUE:
                late = _rounded(vitals.now - at)
                stuck.append(code.finding(about, _start(**within), late=late, **within))
        if alive:  # otherwise the finding about the workers says it all
            stuck += _unserved(namespace, poll, alive)
    yield from stuck
    is_stuck = bool(stuck or vitals.examination.orphaned_runs)
    if not is_stuck and (alive or not _is_work_left(vitals)):
        yield _ok(WORK, "work")


def _unserved(namespace: str, poll: PollResult, alive: Sequence[WorkerState]) -> Iterator[Finding]:
    """Findings on jobs that no live worker claims, one per reason."""
    team = [each for each in alive if each.info.namespace == namespace]
    within = _namespace(namespace)
    found: dict[tuple[Any, ...], Finding] = {}
    for text in poll.partitions:
        partition = Partition.parse(text)
        if partition.queue not in poll.paused:
            reason = _why_unserved(partition, team, within)
            if reason is not None:
                found.setdefault((reason.code, *reason.args.values()), reason)
    if found and not team:
        yield NAMESPACE_UNSERVED.finding("jobs", _start(**within), namespace=namespace)
        return
    yield from list(found.values())[:NAMED_MAX]
    if len(found) > NAMED_MAX:
        yield MORE.finding("jobs", count=len(found) - NAMED_MAX)


def _why_unserved(
    partition: Partition, team: Sequence[WorkerState], within: dict[str, Any]
) -> Finding | None:
    """Narrow down which workers could claim the jobs of a partition."""
    able = [each for each in team if has_code(each.info, task=partition.task, flow=partition.flow)]
    if not able:
        if partition.flow:
            return FLOW_UNSERVED.finding("jobs", _start(**within), flow=partition.flow, **within)
        return TASK_UNSERVED.finding("jobs", _start(**within), task=partition.task, **within)
    of = {"task": partition.task, **({"flow": partition.flow} if partition.flow else {}), **within}
    serving = [each for each in able if partition.queue in each.info.queues]
    if not serving:
        start = _start(queues=(partition.queue,), **within)
        return QUEUE_UNSERVED.finding("jobs", start, queue=partition.queue, **of)
    if not any(has_tags(each.info.tags, partition.tags) for each in serving):
        start = _start(queues=(partition.queue,), tags=partition.tags, **within)
        return TAGS_UNSERVED.finding("jobs", start, tags=partition.tags, **of)
    return None


def _held_back(vitals: Vitals) -> Iterator[Finding]:
    """Findings on paused queues, dead letters, failed and waiting runs, and the like."""
    for queue in vitals.paused_queues:
        within = _namespace(queue.namespace)
        yield _warning(
            QUEUE_PAUSED,
            "queues",
            Action("queues.resume", {"name": queue.queue, **within}),
            queue=queue.queue,
            by=queue.paused_by,
            ago=_rounded(vitals.now - queue.paused_at),
            **_counted("waiting", vitals, Status.WAITING, queue.namespace, queue.queue),
            **within,
        )
    for namespace in sorted({each.namespace for each in vitals.depth}):
        dead = _counted("count", vitals, Status.DEAD, namespace)
        if any(dead.values()):
            within = _namespace(namespace)
            show = Action("jobs.list", {"status": Status.DEAD.value, **within})
            yield _warning(DEAD_LETTERS, "jobs", show, **dead, **within)
    for runs in vitals.runs:
        within = _namespace(runs.namespace)
        if failed := runs.counts.get(RunStatus.FAILED):
            count = {"count_min" if RunStatus.FAILED in runs.more else "count": failed}
            show = Action("runs.list", {"status": RunStatus.FAILED.value, **within})
            yield _warning(RUNS_FAILED, "runs", show, **count, **within)
        if runs.waiting_for_people:
            show, count = Action("approvals.list", within), {"count": runs.waiting_for_people}
            yield RUNS_WAITING.finding("runs", show, severity=Severity.OK, **count, **within)
    for schedule in vitals.unreadable_schedules:
        yield _warning(
            SCHEDULE_UNREADABLE,
            "schedules",
            schedule=schedule.name,
            reason=schedule.reason,
            **_namespace(schedule.namespace),
        )


def _counted(
    name: str, vitals: Vitals, status: Status, namespace: str, queue: str | None = None
) -> dict[str, int]:
    """The number of jobs as an argument of a finding; ``…_min`` if there are more."""
    found = [
        each
        for each in vitals.depth
        if (each.namespace, each.status) == (namespace, status) and queue in (None, each.queue)
    ]
    has_more = any(each.has_more for each in found)
    return {f"{name}_min" if has_more else name: sum(each.count for each in found)}


def _start(**args: Any) -> Action:
    return Action("worker.run", args, ("module",))


def _namespace(name: str) -> dict[str, Any]:
    """The namespace for a message; empty for the default one."""
    return {} if name == DEFAULT_NAMESPACE else {"namespace": name}


def _rounded(duration: timedelta) -> timedelta:
    """A duration to the second, or to its two largest units."""
    seconds = max(1, round(duration.total_seconds()))
    if seconds >= 3600:
        seconds -= seconds % (3600 if seconds >= 86400 else 60)
    return timedelta(seconds=seconds)
