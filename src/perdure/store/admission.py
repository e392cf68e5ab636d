"""Admission rules: which jobs and runs may start, and in which order. Pure.

Stores evaluate these rules inside their transactions. Each backend's claim excludes paused queues
before these rules apply.

Aging orders jobs by ``priority - waited / aging``, lowest first. At any moment all jobs share the
same "now", so that order equals the order of the constant ``ready_at + priority * aging``, which is
stored once and indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.event import (
    NOTHING,
    NewEvent,
    RunSkipped,
    RunSubmitted,
    decode_event,
    encode_event,
)
from perdure.model.graph import Graph
from perdure.model.ids import RUN_START, RunId
from perdure.model.limit import (
    Concurrency,
    CustomLimit,
    Limit,
    LimitRule,
    LimitUsage,
    Rate,
    Spacing,
    is_computed,
)
from perdure.model.partition import Partition
from perdure.model.run import NewRun, RunStatus, RunSummary
from perdure.model.times import nearest_duration, nearest_storable
from perdure.model.value import Value

AGING_DEFAULT = timedelta(minutes=5)
START_MARGIN = timedelta(milliseconds=100)
"""A body may start this much later than its claim, which is what a store counts. Windows and
spacings are longer by it, so that they hold for the bodies too."""
CLOCK_STEP_MIN = timedelta(seconds=1)
"""A recorded time that is ahead of the clock by more than this shows that the clock was set back.
A smaller difference may come from a transaction that read the clock and then waited for another
one."""


def rank_of(ready_at: datetime, priority: int, aging: timedelta) -> float:
    """The rank of a job; the lowest is claimed first."""
    return ready_at.timestamp() + priority * aging.total_seconds()


def moved_rank(rank: float, ready_before: datetime, ready_after: datetime) -> float:
    """The rank of a job that becomes ready at another time: its aging restarts."""
    return rank + (ready_after - ready_before).total_seconds()


COMPUTED_KEY = declare(
    "limit.computed_key",
    "a worker's limit takes a name as its key, not a function",
    "A limit whose key is computed from the input belongs on the task: @task(limits=...)",
)
NOTHING_LIMITED = declare(
    "limit.without_key", "{limit!r} does not say what it counts", "Pass `key`, `queue` or `task`"
)


def is_ahead(at: datetime | None, now: datetime) -> bool:
    """Whether a time that was recorded shows that the clock was set back since."""
    return at is not None and at - now > CLOCK_STEP_MIN


def created_at(
    now: datetime, *, after: datetime | None = None, parent: datetime | None = None
) -> datetime:
    """The creation time of a run: after that of any run that it replaces, not before its parent's.

    So no run has both the id and the creation time of one that was replaced before, by itself or
    with its parent. If the clock was set back since, the times differ anyway.
    """
    if after is not None and after >= now and not is_ahead(after, now):
        return after + timedelta(microseconds=1)
    if parent is not None and parent > now and not is_ahead(parent, now):
        return parent
    return now


class Room(Value):
    """How many more may start under one key, and when more will by themselves (``opens_at``)."""

    count: int
    opens_at: datetime | None = None


def room_under(rule: LimitRule, usage: LimitUsage, now: datetime) -> Room:
    """The tightest limit of the rule."""
    if usage.closed_until is not None and usage.closed_until > now:
        return Room(count=0, opens_at=usage.closed_until)
    rooms = []
    if rule.live_max is not None:
        rooms.append(Room(count=max(0, rule.live_max - usage.live)))
    if rule.starts_max is not None and rule.window is not None:
        left = max(0, rule.starts_max - usage.starts)
        first_out = usage.oldest_start_at
        opens_at = first_out + rule.window if not left and first_out is not None else None
        rooms.append(Room(count=left, opens_at=opens_at))
    if rule.spacing is not None:
        last = usage.last_start_at
        next_at = last + rule.spacing if last is not None else now
        rooms.append(Room(count=1) if next_at <= now else Room(count=0, opens_at=next_at))
    if not rooms:
        return Room(count=1 << 30)
    count = min(room.count for room in rooms)
    # All of them must open, so the latest time counts.
    waits = [room.opens_at for room in rooms if not room.count and room.opens_at is not None]
    return Room(count=count, opens_at=max(waits) if waits and not count else None)


def rooms(usages: Mapping[LimitRule, LimitUsage], now: datetime) -> dict[str, Room]:
    """The room of each key; the least where several rules share a key."""
    found: dict[str, Room] = {}
    for rule, usage in usages.items():
        room = room_under(rule, usage, now)
        if rule.key not in found or room.count < found[rule.key].count:
            found[rule.key] = room
    return found


def opens_at(rooms: Mapping[str, Room]) -> datetime | None:
    """When the first closed key opens by itself, if one does."""
    moments = [room.opens_at for room in rooms.values() if not room.count and room.opens_at]
    return min(moments, default=None)


def windows(rules: Iterable[LimitRule]) -> dict[str, timedelta]:
    """For how long starts are counted, for each key with a rate or a spacing."""
    longest: dict[str, timedelta] = {}
    for rule in rules:
        for span in (rule.window, rule.spacing):
            if span is not None:
                longest[rule.key] = max(span, longest.get(rule.key, span))
    return longest


def holds_place(rules: Iterable[LimitRule]) -> timedelta:
    """For how long after a start no other job can have taken its place under the rules.

    Shorter spacings than the margin come from ``evenly``, which spaces claims only.
    """
    spans = (span for rule in rules for span in (rule.window, rule.spacing) if span is not None)
    return min((span for span in spans if span > START_MARGIN), default=timedelta(0))


def memory_of(rules: Iterable[LimitRule], key: str) -> timedelta:
    """How long a start under ``key`` can block others."""
    spans = [span for rule in rules if rule.key == key for span in (rule.window, rule.spacing)]
    return max((nearest_duration(span) for span in spans if span), default=timedelta(0))


def share_out(
    candidates: Iterable[tuple[str, Sequence[str]]], rooms: Mapping[str, int], limit: int
) -> list[str]:
    """Pick up to ``limit`` candidates in their order, each taking one place under all its keys."""
    left = dict(rooms)
    chosen: list[str] = []
    for name, keys in candidates:
        if len(chosen) == limit:
            break
        if all(left.get(key, 0) > 0 for key in keys):
            for key in keys:
                left[key] -= 1
            chosen.append(name)
    return chosen


def governing_rules(
    partition: Partition, task_limits: Sequence[Limit], worker_limits: Sequence[Limit]
) -> tuple[LimitRule, ...]:
    """The rules for jobs of a partition: one per key, and one more per further window."""
    under = _by_key(partition, task_limits, worker_limits)
    counted = {
        key: [each for each in limits if not isinstance(each, CustomLimit)]
        for key, limits in under.items()
    }
    return tuple(rule for key, limits in counted.items() if limits for rule in _rules(key, limits))


def custom_limits(
    partition: Partition, task_limits: Sequence[Limit], worker_limits: Sequence[Limit]
) -> tuple[tuple[str, CustomLimit], ...]:
    """The limits for jobs of a partition that the store does not count, each with its key."""
    under = _by_key(partition, task_limits, worker_limits)
    found = {
        (key, id(limit.limiter)): (key, limit)
        for key in sorted(under)
        for limit in under[key]
        if isinstance(limit, CustomLimit)
    }
    return tuple(found.values())


def _by_key(
    partition: Partition, task_limits: Sequence[Limit], worker_limits: Sequence[Limit]
) -> dict[str, list[Limit]]:
    under: dict[str, list[Limit]] = {}
    computed = iter(partition.keys)
    for limit in task_limits:
        key = (
            next(computed, None)
            if is_computed(limit)
            else _own_key(limit, f"task:{partition.task}")
        )
        if key is not None and _covers(limit, partition):
            under.setdefault(key, []).append(limit)
    for limit in worker_limits:
        if _covers(limit, partition):
            under.setdefault(_own_key(limit, None), []).append(limit)
    return under


LIMITS = "a list of Concurrency, Rate, Spacing and CustomLimit"


def check_worker_limits(
    limits: Sequence[Limit], queues: Sequence[str], tasks: Iterable[str]
) -> tuple[Limit, ...]:
    """Refuse limits a worker cannot apply; narrow those whose key is one of its queues or tasks."""
    tasks = set(tasks)
    checked = []
    for limit in limits:
        if not isinstance(limit, Concurrency | Rate | Spacing | CustomLimit):
            raise check.wrong_type(limit, "limits", LIMITS)
        if is_computed(limit):
            raise InvalidInput(COMPUTED_KEY.fault(("limits",)))
        if limit.key is None and limit.queue is None and limit.task is None:
            raise InvalidInput(NOTHING_LIMITED.fault(("limits",), limit=limit))
        checked.append(_narrowed(limit, queues, tasks))
    return tuple(checked)


def _narrowed(limit: Limit, queues: Sequence[str], tasks: set[str]) -> Limit:
    if limit.queue is not None or limit.task is not None:
        return limit
    if limit.key in queues:
        return _copy(limit, queue=str(limit.key))
    if limit.key in tasks:
        return _copy(limit, task=str(limit.key))
    return limit


def _copy(limit: Limit, queue: str | None = None, task: str | None = None) -> Limit:
    match limit:
        case Concurrency():
            return Concurrency(limit.count, key=limit.key, queue=queue, task=task)
        case Rate():
            return Rate(
                limit.count,
                per=limit.per,
                evenly=limit.evenly,
                key=limit.key,
                queue=queue,
                task=task,
            )
        case Spacing():
            return Spacing(limit.every, key=limit.key, queue=queue, task=task)
        case CustomLimit(limiter=limiter) if limiter is not None:
            return CustomLimit(limiter, key=limit.key, queue=queue, task=task)
        case _:
            raise check.wrong_type(limit, "limits", LIMITS)


def _covers(limit: Limit, partition: Partition) -> bool:
    return limit.queue in (None, partition.queue) and limit.task in (None, partition.task)


def _own_key(limit: Limit, otherwise: str | None) -> str:
    if isinstance(limit.key, str):
        return limit.key
    if limit.queue is not None:
        return f"queue:{limit.queue}"
    return f"task:{limit.task}" if limit.task is not None else otherwise or ""


def _rules(key: str, limits: Sequence[Limit]) -> list[LimitRule]:
    """All rules of one key: the tightest of each type, and of rates the tightest in each window.

    Rates in different windows do not replace each other: ten a second and a hundred a minute limit
    bursts and totals. Every window and spacing includes the margin.
    """
    live_max = min((each.count for each in limits if isinstance(each, Concurrency)), default=None)
    spacing = max(
        [each.every + START_MARGIN for each in limits if isinstance(each, Spacing)]
        + [
            (each.per + START_MARGIN) / each.count
            for each in limits
            if isinstance(each, Rate) and each.evenly
        ],
        default=None,
    )
    rates: dict[timedelta, int] = {}
    for each in limits:
        if isinstance(each, Rate):
            window = each.per + START_MARGIN
            rates[window] = min(each.count, rates.get(window, each.count))
    first, *further = [
        LimitRule(key=key, starts_max=rates[window], window=window) for window in sorted(rates)
    ] or [LimitRule(key=key)]
    return [replace(first, live_max=live_max, spacing=spacing), *further]


NOT_STARTED = frozenset({RunStatus.QUEUED, RunStatus.SKIPPED})


def start_at_of(run: NewRun, now: datetime) -> datetime | None:
    """When a delayed run is to start; None if it is not delayed."""
    settings = run.settings
    if run.status is not RunStatus.QUEUED:
        return None
    if settings.run_at is not None:
        return nearest_storable(settings.run_at)
    if settings.delay_ms is None:
        return None
    return nearest_storable(now + timedelta(milliseconds=settings.delay_ms))


def queue_rank(run: NewRun, now: datetime) -> float | None:
    """The rank of a run that waits for a place; None for all others."""
    if run.status is not RunStatus.QUEUED or run.place_key is None or start_at_of(run, now):
        return None
    return rank_of(now, run.priority, run.aging)


Queued = TypeVar("Queued")


def starting(held: int, queue: Iterable[tuple[Queued, int]]) -> list[Queued]:
    """The first runs of a queue that may start, of runs with their own limits, in order of rank.

    None overtakes one with a lower limit, which would starve once the limit is raised.
    """
    chosen: list[Queued] = []
    for run, limit in queue:
        if held + len(chosen) >= limit:
            break
        chosen.append(run)
    return chosen


def queued_unlocked(run: NewRun) -> NewRun:
    """A run for a transaction that must not lock its place: a worker looks for one at once."""
    if run.place_key is None:
        return run
    waits = tuple(
        replace(wait, delay=timedelta(0))
        if wait.key == RUN_START and wait.delay is None and wait.due_at is None
        else wait
        for wait in run.waits
    )
    return replace(run, waits=waits)


class LastRun(Value):
    """The latest run of a flow to start, or to complete, and when."""

    id: RunId
    at: datetime
    is_completed: bool = False


def with_cooldown(run: NewRun, graph: Graph) -> NewRun:
    """A run that is subject to its flow's cooldown."""
    cooldown_ms = graph.definition.cooldown_ms
    return replace(run, cooldown=timedelta(milliseconds=cooldown_ms)) if cooldown_ms else run


