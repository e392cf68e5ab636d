"""Due work that any worker may do: end waits (timers, deadlines, children) and tick schedules.

Each item is one commit, and the first worker to write it wins. An item that raises backs off, so
that it neither blocks the rest nor is retried in a tight loop.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime, timedelta

from perdure import clock
from perdure.engine.cached_run import CachedRun
from perdure.engine.runs import RunEngine
from perdure.engine.ticks import ScheduleTicker
from perdure.errors import RunNotFound, StoreError
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveType, RunStatus, Wait, WaitType
from perdure.model.schedule import Schedule, UnreadableSchedule
from perdure.model.trigger import CancelRun, ChildEnded, Trigger, WaitDue
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.worker.janitor import BATCH

BACK_OFF_SECONDS = 1.0
RUNS_AT_ONCE = 100
"""Runs whose waits are ended in one commit."""
SCHEDULES_MAX = 100
"""Schedules per read."""
SCHEDULES_AT_ONCE = 8
TICKS_MAX = 100
"""Ticks of one schedule in a row before the others get their turn."""
_log = logging.getLogger("perdure.worker")


class DueWork(ABC):
    """Due items, processed by one background task at a time; items that raise back off."""

    name: str
    """Its name in the log."""

    def __init__(self) -> None:
        self._processing: asyncio.Task[None] | None = None
        self._backing_off: dict[Hashable, float] = {}

    @property
    def pause_seconds(self) -> float:
        """How long to wait before it makes sense to poll for due items again."""
        is_paused = bool(self._backing_off) or self._processing is not None
        return BACK_OFF_SECONDS if is_paused else 0.0

    @property
    def is_at_work(self) -> bool:
        return self._processing is not None

    @abstractmethod
    def due_at(self, poll: PollResult) -> datetime | None:
        """When the next item is due, according to a poll."""

    @abstractmethod
    async def process_due(self) -> bool:
        """Process all due items; True if any of them was not backing off."""

    def process(self, then: Callable[[], None]) -> None:
        """Process due items unless already under way, and call ``then`` to poll again."""
        if self._processing is None:
            self._processing = asyncio.create_task(self._process(then))

    async def stop(self) -> None:
        if self._processing is not None:
            self._processing.cancel()
            await asyncio.wait([self._processing])

    async def _process(self, then: Callable[[], None]) -> None:
        now = clock.monotonic()
        self._backing_off = {key: until for key, until in self._backing_off.items() if until > now}
        is_progress = True
        try:
            is_progress = await self.process_due() or not self._backing_off
        except Exception:
            _log.exception(
                "processing due work failed; retrying", extra={"fields": {"type": self.name}}
            )
            await asyncio.sleep(BACK_OFF_SECONDS)
        finally:
            self._processing = None
            if is_progress:  # otherwise all due items back off, and polling now would spin
                then()

    def is_backing_off(self, key: Hashable) -> bool:
        return key in self._backing_off

    @property
    def backing_off_count(self) -> int:
        return len(self._backing_off)

    def back_off(self, key: Hashable) -> None:
        self._backing_off[key] = clock.monotonic() + BACK_OFF_SECONDS


class DueWaits(DueWork):
    """Ends due waits; the first worker to commit the end of a wait wins."""

    name = "waits"

    def __init__(self, store: Store, runs: RunEngine, namespace: str) -> None:
        super().__init__()
        self._store = store
        self._runs = runs
        self._namespace = namespace

    def due_at(self, poll: PollResult) -> datetime | None:
        return poll.next_wait_at

    async def process_due(self) -> bool:
        is_some, is_more = False, True
        while is_more:
            due = await self._store.maintenance.due_waits(self._namespace, self._page)
            groups = self._by_run(due)
            for first in range(0, len(groups), RUNS_AT_ONCE):
                await self._end_all(groups[first : first + RUNS_AT_ONCE])
            is_some = is_some or bool(groups)
            is_more = len(due) >= BATCH and bool(groups)
        return is_some

    @property
    def _page(self) -> int:
        """Large enough that waits which back off do not hide the others."""
        return BATCH + self.backing_off_count

    def _by_run(self, waits: Iterable[Wait]) -> list[list[Wait]]:
        """The waits that do not back off, grouped by run."""
        groups: dict[RunId, list[Wait]] = {}
        for wait in waits:
            if not self.is_backing_off((wait.run, wait.key)):
                groups.setdefault(wait.run, []).append(wait)
        return list(groups.values())

    async def _end_all(self, groups: Sequence[list[Wait]]) -> None:
        """End the waits of several runs together, or run by run if one of them raises."""
        try:
            await self._end(groups)
        except StoreError:
            raise  # not caused by any of the runs
        except Exception as error:
            if len(groups) == 1:
                self._back_off(groups[0], error)
                return
            for group in groups:
                await self._end_all([group])

    async def _end(self, groups: Sequence[list[Wait]]) -> None:
        ids = [(self._namespace, waits[0].run) for waits in groups]
        runs: list[tuple[CachedRun, list[Wait]]] = []
        for run, waits in zip(await self._runs.load_many(ids), groups, strict=True):
            if isinstance(run, CachedRun):
                runs.append((run, waits))
            elif not isinstance(run, RunNotFound):  # a removed run has no waits left
                self._back_off(waits, run)
        runs = await self._still_due(runs)
        of_children = [
            (run, wait) for run, waits in runs for wait in waits if wait.type is WaitType.CHILD
        ]
        ends = {
            (run.id, wait.key): end
            for (run, wait), end in zip(
                of_children, await ends_of_children(self._runs, of_children), strict=True
            )
        }
        # The next reminder of an approval is timed from when this one was due, however late it is.
        reminds = any(Key.parse(wait.key).part == "remind" for _, waits in runs for wait in waits)
        now = await self._store.now() if reminds else None
        ended: list[tuple[CachedRun, dict[str, Trigger]]] = []
        for run, waits in runs:
            triggers: dict[str, Trigger] = {}
            for wait in waits:
                trigger = ends.get((run.id, wait.key), _due(wait, now))
                if trigger is None:
                    self._back_off([wait])
                else:
                    triggers[wait.key] = trigger
            ended.append((run, triggers))
        await self._runs.end_waits(ended)

    async def _still_due(
        self, runs: Sequence[tuple[CachedRun, list[Wait]]]
    ) -> list[tuple[CachedRun, list[Wait]]]:
        """Drop waits that ended before their runs were loaded.

        New waits may have been opened under the same keys since: the next reminder, another
        pause. A wait opened after the load makes the commit a conflict.
        """
        due = await self._store.maintenance.due_waits(self._namespace, self._page)
        still_open = {(wait.run, wait.key, wait.opened_at) for wait in due}
        remaining = [
            (run, [wait for wait in waits if (wait.run, wait.key, wait.opened_at) in still_open])
            for run, waits in runs
        ]
        return [(run, waits) for run, waits in remaining if waits]

    def _back_off(self, waits: Sequence[Wait], error: Exception | None = None) -> None:
        if error is not None:
            fields = {"run": waits[0].run}
            _log.error("ending waits failed", exc_info=error, extra={"fields": fields})
        for wait in waits:
            self.back_off((wait.run, wait.key))


def _due(wait: Wait, now: datetime | None) -> WaitDue:
    late = timedelta(0) if now is None or wait.due_at is None else now - wait.due_at
    return WaitDue(key=Key.parse(wait.key), late_ms=max(0, late // timedelta(milliseconds=1)))


Waited = tuple[CachedRun, Wait]
"""A parent, and its wait for a child."""


async def ends_of_children(runs: RunEngine, waits: Sequence[Waited]) -> list[ChildEnded | None]:
    """How each child ended; None if there is nothing to report yet. Cancels abandoned children."""
    ids = [(wait.namespace, RunId(wait.name)) for _, wait in waits]
    children = await runs.load_many(ids)
    abandoned = {
        child: _cancellation(parent)
        for (parent, wait), child in zip(waits, children, strict=True)
        if isinstance(child, CachedRun) and _is_abandoned(parent, wait, child)
    }
    existing = set(await runs.apply_all(list(abandoned.items())))
    ends: list[ChildEnded | None] = []
    for (_, wait), child in zip(waits, children, strict=True):
        if isinstance(child, RunNotFound):
            ends.append(_cancelled(wait))
        elif not isinstance(child, CachedRun):
            fields = {"run": wait.run, "child": wait.name, "error": str(child)}
            _log.error("reading a child run failed", extra={"fields": fields})
            ends.append(None)
        elif child in abandoned:
            is_over = child.state.is_ended or child not in existing
            ends.append(_cancelled(wait) if is_over else None)
        else:
            ends.append(await _end_of_child(runs, wait, child))
    return ends


def _is_abandoned(parent: CachedRun, wait: Wait, child: CachedRun) -> bool:
    """Whether the parent no longer needs the child, which is not cancelled yet."""
    if child.state.is_ended or child.state.ends_as is not None:
        return False  # ended, or ends once it is compensated
    live, children = parent.state.live, parent.state.children
    # If the parent does need it, it was retried before the parent saw that it had ended.
    return live.get(wait.key) is not LiveType.CHILD or children.get(wait.key) != wait.name


async def _end_of_child(runs: RunEngine, wait: Wait, child: CachedRun) -> ChildEnded | None:
    state, output = child.state, b"null"
    if not state.is_ended:
        return None
    if state.status is RunStatus.COMPLETED:
        await runs.read_values(child, [state.result_ref])
        output = child.values.json(state.result_ref)
    return ChildEnded(
        key=Key.parse(wait.key),
        run=child.id,
        status=state.status,
        output=output,
        failure=state.failure,
    )


def _cancelled(wait: Wait) -> ChildEnded:
    key = Key.parse(wait.key)
    return ChildEnded(key=key, run=RunId(wait.name), status=RunStatus.CANCELLED)


def _cancellation(parent: CachedRun) -> CancelRun:
    """The trigger that cancels an abandoned child, with the parent's own reason if it has one."""
    state, place = parent.state, f"its parent, run {parent.id!r},"
    if RunStatus.CANCELLED in (state.status, state.ends_as):
        reason = state.reason or f"{place} was cancelled"
        is_undone = state.compensates or (state.ends_as is not None and not state.only_cancels)
        return CancelRun(reason=reason, by=state.by, compensates=is_undone)
    is_failed = RunStatus.FAILED in (state.status, state.ends_as)
    reason = f"{place} failed" if is_failed else f"{place} gave it up"
    return CancelRun(reason=reason, compensates=is_failed)


