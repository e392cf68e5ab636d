"""Coming from Agent Swarm: what the page says that Perdure does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Context,
    Flow,
    InvalidFlow,
    NotDecider,
    Report,
    ReportOutcome,
    ReportStatus,
    Retry,
    RunFailed,
    RunStatus,
    run_flow_async,
    task,
)
from perdure.flows.built import BuiltFlow
from tests.client.runs import until
from tests.worker.harness import Gate
from tests.worker.harness import until as until_so


@task
def keep(value: Any) -> Any:
    return value


@task
def fail(_: Any) -> None:
    raise ValueError("no luck")


@task
def hand_over(value: Any, ctx: Context = CONTEXT) -> Any:
    report = ctx.pause("agent", checkpoint={"container": f"C-{value}"}, deadline="2h")
    if report.status == "failed":
        raise ValueError(report.error)
    assert ctx.last_pause is not None
    return {"from": ctx.last_pause.checkpoint, "result": report.result}


EXTERNAL = Flow("outside").then(hand_over).build()
WAITING = Flow("waiting").wait_for_signal("paid").build()


def release() -> BuiltFlow:
    """What is public is reviewed; ``deploy`` joins what there is."""
    text = """
flow: release
nodes:
  - id: public
    type: match
    inputs: {release: input}
    config: {conditions: {property: release.public, op: eq, value: true}}
    next: {true: review, false: null}
  - {id: review, task: keep, inputs: {value: input.name}, next: deploy}
  - {id: test, task: keep, inputs: {value: input.name}, next: deploy}
  - {id: deploy, task: keep, gathers: true}
