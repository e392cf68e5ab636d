"""Recorded runs: their events as a store keeps them, and the state that they add up to.

``python -m tests.rules.recording`` writes those that are missing. One that is there is a promise:
released versions wrote such logs, so it is never rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from perdure.engine import snapshot
from perdure.model.event import encode_event
from perdure.model.graph import DefaultAnswer, Escalation, Graph
from perdure.model.ids import RUN_START
from perdure.model.outcome import Completed
from perdure.model.run import NodeState, NodeStatus, RunState, RunStatus
from perdure.model.settings import RunSettings
from perdure.model.trigger import SetPriority
from tests.rules.graphs import (
    CHILD,
    approval,
    call,
    chain,
    child,
    delay,
    graph,
    loop,
    mapped,
    named,
    route,
    signal,
    task,
)
from tests.rules.played import Played, failure

MINUTE = 60_000
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "reason": {"type": "string", "default": "none"}},
    "required": ["amount"],
}


def earlier(graph: Graph, input: Any = None) -> Played:
    """A run of a version without windows and limits, as most recordings are."""
    return Played(graph, input, map_window=0, gathered_max_bytes=0)


def approved() -> Played:
    """By one with edits, by all, by two of three, by default, and rejected with a port."""
    nodes = (
        approval("one", form=FORM, deciders=("finance",), notify=call("tell")),
        approval("every", deciders=("ann", "bob"), quorum=0, inputs=named(paid="one.output.data")),
        approval("two", deciders=("board",), quorum=2),
        approval(
            "nobody",
            timeout_ms=MINUTE,
            default_answer=DefaultAnswer(decision="approve", data={"late": True}),
        ),
        approval("never", on_reject="no"),
        task("end"),
    )
    run = earlier(
        graph(*nodes, edges="one every, every two, two nobody, nobody never, never.no end"),
        {"amount": 30, "to": "Bob"},
    )
    run.fail("notify:one", "no mail server")
    # Roles had no prefix then; what a log has is not checked again.
    amount = {"amount": 20, "reason": "none"}
    old: Any = {"is_recorded": True}
    run.answer("one", data=amount, by="cid", roles=("finance",), note="less", **old)
    run.answer("every", by="bob")
    run.answer("every", by="ann")
    for who, decision in (("ann", "approve"), ("bob", "reject"), ("cid", "approve")):
        run.answer("two", decision, by=who, roles=("board",), **old)
    run.due("nobody", late_ms=5)
    run.answer("never", "reject", by="ann")
    run.finish("end")
    return run


def escalated() -> Played:
    """Open still: people were told, reminded, others may decide too, and one has answered.

    ``reminded`` is the same as it was recorded when an escalation was a reminder too.
    """
    node = approval(
        deciders=("ann", "bob"),
        quorum=2,
        reminders_ms=(MINUTE, 3 * MINUTE),
        escalations=(Escalation(after_ms=2 * MINUTE, deciders=("boss",)),),
        notify=call("tell"),
    )
    run = earlier(chain(node, task("end")), "in")
    run.finish("notify:ok")
    run.due("remind:ok")
    run.answer("ok", by="ann", note="yes")
    run.due("remind:ok", late_ms=7)
    run.finish("notify:ok#1")
    return run


def decided_in_a_pause() -> Played:
    """Decided and reported while an operator paused the run, and gone on with after it."""
    run = earlier(graph(approval(), task("a"), task("join", gathers=True), edges="ok join, a join"))
    run.pause_body("a", "here")
    run.pause(by="ops")
    run.answer("ok", by="ann")
    run.report("a", "completed", result=1)
    run.unpause(by="ops")
    run.finish("a", 2)
    return run


def reported_on() -> Played:
    """Paused twice, asked about, reported on early, once too often, and with a port of its own.

    ``reported`` is the same as it was recorded when the reports of polls had a name.
    """
    nodes = task("a", ports=("far",)), mapped("m"), loop("l"), task("end")
    run = earlier(graph(*nodes, edges="a.far m, m l, l end"), [1, 2])
    run.report("a", "completed", result="quick", token="t0")
    run.report("a", "completed", result="again")
    run.pause_body("a", {"container": 7}, "first")
    run.pause_body("a", {"container": 8}, "second", deadline_ms=MINUTE, poll_ms=MINUTE)
    run.report("a", "progress", progress={"page": 1}, token="t1")
    run.due("poll:a")
    run.finish("poll:a", None)
    run.due("poll:a")
    run.fail("poll:a", "not reachable")
    run.due("poll:a")
    run.finish("poll:a", {"status": "completed", "result": [5], "port": "far"})
    run.end("a", Completed(output=b"[5, 6]", port="far", warnings=("no total",)))
    run.report("a", "failed", error="too late", port="far")
    run.pause_body("m[1]", "item")
    run.finish("m[0]", 0)
    run.report("m[1]", "completed")
    run.finish("m[1]", 1)
    run.pause_body("l#1", "round")
    run.report("l#1", "completed")
    run.finish("l#1", 9, is_done=True)
    run.finish("end", "done")
    return run


def silent() -> Played:
    """In the middle of it: one is being asked, one is reported on before it paused, one failed."""
    run = earlier(graph(task("a"), task("b"), task("c", on_error="continue"), task("d")), "in")
    run.pause_body("a", "here", deadline_ms=MINUTE, poll_ms=MINUTE)
    run.report("a", "progress", progress=0.5, token="t1")
    run.due("poll:a")
    run.report("b", "completed", result=1, token="t2")
    run.pause_body("c", "there", deadline_ms=MINUTE)
    run.due("c")
    run.pause_body("d", "first")
    run.report("d", "failed", error="gone", progress={"page": 3})
    run.pause_body("d", "second")
    return run


def gone_on_from_progress() -> Played:
    """Failed with what was reported so far, and retried from there."""
    run = earlier(chain(task("a"), task("end")))
    run.pause_body("a", "here", poll_ms=MINUTE)
    run.report("a", "progress", progress={"page": 2})
    run.report("a", "failed", error="gone")
    run.fail("a", "gone")
    run.retry()
    return run


def passed_over() -> Played:
    """Nodes that did not want to run, or lacked an input, and what follows without them."""
    nodes = (
        task("load"),
        task("tired"),
        task("after"),
        task("mail", inputs=named(to="load.output.mail"), on_missing="skip"),
        task("print", inputs=named(to="load.output.mail"), on_missing="default"),
        task("end", gathers=True),
    )
    run = earlier(
        graph(
            *nodes,
            edges="load tired, tired after, load mail, load print, after end, mail end, print end",
        )
    )
    run.finish("load", {"name": "Ann"})
    run.skip("tired", "not today")
    run.finish("print", "printed")
    run.finish("end")
    return run


def filtered() -> Played:
    """Signals that a wait is not for stay until one comes that they are for."""
    where = {"property": "number", "op": "eq", "value": "{{ value.number }}"}
    run = earlier(
        graph(signal("mine", where=where), signal("any"), task("end"), edges="mine any, any end"),
        {"number": 2},
    )
    run.signal("go", {"number": 1})
    run.signal("go", {"number": 2}, by="ann")
    return run


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
    run = earlier(
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
    run = earlier(graph(*nodes, edges="m join, c join, d join, l join, a join"), [1, 2, 3])
    run.finish("m[0]", 1)
    run.finish("l#1", 5)
    run.finish("a")
    run.signal("later", 1)
    return run


def undone() -> Played:
    """Failed, and what it had completed was undone, not all of it well."""
    nodes = task("a", undo=True), task("b", undo=True), task("c", on_error="continue"), task("d")
    run = earlier(chain(*nodes))
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
    run = earlier(graph(*nodes, edges="a join, b join, m.oops mend", on_failure="finish"), [1, 2])
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
    run = earlier(chain(task("a"), mapped("m"), task("end")))
    run.finish("a", [1, 2])
    run.finish("m[0]", 1)
    run.fail("m[1]")
    other = run.fork(after=3, patch={"a": [7]})
    other.finish("m[0]", 8)
    return other


def migrated() -> Played:
    """Moved to another version in a pause, in which something new was ready."""
    run = earlier(graph(task("a"), signal("s"), task("join"), edges="a join, s join"))
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
    run = earlier(graph(child("c", on_error="late"), signal("s"), task("a"), edges="s a"))
    run.child_ended("c", RunStatus.FAILED, failure("child broke"))
    run.cancel(reason="out of stock")
    return run


def stopped_outside() -> Played:
    """Work outside that is cancelled: at its deadline, with its map, and with the run."""
    nodes = task("a", on_timeout="late", ports=("late",)), mapped("m", on_error="sorry"), task("b")
    run = earlier(graph(*nodes, task("c"), edges="a.late m, m.sorry b"), [1, 2])
    run.pause_body("c", "c", cancels=True)
    run.pause_body("a", "a", deadline_ms=MINUTE, poll_ms=MINUTE, cancels=True)
    run.due("a")
    run.finish("cancel:a")
    run.pause_body("m[1]", "m", cancels=True)
    run.fail("m[0]")
    run.cancel(reason="enough")
    run.fail("cancel:m[1]")
    run.finish("cancel:c")
    return run


def queued() -> Played:
    """Waited for its time, and became more urgent before it started."""
    settings = RunSettings(delay_ms=MINUTE)
    run = Played(chain(task("a"), task("b")), 1, gathered_max_bytes=0, settings=settings)
    run.happen(SetPriority(priority=1, by="ann"))
    run.due(RUN_START)
    run.finish("a", 2)
    return run


def windowed() -> Played:
    """Maps in windows: one completed, one was gone on from, one failed; their items are undone."""
    nodes = (
        mapped("all", undo=call("undo_all")),
        mapped("some", on_error="oops", undo=call("undo_some")),
        task("more"),
        mapped("nulls", on_error="continue", concurrency=3, undo=call("undo_nulls")),
        task("bad"),
    )
    run = Played(
        graph(*nodes, edges="all some, some.oops more, more nulls, more bad"),
        [1, 2, 3, 4],
        map_window=2,
        gathered_max_bytes=0,
    )
    for item in (1, 0, 2, 3):
        run.finish(f"all[{item}]", item)
    run.finish("some[1]", "one")
    run.fail("some[0]")
    run.finish("more", [7, 8, 9, 10])
    run.fail("nulls[0]")
    run.finish("nulls[2]", "two")
    run.fail("bad", "no money")
    run.finish("undo:nulls[2]")
    run.fail("undo:some[1]", "too late")
    return run


_MADE = (
    orders,
    waiting,
    undone,
    retried,
    forked,
    migrated,
    cancelled,
    approved,
    escalated,
    decided_in_a_pause,
    reported_on,
    silent,
    gone_on_from_progress,
    passed_over,
    filtered,
    stopped_outside,
    windowed,
    queued,
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
