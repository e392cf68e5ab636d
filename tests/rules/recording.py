"""Recorded runs: their events as a store keeps them, and the state that they add up to.

``python -m tests.rules.recording`` writes those that are missing. One that is there is a promise:
logs like it are out in the world, so it is never written anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perdure.engine import snapshot
from perdure.model.event import encode_event
from perdure.model.run import NodeState, NodeStatus, RunState, RunStatus
from tests.rules import people
from tests.rules.graphs import (
    CHILD,
    chain,
    child,
    delay,
    graph,
    loop,
    mapped,
    route,
    signal,
    task,
)
from tests.rules.played import Played, failure

LOGS = Path(__file__).parent / "logs"


class Recording(msgspec.Struct):
    """One log, and what of the state is not as in the beginning, as plain JSON values."""

    events: list[msgspec.Raw]
    state: Any


def plain(state: RunState) -> Any:
    """Leaves out what has its default, so that a field that is new changes no recording."""
    fields = _told(_fields(state), _fields(RunState()))
    unreached = msgspec.to_builtins(NodeState(status=NodeStatus.LIVE))
    nodes = fields.get("nodes", {})
    return fields | {"nodes": {id: _told(node, unreached) for id, node in nodes.items()}}


def _fields(state: RunState) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(snapshot.take(state).data)["state"]
    return fields


def _told(fields: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if name == "status" or value != defaults.get(name)
    }


def written(run: Played) -> bytes:
    events = [msgspec.Raw(encode_event(event)) for event in run.log.events]
    recording = Recording(events=events, state=plain(run.state))
    return msgspec.json.format(msgspec.json.encode(recording, order="sorted")) + b"\n"


def read(path: Path) -> Recording:
    return msgspec.json.decode(path.read_bytes(), type=Recording)


def orders() -> Played:
    """Branches, a join, a route, a map, a loop, a delay, a signal and a child, all well."""
    nodes = (
        task("fetch"),
        task("stock"),
        task("fraud"),
        task("decide", gathers=True),
        route("kind", "pay", "reject"),
        task("charge"),
        task("refuse"),
        mapped("pack", over="lines", concurrency=2),
        loop("poll"),
        delay("rest"),
        signal("approval", "approved", timeout_ms=1000),
        child("shipping", CHILD),
    )
    run = Played(
        graph(
            *nodes,
            edges="fetch stock, fetch fraud, stock decide as a, fraud decide as b, decide kind, "
            "kind.pay charge, kind.reject refuse, charge pack, pack poll, poll rest, "
            "rest approval, approval shipping",
        ),
        123,
    )
    run.finish("fetch", {"id": 123})
    run.attempt_failed("fraud")
    run.finish("fraud", 0.1)
    run.signal("approved", {"by": "ann"}, by="ann")
    run.finish("stock", True)
    run.finish("decide", {"kind": "pay"})
    run.finish("kind", "pay")
    run.finish("charge", {"lines": ["x", "y", "z"]})
    for item in (1, 0, 2):
        run.finish(f"pack[{item}]", f"packed {item}")
    run.finish("poll#1", "on its way")
    run.finish("check:poll#1", False)
    run.finish("poll#2", "there", is_done=True)
    run.due("rest")
    run.child_completed("shipping", "shipped")
    return run


def waiting() -> Played:
    """In the middle of everything: items, a child, a timer, a signal unread, an open join."""
    nodes = mapped("m", concurrency=2), child("c"), delay("d"), loop("l"), task("a"), task("join")
    run = Played(graph(*nodes, edges="m join, c join, d join, l join, a join"), [1, 2, 3])
    run.finish("m[0]", 1)
    run.finish("l#1", 5)
    run.finish("a")
    run.signal("later", 1)
    return run


def undone() -> Played:
    """Failed, and what it had completed was undone, not all of it well."""
    nodes = task("a", undo=True), task("b", undo=True), task("c", on_error="continue"), task("d")
    run = Played(chain(*nodes))
    run.finish("a", 1)
    run.finish("b", 2)
    run.fail("c")
    run.fail("d", "no money")
    run.fail("undo:b", "too late")
    run.finish("undo:a")
    return run


def retried() -> Played:
    """Finished its other branches, failed, was retried, paused, cancelled, and retried again."""
    nodes = task("a"), mapped("m", on_error="oops"), task("b"), task("join"), task("mend")
    run = Played(graph(*nodes, edges="a join, b join, m.oops mend", on_failure="finish"), [1, 2])
    run.finish("m[0]")
    run.fail("m[1]")
    run.fail("a")
    run.finish("b")
    run.finish("mend")
    run.retry()
    run.pause(reason="maintenance", by="ops")
    run.cancel(reason="out of stock")
    run.retry()
    return run


def forked() -> Played:
    """Copied from a run that had failed, with another output."""
    run = Played(chain(task("a"), mapped("m"), task("end")))
    run.finish("a", [1, 2])
    run.finish("m[0]", 1)
    run.fail("m[1]")
    other = run.fork(after=3, patch={"a": [7]})
    other.finish("m[0]", 8)
    return other


def migrated() -> Played:
    """Moved to another version in a pause, in which something new was ready."""
    run = Played(graph(task("a"), signal("s"), task("join"), edges="a join, s join"))
    run.finish("a", 1)
    run.pause()
    run.migrate(
        graph(task("a"), signal("s"), task("more"), task("join"), edges="a more, more join, s join")
    )
    run.unpause()
    run.signal("go", 2)
    return run


def cancelled() -> Played:
    """Cancelled with all that was live, among it a child."""
    run = Played(graph(child("c", on_error="late"), signal("s"), task("a"), edges="s a"))
    run.child_ended("c", RunStatus.FAILED, failure("child broke"))
    run.cancel(reason="out of stock")
    return run


_MADE = (
    orders,
    waiting,
    undone,
    retried,
    forked,
    migrated,
    cancelled,
    people.approved,
    people.reminded,
    people.decided_in_a_pause,
    people.reported,
    people.silent,
    people.gone_on_from_progress,
    people.passed_over,
    people.filtered,
)
RUNS: dict[str, Callable[[], Played]] = {made.__name__: made for made in _MADE}


def write_missing() -> None:
    LOGS.mkdir(exist_ok=True)
    for name, make in RUNS.items():
        path = LOGS / f"{name}.json"
        if not path.exists():
            path.write_bytes(written(make()))


if __name__ == "__main__":
    write_missing()
