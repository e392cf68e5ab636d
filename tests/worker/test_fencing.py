"""Behaviour 3: a holder whose claim was taken away changes nothing, and is told to stop."""

from __future__ import annotations

import asyncio

from perdure import CONTEXT, AsyncContext, Context, Status, task
from perdure.worker.events import AttemptCompleted, AttemptLost, AttemptStarted
from tests.worker.harness import Gate, soon


async def test_fencing_a_disabled_active_job_is_taken_from_its_holder(client, start_worker):
    gate = Gate()
    ended: list[str] = []

    @task
    async def wait() -> str:
        try:
            await gate.pass_through()
        except asyncio.CancelledError:
            ended.append("cancelled")
            return "as if nothing had happened"
        return "done"

    worker = await start_worker(wait)
    job = await client.enqueue(wait)
    await gate.reached()
    await client.jobs.disable(job.id)
    taken = await job.record()
    await worker.told(AttemptLost, job.id)

    assert ended == ["cancelled"]
    assert worker.worker.stats().claims_lost == 1
    assert worker.worker.stats().running == 0
    after = await job.record()
    assert after == taken
    assert (after.status, after.output) == (Status.DISABLED, None)


async def test_fencing_a_sync_body_cannot_write_after_its_claim_was_lost(client, start_worker):
    gate = Gate()
    reasons: list[str | None] = []

    @task
    def wait(ctx: Context = CONTEXT) -> str:
        gate.pass_in_thread()
        reasons.append(ctx.abort_signal.reason)
        gate.leave()
        return "late"

    @task
    async def other() -> None:
        pass

    worker = await start_worker(wait, other)
    job = await client.enqueue(wait)
    await gate.reached()
    await client.jobs.disable(job.id)
    await worker.told(AttemptLost, job.id)
    gate.open()
    await gate.left()
    await (await client.enqueue(other)).result(10)

    assert reasons == ["the claim was lost"]
    assert await job.status() is Status.DISABLED
    assert worker.all(AttemptCompleted, job.id) == []


async def test_fencing_a_job_that_came_back_to_the_same_worker_runs_once_at_a_time(
    client, start_worker
):
    gates = [Gate(), Gate()]
    contexts: list[AsyncContext] = []

    @task
    async def wait(ctx: AsyncContext = CONTEXT) -> str:
        contexts.append(ctx)
        number = len(contexts)
        await gates[number - 1].pass_through()
        return f"body {number}"

    worker = await start_worker(wait, concurrency=2)
    job = await client.enqueue(wait)
    await gates[0].reached()
    await client.jobs.disable(job.id)
    await client.jobs.enable(job.id)
    await worker.told(AttemptStarted, job.id, count=2)
    await soon(contexts[0].abort_signal.wait_async())
    await worker.told(AttemptLost, job.id)
    for gate in gates:
        gate.open()

    assert await job.result(10) == "body 2"
    await worker.told(AttemptCompleted, job.id)
    assert (await job.record()).epoch > 1


async def test_fencing_a_replaced_active_job_ends_cancelled(client, start_worker):
    gate = Gate()

    @task
    async def wait(name: str) -> str:
        if name == "old":
            await gate.pass_through()
        return name

    worker = await start_worker(wait)
    old = await client.enqueue(wait.options(fingerprint="one"), "old")
    await gate.reached()
    new = await client.enqueue(wait.options(fingerprint="one", on_conflict="replace"), "new")
    await worker.told(AttemptLost, old.id)

    assert await new.result(10) == "new"
    assert await old.status() is Status.CANCELLED
