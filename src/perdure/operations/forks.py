"""Forks: new runs that share the history of another run up to a point.

Which nodes start again is decided by ``engine.decide.fork``, through ``run_commands.reopen``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.engine import decide
from perdure.engine.cached_run import RunValues, folded
from perdure.engine.fold import fold_stored
from perdure.engine.plan import PlanContext, new_run
from perdure.errors import InvalidInput, UnknownFlow
from perdure.expr.budget import evaluate
from perdure.model.event import (
    IterationCompleted,
    NewEvent,
    NodeCompleted,
    Origin,
    StoredEvent,
    decode_event,
)
from perdure.model.ids import Key, RunId
from perdure.model.run import LoadedRun, NodeStatus, RunState, Submitted
from perdure.operations.backend import Backend

NO_SUCH_EVENT = declare(
    "run.no_such_event", "run {run_id!r} has no event {number}; it has events 1 to {last}"
)
NOT_COMPLETED = declare(
    "run.node_not_completed",
    "node {node!r} has not completed in run {run_id!r}[ by event {number}]"
    "[; completed: {completed}]",
)


async def fork(
    backend: Backend,
    loaded: LoadedRun,
    new_id: RunId,
    after: int | str | None,
    patch: Mapping[str, bytes],
    by: str | None,
) -> Submitted:
    """Submit the fork: ``loaded`` has the whole log, ``patch`` outputs as JSON."""
    run, namespace = loaded.run.id, loaded.run.namespace
    number = _number_of(run, after, loaded.events)
    shared = loaded.events[:number]
    values = RunValues(backend.codec)
    state = folded(run, RunState(), shared, values)
    _check_patch(run, state, number, patch)
    store = await backend.store()
    graph = await backend.graphs.load(store, namespace, f"{state.flow}@{state.version}")
    origin = Origin(run=run, number=number, by=by)
    late = await is_late(backend, state)
    decided = partial(decide.fork, graph, new_id, state, origin, dict(patch), values, is_late=late)
    decision, forked = await evaluate(decided)  # compares signals that the run had received
    context = PlanContext(namespace, backend.graphs.known, backend.codec)
    new = new_run(context, new_id, graph, decision, forked)
    past = tuple(NewEvent(data=event.data, value=event.value) for event in shared)
    # The fork of a child run is not a child: no run waits for it.
    new = replace(new, events=past + new.events, parent=None, needs_definition=True)
    try:
        return await store.runs.submit(new)
    except UnknownFlow:  # the definition was pruned together with the run, or soon may be
        await backend.graphs.save(store, namespace, [graph], again=True)
        return await store.runs.submit(new)


async def is_late(backend: Backend, state: RunState) -> bool:
    """Whether the deadline of a run has passed, so that it continues without one."""
    deadline = state.settings.deadline
    return deadline is not None and await (await backend.store()).now() >= deadline


def _number_of(run: RunId, after: int | str | None, events: Sequence[StoredEvent]) -> int:
    """The last event that the two runs share."""
    if after is None:
        return len(events)
    if isinstance(after, str):
        return _completion_of(run, after, events)
    if not 1 <= after <= len(events):
        raise InvalidInput(
            NO_SUCH_EVENT.fault(("after",), run_id=run, number=after, last=len(events))
        )
    return after


def _completion_of(run: RunId, node: str, events: Sequence[StoredEvent]) -> int:
    """The event that completed a node, or an iteration of a loop (the last, if it ran again)."""
    state, number = RunState(), 0
    for stored in events:
        event = decode_event(run, stored.number, stored.data)
        state = fold_stored(run, state, event)
        found = state.nodes.get(node)
        if found is not None and found.status is NodeStatus.COMPLETED:
            return stored.number
        if isinstance(event, IterationCompleted) and event.key == node:
            number = stored.number
        elif (
            isinstance(event, NodeCompleted)
            and event.iteration
            and Key(node=event.node, iteration=event.iteration).text == node
        ):
            number = event.ref or stored.number
    if number:
        return number
    raise InvalidInput(
        NOT_COMPLETED.fault(("after",), node=node, run_id=run, completed=_completed(state))
    )


def _check_patch(run: RunId, state: RunState, number: int, patch: Mapping[str, bytes]) -> None:
    for node in patch:
        if decide.changeable(state, node) is None:
            raise InvalidInput(
                NOT_COMPLETED.fault(
                    ("patch", node),
                    node=node,
                    run_id=run,
                    number=number,
                    completed=_completed(state),
                )
            )


def _completed(state: RunState) -> tuple[str, ...]:
    done = (id for id, node in state.nodes.items() if node.status is NodeStatus.COMPLETED)
    return tuple(sorted(done))
