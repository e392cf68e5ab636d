"""Forking: a new run that shares the past of another one up to a point, and goes on by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.client.access import Access
from perdure.client.run_acts import RunActs
from perdure.diagnostics import declare, safe_repr
from perdure.engine import decide
from perdure.engine.cached_run import RunValues, folded
from perdure.engine.fold import fold_stored
from perdure.engine.plan import PlanContext, new_run
from perdure.errors import InvalidInput, RunNotFound
from perdure.model import check
from perdure.model.event import NewEvent, Origin, StoredEvent, decode_event
from perdure.model.ids import RunId
from perdure.model.payload import to_json
from perdure.model.run import NewRun, NodeStatus, RunState, Submitted
from perdure.model.value import Value
from perdure.store.contract import EventsAfter

NO_SUCH_EVENT = declare(
    "run.no_such_event", "run {run_id!r} has no event {number}; it has events 1 to {last}"
)
NOT_COMPLETED = declare(
    "run.node_not_completed",
    "node {node!r} has not completed in run {run_id!r}[ by event {number}]"
    "[; completed: {completed}]",
)


class ForkPoint(Value):
    """What to fork, and where: after an event, after a node's completion, or at the end."""

    run: RunId
    after: int | str | None
    by: str | None


async def fork(
    access: Access, acts: RunActs, point: ForkPoint, new_id: RunId, patch: Mapping[str, bytes]
) -> Submitted:
    """Submit the fork; ``patch`` are outputs as JSON."""
    store = await access.store.opened()
    namespace = await acts.namespace_of(point.run)
    whole = EventsAfter(namespace=namespace, id=point.run, number=0)
    [loaded] = await store.runs.load([whole])
    if loaded is None:
        raise RunNotFound(run_id=point.run)
    number = _number_of(point, loaded.events)
    copied = loaded.events[:number]
    values = RunValues(access.codec)
    state = folded(point.run, RunState(), copied, values)
    _check_patch(point.run, state, number, patch)
    graph = await acts.graphs.load(store, namespace, f"{state.flow}@{state.version}")
    origin = Origin(run=point.run, number=number, by=point.by)
    decision, forked = decide.fork(graph, new_id, state, origin, dict(patch), values)
    context = PlanContext(namespace, acts.graphs.known, access.codec)
    run = new_run(context, new_id, graph, decision, forked)
    return await store.runs.submit(_with_past(run, copied))


def encoded_patch(patch: Any, max_bytes: int) -> dict[str, bytes]:
    outputs = check.optional(check.mapping, patch, "patch", "node ids to new outputs") or {}
    return {
        node: to_json(output, f"the output of node {safe_repr(node)} in patch", max_bytes)
        for node, output in outputs.items()
    }


def checked_point(after: Any) -> int | str | None:
    if after is not None and (isinstance(after, bool) or not isinstance(after, int | str)):
        raise check.wrong_type(after, "after", "the id of a node or the number of an event")
    point: int | str | None = after
    return point


def _with_past(run: NewRun, copied: Sequence[StoredEvent]) -> NewRun:
    past = tuple(NewEvent(data=event.data, value=event.value) for event in copied)
    # Nobody waits for it: the fork of a child run is no child.
    return replace(run, events=past + run.events, parent=None)


def _number_of(point: ForkPoint, events: Sequence[StoredEvent]) -> int:
    after = point.after
    if after is None:
        return len(events)
    if isinstance(after, str):
        return _completion_of(point.run, after, events)
    if not 1 <= after <= len(events):
        raise InvalidInput(
            NO_SUCH_EVENT.fault(("after",), run_id=point.run, number=after, last=len(events))
        )
    return after


def _completion_of(run: RunId, node: str, events: Sequence[StoredEvent]) -> int:
    state = RunState()
    for event in events:
        state = fold_stored(run, state, decode_event(run, event.number, event.data))
        found = state.nodes.get(node)
        if found is not None and found.status is NodeStatus.COMPLETED:
            return event.number
    raise InvalidInput(
        NOT_COMPLETED.fault(("after",), node=node, run_id=run, completed=_completed(state))
    )


def _check_patch(run: RunId, state: RunState, number: int, patch: Mapping[str, bytes]) -> None:
    for node in patch:
        found = state.nodes.get(node)
        if found is None or found.status is not NodeStatus.COMPLETED:
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
