"""Cancel a run and its unfinished descendants."""

from __future__ import annotations

from perdure.engine.cached_run import CachedRun
from perdure.engine.runs import UnusableRun
from perdure.errors import RunNotFound
from perdure.model.run import RunStatus
from perdure.model.trigger import CancelRun
from perdure.operations.backend import Backend

CHILDREN_AT_ONCE = 200
"""Child runs that are loaded together, and cancelled in one batch."""


async def cancel_run(backend: Backend, run: CachedRun, command: CancelRun) -> None:
    await backend.command(run, command)
    await cancel_children(backend, run, command)


async def cancel_children(backend: Backend, run: CachedRun, command: CancelRun) -> None:
    """Cancel the unfinished descendants of a run, one generation after the other."""
    parents = [run] if run.state.children else []
    if not parents:
        return
    store, engine = await backend.store(), await backend.engine()
    unreadable: list[UnusableRun] = []
    while parents:
        parent_of = {
            (parent.namespace, id): parent
            for parent in parents
            for id in parent.state.children.values()
        }
        parents = []
        keys = list(parent_of)
        for first in range(0, len(keys), CHILDREN_AT_ONCE):
            found = await store.queries.get_runs(keys[first : first + CHILDREN_AT_ONCE])
            # A child that a worker cancelled just now may have unfinished children; one that
            # completed has none.
            left = [
                (child.namespace, child.id)
                for child in found
                if child is not None
                and child.status not in (RunStatus.COMPLETED, RunStatus.SKIPPED)
            ]
            children = []
            for child in await engine.load_many(left):
                if isinstance(child, CachedRun):
                    children.append(child)
                elif not isinstance(child, RunNotFound):  # removed meanwhile
                    unreadable.append(child)
            await engine.apply_all(
                [
                    (child, _cancellation(parent_of[child.namespace, child.id], command))
                    for child in children
                ]
            )
            parents += [child for child in children if child.state.children]
    if unreadable:  # the others are cancelled all the same
        raise unreadable[0]


def _cancellation(parent: CachedRun, command: CancelRun) -> CancelRun:
    reason = command.reason or f"its parent, run {parent.id!r}, was cancelled"
    return CancelRun(reason=reason, by=command.by, compensates=command.compensates)
