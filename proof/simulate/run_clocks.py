"""Clocks of runs: none starts or times out too early, and none is live long after its time.

They count true time, which the store's clock never overtakes, though it may be set back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.model import event as events
from perdure.model.event import decode_event
from perdure.model.run import ENDED, RunStatus
from perdure.store.memory.records import Place, StoredRun, StoredRunEvent

ROUNDING = timedelta(milliseconds=2)
TIMED_OUT = "run.timed_out"


@dataclass(frozen=True, slots=True)
class Now:
    true: datetime
    store: datetime
    """What the store's clock shows."""
    latest: datetime
    """The latest time that it has shown: work may have been found due then."""


@dataclass(slots=True)
class _Clock:
    at: datetime
    """The true time until which it has counted."""
    is_started: bool
    starts_at: datetime | None
    """The true time before which the run may not start."""
    deadline: datetime | None
    counted: timedelta = timedelta(0)

    def restart(self, *, is_started: bool) -> None:
        self.counted, self.is_started, self.starts_at = timedelta(0), is_started, None


class RunClocks:
    """The clocks of all runs with a delay, a timeout or a deadline."""

    def __init__(self) -> None:
        self._clocks: dict[tuple[Place, datetime], _Clock] = {}

    def changed(
        self,
        before: StoredRun | None,
        run: StoredRun,
        log: Sequence[StoredRunEvent],
        now: Now,
        lateness: timedelta,
    ) -> Iterator[str]:
        """Violations that a change of a run shows; ``lateness``: of timers that are processed."""
        settings, id = run.settings, (run.place, run.created_at)
        if not settings.is_delayed and settings.timeout_ms is None and settings.deadline is None:
            return  # the common case
        if before is None or before.created_at != run.created_at:
            self._clocks[id] = _new_clock(run, now)
            return
        clock = self._clocks[id]
        if clock.is_started and (
            settings.timeout_counts_waiting or before.status is not RunStatus.WAITING
        ):
            clock.counted += now.true - clock.at
        clock.at = now.true
        if before.status not in ENDED | {RunStatus.COMPENSATING}:
            yield from _late(run, clock, now, lateness)
        for stored in log[before.number : run.number]:
            event = decode_event(run.id, stored.event.number, stored.event.data)
            match event:
                case events.QueuedRunStarted():
                    if clock.starts_at is not None and now.true < clock.starts_at - ROUNDING:
                        yield f"run {run.id} started {clock.starts_at - now.true} too early"
                    clock.restart(is_started=True)
                case events.RunRetried():
                    clock.restart(is_started=not event.is_queued)
                    clock.deadline = None if event.is_late else clock.deadline
                case (
                    events.RunFailed(failure=failure) | events.CompensationStarted(failure=failure)
                ) if failure is not None and failure.code == TIMED_OUT:
                    yield from _early(run, clock, now)


def _new_clock(run: StoredRun, now: Now) -> _Clock:
    settings, is_started = run.settings, run.started_at is not None
    starts_at = None
    if not is_started and settings.delay_ms is not None:
        starts_at = now.true + timedelta(milliseconds=settings.delay_ms)
    elif not is_started:
        starts_at = settings.run_at
    return _Clock(now.true, is_started, starts_at, settings.deadline)


def _late(run: StoredRun, clock: _Clock, now: Now, lateness: timedelta) -> Iterator[str]:
    timeout, set_back = run.settings.timeout_ms, now.true - now.store
    if clock.deadline is not None and now.store > clock.deadline + lateness:
        yield f"run {run.id} was live {now.store - clock.deadline} after its deadline"
    if clock.is_started and timeout is not None:
        late = clock.counted - timedelta(milliseconds=timeout)
        if late > lateness + set_back:
            yield f"run {run.id} was live {late} after its timeout"


def _early(run: StoredRun, clock: _Clock, now: Now) -> Iterator[str]:
    timeout = run.settings.timeout_ms
    if clock.deadline is not None:
        if now.latest < clock.deadline - ROUNDING:
            yield f"run {run.id} timed out {clock.deadline - now.latest} before its deadline"
    elif timeout is None or not clock.is_started:
        yield f"run {run.id} timed out without a timeout"
    elif clock.counted < timedelta(milliseconds=timeout) - ROUNDING:
        yield f"run {run.id} timed out after {clock.counted}, and its timeout is {timeout} ms"
