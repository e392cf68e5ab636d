"""Judging what was measured of a store: what is well, what is not, and what would help."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from perdure.model.health import Severity, Symptom, Vitals
from perdure.model.insight import StorageReport
from perdure.model.job import DEFAULT_NAMESPACE, Status
from perdure.model.node_words import duration_text
from perdure.model.worker import PollResult, WorkerState
from perdure.rules.idle_lanes import idle_lanes
from perdure.rules.serving import is_live

OVERDUE = timedelta(seconds=30)
"""How late work may be before somebody should look; workers look for it every few seconds."""
LATENCY_MAX = timedelta(milliseconds=100)
"""A chain of nodes waits for the store as often as it has nodes."""
SKEW_MAX = timedelta(seconds=2)
LOG_BYTES_MAX = 256 * 1024 * 1024
NAMED_MAX = 5
"""Things of one kind that are named one by one; how many more there are is told."""

START_A_WORKER = "perdure worker MODULE"


def judge(vitals: Vitals) -> tuple[Symptom, ...]:
    """Every thing that was looked at, and whatever is wrong with it."""
    alive = [each for each in vitals.workers if is_live(each, vitals.now)]
    return (
        *_place(vitals),
        *_examined(vitals.examination),
        *_workers(vitals, alive),
        *_work(vitals, alive),
        *_held_back(vitals),
    )


def _ok(about: str, text: str) -> Symptom:
    return Symptom(severity=Severity.OK, about=about, text=text)


def _warning(about: str, text: str, help: str = "") -> Symptom:
    return Symptom(severity=Severity.WARNING, about=about, text=text, help=help)


def _error(about: str, text: str, help: str = "") -> Symptom:
    return Symptom(severity=Severity.ERROR, about=about, text=text, help=help)


# The place


def _place(vitals: Vitals) -> Iterator[Symptom]:
    ms = vitals.latency / timedelta(milliseconds=1)
    answer = f"it answers in {ms:.1f} ms"
    if vitals.latency <= LATENCY_MAX:
        yield _ok("store", answer)
    else:
        help = "run this and the workers nearer to it, or look at what it is busy with"
        yield _warning("store", f"{answer}; each node of a chain waits for that", help)
    version = vitals.examination.schema_version
    if version is not None:
        yield _ok("schema", f"the tables are at version {version}, which this Perdure knows")
    if abs(vitals.skew) <= SKEW_MAX:
        yield _ok("clock", "this machine and the store agree on the time")
    else:
        which = "ahead of" if vitals.skew > timedelta(0) else "behind"
        text = f"this machine's clock is {_span(abs(vitals.skew))} {which} the store's"
        yield _warning(
            "clock", f"{text}: times given and shown here are off", "timedatectl set-ntp true"
        )


def _examined(found: StorageReport) -> Iterator[Symptom]:
    for text in found.damages:
        yield _error("damage", text, "stop the workers, then sqlite3 FILE .recover, or a backup")
    for name, statement in found.missing_indexes.items():
        yield _error("indexes", f"index {name} is missing: whole tables are read", statement)
    for name, statement in found.invalid_indexes.items():
        yield _error("indexes", f"index {name} is not valid, so it is not used", statement)
    is_whole = not (found.damages or found.missing_indexes or found.invalid_indexes)
    if found.schema_version is not None and is_whole:
        yield _ok("indexes", "all are there")
    if found.log_bytes is not None and found.log_bytes > LOG_BYTES_MAX:
        size = found.log_bytes / 1024 / 1024
        text = f"the log beside the file has {size:.0f} MB: a reader keeps it from being emptied"
        yield _warning("log", text, "end what has had the file open for long: lsof FILE")
    for stray in found.strays[:NAMED_MAX]:
        text = f"run {stray.run!r}{_within(stray.namespace)} has no job and waits for nothing"
        which = f"{shlex.quote(stray.run)}{_at(stray.namespace)}"
        help = f"perdure runs cancel {which} && perdure runs retry {which}"
        yield _error("runs", text, help)
    if len(found.strays) > NAMED_MAX:
        yield _error("runs", f"so have {len(found.strays) - NAMED_MAX} more runs at least")


# Who works


def _workers(vitals: Vitals, alive: Sequence[WorkerState]) -> Iterator[Symptom]:
    dead = [each for each in vitals.workers if each not in alive]
    if alive:
        yield _ok("workers", f"{_counted(len(alive), 'worker is', 'workers are')} live")
    elif _is_work_left(vitals):
        yield _error("workers", "there is work, and no worker is live", START_A_WORKER)
    else:
        yield _warning("workers", "no worker is live; there is nothing to do", START_A_WORKER)
    for each in dead[:NAMED_MAX]:
        since = _span(vitals.now - each.seen_at)
        place = f"{each.info.host}, process {each.info.pid}"
        text = f"worker {each.info.id} ({place}) has given no sign of life for {since}"
        yield _warning("workers", text, "look at its log; others take over what it held")
    if len(dead) > NAMED_MAX:
        yield _warning("workers", f"so have {len(dead) - NAMED_MAX} more")


def _is_work_left(vitals: Vitals) -> bool:
    def is_due(at: datetime | None) -> bool:
        return at is not None and at <= vitals.now

    return any(
        survey.lanes or any(is_due(at) for at, _, _ in _due_times(survey))
        for survey in vitals.surveys.values()
    )


# What stands still


def _due_times(survey: PollResult) -> tuple[tuple[datetime | None, str, str], ...]:
    """When the first of each kind is due, what it is, and what has not been done about it."""
    return (
        (survey.next_lease_end_at, "leases", "a job is held by a worker that is gone"),
        (survey.next_due_at, "jobs", "a scheduled job is due and was not made ready"),
        (survey.next_deadline_at, "jobs", "a job is past its deadline and was not ended"),
        (survey.next_wait_at, "waits", "a wait of a run is over and the run has not gone on"),
        (survey.next_tick_at, "schedules", "a schedule is due and has not started anything"),
    )


def _work(vitals: Vitals, alive: Sequence[WorkerState]) -> Iterator[Symptom]:
    stuck = list(_stuck(vitals, alive))
    yield from stuck
    if not stuck and (alive or not _is_work_left(vitals)):
        yield _ok("work", "nothing is stuck")


def _stuck(vitals: Vitals, alive: Sequence[WorkerState]) -> Iterator[Symptom]:
    for namespace, survey in vitals.surveys.items():
        help = f"{START_A_WORKER}{_at(namespace)}"
        for at, about, text in _due_times(survey):
            if at is not None and vitals.now - at > OVERDUE:
                late = _span(vitals.now - at)
                yield _error(about, f"{text}{_within(namespace)}, for {late} now", help)
        if alive:  # else there is one thing to say, and it is said of the workers
            yield from _untaken(namespace, survey, alive)


def _untaken(namespace: str, survey: PollResult, alive: Sequence[WorkerState]) -> Iterator[Symptom]:
    team = [each for each in alive if each.info.namespace == namespace]
    idle = list(idle_lanes(survey, team))
    start = f"{START_A_WORKER}{_at(namespace)}"
    if idle and not team:
        yield _error("jobs", f"jobs wait{_within(namespace)}, which no live worker serves", start)
        return
    for text, needs in idle[:NAMED_MAX]:
        yield _error("jobs", f"{text}{_within(namespace)}", f"{start}{needs}")
    if len(idle) > NAMED_MAX:
        yield _error("jobs", f"so do {len(idle) - NAMED_MAX} more kinds of jobs")


# What somebody stopped, or gave up


def _held_back(vitals: Vitals) -> Iterator[Symptom]:
    for queue in vitals.paused_queues:
        kept = _jobs(vitals, Status.WAITING, queue.namespace, queue.queue)
        by = "" if queue.paused_by is None else f" by {queue.paused_by}"
        text = (
            f"queue {queue.queue!r}{_within(queue.namespace)} was paused{by}, "
            f"{_span(vitals.now - queue.paused_at)} ago; {_counted(kept, 'job waits', 'jobs wait')}"
        )
        help = f"perdure queues resume {shlex.quote(queue.queue)}{_at(queue.namespace)}"
        yield _warning("queues", text, help)
    for namespace in sorted({each.namespace for each in vitals.depth}):
        dead = _jobs(vitals, Status.DEAD, namespace)
        if dead:
            text = f"{_counted(dead, 'job is', 'jobs are')} in the dead letter{_within(namespace)}"
            yield _warning("jobs", text, f"perdure jobs list --status dead{_at(namespace)}")
    for schedule in vitals.unreadable_schedules:
        text = f"schedule {schedule.name!r}{_within(schedule.namespace)} cannot be read"
        yield _warning("schedules", f"{text}: {schedule.reason}", "upgrade Perdure here")


def _jobs(vitals: Vitals, status: Status, namespace: str, queue: str | None = None) -> int:
    return sum(
        each.count
        for each in vitals.depth
        if (each.namespace, each.status) == (namespace, status) and queue in (None, each.queue)
    )


# Words


def _span(duration: timedelta) -> str:
    """To the second, or to the two largest units of a long one."""
    seconds = max(1, round(duration.total_seconds()))
    if seconds >= 3600:
        seconds -= seconds % (3600 if seconds >= 86400 else 60)
    return duration_text(seconds * 1000)


def _counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _within(namespace: str) -> str:
    return "" if namespace == DEFAULT_NAMESPACE else f" of namespace {namespace!r}"


def _at(namespace: str) -> str:
    return "" if namespace == DEFAULT_NAMESPACE else f" --namespace {shlex.quote(namespace)}"
