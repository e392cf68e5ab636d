"""Timetables: when a cron expression or an interval is due. Pure.

Cron expressions use the local time of their time zone; ``every`` is independent of it. When clocks
go forward, a fixed time that is skipped fires right after the gap; when they go back, a fixed time
that occurs twice fires the first time. Expressions that fire every few minutes are not affected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.schedule import Timetable
from perdure.model.times import LATEST, is_storable
from perdure.model.value import Value

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


EVERY_MIN = timedelta(seconds=1)
COUNTED_MAX = 1_000
"""Due cron ticks counted one by one; beyond this, only the latest are computed."""
CRON_FIELDS = ("minute", "hour", "day", "month", "weekday")

WITHOUT_TIMES = declare(
    "schedule.without_times",
    "a schedule needs `cron` or `every`",
    'Pass one of them, such as "0 3 * * *" or "15m"',
)
END_BEFORE_START = declare(
    "schedule.end_before_start", "end_at ({end_at}) is before start_at ({start_at})"
)
UNKNOWN_TIMEZONE = declare(
    "schedule.unknown_timezone",
    "{name:parameter} {timezone!r} is not known",
    'Use a name such as "Europe/Berlin" or "UTC"',
)
INVALID_CRON = declare(
    "schedule.invalid_cron",
    "{name:parameter} must be a cron expression (got {cron!r}): {reason}",
    'It takes five fields: minute, hour, day, month, weekday, as in "0 3 * * *"',
)
NEVER_DUE = declare("schedule.never_due", "{name:parameter} {cron!r} never comes due")

_INSTANT = timedelta(microseconds=1)
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
_WINDOW_FIRST, _WINDOW_GROWTH = timedelta(hours=1), 4
"""The first window searched for the latest ticks, and its growth if it has none."""


class DueTicks(Value):
    """Due ticks: how many, and the latest of them, oldest first."""

    count: int
    last: tuple[datetime, ...]


def check_timetable(timetable: Timetable) -> None:
    """Raise ``InvalidInput`` for an invalid timetable, or one that never ticks."""
    check.at_most_one(cron=timetable.cron or None, every=timetable.every_ms or None)
    if not timetable.cron and not timetable.every_ms:
        raise InvalidInput(WITHOUT_TIMES.fault())
    zone_of(timetable.timezone)
    if timetable.every_ms:
        check.span(timedelta(milliseconds=timetable.every_ms), "every", least=EVERY_MIN)
    if timetable.cron:
        _check_cron(timetable)
    start_at, end_at = timetable.start_at, timetable.end_at
    if start_at is not None and end_at is not None and end_at < start_at:
        fault = END_BEFORE_START.fault(("end_at",), end_at=end_at, start_at=start_at)
        raise InvalidInput(fault)


def next_tick(timetable: Timetable, anchor: datetime, after: datetime) -> datetime | None:
    """The first tick after ``after``; None if there is none."""
    return next(ticks_after(timetable, anchor, after), None)


def ticks_after(timetable: Timetable, anchor: datetime, after: datetime) -> Iterator[datetime]:
    """The ticks after ``after``, between ``start_at`` and ``end_at``."""
    end_at = min(timetable.end_at or LATEST, LATEST)
    if timetable.start_at is not None:
        after = max(after, timetable.start_at - _INSTANT)
    times = _cron(timetable, after) if timetable.cron else _every(timetable, anchor, after)
    for at in times:
        if at > end_at:
            return
        yield at


def due_ticks(
    timetable: Timetable, anchor: datetime, first: datetime, now: datetime, last_max: int
) -> DueTicks:
    """The ticks from ``first`` up to now; the count stops at ``COUNTED_MAX`` for cron."""
    if timetable.every_ms:
        return _due_of_every(timetable, first, now, last_max)
    last: deque[datetime] = deque(maxlen=last_max)
    count = 0
    for at in _up_to(timetable, anchor, first - _INSTANT, now):
        last.append(at)
        count += 1
        if count == COUNTED_MAX:
            return DueTicks(count=count, last=_latest(timetable, anchor, first, now, last_max))
    return DueTicks(count=count, last=tuple(last))


def zone_of(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError, AttributeError):
        raise InvalidInput(
            UNKNOWN_TIMEZONE.fault(("timezone",), name="timezone", timezone=name)
        ) from None


def _up_to(
    timetable: Timetable, anchor: datetime, after: datetime, now: datetime
) -> Iterator[datetime]:
    for at in ticks_after(timetable, anchor, after):
        if at > now:
            return
        yield at


def _latest(
    timetable: Timetable, anchor: datetime, first: datetime, now: datetime, last_max: int
) -> tuple[datetime, ...]:
    """The latest ticks up to now, searched backwards."""
    window, earliest = _WINDOW_FIRST, first - _INSTANT
    while True:
        after = max(earliest, now - window)
        last = deque(_up_to(timetable, anchor, after, now), maxlen=last_max)
        if last or after == earliest:
            return tuple(last)
        window *= _WINDOW_GROWTH


def _due_of_every(timetable: Timetable, first: datetime, now: datetime, last_max: int) -> DueTicks:
    span = timedelta(milliseconds=timetable.every_ms)
    until = now if timetable.end_at is None else min(now, timetable.end_at)
    count = max(0, (until - first) // span + 1)
    last = range(max(0, count - last_max), count)
    return DueTicks(count=count, last=tuple(first + number * span for number in last))


def _every(timetable: Timetable, anchor: datetime, after: datetime) -> Iterator[datetime]:
    span = timedelta(milliseconds=timetable.every_ms)
    number = max(0, (after - anchor) // span + 1)
    while number * span <= LATEST - anchor:
        yield anchor + number * span
        number += 1


def _cron(timetable: Timetable, after: datetime) -> Iterator[datetime]:
    from cronsim import CronSim

    for local in CronSim(timetable.cron, after.astimezone(zone_of(timetable.timezone))):
        at = local.astimezone(UTC)
        if not is_storable(at):
            return
        # In an hour that occurs twice, the local time may already have passed.
        if at > after:
            yield at


def _check_cron(timetable: Timetable) -> None:
    from cronsim import CronSimError

    cron = timetable.cron
    count = len(cron.split())
    if count != len(CRON_FIELDS):  # the parser also accepts a sixth field for seconds
        reason = f"it has {count} field{'s' * (count != 1)}"
        raise InvalidInput(INVALID_CRON.fault(("cron",), name="cron", cron=cron, reason=reason))
    try:
        at = next(_cron(timetable, timetable.start_at or _ANY_TIME), None)
    except CronSimError as error:
        fault = INVALID_CRON.fault(("cron",), name="cron", cron=cron, reason=str(error))
        raise InvalidInput(fault) from None
    if at is None:
        raise InvalidInput(NEVER_DUE.fault(("cron",), name="cron", cron=cron))
