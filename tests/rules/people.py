"""Runs to record in which people decide, outside parties report, and nodes do not want to run."""

from __future__ import annotations

from typing import Any

from perdure.model.graph import DefaultAnswer, Escalation
from perdure.model.outcome import Completed
from tests.rules.graphs import approval, call, chain, graph, loop, mapped, named, signal, task
from tests.rules.played import Played

MINUTE = 60_000
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "reason": {"type": "string", "default": "none"}},
    "required": ["amount"],
}


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
    run = Played(
        graph(*nodes, edges="one every, every two, two nobody, nobody never, never.no end"),
        {"amount": 30, "to": "Bob"},
    )
    run.fail("notify:one", "no mail server")
    run.answer("one", data={"amount": 20}, by="cid", roles=("finance",), note="less")
    run.answer("every", by="bob")
    run.answer("every", by="ann")
    for who, decision in (("ann", "approve"), ("bob", "reject"), ("cid", "approve")):
        run.answer("two", decision, by=who, roles=("board",))
    run.due("nobody", late_ms=5)
    run.answer("never", "reject", by="ann")
    run.finish("end")
    return run


def reminded() -> Played:
    """Open still: people were told, reminded, others may decide too, and one has answered."""
    node = approval(
        deciders=("ann", "bob"),
        quorum=2,
        reminders_ms=(MINUTE, 3 * MINUTE),
        escalations=(Escalation(after_ms=2 * MINUTE, deciders=("boss",)),),
        notify=call("tell"),
    )
    run = Played(chain(node, task("end")), "in")
    run.finish("notify:ok")
    run.due("remind:ok")
    run.answer("ok", by="ann", note="yes")
    run.due("remind:ok", late_ms=7)
    run.finish("notify:ok#1")
    return run


def decided_in_a_pause() -> Played:
    """Decided and reported while an operator paused the run, and gone on with after it."""
    run = Played(graph(approval(), task("a"), task("join", gathers=True), edges="ok join, a join"))
    run.pause_body("a", "here")
    run.pause(by="ops")
    run.answer("ok", by="ann")
    run.report("a", "completed", result=1)
    run.unpause(by="ops")
    run.finish("a", 2)
    return run


def reported() -> Played:
    """Paused twice, asked about, reported on early, once too often, and with a port of its own."""
    nodes = task("a", ports=("far",)), mapped("m"), loop("l"), task("end")
    run = Played(graph(*nodes, edges="a.far m, m l, l end"), [1, 2])
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
    run = Played(graph(task("a"), task("b"), task("c", on_error="continue"), task("d")), "in")
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
    run = Played(chain(task("a"), task("end")))
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
    run = Played(
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
    run = Played(
        graph(signal("mine", where=where), signal("any"), task("end"), edges="mine any, any end"),
        {"number": 2},
    )
    run.signal("go", {"number": 1})
    run.signal("go", {"number": 2}, by="ann")
    return run
