"""Flows that wait for people and outside parties, for the catalogue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure import AsyncClient, Flow, task
from perdure.flows.built import BuiltFlow
from perdure.model.wait import Report, ReportStatus
from perdure.operations.records import WaitRecord
from perdure.tasks.context import CONTEXT, AsyncContext, Context
from perdure.tasks.result import complete, paused, skipped
from tests.flows.in_processes import pause_in_process, pause_in_process_async


@dataclass(frozen=True)
class Case:
    flow: BuiltFlow
    input: Any
    expected: Any
    signals: dict[str, Any] = field(default_factory=dict)
    """Payloads by name; a list has several."""
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """What people decide, by approval, in the order in which the flow reaches them."""
    reports: dict[str, list[Report]] = field(default_factory=dict)
    """What outside parties say, by the key that waits for it, in that order too."""


# What people and outside parties bring to the runs of the catalogue, through a client.


WAITS_MAX = 1000
STEP_SECONDS = 0.02
LONG_SECONDS = 40.0
"""Some bodies start processes, on a machine that is busy."""


class Replies:
    """Answers and reports that are still to be given, for runs called like their cases."""

    def __init__(self, client: AsyncClient, cases: Mapping[str, Case]) -> None:
        self._client = client
        self._answers = {
            (run, node): list(answers)
            for run, case in cases.items()
            for node, answers in case.answers.items()
        }
        self._reports = {
            (run, key): list(reports)
            for run, case in cases.items()
            for key, reports in case.reports.items()
        }

    async def give_all(self) -> None:
        try:
            async with asyncio.timeout(LONG_SECONDS):
                while not await self._are_given():  # noqa: ASYNC110 (nothing would set an event)
                    await asyncio.sleep(STEP_SECONDS)
        except TimeoutError:
            left = [*self._answers, *self._reports]
            raise AssertionError(f"no approval was opened for the replies to {left}") from None

    async def _are_given(self) -> bool:
        for wait in await self._client.waits.list(limit=WAITS_MAX):
            place = wait.run.split("/")[0], wait.key  # children are asked for by their parents
            if place in self._answers:
                await self._decide(wait, place)
            elif place in self._reports:
                await self._report(wait, place)
        return not self._answers and not self._reports

    async def _decide(self, wait: WaitRecord, place: tuple[str, str]) -> None:
        for answer in self._answers.pop(place):
            await self._client.approvals.decide(f"{wait.run}:{wait.key}", **answer)

    async def _report(self, wait: WaitRecord, place: tuple[str, str]) -> None:
        """One at a time: the next may be about another pause, which has to open first."""
        report, *left = self._reports.pop(place)
        if left:
            self._reports[place] = left
        await self._client.runs.report(
            wait.run,
            wait.key,
            status=report.status,
            result=report.result,
            error=report.error,
            progress=report.progress,
            port=report.port,
        )


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
    """It gets no reports, and has to poll."""
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
        .approve("Go?", name="ok", deciders=["role:board"], policy={"at_least": 2})
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
        .approve("Pay {{ value.amount }}?", name="ok", form=FORM, deciders=["role:finance"])
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
        .fork(a=Flow().approve("A?", name="ok_a"), b=Flow().approve("B?", name="ok_b"))
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
