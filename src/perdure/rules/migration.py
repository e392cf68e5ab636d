"""Whether a run can go on in another version of its flow, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.graph import (
    ApprovalNode,
    Call,
    DelayNode,
    FlowNode,
    FlowRef,
    Graph,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.model.run import NodeState, NodeStatus, RunState
from perdure.rules.readiness import count_edges, is_decided, verdict

_KINDS: dict[type[Node], str] = {
    ApprovalNode: "wait for people",
    DelayNode: "delay",
    FlowNode: "child flow",
    LoopNode: "loop",
    MapNode: "map",
    RouteNode: "route",
    SignalNode: "wait for a signal",
    TaskNode: "task",
}
_BECOMES = {
    NodeStatus.LIVE: "started",
    NodeStatus.SKIPPED: "skipped",
    NodeStatus.BLOCKED: "blocked",
}


def differences(old: Graph, new: Graph, state: RunState) -> tuple[str, ...]:
    """Why a run in ``state`` cannot go on in ``new``; empty if it can.

    What the run has not reached may differ in any way. What it has reached must still be there,
    and the way that the run took must lead to the same in the new version.
    """
    if old.name != new.name:
        return (f"it is a run of flow {old.name!r}, not of {new.name!r}",)
    return tuple(
        f"node {id!r} is {node.status}, but {difference}"
        for id in old.nodes
        if (node := state.nodes.get(id)) is not None
        for difference in _differences_of(old.nodes[id], new, state, node)
    )


def _differences_of(before: Node, new: Graph, state: RunState, node: NodeState) -> Iterator[str]:
    after = new.nodes.get(before.id)
    if after is None:
        yield "the new version does not have it"
        return
    if type(before) is not type(after):
        yield f"it was a {_KINDS[type(before)]} and is a {_KINDS[type(after)]} in the new version"
        return
    if node.status is NodeStatus.LIVE:
        yield from _differences_while_live(before, after)
    if before.id in state.undoes:
        yield from _different_calls(before, after, "undo", "is undone by")
    if state.ends_as is None:  # else nothing more is started
        yield from _different_ways(new, state, node, before.id)


def _differences_while_live(before: Node, after: Node) -> Iterator[str]:
    """Why a job, wait or child that was started by ``before`` cannot end as one of ``after``."""
    yield from _different_calls(before, after, "call", "calls")
    yield from _different_calls(before, after, "body", "calls")
    if isinstance(before, LoopNode) and isinstance(after, LoopNode):
        yield from _different_calls(before, after, "check", "asks")
    if isinstance(before, TaskNode) and isinstance(after, TaskNode) and before.kind != after.kind:
        yield f"it was of kind {before.kind!r} and is of kind {after.kind!r} in the new version"
    if isinstance(before, MapNode) and isinstance(after, MapNode) and before.over != after.over:
        yield f"it went over {_list(before)} and goes over {_list(after)} in the new version"
    if isinstance(before, ApprovalNode) and before != after:
        yield "it asks something else, or somebody else, in the new version"
    if _taken_signals(before) != _taken_signals(after):
        yield "it takes other signals in the new version"
    was, now = getattr(before, "signal", ""), getattr(after, "signal", "")
    if was != now:
        yield f"it waited for the signal {was!r} and waits for {now!r} in the new version"


def _taken_signals(node: Node) -> object:
    return (node.where, node.inputs) if isinstance(node, SignalNode) else None


def _different_calls(before: Node, after: Node, part: str, verb: str) -> Iterator[str]:
    was, now = _called(getattr(before, part, None)), _called(getattr(after, part, None))
    if was != now:
        yield f"it {verb} {now} instead of {was} in the new version"


def _called(body: Call | FlowRef | None) -> str:
    if body is None:
        return "nothing"
    return f"task {body.task!r}" if isinstance(body, Call) else f"flow {body.name!r}"


def _list(node: MapNode) -> str:
    return "its input" if node.over is None else f"{node.over!r} of its input"


def _different_ways(new: Graph, state: RunState, node: NodeState, id: str) -> Iterator[str]:
    """Whether the edges of the new version lead to what became of a node."""
    became = node.status if node.status in _BECOMES and not node.end_number else NodeStatus.LIVE
    would = verdict(new, id, count_edges(new, state.nodes, id))
    if would is None:
        sources = dict.fromkeys(edge.source for edge in new.incoming[id])
        ahead = [repr(each) for each in sources if not is_decided(state.nodes.get(each))]
        yield f"it comes after {', '.join(ahead)} in the new version, still to be completed"
    elif would is not became:
        yield f"it would have been {_BECOMES[would]} in the new version"
