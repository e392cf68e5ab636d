"""Flows that wait for people and outside parties, for the catalogue."""

from __future__ import annotations

from typing import Any

from perdure import Flow, task
from perdure.model.wait import Report, ReportStatus
from perdure.tasks.context import CONTEXT, AsyncContext, Context
from perdure.tasks.result import complete, paused, skipped
from tests.flows.case import Case
from tests.flows.in_processes import pause_in_process, pause_in_process_async

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1},
        "reason": {"type": "string", "default": "none given"},
    },
    "required": ["amount"],
}


def done(result: Any = None, **more: Any) -> Report:
    return Report(status=ReportStatus.COMPLETED, result=result, **more)


def said(by: str | None = None, decision: str = "approve", **more: Any) -> dict[str, Any]:
    return {"decision": decision, "by": by, **more}


@task
def verdict(answer: dict[str, Any]) -> list[Any]:
    return [answer["decision"], answer["by"], answer["data"]]


@task
def refused(answer: dict[str, Any]) -> str:
    return f"refused by {answer['by'][0]}: {answer['answers'][0]['note']}"


@task
async def pause_once(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    report = await ctx.pause("printer", checkpoint={"pages": number})
    assert ctx.last_pause is not None
    return [report.result, ctx.last_pause.checkpoint, ctx.attempt]


@task
def pause_twice(number: int, ctx: Context = CONTEXT) -> Any:
    first = ctx.pause("first")
    second = ctx.pause("second", checkpoint=first.result)
    return [number, first.result, second.status, second.error, ctx.partial]


@task
async def pause_item(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    if number % 2:
        return (await ctx.pause()).result
    return number


@task
async def pause_round(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    return number + (await ctx.pause(f"round {ctx.iteration}")).result


@task
async def ask_for_news(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    """Nobody reports on it; it has to ask."""
    if ctx.part == "poll":
        return Report(status=ReportStatus.COMPLETED, result="asked")
    return [(await ctx.pause(poll="10ms")).result, number]


@task
def pause_too_long(number: int, ctx: Context = CONTEXT) -> Any:
    return ctx.pause(deadline="10ms").result


@task
async def end_in_a_pause(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    if ctx.last_pause is None:
        return paused({"number": number})
    return [ctx.last_pause.checkpoint["number"], ctx.last_pause.report.result]


@task
def by_size(number: int) -> Any:
    if number < 0:
        return skipped("nothing to do")
    return complete(number, "large" if number > 10 else "")


@task
def shown(value: Any) -> str:
    return f"<{value}>"


def _sized(name: str) -> Flow:
    return (
        Flow(name)
        .then(by_size, ports=["large"])
        .then(shown, name="small")
        .then(lambda number: f"large {number}", name="large", after="by_size:large")
    )


APPROVALS = {
    "an approval by anyone": Case(
        Flow("anyone").approve("Go?", name="ok").then(verdict).build(),
        {"n": 1},
        ["approve", ["ann"], {"n": 1}],
        answers={"ok": [said("ann", note="fine")]},
    ),
    "an approval by all": Case(
        Flow("everyone")
        .approve("Go?", name="ok", deciders=["ann", "bob"], policy="all")
        .then(verdict)
        .build(),
        1,
        ["approve", ["bob", "ann"], 1],
        answers={"ok": [said("bob"), said("ann")]},
    ),
    "an approval by two of a board": Case(
        Flow("board")
        .approve("Go?", name="ok", deciders=["board"], policy={"at_least": 2})
        .then(verdict)
        .build(),
        1,
        ["approve", ["ann", "cid"], 1],
        answers={
            "ok": [
                said("ann", roles=["board"]),
                said("bob", "reject", roles=["board"]),
                said("cid", roles=["board"]),
            ]
        },
    ),
    "an approval with a form, and edits": Case(
        Flow("edits")
        .approve("Pay {{ value.amount }}?", name="ok", form=FORM, deciders=["finance"])
        .then(verdict)
        .build(),
        {"amount": 30, "to": "Bob"},
        ["approve", ["ann"], {"amount": 20, "to": "Bob", "reason": "none given"}],
        answers={"ok": [said("ann", data={"amount": 20}, roles=["finance"])]},
    ),
    "an approval that is rejected": Case(
        Flow("rejected")
        .approve("Go?", name="ok", on_reject="no")
        .then(verdict)
        .then(refused, after="ok:no")
        .build(),
        1,
        "refused by ann: too dear",
        answers={"ok": [said("ann", "reject", note="too dear")]},
    ),
    "an answer of its own": Case(
        Flow("postponed")
        .approve("Go?", name="ok", answers=["approve", "later"])
        .then(verdict)
        .then(shown, after="ok:later", inputs={"value": "ok.output.decision"})
        .build(),
        1,
        "<later>",
        answers={"ok": [said("ann", "later")]},
    ),
    "an approval that nobody decides on": Case(
        Flow("defaulted")
        .approve(
            "Go?",
            name="ok",
            deadline="10ms",
            on_timeout={"decision": "approve", "data": {"late": True}},
        )
        .then(verdict)
        .build(),
        {"n": 1},
        ["approve", [], {"n": 1, "late": True}],
    ),
    "approvals side by side, and one after another": Case(
        Flow("several")
        .fork(
            a=Flow().approve("A?", name="ok_a"),
            b=Flow().approve("B?", name="ok_b"),
        )
        .join(lambda both: [both["b"]["by"], both["a"]["by"]], name="both")
        .approve("All?", name="ok_all")
        .then(verdict)
        .build(),
        1,
        ["approve", ["cid"], [["bob"], ["ann"]]],
        answers={"ok_b": [said("bob")], "ok_a": [said("ann")], "ok_all": [said("cid")]},
    ),
    "an approval in a child": Case(
        Flow("parent_of_approval")
        .flow(Flow("approving_child").approve("Go?", name="ok_child").then(verdict).build())
        .then(shown)
        .build(),
        1,
        "<['approve', ['ann'], 1]>",
        answers={"ok_child": [said("ann")]},
    ),
}

PAUSES = {
    "a pause": Case(
        Flow("pause").then(pause_once).then(shown).build(),
        7,
        "<['printed', {'pages': 7}, 1]>",
        reports={"pause_once": [done("printed")]},
    ),
    "two pauses, the second failed": Case(
        Flow("pauses").then(pause_twice).build(),
        7,
        [7, 1, "failed", "no paper", {"page": 2}],
        reports={
            "pause_twice": [
                done(1),
                Report(status=ReportStatus.PROGRESS, progress={"page": 2}),
                Report(status=ReportStatus.FAILED, error="no paper"),
            ]
        },
    ),
    "two pauses in a process": Case(
        Flow("pauses_in_process").then(pause_in_process).build(),
        7,
        [7, "x", "y"],
        reports={"pause_in_process": [done("x"), done("y")]},
    ),
    "a pause in an async body in a process": Case(
        Flow("pause_in_process_async").then(pause_in_process_async).build(),
        7,
        [7, {"a": [1]}],
        reports={"pause_in_process_async": [done({"a": [1]})]},
    ),
    "items that pause": Case(
        Flow("pausing_items").map(pause_item).build(),
        [0, 1, 2, 3],
        [0, "one", 2, "three"],
        reports={"pause_item[3]": [done("three")], "pause_item[1]": [done("one")]},
    ),
    "rounds that pause": Case(
        Flow("pausing_rounds").loop(pause_round, until=lambda number: number > 10).build(),
        1,
        12,
        reports={"pause_round#1": [done(5)], "pause_round#2": [done(6)]},
    ),
    "a pause that asks for news": Case(Flow("silent").then(ask_for_news).build(), 7, ["asked", 7]),
    "a pause that nobody ends": Case(
        Flow("overdue")
        .then(pause_too_long, on_timeout="late")
        .then(shown)
        .then(lambda _: "too late", name="late", after="pause_too_long:late")
        .build(),
        1,
        "too late",
    ),
    "a body that ends in a pause": Case(
        Flow("ends_in_pause").then(end_in_a_pause).then(shown).build(),
        1,
        "<[1, 'reported']>",
        reports={"end_in_a_pause": [done("reported")]},
    ),
    "outside work, with a port of the report": Case(
        Flow("outside_port")
        .use("external", {"for": "agent"}, name="work", ports=["bad"])
        .then(shown)
        .then(lambda result: f"bad {result}", name="bad", after="work:bad")
        .build(),
        1,
        "bad 3",
        reports={"work": [Report(status=ReportStatus.PROGRESS, progress=0.5), done(3, port="bad")]},
    ),
}

PORTS = {
    "the ordinary port": Case(_sized("ordinary").build(), 5, "<5>"),
    "a port that a result chooses": Case(_sized("chosen_port").build(), 50, "large 50"),
    "a node that does not want to run": Case(
        Flow("unwilling")
        .fork(a=by_size, b=shown)
        .join(lambda outputs: outputs, name="all")
        .build(),
        -1,
        {"b": "<-1>"},
    ),
}
