"""No string that one store accepts is refused by another, wherever it reaches a plain column."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from string import ascii_letters, digits
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    AsyncJobQueue,
    Concurrency,
    Flow,
    InvalidInput,
    PerdureError,
    RunStatus,
    Worker,
    paused,
    skipped,
    task,
)
from perdure.clock import ManualClock
from perdure.model.check import NAME_MAX_BYTES, TAGS_MAX_BYTES
from perdure.model.run import RUN_ID_MAX_BYTES
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.transfer import export_store, import_store
from tests.client.harness import worker_at
from tests.support.refusal import refused

pytestmark = pytest.mark.every_store

HOSTILE = {
    "nul": "a\0b",
    "surrogate": "a\ud800b",
    "half pair": "\udc00",
    "escape": "a\x1b[2Jb\x7f",
    "lines": "a\r\nb\tc",
    "bidi": "a\u202eb",
    "zero width": "a\u200bb",
    "separator": "a\u2028b",
    "no character": "a\uffff\U0010ffffb",
    "astral": "😀" * 50,
    "combining": "e\u0301" * 90,
    "quotes": "a'b\"c\\d`e",
    "braces": '{"a": [1]} %s $1 :a ?',
    "blank": " ",
    "empty": "",
    "at most": "x" * 200,
    "too long": "x" * 201,
    "very long": "ä" * 100_000,
    "huge": "x" * 2_000_000,
}


@task
async def echo(value: Any) -> Any:
    return value


@task(limits=[Concurrency(1, key=lambda text: text)])
async def limited(text: str) -> str:
    return text


@task(limits=[Concurrency(1, key="{{ text }}")])
async def rendered(text: str) -> str:
    return text


@task(retries=0)
async def fails(text: str) -> None:
    raise ValueError(text)


@task
async def reports_progress(text: str, ctx: AsyncContext = CONTEXT) -> str:
    await ctx.progress(50, text, {"detail": text})
    return text


@task
async def steps(text: str, ctx: AsyncContext = CONTEXT) -> str:
    return await ctx.step(text, lambda: text)


@task
async def pauses(text: str, ctx: AsyncContext = CONTEXT) -> str:
    report = await ctx.pause(text, checkpoint=text)
    return str(report.result)


@task
async def pauses_at(text: str) -> Any:
    return paused(text, name=text)


@task
async def skips(text: str) -> Any:
    return skipped(text)


asking = Flow("asking").approve("{{ value }}", name="ok", message="{{ value }}").build()
listening = Flow("listening").wait_for_signal("go").build()
bodies: tuple[Any, ...] = (fails, reports_progress, steps, pauses, pauses_at, skips, echo)
flows = [Flow(f"of_{each.name}").then(each, name="it").build() for each in bodies]
of_echo = flows[-1]
of_limited, of_rendered = (
    Flow(f"of_{each.name}").then(each, name="it").build() for each in (limited, rendered)
)
of_external = Flow("of_external").use("external", {"for": "printer"}, name="it").build()
flows += [of_limited, of_rendered]
tasks: list[Any] = [echo, limited, rendered, fails, reports_progress, steps]


async def _decided(client: AsyncClient, **answer: Any) -> None:
    await client.submit(asking, "x", id="asked", on_conflict="use_existing")
    await client.approvals.decide("asked:ok", **{"decision": "approve", **answer})


async def _signaled(client: AsyncClient, name: str, **options: Any) -> None:
    await client.submit(listening, 1, id="listens", on_conflict="use_existing")
    await client.runs.signal("listens", name, **options)


Call = Callable[[AsyncClient, str], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "run id": lambda client, text: client.submit(listening, 1, id=text),
    "run input": lambda client, text: client.submit(listening, text),
    "title": lambda client, text: client.submit(asking, text),
    "flow": lambda client, text: client.submit(Flow(text).then(echo).build(), 1),
    "node": lambda client, text: client.submit(Flow("n").then(echo, name=text).build(), 1),
    "awaited signal": lambda client, text: client.submit(
        Flow("s").wait_for_signal(text, name="wait").build(), 1
    ),
    "decider": lambda client, text: client.submit(
        Flow("d").approve("?", deciders=[text]).build(), 1
    ),
    "role": lambda client, text: client.submit(
        Flow("r").approve("?", deciders=[f"role:{text}"]).build(), 1
    ),
    "group": lambda client, text: client.enqueue(echo.options(group=text), 1),
    "queue": lambda client, text: client.enqueue(echo.options(queue=text), 1),
    "tags": lambda client, text: client.enqueue(echo.options(tags=[text]), 1),
    "fingerprint": lambda client, text: client.enqueue(echo.options(fingerprint=text), 1),
    "computed fingerprint": lambda client, text: client.enqueue(
        echo.options(fingerprint=lambda value: text), 1
    ),
    "limit key": lambda client, text: client.enqueue(limited, text),
    "argument": lambda client, text: client.enqueue(echo, text),
    "signal": lambda client, text: _signaled(client, text),
    "signal by": lambda client, text: _signaled(client, "go", by=text),
    "broadcast": lambda client, text: client.runs.broadcast(text, 1),
    "decision by": lambda client, text: _decided(client, by=text),
    "decision": lambda client, text: _decided(client, decision=text),
    "role of a decision": lambda client, text: _decided(client, by="ann", roles=[text]),
    "note": lambda client, text: _decided(client, by="bob", note=text),
    "inbox": lambda client, text: client.approvals.list(text),
    "waits": lambda client, text: client.waits.list(name=text),
    "jobs of a group": lambda client, text: client.jobs.list(group=text),
    "run": lambda client, text: client.runs.get(text),
    "job": lambda client, text: client.jobs.get(text),
    "approval": lambda client, text: client.approvals.get(text),
    "paused queue": lambda client, text: client.queues.pause(text),
    "queue paused by": lambda client, text: client.queues.pause("q", by=text),
    "schedule": lambda client, text: client.schedules.save(text, listening, every="1h"),
    "schedule of a task": lambda client, text: client.schedules.save(
        "s", echo, args=[text], every="1h", options={"group": text}
    ),
    "pause reason": lambda client, text: _of_run(client, "pause", reason=text),
    "cancel reason": lambda client, text: _of_run(client, "cancel", reason=text),
    "cancel by": lambda client, text: _of_run(client, "cancel", by=text),
    "resume by": lambda client, text: _of_run(client, "resume", by=text),
    "retry by": lambda client, text: _of_run(client, "retry", by=text),
    "report key": lambda client, text: _reported(client, key=text),
    "report by": lambda client, text: _reported(client, by=text),
    "report error": lambda client, text: _reported(client, status="failed", error=text),
    "report port": lambda client, text: _reported(client, status="completed", port=text),
    "reported node": lambda client, text: client.runs.report("reported", text),
    "queue of a run": lambda client, text: client.submit(listening, 1, queue=text),
    "tags of a run": lambda client, text: client.submit(of_echo, 1, tags=[text]),
    "limit key of a node": lambda client, text: client.submit(of_limited, text),
    "rendered limit key": lambda client, text: client.submit(of_rendered, text),
    "namespace": lambda client, text: _in_namespace(client, text),
    "place": lambda client, text: client.submit(
        of_echo, {"tenant": text}, max_running=Concurrency(1, key="{{ input.tenant }}")
    ),
    "priority by": lambda client, text: _of_run(client, "set_priority", priority=1, by=text),
    "peeked queue": lambda client, text: client.queues.peek(text),
    "followed queue": lambda client, text: _followed(client, queue=text),
    "followed task": lambda client, text: _followed(client, task=text),
    "followed flow": lambda client, text: _followed(client, flow=text),
    "followed type": lambda client, text: _followed(client, types=[text]),
    "cursor": lambda client, text: _followed(client, after=text),
    "result in a queue": lambda client, text: _dequeued(client, "ack", text),
    "error in a queue": lambda client, text: _dequeued(client, "nack", text),
    "data of a parked job": lambda client, text: _resumed(client, text),
    "worker of a queue": lambda client, text: _dequeued(client, "ack", 1, worker_id=text),
    "worker id": lambda client, text: _registered(client, id=text),
    "worker queue": lambda client, text: _registered(client, queues=[text]),
    "worker tag": lambda client, text: _registered(client, tags=[text]),
    "worker limit": lambda client, text: _registered(client, limits=[Concurrency(1, key=text)]),
}


async def _reported(client: AsyncClient, **report: Any) -> None:
    await client.submit(of_external, 1, id="reported", on_conflict="use_existing")
    await client.runs.report("reported", "it", **report)


async def _in_namespace(client: AsyncClient, text: str) -> None:
    async with AsyncClient(await client._backend.store(), namespace=text, tasks=tasks) as other:
        await other.enqueue(echo, 1)
        await other.queues.list()


async def _registered(client: AsyncClient, **settings: Any) -> None:
    store = await client._backend.store()
    worker = Worker(store, tasks=tasks, flows=flows, **settings)
    await store.maintenance.register_worker(worker._info())
    assert worker.id in [each.info.id for each in await client.workers.list()]


async def _followed(client: AsyncClient, **filter: Any) -> None:
    # Ends alone: for live events, it would wait for the workers that are registered here.
    wanted = {"types": ["job.completed"], **filter}
    (await client.events.subscribe(print, **wanted)).unsubscribe()


async def _dequeued(
    client: AsyncClient, ending: str, value: Any, *, worker_id: str = "worker"
) -> None:
    async with AsyncJobQueue(await client._backend.store()) as queue:
        await queue.enqueue("echo", 1, queue="manual")
        job = await queue.dequeue(worker_id, queues=["manual"])
        assert job is not None
        try:
            await getattr(queue, ending)(job, value)
        except PerdureError:
            await queue.ack(job)  # an import requeues what is claimed
            raise


async def _resumed(client: AsyncClient, data: str) -> None:
    async with AsyncJobQueue(await client._backend.store()) as queue:
        id = await queue.enqueue("echo", 1, queue="parked")
        job = await queue.dequeue("worker", queues=["parked"])
        assert job is not None
        await queue.release(job)
        try:
            await client.jobs.resume(id, data=data)
        except PerdureError:
            await queue.ack(id)
            raise
        again = await queue.dequeue("worker", queues=["parked"])
        assert again is not None
        assert again.answer == data
        await queue.ack(again)


async def _of_run(client: AsyncClient, operation: str, **options: Any) -> None:
    run = await client.submit(listening, 1)
    await getattr(client.runs, operation)(run.id, **options)


async def outcome(call: Awaitable[Any]) -> str:
    try:
        await call
    except PerdureError as error:
        return error.faults[0].code
    return "accepted"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_calls_are_accepted_or_refused_alike(store: Store, clock: ManualClock, text: str):
    """Finding 7: each field of a call, on each store as in memory."""
    memory = store_at("memory://", clock=clock)
    async with AsyncClient(store, tasks=tasks) as client, AsyncClient(memory, tasks=tasks) as other:
        found: dict[str, str] = {}
        expected: dict[str, str] = {}
        for name, call in CALLS.items():
            for each, outcomes in ((client, found), (other, expected)):
                try:
                    outcomes[name] = await outcome(call(each, text))
                except PerdureError as error:  # raised before it could be awaited
                    outcomes[name] = error.faults[0].code

    assert found == expected


def _unlike(size: int, each: str, seed: int) -> str:
    """Text that does not compress, as indexes of PostgreSQL compress."""
    random = Random(seed)
    if each == "ascii":
        return "".join(random.choices(ascii_letters + digits, k=size))
    return "".join(chr(random.randrange(0x20000, 0x2A6DF)) for _ in range(size // 4))


@pytest.mark.parametrize("each", ["ascii", "astral"])
async def test_the_longest_names_fit_together(store: Store, each: str):
    """Finding 7: PostgreSQL cannot index more than 2,704 bytes; now none needs more."""
    name = 200 if each == "ascii" else NAME_MAX_BYTES
    namespace, queue, called, flow_name, key, group, signal, id = (
        _unlike(size, each, number) for number, size in enumerate([name] * 7 + [RUN_ID_MAX_BYTES])
    )
    tags = [_unlike(TAGS_MAX_BYTES // 5 - 4, each, number) for number in range(20, 25)]
    placed: dict[str, Any] = {"queue": queue, "tags": tags}

    @task(name=called, limits=[Concurrency(1, key=lambda text: text)])
    async def work(text: str) -> str:
        return text

    awaiting = Flow(flow_name).wait_for_signal(signal, name="n" * 128)
    flow = awaiting.then(work, name="then", **placed).build()
    async with AsyncClient(store, namespace=namespace) as client:
        options = {**placed, "group": group, "fingerprint": group}
        job = await client.enqueue(work.options(**options), key)
        run = await client.submit(flow, 1, id=id)
        await client.runs.signal(id, signal, key)
        worker = Worker(
            store, tasks=[work], flows=[flow], namespace=namespace, queues=[queue], tags=tags
        )
        await worker.serve_until_idle()
        assert [await job.result(), await run.result()] == [key, key]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.enqueue(echo.options(queue="漢" * 101), 1),
        lambda client: client.enqueue(echo.options(tags=[f"{n}" * 100 for n in range(6)]), 1),
        lambda client: client.submit(of_echo, 1, tags=[f"{n}" * 100 for n in range(6)]),
        lambda client: client.enqueue(limited, '"' * 200),
    ],
)
async def test_names_that_would_not_fit_are_refused_by_every_store(store: Store, call: Any):
    """Finding 7: PostgreSQL refused them, or a whole import with one of them."""
    async with AsyncClient(store, tasks=tasks) as client:
        with refused("argument.too_many_bytes", InvalidInput):
            await call(client)
        assert await client.jobs.count() == 0


async def _executed(store: Store, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with AsyncClient(store, tasks=tasks) as client:
        jobs, runs = {}, {}
        for each in tasks:
            try:
                jobs[each.name] = await client.enqueue(each, text)
            except PerdureError as error:
                found[each.name] = error.faults[0].code
        for flow in flows:
            try:
                runs[flow.name] = await client.submit(flow, text)
            except PerdureError as error:
                found[flow.name] = error.faults[0].code
        async with worker_at(store, flows, tasks=tasks), asyncio.timeout(20):
            for name, job in jobs.items():
                await outcome(job.result(timeout=15))
                failures = [each.failure.message for each in await client.jobs.attempts(job.id)]
                found[name] = (await client.jobs.get(job.id)).status, failures
            for name, run in runs.items():
                async for event in run.watch():
                    if event.status is RunStatus.WAITING:
                        break
                detail = await client.runs.get(run.id)
                failure = detail.failure and detail.failure.message
                found[name] = detail.status, failure, detail.outputs
    return found


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_bodies_end_alike(store: Store, clock: ManualClock, text: str):
    """Finding 7: errors, progress, steps, pauses and reasons of a body, on each store alike."""
    found = await _executed(store, text)
    assert found == await _executed(store_at("memory://", clock=clock), text)


async def _listed(store: Store) -> dict[str, list[Any]]:
    async with AsyncClient(store) as client:
        lists = (client.runs, client.jobs, client.approvals, client.waits, client.schedules)
        found: dict[str, list[Any]] = {
            type(each).__name__: list(await each.list()) for each in lists
        }
        found["logs"] = [await client.runs.get(run.id) for run in found["AsyncRuns"]]
    return found


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
async def test_a_store_that_has_them_can_be_imported(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path, target: str
):
    """Finding 7: one run whose title one store could not keep made an import refuse them all."""
    old = f"sqlite:///{tmp_path}/old.db"
    new = f"sqlite:///{tmp_path}/new.db"
    new = request.getfixturevalue("postgres_url") if target == "postgres" else new
    store = store_at(old, clock=clock)
    await store.open()
    async with AsyncClient(store, tasks=tasks) as client:
        for text in HOSTILE.values():
            for call in CALLS.values():
                with suppress(PerdureError):
                    await call(client, text)
    await _executed(store, HOSTILE["nul"])
    await _executed(store, HOSTILE["surrogate"])
    before = await _listed(store)
    await store.close()

    await export_store(old, tmp_path / "work.jsonl", is_live=True)
    await import_store(new, tmp_path / "work.jsonl")

    store = store_at(new, clock=clock)
    await store.open()
    after = await _listed(store)
    await store.close()
    assert all(before.values())
    assert after == before
