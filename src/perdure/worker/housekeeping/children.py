"""What became of child runs that their parents are to hear of; those given up are cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from perdure.engine.acting import Acting
from perdure.engine.cached_run import CachedRun
from perdure.errors import RunEnded, RunNotFound
from perdure.model.happening import CancelAsked, ChildEnded
from perdure.model.ids import RunId
from perdure.model.key import Key
from perdure.model.run import LiveKind, RunStatus, Wait

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
