"""Coming from Cinatra: what the page says that Perdure does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    ApprovalDecided,
    ApprovalNotFound,
    AsyncContext,
    Context,
    Flow,
    InvalidAnswer,
    InvalidFlow,
    Retry,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunStatus,
    task,
)
from tests.client.runs import until
from tests.worker.harness import Gate
from tests.worker.harness import until as until_so

FORM = {
    "type": "object",
    "properties": {"topic": {"type": "string"}, "pages": {"type": "integer"}},
    "required": ["topic", "pages"],
    "additionalProperties": False,
}


@task
def keep(value: Any) -> Any:
    return value


@task
def dispatch(value: Any, ctx: Context = CONTEXT) -> Any:
    """Hands over to a runtime, and goes on with what that says."""
    report = ctx.pause("runtime", checkpoint={"task": f"T-{value}"}, deadline="24h")
    if report.status == "failed":
        raise RuntimeError(report.error)
    return report.result


SETUP = Flow("setup").approve("What about?", name="setup", form=FORM).then(keep).build()
GATED = Flow("gated").approve("Go on?", name="gate").then(keep).build()
AGENT = Flow("agent").then(dispatch).build()


async def test_one_of_two_workers_gets_a_job(queue):
    await queue.enqueue("agent", 1)

    claims = await asyncio.gather(*(queue.dequeue(f"worker-{n}") for n in range(2)))

    assert sum(claim is not None for claim in claims) == 1


async def test_a_run_that_is_submitted_twice_is_one_run(client):
    runs = [await client.submit(GATED, 1, id="run-1", on_conflict="use_existing") for _ in range(2)]

    assert [run.is_new for run in runs] == [True, False]
    assert await client.runs.count() == 1


async def test_a_run_whose_worker_died_goes_on(client, queue, start_worker, clock):
    flow = Flow("work").then(keep).build()
    run = await client.submit(flow, 7)
    assert await queue.dequeue("a worker that dies", lease="1m") is not None

    clock.advance(timedelta(minutes=2))
    await start_worker(flows=[flow])

    assert await run.result(timeout=10) == 7


async def test_an_answer_and_the_next_job_are_one_commit(client):
    await client.submit(GATED, 1, id="run-1")
    assert await client.jobs.count(status="waiting") == 0

    await client.approvals.decide("run-1:gate", "approve")

    assert await client.jobs.count(status="waiting") == 1


async def test_missing_fields_are_asked_for_with_a_form(client, start_worker):
    await start_worker(flows=[SETUP])
    run = await client.submit(SETUP, {}, id="run-1")
    [asked] = await client.approvals.list()
    assert (asked.id, asked.form) == ("run-1:setup", FORM)

    with pytest.raises(InvalidAnswer) as caught:
        await client.approvals.decide(asked.id, "approve", data={"topic": "owls"})
    assert [each.where for each in caught.value.faults] == [("pages",)]
    await client.approvals.decide(asked.id, "approve", data={"topic": "owls", "pages": 3})

    assert (await run.result(timeout=10))["data"] == {"topic": "owls", "pages": 3}


async def test_a_field_that_the_form_does_not_have_is_refused(client):
    await client.submit(SETUP, {}, id="run-1")

    with pytest.raises(InvalidAnswer, match="colour"):
        await client.approvals.decide("run-1:setup", "approve", data={"colour": "red"})


async def test_gates_follow_each_other(client, start_worker):
    flow = Flow("gates")
    for name in ("first", "second", "third"):
        flow = flow.approve(f"The {name}?", name=name)
    built = flow.build()
    run = await client.submit(built, 1, id="run-1")

    for name in ("first", "second", "third"):
        await client.approvals.decide(f"run-1:{name}", "approve", by=name)

    assert (await run.result(timeout=10))["by"] == ["third"]


async def test_a_rejection_fails_the_run(client):
    run = await client.submit(SETUP, {}, id="run-1")

    await client.approvals.decide("run-1:setup", "reject", by="ann")

    with pytest.raises(RunFailed, match="Rejected"):
        await run.result(timeout=10)


async def test_what_was_done_before_a_gate_is_not_done_again(client, start_worker):
    sent: list[str] = []

    @task
    async def work(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
        await ctx.step("send", lambda: sent.append("mail"))
        report = await ctx.pause("runtime")
        return report.result

    flow = Flow("work").then(work).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)
    await until(run, RunStatus.WAITING)
    await client.runs.report(run.id, "work", status="completed", result="done")

    assert await run.result(timeout=10) == "done"
    assert sent == ["mail"]


async def test_of_two_answers_one_counts(client):
    await client.submit(GATED, 1, id="run-1")

    answers = await asyncio.gather(
        *(client.approvals.decide("run-1:gate", "approve", by=who) for who in ("ann", "bob")),
        return_exceptions=True,
    )

    assert sum(isinstance(answer, ApprovalDecided) for answer in answers) == 1


async def test_what_was_asked_and_answered_is_kept(client, start_worker):
    await start_worker(flows=[GATED])
    run = await client.submit(GATED, 1, id="run-1")
    await client.approvals.decide("run-1:gate", "approve", by="ann", note="as agreed")
    await run.result(timeout=10)

    record = await client.approvals.get("run-1:gate")

    [answer] = record.answers
    assert (record.title, answer.by, answer.note) == ("Go on?", "ann", "as agreed")


async def test_an_approval_that_there_is_not_is_refused(client):
    with pytest.raises(ApprovalNotFound):
        await client.approvals.decide("6d0ad2f0-7a3c-4a0e-9b8e-0f6f0f1c2d3e:gate", "approve")


async def test_a_report_is_the_output_of_its_node(client, start_worker):
    await start_worker(flows=[AGENT])
    run = await client.submit(AGENT, 7)
    await until(run, RunStatus.WAITING)

    await client.runs.report(run.id, "dispatch", status="completed", result={"text": "found"})

    assert await run.result(timeout=10) == {"text": "found"}


async def test_a_failed_report_fails_the_node(client, start_worker):
    patient = Flow("patient").then(dispatch, retries=Retry(1, first=0)).build()
    await start_worker(flows=[AGENT, patient])
    strict = await client.submit(AGENT, 7)
    await until(strict, RunStatus.WAITING)
    await client.runs.report(strict.id, "dispatch", status="failed", error="no model")
    with pytest.raises(RunFailed, match="no model"):
        await strict.result(timeout=10)

    run = await client.submit(patient, 7)
    pauses = 0
    async for event in run.watch():
        if event.type == "node_paused":
            pauses += 1
            if pauses == 1:
                await client.runs.report(run.id, "dispatch", status="failed", error="no model")
            else:
                await client.runs.report(run.id, "dispatch", status="completed", result=pauses)

    assert await run.result(timeout=10) == 2


async def test_a_silent_runtime_meets_a_deadline(client, start_worker, clock):
    flow = (
        Flow("late")
        .then(dispatch, on_timeout="late")
        .node("tell", keep, after="dispatch:late")
        .build()
    )
    await start_worker(flows=[flow])
    run = await client.submit(flow, 7)
    await until(run, RunStatus.WAITING)
    clock.advance(timedelta(hours=24))

    await run.result(timeout=10)

    assert "tell" in await run.outputs()


async def test_a_cancelled_run_stops_its_bodies(client, start_worker):
    gate = Gate()

    @task
    async def work(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
        gate.leave()
        await ctx.abort_signal.wait_async()
        return value

    flow = Flow("work").then(work).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 7)
    await gate.left()

    await client.runs.cancel(run.id, by="ann")

    with pytest.raises(RunCancelled):
        await run.result(timeout=10)
    assert await run.outputs() == {}


async def test_a_late_report_changes_nothing(client, start_worker):
    await start_worker(flows=[AGENT])
    run = await client.submit(AGENT, 7)
    await until(run, RunStatus.WAITING)
    await client.runs.cancel(run.id)

    with pytest.raises(RunEnded):
        await client.runs.report(run.id, "dispatch", status="completed", result="late")

    assert await run.status() is RunStatus.CANCELLED


async def test_children_are_cancelled_with_their_parent(client, start_worker):
    parent = Flow("parent").map(GATED, name="agents").build()
    await start_worker(flows=[parent])
    run = await client.submit(parent, [1, 2])
    await until(run, RunStatus.WAITING)

    await client.runs.cancel(run.id)

    children = await run.children()
    assert [child.status for child in children] == [RunStatus.CANCELLED] * 2


async def test_a_cancelled_run_goes_on_where_it_was(client, start_worker):
    called: list[Any] = []

    @task
    def load(value: Any) -> Any:
        called.append(value)
        return value

    flow = Flow("resumed").then(load).wait_for_signal("go").build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 7)
    await until(run, RunStatus.WAITING)
    await client.runs.cancel(run.id)
    await client.runs.retry(run.id)
    await run.signal("go", "on")

    assert await run.result(timeout=10) == "on"
    assert called == [7]


async def test_a_timeout_is_enforced(client, start_worker):
    @task(timeout="20ms")
    async def hang(_: Any, ctx: AsyncContext = CONTEXT) -> None:
        await ctx.abort_signal.wait_async()

    flow = Flow("hanging").then(hang).build()
    await start_worker(flows=[flow])
    run = await client.submit(flow, 1)

    with pytest.raises(RunFailed, match="AttemptTimeout"):
        await run.result(timeout=10)


async def test_a_missing_version_is_not_replaced_by_another(client, start_worker):
    live = Flow("agent").then(keep).build()
    pinned = Flow("agent").then(keep).then(keep, name="again").build()
    await start_worker(flows=[live])
    run = await client.submit(pinned, 1)

    explained = await client.runs.explain(run.id)

    assert await run.outputs() == {}
    [finding] = explained.headline
    assert finding.code == "explain.no_version"
    assert finding.args["flow"] == f"agent@{pinned.version}"


async def test_an_unknown_kind_is_refused_with_the_nearest_name():
    with pytest.raises(InvalidFlow, match="'http'"):
        Flow("typo").use("htp", {"url": "https://example.org"}).build()


async def test_runs_at_the_runtime_hold_no_slots(client, start_worker):
    await start_worker(flows=[AGENT], tasks=[keep], concurrency=4)
    runs = [await client.submit(AGENT, number) for number in range(6)]
    for run in runs:
        await until(run, RunStatus.WAITING)

    assert await (await client.enqueue(keep, "mail")).result(timeout=10) == "mail"


async def test_a_trigger_starts_a_run_named_after_it(client, start_worker, clock):
    flow = Flow("digest").then(keep).build()
    await client.schedules.save("nightly", flow, cron="0 3 * * *", input=7)
    clock.advance(timedelta(days=1))
    for _ in range(2):
        await start_worker(flows=[flow])

    async def has_started() -> bool:
        return await client.runs.count() > 0

    await until_so(has_started)

    assert [run.id for run in await client.runs.list()] == ["nightly@2030-01-01T03:00:00Z"]
    assert await client.runs.handle("nightly@2030-01-01T03:00:00Z").result(timeout=10) == 7


async def test_a_queue_is_paused_alone(client, start_worker):
    await start_worker(tasks=[keep], queues=["mail", "blog"])
    await client.queues.pause("blog", by="ann")
    held = await client.enqueue(keep.options(queue="blog"), 1)

    assert await (await client.enqueue(keep.options(queue="mail"), 2)).result(timeout=10) == 2
    assert await held.status() == "waiting"
    await client.queues.resume("blog")
    assert await held.result(timeout=10) == 1
