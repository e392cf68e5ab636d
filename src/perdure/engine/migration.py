"""Whether a run can continue in another version of its flow, and if not, why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from perdure.diagnostics import Fault, declare
from perdure.engine.readiness import count_edges, is_decided, verdict
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
from perdure.model.ids import Key
from perdure.model.run import NodeState, NodeStatus, RunState

_TYPES: dict[type[Node], str] = {
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

_NODE = "node {node!r} is {status}, but "
OTHER_FLOW = declare("migration.other_flow", "it is a run of flow {flow!r}, not of {other!r}")
NODE_MISSING = declare("migration.node_missing", _NODE + "the new version does not have it")
OTHER_TYPE = declare(
    "migration.other_type", _NODE + "it was a {was} and is a {now} in the new version"
)
OTHER_NODE_TYPE = declare(
    "migration.other_node_type",
    _NODE + "it was of node type {was!r} and is of node type {now!r} in the new version",
)
OTHER_CALL = declare(
    "migration.other_call", _NODE + "it {verb} {now} instead of {was} in the new version"
)
OTHER_LIST = declare(
    "migration.other_list", _NODE + "it maps over {now} instead of {was} in the new version"
)
OTHER_APPROVAL = declare(
    "migration.other_approval",
    _NODE + "its approval request differs in the new version",
)
OTHER_SIGNALS = declare(
    "migration.other_signals", _NODE + "it accepts different signals in the new version"
)
OTHER_SIGNAL = declare(
    "migration.other_signal",
    _NODE + "it waited for the signal {was!r} and waits for {now!r} in the new version",
)
NOT_REACHED = declare(
    "migration.not_reached",
    _NODE + "in the new version it comes after {ahead}, which must complete first",
)
OTHER_WAY = declare("migration.other_way", _NODE + "in the new version it would be {would}")


def differences(old: Graph, new: Graph, state: RunState) -> tuple[Fault, ...]:
    """Why a run in ``state`` cannot continue in ``new``; empty if it can.

    Nodes that the run has not reached may differ in any way. Reached nodes must still exist, and
    the edges of the new version must lead to them from the same outcomes.
    """
    if old.name != new.name:
        return (OTHER_FLOW.fault(flow=old.name, other=new.name),)
    undone = {Key.parse(text).node for text in state.undoes}
    return tuple(
        replace(
            difference,
            where=("nodes", id),
            args={"node": id, "status": str(node.status), **difference.args},
        )
        for id in old.nodes
        if (node := state.nodes.get(id)) is not None
        for difference in _differences_of(old.nodes[id], new, state, node, undone)
    )


def _differences_of(
    before: Node, new: Graph, state: RunState, node: NodeState, undone: Collection[str]
) -> Iterator[Fault]:
    after = new.nodes.get(before.id)
    if after is None:
        yield NODE_MISSING.fault()
        return
    if type(before) is not type(after):
        yield OTHER_TYPE.fault(was=_TYPES[type(before)], now=_TYPES[type(after)])
        return
    if node.status is NodeStatus.LIVE:
        yield from _differences_while_live(before, after)
    if before.id in undone:
        yield from _different_calls(before, after, "undo", "is undone by")
    if state.ends_as is None:  # a compensating run starts no more nodes
        yield from _different_paths(new, state, node, before.id)


def _differences_while_live(before: Node, after: Node) -> Iterator[Fault]:
    """Why a job, wait or child that ``before`` started cannot end under ``after``."""
    yield from _different_calls(before, after, "call", "calls")
    yield from _different_calls(before, after, "body", "calls")
    if isinstance(before, LoopNode) and isinstance(after, LoopNode):
        yield from _different_calls(before, after, "check", "asks")
    if isinstance(before, TaskNode) and isinstance(after, TaskNode) and before.type != after.type:
        yield OTHER_NODE_TYPE.fault(was=before.type, now=after.type)
    if isinstance(before, MapNode) and isinstance(after, MapNode) and before.over != after.over:
        yield OTHER_LIST.fault(was=_list(before), now=_list(after))
    if isinstance(before, ApprovalNode) and before != after:
        yield OTHER_APPROVAL.fault()
    if _taken_signals(before) != _taken_signals(after):
        yield OTHER_SIGNALS.fault()
    was, now = getattr(before, "signal", ""), getattr(after, "signal", "")
    if was != now:
        yield OTHER_SIGNAL.fault(was=was, now=now)


def _taken_signals(node: Node) -> object:
    return (node.where, node.inputs) if isinstance(node, SignalNode) else None


def _different_calls(before: Node, after: Node, part: str, verb: str) -> Iterator[Fault]:
    was, now = _called(getattr(before, part, None)), _called(getattr(after, part, None))
    if was != now:
        yield OTHER_CALL.fault(verb=verb, was=was, now=now)


def _called(body: Call | FlowRef | None) -> str:
    if body is None:
        return "nothing"
    return f"task {body.task!r}" if isinstance(body, Call) else f"flow {body.name!r}"


def _list(node: MapNode) -> str:
    return "its input" if node.over is None else f"{node.over!r} of its input"


def _different_paths(new: Graph, state: RunState, node: NodeState, id: str) -> Iterator[Fault]:
    """Whether the edges of the new version would have led to another status of this node."""
    became = node.status if node.status in _BECOMES and not node.end_number else NodeStatus.LIVE
    would = verdict(new, id, count_edges(new, state.nodes, id))
    if would is None:
        sources = dict.fromkeys(edge.source for edge in new.incoming[id])
        ahead = tuple(each for each in sources if not is_decided(state.nodes.get(each)))
        yield NOT_REACHED.fault(ahead=ahead)
    elif would is not became:
        yield OTHER_WAY.fault(would=_BECOMES[would])


def nearest_to(graph: Graph, known: Iterable[Graph]) -> Graph | None:
    """The most similar version of the same flow; None if there is none."""
    edges = set(graph.definition.edges)

    def similarity(other: Graph) -> tuple[int, int, int]:
        return (
            len(graph.nodes.keys() & other.nodes.keys()),
            sum(other.nodes.get(id) == node for id, node in graph.nodes.items()),
            len(edges & set(other.definition.edges)),
        )

    same = [each for each in known if each.name == graph.name]
    return max(same, key=similarity, default=None)
