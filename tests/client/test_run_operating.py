"""What operators do to runs: recorded with who and why, refused where it does not apply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import (
    AmbiguousRun,
    AsyncClient,
    Flow,
    InvalidInput,
    JobNotFound,
    PayloadNotSerializable,
    RunEnded,
    RunNotFound,
    RunNotPaused,
    RunNotRetryable,
    RunStatus,
    Status,
    UnknownFlow,
    Worker,
)
from perdure.engine.runs import Graphs, RunEngine
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.model.trigger import CancelRun
from perdure.store.contract import Store
from perdure.worker.events import AttemptLost, AttemptStarted
from tests.client.flows import asking, failing, grandparent, hanging, ordering, parent, undoing
from tests.client.runs import until, worker_at
from tests.client.tasks import add
from tests.support.refusal import refused


@pytest.fixture
async def working(store: Store) -> AsyncIterator[Worker]:
    async with worker_at(store) as worker:
        yield worker


class TestUnserved:
    async def test_takes_flows_and_names_and_gives_faults(self, store):
        renamed = Flow("asking").then(add, name="other").build()
        async with AsyncClient(store, flows=[renamed]) as client:
            await client.submit(asking, 3, id="a")
            await client.submit(ordering, 3, id="b")

            found = await client.flows.unserved(["asking", ordering])

            assert found == await client.flows.unserved([renamed, ordering])
            [version] = found
            assert (version.version, version.nearest) == (asking.version, renamed.version)
            [run] = version.runs
            [fault] = run.differences
            assert (fault.code, fault.where) == ("migration.node_missing", ("nodes", "keep"))
            with pytest.raises(UnknownFlow):
                await client.flows.unserved(["missing"])


class TestSignal:
    async def test_is_kept_until_a_node_takes_it(self, client, store):
        run = await client.submit(asking, 3)

        moved = await client.runs.signal(run.id, "answer", "yes", by="ann")

        assert moved.after is RunStatus.RUNNING
        async with worker_at(store):
            assert await run.result(timeout=20) == "yes"

    async def test_is_refused_where_no_node_waits_for_it(self, client):
        run = await client.submit(asking, 3, id="order-3")

        known: dict[str, Any] = {"signal": "question", "nearest": (), "known": ("answer",)}
        with refused("run.unknown_signal", InvalidInput, run_id="order-3", **known):
            await client.runs.signal("order-3", "question")
        assert len(await run.events()) == 1

    async def test_is_refused_by_a_run_that_has_ended(self, client):
        await client.submit(asking, 3, id="order-3")
        await client.runs.cancel("order-3")

        with pytest.raises(RunEnded, match="cannot signal run 'order-3': it is cancelled"):
            await client.runs.signal("order-3", "answer")

    async def test_is_refused_with_what_cannot_be_stored(self, client):
        await client.submit(asking, 3, id="order-3")

        with pytest.raises(PayloadNotSerializable, match="the payload of signal 'answer'"):
            await client.runs.signal("order-3", "answer", object())


class TestPause:
    async def test_says_why_and_by_whom(self, client):
        await client.submit(ordering, 3, id="order-3")

        moved = await client.runs.pause("order-3", reason="maintenance", by="ann")

        record = await client.runs.get("order-3")
        assert (moved.before, moved.after) == (RunStatus.RUNNING, RunStatus.PAUSED)
        assert (record.status, record.reason, record.by) == ("paused", "maintenance", "ann")

    async def test_keeps_the_run_where_it_is_until_it_ends(self, client, store, worker):
        run = await client.submit(ordering, 3)
        await run.pause()

        assert await worker.claim_all() == []
        assert (await run.resume(by="ann")).after is RunStatus.RUNNING
        async with worker_at(store):
            assert await run.result(timeout=20) == 6

    async def test_cannot_end_where_there_is_none(self, client):
        await client.submit(ordering, 3, id="order-3")

        with pytest.raises(RunNotPaused, match="it is running"):
            await client.runs.resume("order-3")


class TestCancel:
    async def test_says_why_and_by_whom(self, client):
        await client.submit(ordering, 3, id="order-3")

        moved = await client.runs.cancel("order-3", reason="out of stock", by="ann")

        record = await client.runs.get("order-3")
        assert moved.after is RunStatus.CANCELLED
        assert (record.reason, record.by, record.is_ended) == ("out of stock", "ann", True)
        assert record.finished_at is not None

    async def test_takes_the_jobs_of_the_run_out_of_the_queue(self, client, worker):
        run = await client.submit(ordering, 3)

        await run.cancel()

        assert await worker.claim_all() == []

    @pytest.mark.usefixtures("working")
    async def test_ends_everything_below(self, client):
        run = await client.submit(grandparent, 3, id="order-3")
        below = client.runs.handle("order-3/parent")
        await until(run, RunStatus.WAITING)
        await until(below, RunStatus.WAITING)

        await run.cancel(reason="out of stock", by="ann")

        ids = ["order-3", "order-3/parent", "order-3/parent/asking"]
        records = [await client.runs.get(id) for id in ids]
        assert {record.status for record in records} == {RunStatus.CANCELLED}
        assert {(record.reason, record.by) for record in records} == {("out of stock", "ann")}

    async def test_stops_a_task_that_runs(self, client, working):
        started, stopped = asyncio.Event(), asyncio.Event()
        working.on(AttemptStarted, lambda event: started.set())
        working.on(AttemptLost, lambda event: stopped.set())
        run = await client.submit(hanging)
        await asyncio.wait_for(started.wait(), 20)

        await run.cancel()

        await asyncio.wait_for(stopped.wait(), 20)

    @pytest.mark.usefixtures("working")
    async def test_undoes_what_was_completed_if_asked_to(self, client):
        run = await client.submit(undoing, 3)
        await until(run, RunStatus.WAITING)

        moved = await run.cancel(compensate=True)

        events = await until(run, RunStatus.CANCELLED)
        assert moved.after is RunStatus.COMPENSATING
        assert "node_undone" in [event.type for event in events]

    async def test_of_an_ended_run_is_refused(self, client):
        await client.submit(ordering, 3, id="order-3")
        await client.runs.cancel("order-3")

        with pytest.raises(RunEnded, match=r"cannot cancel run 'order-3'.*client\.runs\.retry"):
            await client.runs.cancel("order-3")

    async def test_leaves_no_child_of_a_replaced_run_behind(self, client):
        await client.submit(grandparent, 3, id="order-3")

        await client.submit(ordering, 3, id="order-3", on_conflict="replace")

        assert [(run.id, run.flow) for run in await client.runs.list()] == [("order-3", "ordering")]


class TestRetry:
    @pytest.mark.usefixtures("working")
    async def test_goes_on_from_the_node_that_failed(self, client):
        run = await client.submit(failing, 3)
        await until(run, RunStatus.FAILED)

        moved = await client.runs.retry(run.id, by="ann")

        assert (moved.before, moved.after) == (RunStatus.FAILED, RunStatus.RUNNING)
        retried = [event for event in await run.events() if event.type == "run_retried"]
        assert [event.details["by"] for event in retried] == ["ann"]
        assert (await until(run, RunStatus.FAILED))[-1].status is RunStatus.FAILED
        completed = [each.node for each in await run.events() if each.type == "node_completed"]
        assert completed == ["keep"]

    @pytest.mark.usefixtures("working")
    async def test_of_a_cancelled_run_goes_on_where_it_was(self, client):
        run = await client.submit(asking, 3)
        await until(run, RunStatus.WAITING)
        await run.cancel()

        await run.retry(by="ann")
        await run.signal("answer", "yes")

        assert await run.result(timeout=20) == "yes"
        assert (await run.outputs())["keep"] == 3

    async def test_of_a_run_that_did_not_fail_is_refused(self, client):
        await client.submit(ordering, 3, id="order-3")

        with pytest.raises(RunNotRetryable, match="it is running"):
            await client.runs.retry("order-3")

    async def test_leaves_no_child_behind_that_the_run_gave_up(self, client, store):
        run = await client.submit(grandparent, 3, id="order-3")
        [former] = await run.children()
        # As when its worker fails it, and dies before it sees to the children.
        runs = RunEngine(store, Graphs(grandparent.graphs), PlainCodec())
        await runs.apply(client.namespace, RunId("order-3"), CancelRun())

        await client.runs.retry("order-3", by="ann")

        given_up = await client.runs.get(former.id)
        assert (given_up.status, given_up.by) == (RunStatus.CANCELLED, "ann")
        [child] = await run.children()
        assert child.id != former.id
        assert (await client.runs.get(child.id)).status is RunStatus.RUNNING

    async def test_is_never_about_a_job(self, client, worker):
        job = await client.enqueue(add, 1)
        await worker.fail(await worker.claim(), ValueError("no"))

        with refused("run.not_found", RunNotFound, run_id=job.id):
            await client.runs.retry(job.id)
        assert (await client.jobs.retry(job.id)).after is Status.WAITING

    async def test_of_nothing_at_all(self, client):
        with refused("job.not_found", JobNotFound, job_id="order-3"):
            await client.jobs.retry("order-3")
        with refused("run.not_found", RunNotFound, run_id="order-3"):
            await client.runs.handle("order-3").retry()


class TestUnknownRun:
    @pytest.mark.parametrize(
        "act, args",
        [
            ("get", []),
            ("signal", ["answer"]),
            ("pause", []),
            ("resume", []),
            ("cancel", []),
            ("fork", []),
            ("explain", []),
        ],
    )
    async def test_is_refused_by_every_act(self, client, act, args):
        with pytest.raises(RunNotFound, match="'order-3'"):
            await getattr(client.runs, act)("order-3", *args)


class TestLists:
    async def test_runs_newest_first_in_pages(self, client):
        for number in range(5):
            await client.submit(ordering, number, id=f"order-{number}")

        first = await client.runs.list(limit=3)
        rest = await client.runs.list(limit=3, cursor=first.next)

        assert rest.next is None
        assert [run.id for run in (*first, *rest)] == [f"order-{n}" for n in (4, 3, 2, 1, 0)]

    async def test_by_status_and_flow(self, client):
        await client.submit(ordering, 1, id="a")
        await client.submit(ordering, 1, id="b")
        await client.submit(asking, 1, id="c")
        await client.runs.pause("b")

        assert [run.id for run in await client.runs.list(status="paused")] == ["b"]
        assert [run.id for run in await client.runs.list(flow=asking)] == ["c"]
        assert await client.runs.count(flow="ordering") == 2
        assert await client.runs.count(flow="ordering", status="running") == 1

    async def test_of_no_such_status(self, client):
        with refused("argument.choice", InvalidInput, name="status", choices=tuple(RunStatus)):
            await client.runs.list(status="dead")


class TestNamespaces:
    async def test_keep_runs_of_one_id_apart(self, client, store):
        async with AsyncClient(store, namespace="other") as other:
            await client.submit(ordering, 1, id="order-3")
            await other.submit(asking, 2, id="order-3")

            await other.runs.cancel("order-3")

            assert (await client.runs.get("order-3")).status is RunStatus.RUNNING
            assert await other.runs.count() == 1

    async def test_are_all_seen_by_an_operator(self, store):
        async with (
            AsyncClient(store, namespace="other") as other,
            AsyncClient(store, namespace="*") as operator,
        ):
            await other.submit(parent, 2, id="order-3")

            await operator.runs.pause("order-3", by="ann")

            assert (await other.runs.get("order-3")).by == "ann"
            assert len(await operator.runs.handle("order-3").events()) == 2
            assert await operator.runs.count() == 1

    async def test_that_have_a_run_of_one_id_are_told_to_an_operator(self, client, store):
        async with (
            AsyncClient(store, namespace="other") as other,
            AsyncClient(store, namespace="*") as operator,
        ):
            await client.submit(asking, 1, id="order-3")
            await other.submit(asking, 2, id="order-3")
            run = operator.runs.handle("order-3")
            asked = [
                operator.runs.get("order-3"),
                operator.runs.pause("order-3"),
                operator.runs.resume("order-3"),
                operator.runs.cancel("order-3"),
                operator.runs.retry("order-3"),
                operator.runs.signal("order-3", "answer"),
                operator.runs.migrate("order-3", to=asking),
                operator.runs.handle("order-3").fork(),
                operator.runs.explain("order-3"),
                run.result("1s"),
                run.events(),
                run.nodes(),
                run.outputs(),
                run.children(),
                anext(run.watch()),
            ]

            for each in asked:
                with refused("run.ambiguous", AmbiguousRun, namespaces=("default", "other")):
                    await each

            assert len(await client.runs.handle("order-3").events()) == 1
            assert len(await other.runs.handle("order-3").events()) == 1
            assert len(await operator.runs.list()) == 2