def cooled(run: NewRun, now: datetime, last: Iterable[LastRun]) -> NewRun:
    """The run to add: unchanged, or skipped because it comes too soon."""
    if run.cooldown is None:
        return run
    too_soon = [each for each in last if each.at + run.cooldown > now]
    if not too_soon:
        return run
    return _skipped(run, max(too_soon, key=lambda each: each.at), run.cooldown)


def _skipped(run: NewRun, last: LastRun, cooldown: timedelta) -> NewRun:
    """The run, skipped: it keeps its input and starts nothing."""
    submitted = decode_event(run.id, 1, run.events[0].data)
    assert isinstance(submitted, RunSubmitted)
    until = last.at + cooldown
    reason = (
        f"flow {run.flow!r} is cooling down until {_text(until)}: run {last.id!r} "
        f"{'was completed' if last.is_completed else 'began'} less than {cooldown} ago"
    )
    end = RunSkipped(reason=reason, last=last.id, until=until)
    return replace(
        run,
        status=RunStatus.SKIPPED,
        events=(
            replace(run.events[0], data=encode_event(replace(submitted, effects=NOTHING))),
            NewEvent(data=encode_event(end)),
        ),
        jobs=(),
        waits=(),
        children=(),
        summary=msgspec.json.encode(RunSummary(reason=reason)),
    )


def _text(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
