"""How far each node of a run is, read from its state: plain values."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.engine.cached_run import CachedRun
from perdure.errors import EventLogCorrupt
from perdure.model.graph import Node, kind_of
from perdure.model.payload import from_json
from perdure.model.run import NodeStatus
from perdure.model.value import Value


class NodeRecord(Value):
    """One node of a run's flow, and how far the run is with it."""

    id: str
    kind: str
    """``task``, ``route``, ``map``, ``loop``, ``delay``, ``signal``, ``approval``, ``child``, or
    the name of the kind that it uses."""
    status: NodeStatus | None = None
    """None: the run has not come to it."""
    output: Any = None
    """Of a completed one, as plain values."""
    port: str = ""
    """The port it ended on, where there are several."""
    iteration: int = 0
    """Of a loop: the one it is at, or ended with."""
    items: int | None = None
    """Of a map that was reached: how many items there are."""
    items_completed: int | None = None
    has_failed: bool = False
    """It failed, and the run went on from there."""


def completed_refs(run: CachedRun) -> dict[str, int]:
    """The completed nodes in the flow's order, with the events whose values are their outputs."""
    reached = run.state.nodes
    return {
        id: reached[id].ref
        for id in run.graph.nodes
        if id in reached and reached[id].status is NodeStatus.COMPLETED
    }


def node_record(run: CachedRun, node: Node) -> NodeRecord:
    """The values of completed nodes have been read."""
    kind = kind_of(node)
    state = run.state.nodes.get(node.id)
    if state is None:
        return NodeRecord(id=node.id, kind=kind)
    is_completed = state.status is NodeStatus.COMPLETED
    progress = run.state.maps.get(node.id)
    return NodeRecord(
        id=node.id,
        kind=kind,
        status=state.status,
        output=output_of(run, state.ref) if is_completed else None,
        port=state.port,
        iteration=state.iteration,
        items=None if progress is None else progress.count,
        items_completed=None if progress is None else len(progress.refs),
        has_failed=state.has_failed,
    )


def output_of(run: CachedRun, ref: int) -> Any:
    """The output that came with an event, as plain values."""
    try:
        return from_json(run.values.json(ref))
    except (msgspec.DecodeError, RecursionError) as error:
        raise EventLogCorrupt(
            run_id=run.id, reason=f"the value of event {ref} cannot be read: {error}"
        ) from error
