"""What of a run is live: jobs, waits and children, as events start and end them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from immutables import Map
from msgspec.structs import replace

from perdure.model.event import Then
from perdure.model.key import Key
from perdure.model.run import (
    ApprovalState,
    LiveKind,
    MapState,
    NodeState,
    NodeStatus,
    RunState,
)

Changes = dict[str, Any]
"""Fields of the state, as they are after the event."""

NOTHING_OPEN: Changes = {
    "pauses": Map(),
    "early": Map(),
    "approvals": Map(),
    "retried": Map(),
}
"""How far a node came with people and outside parties does not outlive its end by force."""
_LIVE = NodeState(status=NodeStatus.LIVE)
_SKIPPED = NodeState(status=NodeStatus.SKIPPED)
_BLOCKED = NodeState(status=NodeStatus.BLOCKED)


def follow(state: RunState, changes: Changes, then: Then) -> None:
    """What an event led to at once."""
    if then.mapped:
        begun = {id: MapState(count=count, launched=0, refs=Map()) for id, count in then.mapped}
        changes["maps"] = changes.get("maps", state.maps).update(begun)
    if then.started:
        changes["jobs"] = changes.get("jobs", state.jobs) + len(then.started)
        _go_live(state, changes, then.started, LiveKind.JOB)
        if changes.get("early", state.early):
            _end_pauses(state, changes, then.started)
    if then.waiting:
        _go_live(state, changes, then.waiting, LiveKind.WAIT)
    if then.children:
        children = dict(then.children)
        changes["children"] = changes.get("children", state.children).update(children)
        _go_live(state, changes, children, LiveKind.CHILD)
    if then.skipped or then.blocked:
        ended = dict.fromkeys(then.skipped, _SKIPPED) | dict.fromkeys(then.blocked, _BLOCKED)
        changes["nodes"] = changes.get("nodes", state.nodes).update(ended)
        _forget_arrivals(state, changes, ended)
    if then.arrived:
        counts = {each.node: (each.decided, each.active, each.blocked) for each in then.arrived}
        changes["arrived"] = changes.get("arrived", state.arrived).update(counts)


def _go_live(state: RunState, changes: Changes, texts: Iterable[str], kind: LiveKind) -> None:
    nodes = changes.get("nodes", state.nodes)
    live = changes.get("live", state.live)
    reached: list[str] = []
    launched: dict[str, int] = {}
    for text in texts:
        live = live.set(text, kind)
        key = Key.parse(text)
        if key.item is not None:
            launched[key.node] = max(launched.get(key.node, 0), key.item + 1)
        elif key.part in ("", "check"):  # others stand beside the node
            nodes = nodes.set(key.node, _live_node(nodes.get(key.node), key))
            reached.append(key.node)
    for id, count in launched.items():
        maps = changes.get("maps", state.maps)
        progress = replace(maps[id], launched=max(maps[id].launched, count))
        changes["maps"] = maps.set(id, progress)
        nodes = nodes.set(id, _LIVE)
        reached.append(id)
    changes["live"] = live
    changes["nodes"] = nodes
    _forget_arrivals(state, changes, reached)


def _live_node(before: NodeState | None, key: Key) -> NodeState:
    if before is None and not key.iteration:  # as nearly always
        return _LIVE
    ref = 0 if before is None else before.ref
    return NodeState(status=NodeStatus.LIVE, ref=ref, iteration=key.iteration, part=key.part)


def _forget_arrivals(state: RunState, changes: Changes, reached: Iterable[str]) -> None:
    """The edges of a node count until it is reached."""
    arrived = changes.get("arrived", state.arrived)
    if arrived:
        for id in reached:
            if id in arrived:
                changes["arrived"] = arrived = arrived.delete(id)


def leave(state: RunState, changes: Changes, text: str) -> None:
    """A key is no longer live."""
    live = changes.get("live", state.live)
    kind = live.get(text)
    if kind is not None:
        changes["live"] = live.delete(text)
        if kind is LiveKind.JOB:
            changes["jobs"] = changes.get("jobs", state.jobs) - 1


def leave_all(state: RunState, changes: Changes) -> None:
    """The run ends, or turns to undoing: whatever is live is cancelled."""
    cancelled: dict[str, NodeState] = {}
    for text in state.live:
        key = Key.parse(text)
        former = state.nodes[key.node]
        if key.part == "undo":  # nobody knows how far it came
            cancelled[key.node] = replace(former, is_undone=True)
        elif former.status is NodeStatus.LIVE:
            cancelled[key.node] = replace(former, status=NodeStatus.CANCELLED)
    changes.update(nodes=state.nodes.update(cancelled), live=Map(), jobs=0, **NOTHING_OPEN)


def _end_pauses(state: RunState, changes: Changes, texts: Iterable[str]) -> None:
    """Bodies that have been reported on are executed again."""
    early, pauses = changes.get("early", state.early), changes.get("pauses", state.pauses)
    for text in texts:
        if (ref := early.get(text)) is not None and (former := pauses.get(text)):
            pauses = pauses.set(text, (*former[:-1], replace(former[-1], report=ref)))
            early = early.delete(text)
            leave(state, changes, f"poll:{text}")
    changes.update(early=early, pauses=pauses)


def forget_pauses(state: RunState, changes: Changes, text: str) -> None:
    """A key is completed: how it came there does not matter any more."""
    for name in ("pauses", "progress", "early", "retried"):
        known = changes.get(name, getattr(state, name))
        if text in known:
            changes[name] = known.delete(text)


def forget_approval(state: RunState, changes: Changes, node: str) -> None:
    """An approval is over, and with it what stands beside it."""
    former = state.approvals.get(node, ApprovalState())
    leave(state, changes, f"remind:{node}")
    leave(state, changes, f"notify:{node}")
    for number in range(1, former.reminders + 1):
        leave(state, changes, f"notify:{node}#{number}")
    if node in state.approvals:
        changes["approvals"] = state.approvals.delete(node)
