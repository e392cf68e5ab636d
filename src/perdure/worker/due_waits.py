"""End waits that are due, and tell parents how their child runs ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from perdure.engine.cached_run import CachedRun
from perdure.engine.runs import Acting
from perdure.errors import RunEnded, RunNotFound, StoreError
from perdure.model.ids import Key, RunId
from perdure.model.run import LiveKind, RunStatus, Wait, WaitKind
from perdure.model.trigger import CancelAsked, ChildEnded, Happening, WaitDue
from perdure.model.worker import PollResult
from perdure.store.contract import Store
from perdure.worker.janitor import BATCH
from perdure.worker.poller import Duty

AT_ONCE = 16
"""Children that are cancelled at the same time; their commits travel together."""
_log = logging.getLogger("perdure.worker")

Waited = tuple[CachedRun, Wait]
"""A parent, and its wait for a child."""


async def ends_of(acting: Acting, waits: Sequence[Waited]) -> list[ChildEnded | None]:
    """How each child ended; None if there is nothing to tell yet."""
    ids = [(wait.namespace, RunId(wait.name)) for _, wait in waits]
    children = await acting.loader.load_many(ids) if ids else []
    room = asyncio.Semaphore(AT_ONCE)

    async def end(waited: Waited, child: CachedRun | Exception) -> ChildEnded | None:
        async with room:
            return await _end(acting, waited, child)

    return await asyncio.gather(*map(end, waits, children))


async def _end(acting: Acting, waited: Waited, child: CachedRun | Exception) -> ChildEnded | None:
    parent, wait = waited
    if isinstance(child, RunNotFound):
        return _cancelled(wait)
    if not isinstance(child, CachedRun):
        _log.error("how child run %s ended cannot be told: %s", wait.name, child)
        return None
    if child.state.is_ended:
        return await _outcome(acting, wait, child)
    if _is_waited_for(parent, wait):
        return None  # it was started anew before its parent heard of its end
    if child.state.ends_as is not None:
        return None  # it is being undone, and ends then
    try:
        after = await acting.act(wait.namespace, child.id, _cancellation(parent))
    except (RunEnded, RunNotFound):
        return _cancelled(wait)
    return _cancelled(wait) if after.state.is_ended else None


async def _outcome(acting: Acting, wait: Wait, child: CachedRun) -> ChildEnded:
    state, output = child.state, b"null"
    if state.status is RunStatus.COMPLETED:
        await acting.loader.read_values(child, [state.result_ref])
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


def _is_waited_for(parent: CachedRun, wait: Wait) -> bool:
    live, children = parent.state.live, parent.state.children
    return live.get(wait.key) is LiveKind.CHILD and children.get(wait.key) == wait.name


RUNS_AT_ONCE = 100
"""Runs whose waits are ended in one commit."""


class WaitDuty(Duty):
    """A wait ends in one commit, whoever is first."""

    about = "waits"

    def __init__(self, store: Store, acting: Acting, namespace: str) -> None:
        super().__init__()
        self._store = store
        self._acting = acting
        self._namespace = namespace

    def due_at(self, survey: PollResult) -> datetime | None:
        return survey.next_wait_at

    async def see_to_all(self) -> bool:
        is_some, is_more = False, True
        while is_more:
            due = await self._store.maintenance.due_waits(self._namespace, self._page)
            groups = self._not_resting(due)
            for first in range(0, len(groups), RUNS_AT_ONCE):
                await self._end_all(groups[first : first + RUNS_AT_ONCE])
            is_some = is_some or bool(groups)
            is_more = len(due) >= BATCH and bool(groups)
        return is_some

    @property
    def _page(self) -> int:
        """So many that those which rest do not keep others from being seen."""
        return BATCH + self.resting_count

    def _not_resting(self, waits: Iterable[Wait]) -> list[list[Wait]]:
        """These waits by the run that they are of."""
        groups: dict[RunId, list[Wait]] = {}
        for wait in waits:
            if not self.is_resting((wait.run, wait.key)):
                groups.setdefault(wait.run, []).append(wait)
        return list(groups.values())

    async def _end_all(self, groups: Sequence[list[Wait]]) -> None:
        """End the waits of several runs together, or apart if one of them makes trouble."""
        try:
            await self._end(groups)
        except StoreError:
            raise  # which is not the fault of a run
        except Exception as error:
            if len(groups) == 1:
                self._rest(groups[0], error)
                return
            for group in groups:
                await self._end_all([group])

    async def _end(self, groups: Sequence[list[Wait]]) -> None:
        ids = [(self._namespace, waits[0].run) for waits in groups]
        runs: list[tuple[CachedRun, list[Wait]]] = []
        for run, waits in zip(await self._acting.loader.load_many(ids), groups, strict=True):
            if isinstance(run, CachedRun):
                runs.append((run, waits))
            elif not isinstance(run, RunNotFound):  # where its waits are gone as well
                self._rest(waits, run)
        runs = await self._still_due(runs)
        of_children = [
            (run, wait) for run, waits in runs for wait in waits if wait.kind is WaitKind.CHILD
        ]
        ends = {
            (run.id, wait.key): end
            for (run, wait), end in zip(
                of_children, await ends_of(self._acting, of_children), strict=True
            )
        }
        now = await self._time_if_it_matters([wait for _, waits in runs for wait in waits])
        ended: list[tuple[CachedRun, dict[str, Happening]]] = []
        for run, waits in runs:
            happenings: dict[str, Happening] = {}
            for wait in waits:
                happening = ends.get((run.id, wait.key), _due(wait, now))
                if happening is None:
                    self._rest([wait])
                else:
                    happenings[wait.key] = happening
            ended.append((run, happenings))
        await self._acting.end_waits(ended)

    async def _still_due(
        self, runs: Sequence[tuple[CachedRun, list[Wait]]]
    ) -> list[tuple[CachedRun, list[Wait]]]:
        """Without waits that ended before their runs were loaded.

        Others may have been opened since under the same keys: the next reminder, another pause.
        What is opened after the load makes the commit a conflict.
        """
        due = await self._store.maintenance.due_waits(self._namespace, self._page)
        there = {(wait.run, wait.key, wait.opened_at) for wait in due}
        kept = [
            (run, [wait for wait in waits if (wait.run, wait.key, wait.opened_at) in there])
            for run, waits in runs
        ]
        return [(run, waits) for run, waits in kept if waits]

    async def _time_if_it_matters(self, waits: Sequence[Wait]) -> datetime | None:
        """Reminders of one approval follow on each other, however late one of them was."""
        matters = any(Key.parse(wait.key).part == "remind" for wait in waits)
        return await self._store.now() if matters else None

    def _rest(self, waits: Sequence[Wait], error: Exception | None = None) -> None:
        """Leave waits alone for a while."""
        if error is not None:
            _log.error("waits of run %s were not ended: %s", waits[0].run, error, exc_info=error)
        for wait in waits:
            self.rest((wait.run, wait.key))


def _due(wait: Wait, now: datetime | None) -> WaitDue:
    late = timedelta(0) if now is None or wait.due_at is None else now - wait.due_at
    return WaitDue(key=Key.parse(wait.key), late_ms=max(0, late // timedelta(milliseconds=1)))
