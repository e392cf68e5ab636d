"""Let waits that are due end: timers fire, times for signals run out, children report back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeVar

from perdure import clock
from perdure.engine.acting import Acting
from perdure.engine.cached_run import CachedRun
from perdure.errors import EventLogCorrupt, RunEnded, RunNotFound, UnknownEvent, UnknownFlow
from perdure.model.happening import CancelAsked, ChildEnded, Happening, WaitDue
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import LiveKind, RunStatus, Wait, WaitKind
from perdure.store.contract import Store
from perdure.worker.housekeeping import BATCH

AT_ONCE = 16
"""Runs that are acted upon at the same time; their commits travel together."""
REST_SECONDS = 1.0
"""A wait that could not be ended is left alone for so long."""
_log = logging.getLogger("perdure.worker")
WaitKey = tuple[RunId, str]
T = TypeVar("T")


class WaitDuty:
    """Any worker may do it, several at once too: a wait ends in one commit, whoever is first."""

    def __init__(self, store: Store, acting: Acting, namespace: str) -> None:
        self._store = store
        self._acting = acting
        self._namespace = namespace
        self._tending: asyncio.Task[None] | None = None
        self._resting: dict[WaitKey, float] = {}

    @property
    def pause_seconds(self) -> float:
        """How long there is no use in looking for more that is due."""
        return REST_SECONDS if self._resting or self._tending is not None else 0.0

    def tend(self, then: Callable[[], None]) -> None:
        """See to what is due, and call ``then``; if that is not under way already."""
        if self._tending is None:
            self._tending = asyncio.create_task(self._tend(then))

    async def stop(self) -> None:
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait([self._tending])

    async def _tend(self, then: Callable[[], None]) -> None:
        try:
            is_more = True
            while is_more:
                due = await self._store.due_waits(self._namespace, BATCH)
                groups = self._not_resting(due)
                await _at_once(self._try_to_end, groups)
                is_more = len(due) == BATCH and bool(groups)
        except Exception:
            _log.exception("waits that are due were not all seen to; trying again")
        finally:
            self._tending = None
            then()

    def _not_resting(self, waits: Iterable[Wait]) -> list[list[Wait]]:
        """These waits by the run that they are of."""
        now = clock.monotonic()
        self._resting = {key: until for key, until in self._resting.items() if until > now}
        groups: dict[RunId, list[Wait]] = {}
        for wait in waits:
            if (wait.run, wait.key) not in self._resting:
                groups.setdefault(wait.run, []).append(wait)
        return list(groups.values())

    async def _try_to_end(self, waits: list[Wait]) -> None:
        """End waits of one run, or leave them alone for a while."""
        id = waits[0].run
        ended: Collection[str] = ()
        try:
            ended = await self._end(id, waits)
        except RunNotFound:
            return  # and so are its waits
        except (EventLogCorrupt, UnknownEvent, UnknownFlow) as error:
            _log.error("waits of run %s were not ended: %s", id, error)
        until = clock.monotonic() + REST_SECONDS
        left = [(id, wait.key) for wait in waits if wait.key not in ended]
        self._resting.update(dict.fromkeys(left, until))

    async def _end(self, id: RunId, waits: list[Wait]) -> Collection[str]:
        """End waits of one run together; the keys of those that are over."""
        run = await self._acting.loader.load(self._namespace, id)
        of_children = [wait for wait in waits if wait.kind is WaitKind.CHILD]
        ended: dict[str, Happening] = {
            wait.key: WaitDue(key=Key.parse(wait.key))
            for wait in waits
            if wait.kind is not WaitKind.CHILD
        }
        if of_children:
            ended.update(await self._end_children(run, of_children))
        if ended:
            await self._acting.end_waits(run, ended)
        return ended

    async def _end_children(self, run: CachedRun, waits: Sequence[Wait]) -> dict[str, Happening]:
        """How children ended, by the keys that wait for them; cancels those given up."""
        ids = [(wait.namespace, RunId(wait.name)) for wait in waits]
        loaded = await self._acting.loader.load_many(ids)
        ended: dict[str, Happening] = {}
        for wait, child in zip(waits, loaded, strict=True):
            if isinstance(child, RunNotFound):
                ended[wait.key] = _cancelled(wait)
            elif not isinstance(child, CachedRun):
                _log.error("how child run %s ended cannot be told: %s", wait.name, child)
            elif child.state.is_ended:
                ended[wait.key] = await self._outcome(wait, child)
            elif await self._is_given_up(run, wait, child):
                ended[wait.key] = _cancelled(wait)
        return ended

    async def _outcome(self, wait: Wait, child: CachedRun) -> ChildEnded:
        state, output = child.state, b"null"
        if state.status is RunStatus.COMPLETED:
            await self._acting.loader.read_values(child, [state.result_ref])
            output = child.values.json(state.result_ref)
        return ChildEnded(
            key=Key.parse(wait.key),
            run=child.id,
            status=state.status,
            output=output,
            failure=state.failure,
        )

    async def _is_given_up(self, run: CachedRun, wait: Wait, child: CachedRun) -> bool:
        """End a child that its parent gave up; False if it goes on for now."""
        if _is_waited_for(run, wait):
            return False  # it was started anew before its parent heard of its end
        if child.state.ends_as is not None:
            return False  # it is being undone, and ends then
        try:
            after = await self._acting.act(wait.namespace, child.id, _cancellation(run))
        except (RunEnded, RunNotFound):
            return True
        return after.state.is_ended


def _cancelled(wait: Wait) -> ChildEnded:
    key = Key.parse(wait.key)
    return ChildEnded(key=key, run=RunId(wait.name), status=RunStatus.CANCELLED)


def _cancellation(parent: CachedRun) -> CancelAsked:
    """What a child is told that its parent gave up: the same as the parent, where that was told."""
    state, place = parent.state, f"its parent, run {parent.id!r},"
    if RunStatus.CANCELLED in (state.status, state.ends_as):
        reason = state.reason or f"{place} was cancelled"
        is_undone = state.compensates or state.ends_as is not None
        return CancelAsked(reason=reason, by=state.by, compensates=is_undone)
    is_failed = RunStatus.FAILED in (state.status, state.ends_as)
    reason = f"{place} failed" if is_failed else f"{place} gave it up"
    return CancelAsked(reason=reason, compensates=is_failed)


def _is_waited_for(run: CachedRun, wait: Wait) -> bool:
    state = run.state
    return state.live.get(wait.key) is LiveKind.CHILD and state.children.get(wait.key) == wait.name


async def _at_once(act: Callable[[T], Awaitable[None]], things: Iterable[T]) -> None:
    """Do it for all, a few at the same time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def do(thing: T) -> None:
        async with room:
            await act(thing)

    await asyncio.gather(*(do(thing) for thing in things))
