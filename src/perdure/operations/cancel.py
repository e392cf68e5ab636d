"""Cancel a run and its unfinished descendants."""

from __future__ import annotations

import asyncio

from perdure.engine.cached_run import CachedRun
from perdure.errors import RunEnded, RunNotFound
from perdure.model.ids import RunId
from perdure.model.run import ENDED
from perdure.model.trigger import CancelRun
from perdure.operations.backend import Backend

CHILDREN_AT_ONCE = 50


async def cancel_run(backend: Backend, run: CachedRun, command: CancelRun) -> None:
    await backend.command(run, command)
    await cancel_children(backend, run, command)


async def cancel_children(backend: Backend, run: CachedRun, command: CancelRun) -> None:
    """Cancel the unfinished descendants of a run."""
    if not run.state.children:
        return
    store, engine = await backend.store(), await backend.engine()
    reason = command.reason or f"its parent, run {run.id!r}, was cancelled"
    of_child = CancelRun(reason=reason, by=command.by, compensates=command.compensates)

    async def cancel(id: RunId) -> None:
        try:
            child = (await engine.apply(run.namespace, id, of_child)).run
        except (RunEnded, RunNotFound):
            return  # it ended first
        await cancel_children(backend, child, command)

    found = await store.queries.get_runs(
        [(run.namespace, id) for id in run.state.children.values()]
    )
    live = [each.id for each in found if each is not None and each.status not in ENDED]
    for first in range(0, len(live), CHILDREN_AT_ONCE):
        await asyncio.gather(*map(cancel, live[first : first + CHILDREN_AT_ONCE]))