class DueSchedules(DueWork):
    """Ticks due schedules; the first worker to write a tick wins."""

    name = "schedules"

    def __init__(self, store: Store, ticker: ScheduleTicker, namespace: str) -> None:
        super().__init__()
        self._store = store
        self._ticker = ticker
        self._namespace = namespace
        self._logged: set[str] = set()
        """Schedules that were logged as unreadable."""

    def due_at(self, poll: PollResult) -> datetime | None:
        return poll.next_tick_at

    async def process_due(self) -> bool:
        now = await self._store.now()
        due = await self._store.maintenance.due_schedules(self._namespace, SCHEDULES_MAX)
        ready = [each for each in due if not self.is_backing_off(each.name)]
        for first in range(0, len(ready), SCHEDULES_AT_ONCE):
            chunk = ready[first : first + SCHEDULES_AT_ONCE]
            await asyncio.gather(*(self._advance(each, now) for each in chunk))
        if not due:
            await self._leave_unreadable(now)
        return bool(ready)

    async def _leave_unreadable(self, now: datetime) -> None:
        """Back off from schedules that only workers of a newer version can read."""
        schedules = await self._store.schedules.list(self._namespace)
        unreadable = [each for each in schedules if isinstance(each, UnreadableSchedule)]
        for each in unreadable:
            if each.due_at is not None and each.due_at <= now:
                self.back_off(each.name)
            if each.name not in self._logged:
                fields = {"schedule": each.name, "reason": each.reason}
                _log.error("schedule unreadable", extra={"fields": fields})
        self._logged = {each.name for each in unreadable}

    async def _advance(self, schedule: Schedule, now: datetime) -> None:
        """Tick one schedule until it is up to date; its errors do not stop the others."""
        left: Schedule | None = schedule
        try:
            for _ in range(TICKS_MAX):
                if left is None:
                    return
                left = await self._ticker.advance(left, now)
        except Exception:
            fields = {"schedule": schedule.name}
            _log.exception("ticking a schedule failed; retrying", extra={"fields": fields})
            self.back_off(schedule.name)