"""
    return Flow.from_yaml(text, tasks=[keep])


async def completed(client: AsyncClient, run: str) -> set[str]:
    return set(await client.runs.handle(run).outputs())


async def test_match_chooses_a_port():
    public = await run_flow_async(release(), {"public": True, "name": "1.0"})
    internal = await run_flow_async(release(), {"public": False, "name": "1.0"})

    assert public["deploy"].keys() == {"review", "test"}
    assert internal["deploy"].keys() == {"test"}


async def test_a_port_that_leads_nowhere_ends_its_branch():
    noted: list[bool] = []

    @task
    def note(value: bool) -> None:
        noted.append(value)

    flow = (
        Flow("ending")
        .use(
            "match",
            {"conditions": {"property": "n", "op": "gt", "value": 0}},
            name="positive",
            inputs={"n": "input"},
        )
        .then(note, after="positive:true")
        .build()
    )

    await run_flow_async(flow, 1)
    assert noted == [True]
    await run_flow_async(flow, 0)
    assert noted == [True]


async def test_a_join_waits_only_for_what_was_taken(client, start_worker):
    flow = release()
    await start_worker(flows=[flow])
    run = await client.submit(flow, {"public": False, "name": "1.0"})

    assert (await run.result(timeout=10))["deploy"] == {"test": "1.0"}
    skipped = [node.id for node in await run.nodes() if node.status == "skipped"]
    assert skipped == ["review"]


async def test_a_fast_branch_does_not_wait_for_a_slow_one(client, start_worker):
    gate = Gate()

    @task
    async def slow(value: Any) -> Any:
        await gate.pass_through()
        return value

    fast = Flow().then(keep, name="first").then(keep, name="second")
    flow = Flow("sides").fork(slow=slow, fast=fast).join(keep, name="joined").build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    await gate.reached()

    async def has_gone_on() -> bool:
        return await completed(client, run.id) == {"first", "second"}

    await until_so(has_gone_on)
    gate.open()
    assert await run.result(timeout=10) == {"slow": 1, "fast": 1}


async def test_a_waiting_branch_keeps_nothing_from_going_on(client, start_worker):
    going_on = Flow().then(keep, name="first").then(keep, name="second")
    flow = Flow("sides").fork(waits=Flow().wait_for_signal("go"), other=going_on).join(keep).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    await until(run, RunStatus.WAITING)
    assert await completed(client, run.id) == {"first", "second"}

    await run.signal("go", 2)

    assert await run.result(timeout=10) == {"waits": 2, "other": 1}


async def test_a_node_sees_only_the_inputs_that_it_declares():
    seen: list[dict[str, Any]] = []

    @task
    def look(name: str, ctx: Context = CONTEXT) -> None:
        seen.append(dict(ctx.inputs))

    flow = Flow("look").then(keep).then(look, inputs={"name": "keep.output.name"}).build()
    await run_flow_async(flow, {"name": "Ada", "secret": "diary"})

    assert seen == [{"name": "Ada"}]
    with pytest.raises(InvalidFlow, match="diary"):
        Flow("match").then(keep).use(
            "note", {"text": "{{ diary }}"}, inputs={"name": "keep.output.name"}
        ).build()


async def test_an_input_must_come_from_upstream():
    with pytest.raises(InvalidFlow, match="later"):
        (
            Flow("order")
            .then(keep, name="first", inputs={"value": "later.output"})
            .then(keep, name="later")
            .build()
        )


async def test_a_cycle_is_refused():
    with pytest.raises(InvalidFlow, match="cycle"):
        Flow("round").node("a", keep, after="b").node("b", keep, after="a").build()


async def test_a_missing_value_is_an_error_a_default_or_a_skip():
    def noting(source: Any = "load.output.name", **options: Any) -> BuiltFlow:
        return (
            Flow("noting")
            .then(keep, name="load")
            .use("note", {"text": "for {{ name }}"}, inputs={"name": source}, **options)
            .build()
        )

    with pytest.raises(RunFailed, match="name") as caught:
        await run_flow_async(noting(), {})
    assert caught.value.node == "note"
    nobody = noting({"from": "load.output.name", "default": "nobody"}, on_missing="default")
    assert await run_flow_async(nobody, {}) == "for nobody"
    assert await run_flow_async(noting(on_missing="skip"), {}) is None


async def test_data_is_not_read_as_a_template():
    flow = Flow("quote").use("note", {"text": "{{ said }}"}, inputs={"said": "input"}).build()

    assert await run_flow_async(flow, "{{ secret.API_KEY }}") == "{{ secret.API_KEY }}"


async def test_a_secret_is_not_kept(client, start_worker):
    flow = Flow("calling").use("note", {"text": "key {{ secret.API_KEY }}"}).build()
    await start_worker(flows=[flow], secrets={"API_KEY": "hunter22"})
    run = await client.submit(flow)

    assert await run.result(timeout=10) == "key ***"
    assert "hunter22" not in repr(await run.events())


async def test_a_paused_body_holds_nothing(client, start_worker):
    await start_worker(flows=[EXTERNAL], tasks=[keep], concurrency=1)
    run = await client.submit(EXTERNAL, 7)
    await until(run, RunStatus.WAITING)

    assert await (await client.enqueue(keep, "another")).result(timeout=10) == "another"


async def test_a_report_resumes_the_body_with_its_checkpoint(client, start_worker):
    await start_worker(flows=[EXTERNAL])
    run = await client.submit(EXTERNAL, 7)
    await until(run, RunStatus.WAITING)

    await client.runs.report(run.id, "hand_over", status="completed", result="found")

    assert await run.result(timeout=10) == {"from": {"container": "C-7"}, "result": "found"}


async def test_a_report_counts_once(client, start_worker):
    await start_worker(flows=[EXTERNAL])
    run = await client.submit(EXTERNAL, 7)
    await until(run, RunStatus.WAITING)

    said = [("first", "k1"), ("first", "k1")]
    receptions = [
        (
            await client.runs.report(run.id, "hand_over", status="completed", result=text, key=key)
        ).outcome
        for text, key in said
    ]
    result = await run.result(timeout=10)
    late = await client.runs.report(run.id, "hand_over", status="failed", error="too late")

    assert receptions == [ReportOutcome.ACCEPTED, ReportOutcome.REPEATED]
    assert (result["result"], late.outcome) == ("first", ReportOutcome.IGNORED)


async def test_a_report_that_comes_early_is_kept(client, start_worker):
    run = await client.submit(EXTERNAL, 7)
    await client.runs.report(run.id, "hand_over", status="completed", result="already")

    await start_worker(flows=[EXTERNAL])

    assert (await run.result(timeout=10))["result"] == "already"


async def test_a_silent_party_is_asked(client, start_worker, clock):
    @task
    def watch(_: Any, ctx: Context = CONTEXT) -> Any:
        if ctx.part == "poll":
            return Report(status=ReportStatus.COMPLETED, result="it is done")
        return ctx.pause("agent", poll="5m").result

    flow = Flow("watching").then(watch).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    await until(run, RunStatus.WAITING)
    clock.advance(timedelta(minutes=5))

    assert await run.result(timeout=10) == "it is done"


async def test_a_retry_finds_how_far_it_came(client, start_worker):
    @task(retries=Retry(1, first=0))
    def research(_: Any, ctx: Context = CONTEXT) -> Any:
        report = ctx.pause("agent", checkpoint={"from": ctx.partial})
        if report.status == "failed":
            raise MemoryError(report.error)
        return ctx.partial

    flow = Flow("research").then(research).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    async for event in run.watch():
        if event.type == "node_paused" and event.value == {"from": None}:
            await client.runs.report(run.id, "research", progress="chapter 3")
            await client.runs.report(run.id, "research", status="failed", error="out of memory")
        elif event.type == "node_paused":
            await client.runs.report(run.id, "research", status="completed")

    assert await run.result(timeout=10) == "chapter 3"


async def test_a_signal_before_the_wait_is_kept(client, start_worker):
    flow = Flow("late").then(keep).wait_for_signal("paid").build()
    run = await client.submit(flow, 1)
    await run.signal("paid", 90)

    await start_worker(flows=[flow])

    assert await run.result(timeout=10) == 90


async def test_a_broadcast_reaches_all_that_wait(client, start_worker):
    runs = [await client.submit(WAITING, number) for number in range(3)]

    reached = await client.runs.broadcast("paid", 90)
    await start_worker(flows=[WAITING])

    assert sorted(reached.runs) == sorted(run.id for run in runs)
    assert [await run.result(timeout=10) for run in runs] == [90, 90, 90]


async def test_a_signal_may_have_a_condition(client):
    condition = {"property": "order", "op": "eq", "value": 7}
    flow = Flow("paying").wait_for_signal("paid", where=condition).build()
    run = await client.submit(flow, 1)

    await run.signal("paid", {"order": 6})
    assert await run.status() is RunStatus.WAITING
    await run.signal("paid", {"order": 7})

    assert await run.result(timeout=10) == {"order": 7}


async def test_only_deciders_decide(client):
    flow = Flow("asking").approve("Deploy?", name="review", deciders=["ops"]).build()
    await client.submit(flow, 1, id="release-1")

    with pytest.raises(NotDecider):
        await client.approvals.decide("release-1:review", "approve", by="eve")
    decided = await client.approvals.decide("release-1:review", "approve", by="ann", roles=["ops"])

    assert decided.decision == "approve"


async def test_a_rejection_takes_its_port(client, start_worker):
    flow = (
        Flow("asking")
        .approve("Deploy?", name="review", on_reject="no")
        .then(keep, name="deploy")
        .node("tell", keep, after="review:no")
        .build()
    )
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1, id="release-1")

    await client.approvals.decide("release-1:review", "reject", by="ann")

    assert (await run.result(timeout=10))["decision"] == "reject"
    assert await completed(client, run.id) == {"review", "tell"}


async def test_a_failed_node_fails_the_run_or_goes_on():
    with pytest.raises(RunFailed, match="no luck"):
        await run_flow_async(Flow("strict").then(fail).then(keep).build(), 1)

    lenient = Flow("lenient").then(fail, on_error="continue").then(keep).build()
    assert await run_flow_async(lenient, 1) is None


async def test_an_output_may_be_checked():
    def checked(**check: Any) -> BuiltFlow:
        schema = {"type": "object", "required": ["total"]}
        return Flow("checked").then(keep, check={"schema": schema, **check}).build()

    with pytest.raises(RunFailed, match="CheckFailed"):
        await run_flow_async(checked(), {})
    assert await run_flow_async(checked(advisory=True), {}) == {}


async def test_a_step_is_not_done_twice():
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return f"{question}!"

    @task(retries=Retry(1, first=0))
    async def think(question: str, ctx: AsyncContext = CONTEXT) -> Any:
        answer = await ctx.step("ask", ask, question)
        if ctx.attempt == 1:
            raise ConnectionError("lost")
        return answer

    assert await run_flow_async(Flow("think").then(think).build(), "why") == "why!"
    assert asked == ["why"]


async def test_a_map_keeps_the_order_of_its_items():
    @task
    async def square(number: int) -> int:
        return number * number

    flow = Flow("squares").map(square, concurrency=2).build()

    assert await run_flow_async(flow, [3, 1, 2]) == [9, 1, 4]


async def test_a_run_that_comes_too_soon_is_skipped(client):
    flow = Flow("digest", cooldown="1h").then(keep).build()
    await client.submit(flow, 1)

    second = await client.submit(flow, 2)

    assert await second.status() is RunStatus.SKIPPED


async def test_what_is_completed_is_not_executed_again(client, start_worker):
    executed: list[str] = []
    gate = Gate()

    @task
    async def research(value: Any) -> Any:
        executed.append("research")
        return value

    @task
    async def code(value: Any) -> Any:
        executed.append("code")
        if executed.count("code") == 1:
            await gate.pass_through()
        return value

    flow = Flow("feature").then(research).then(code).build()
    worker = await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    await gate.reached()
    await worker.stop()
    await start_worker(flows=[flow])

    assert await run.result(timeout=10) == 1
    assert executed == ["research", "code", "code"]


async def test_a_run_keeps_its_version(client, start_worker):
    old = Flow("paying").wait_for_signal("paid").build()
    new = Flow("paying").wait_for_signal("paid").then(fail).build()
    run = await client.submit(old, 1)
    await start_worker(flows=[old, new])

    await run.signal("paid", 90)

    assert await run.result(timeout=10) == 90
    assert (await run.record()).version == old.version


async def test_lineage_tells_which_values_were_used(client, start_worker):
    flow = (
        Flow("lineage")
        .then(keep, name="load")
        .then(keep, name="use", inputs={"value": "load.output.name"})
        .build()
    )
    await start_worker(flows=[flow])
    run = await client.submit(flow, {"name": "Ada"})
    await run.result(timeout=10)

    [used] = (await run.lineage())["use"].uses
    assert (used.source, used.path, used.value) == ("load", ("name",), "Ada")
