"""What operators do to runs: recorded with who and why, refused where it does not apply."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure import (
    AmbiguousRun,
    AsyncClient,
    EventLogCorrupt,
    Flow,
    InvalidInput,
    MailboxFull,
    MigrationRefused,
    PayloadNotSerializable,
    RunAlreadyPaused,
    RunEnded,
    RunNotFound,
    RunStatus,
    Status,
    UnknownFlow,
    task,
)
from perdure.engine.runs import Graphs, RunEngine
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.model.trigger import CancelRun
from perdure.worker.events import AttemptLost, AttemptStarted
from tests.client.flows import add, asking, failing, grandparent, hanging, keep, ordering
from tests.client.harness import CountedStore, until, worker_at
from tests.support.held import append_event
from tests.support.refusal import refused


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
    async def test_is_waited_for_by_one_branch_and_blocks_no_other(self, client, store):
        other = Flow().then(keep, name="first").then(keep, name="second")
        branches = {"waits": Flow().wait_for_signal("go"), "other": other}
        flow = Flow("sides").fork(branches).join(keep).build()
        run = await client.submit(flow, 1)
        async with worker_at(store, [flow]):
            await until(run, RunStatus.WAITING)
            assert (await run.outputs()).keys() == {"first", "second"}

            await run.signal("go", 2)

            assert await run.result(timeout=20) == {"waits": 2, "other": 1}

    @pytest.mark.every_store
    async def test_is_refused_if_large_ones_are_unread(self, client):
        """Finding 3: unread signals of a megabyte each took more than a gigabyte."""
        run = await client.submit(Flow("later").delay("1h").wait_for_signal("paid").build())
        for _ in range(18):
            await run.signal("paid", "x" * 900_000)
        with refused("run.mailbox_full", MailboxFull, most=18, size_bytes=900_002):
            await run.signal("paid", "x" * 900_000)
        await run.signal("paid", "small")

    async def test_is_refused_where_no_node_waits_for_it(self, client):
        run = await client.submit(asking, 3, id="order-3")
        known: dict[str, Any] = {"signal": "question", "nearest": (), "known": ("answer",)}
        with refused("run.unknown_signal", InvalidInput, run_id="order-3", **known):
            await client.runs.signal("order-3", "question")
        assert len(await run.events()) == 1

    @pytest.mark.every_store
    async def test_is_refused_by_a_full_mailbox(self, store):
        """Finding 3: a run kept any number of unread signals."""
        where = {"property": "order", "op": "eq", "value": 7}
        choosy = Flow("choosy").wait_for_signal("paid", where=where).build()
        async with AsyncClient(store, unread_signals_max=2) as client:
            run = await client.submit(choosy, 3, id="order-3")
            for order in range(2):
                await run.signal("paid", {"order": order})

            with refused("run.mailbox_full", MailboxFull, signal="paid", most=2):
                await run.signal("paid", {"order": 8})
            assert len(await run.events()) == 3

            await run.pause()
            with refused("run.mailbox_full", MailboxFull, run_id="order-3"):
                await run.signal("paid", {"order": 7})
            other = await client.submit(choosy, 3, id="order-4")
            sent = await client.runs.broadcast("paid", {"order": 7})
            assert (sent.runs, sent.unmatched) == ((other.id,), 1)

            await run.resume()
            await run.signal("paid", {"order": 7})  # taken at once
            assert await run.result(timeout=20) == {"order": 7}

    async def test_that_is_taken_at_once_passes_a_mailbox_above_the_limit(self, store):
        """Finding 3: the limit may have been lowered since."""
        where = {"property": "order", "op": "eq", "value": 7}
        choosy = Flow("choosy").wait_for_signal("paid", where=where).build()
        async with AsyncClient(store) as client:
            run = await client.submit(choosy, 3, id="order-3")
            for order in range(3):
                await run.signal("paid", {"order": order})
        async with AsyncClient(store, unread_signals_max=1) as client:
            await client.runs.signal("order-3", "paid", {"order": 7})
            assert await client.runs.handle("order-3").result(timeout=20) == {"order": 7}

    def test_needs_a_mailbox_of_at_least_one(self):
        with refused("argument.range", InvalidInput):
            AsyncClient("memory://none", unread_signals_max=0)

    async def test_is_refused_by_a_run_that_has_ended(self, client):
        await client.submit(asking, 3, id="order-3")
        await client.runs.cancel("order-3")
        with refused("run.ended", RunEnded, operation="signal", run_id="order-3"):
            await client.runs.signal("order-3", "answer")

    async def test_is_refused_with_what_cannot_be_stored(self, client):
        await client.submit(asking, 3, id="order-3")
        with refused(
            "payload.not_serializable",
            PayloadNotSerializable,
            what="the payload of signal 'answer'",
        ):
            await client.runs.signal("order-3", "answer", object())


class TestPause:
    async def test_of_a_paused_run_is_refused_and_keeps_who_paused_it(self, client):
        """Finding 38: a second pause was acknowledged, but its reason and author were dropped."""
        await client.submit(ordering, 3, id="order-3")
        moved = await client.runs.pause("order-3", reason="maintenance", by="ann")
        assert (moved.before, moved.after) == (RunStatus.RUNNING, RunStatus.PAUSED)

        with refused("run.already_paused", RunAlreadyPaused):
            await client.runs.pause("order-3", reason="audit", by="bob")

        record = await client.runs.get("order-3")
        assert (record.status, record.reason, record.by) == ("paused", "maintenance", "ann")


class TestAnEndedRun:
    @pytest.mark.parametrize(
        "operation, arguments", [("pause", ()), ("resume", ()), ("set_priority", (1,))]
    )
    async def test_refuses_commands_by_the_name_of_the_operation(
        self, client, operation, arguments
    ):
        await client.submit(ordering, 3, id="order-3")
        await client.runs.cancel("order-3")
        with refused("run.ended", RunEnded, operation=operation):
            await getattr(client.runs, operation)("order-3", *arguments)


class TestCancel:
    @pytest.mark.usefixtures("working")
    async def test_ends_everything_below(self, client):
        run = await client.submit(grandparent, 3, id="order-3")
        below = client.runs.handle("order-3/parent")
        await until(run, RunStatus.WAITING)
        await until(below, RunStatus.WAITING)

        moved = await run.cancel(reason="out of stock", by="ann")
        assert moved.after is RunStatus.CANCELLED

        ids = ["order-3", "order-3/parent", "order-3/parent/asking"]
        records = [await client.runs.get(id) for id in ids]
        assert {record.status for record in records} == {RunStatus.CANCELLED}
        assert {(record.reason, record.by) for record in records} == {("out of stock", "ann")}
        assert all(record.is_ended and record.finished_at for record in records)

    async def test_ends_what_is_below_a_child_that_was_just_cancelled(self, client, store):
        """Finding 21: a worker may cancel the child first, and its children only later."""
        middle = Flow("middle").flow(asking).build()
        await client.submit(Flow("top").flow(middle).build(), 3, id="order-3")
        engine = RunEngine(store, Graphs(middle.graphs), PlainCodec())
        await engine.apply("default", RunId("order-3/middle"), CancelRun())

        await client.runs.cancel("order-3")

        record = await client.runs.get("order-3/middle/asking")
        assert record.status is RunStatus.CANCELLED

    async def test_passes_over_a_child_that_cannot_be_read(self, client, store):
        many = Flow("many").map(asking).build()
        await client.submit(many, [1, 2, 3], id="order-3")
        broken = await client.runs.get("order-3/asking[1]")
        await append_event(store, broken.id, expected=broken.number, status=RunStatus.WAITING)

        with pytest.raises(EventLogCorrupt):
            await client.runs.cancel("order-3")

        left = (await client.runs.list(status="waiting")).items
        assert [run.id for run in left] == ["order-3/asking[1]"]

    async def test_of_many_children_is_one_batch(self, store):
        """Finding 21: each child cost a load and a commit of its own."""
        counting = CountedStore(store)
        async with AsyncClient(counting.as_store()) as client:
            many = Flow("many").map(asking).build()
            await client.submit(many, list(range(150)), id="order-3")
            before = counting.calls.copy()

            await client.runs.cancel("order-3")

            calls = counting.calls - before
            cancelled = (await client.runs.list(status="cancelled", limit=200)).items
        assert len(cancelled) == 151
        assert calls["runs.commit"] == 2
        assert calls["runs.load"] == 2

    async def test_stops_a_task_that_runs(self, client, working):
        started, stopped = asyncio.Event(), asyncio.Event()
        working.on(AttemptStarted, lambda event: started.set())
        working.on(AttemptLost, lambda event: stopped.set())
        run = await client.submit(hanging)
        await asyncio.wait_for(started.wait(), 20)
        await run.cancel()
        await asyncio.wait_for(stopped.wait(), 20)

    async def test_leaves_no_child_of_a_replaced_run_behind(self, client):
        await client.submit(grandparent, 3, id="order-3")
        await client.submit(ordering, 3, id="order-3", on_conflict="replace")
        assert [(run.id, run.flow) for run in await client.runs.list()] == [("order-3", "ordering")]


class TestRetry:
    @pytest.mark.usefixtures("working")
    async def test_continues_from_the_node_that_failed(self, client):
        run = await client.submit(failing, 3)
        await until(run, RunStatus.FAILED)

        moved = await client.runs.retry(run.id, by="ann")

        assert (moved.before, moved.after) == (RunStatus.FAILED, RunStatus.RUNNING)
        retried = [event for event in await run.events() if event.type == "run_retried"]
        assert [event.details["by"] for event in retried] == ["ann"]
        assert (await until(run, RunStatus.FAILED))[-1].status is RunStatus.FAILED
        completed = [each.node for each in await run.events() if each.type == "node_completed"]
        assert completed == ["keep"]

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
            ("report", ["hand_over"]),
            ("lineage", []),
            ("events", []),
        ],
    )
    async def test_is_refused_by_every_act(self, client, act, args):
        with refused("run.not_found", RunNotFound, run_id="order-3"):
            await getattr(client.runs, act)("order-3", *args)

    async def test_is_refused_by_its_handle(self, client):
        run = client.runs.handle("order-3")
        for asked in (run.events(), run.result(20), anext(run.watch()), anext(run.observe())):
            with refused("run.not_found", RunNotFound, run_id="order-3"):
                await asked


class TestLists:
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
    async def test_that_have_a_run_of_one_id_are_reported_to_an_operator(self, client, store):
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


# Forking a run from any earlier point, and moving one to another version.


@pytest.mark.usefixtures("working")
class TestFork:
    async def test_continues_after_a_node_with_its_output_changed(self, client):
        run = await client.submit(ordering, 3, id="order-3")
        await run.result(timeout=20)
        before = await run.events()

        changed = {"id": 100, "lines": ["book"]}
        fork = await client.runs.handle("order-3").fork(
            after="read_order", patch={"read_order": changed}
        )

        assert await fork.result(timeout=20) == 100
        assert await run.events() == before
        assert await run.result() == 6

    async def test_says_where_it_came_from(self, client):
        run = await client.submit(ordering, 3, id="order-3")
        await run.result(timeout=20)

        fork = await client.runs.handle("order-3").fork(after=2, new_id="order-3b", by="ann")

        events = await fork.events()
        assert (fork.id, fork.is_new) == ("order-3b", True)
        assert events[:2] == (await run.events())[:2]
        assert events[2].type == "run_forked"
        assert events[2].details["origin"] == {"run": "order-3", "number": 2, "by": "ann"}

    @pytest.mark.parametrize(
        "options, code, args",
        [
            ({"after": "total"}, "run.node_not_completed", {"node": "total", "completed": ()}),
            ({"after": "nowhere"}, "run.node_not_completed", {"node": "nowhere"}),
            ({"after": 0}, "run.no_such_event", {"number": 0, "last": 1}),
            ({"after": 9}, "run.no_such_event", {"number": 9, "last": 1}),
            ({"after": True}, "argument.type", {"name": "after"}),
            ({"patch": {"total": 3}}, "run.node_not_completed", {"node": "total", "number": 1}),
            ({"patch": ["total"]}, "argument.type", {"name": "patch"}),
            (
                {"patch": {"total": object()}},
                "payload.not_serializable",
                {"what": "the output of node 'total' in patch"},
            ),
            ({"new_id": "a/b"}, "run.id_reserved", {"id": "a/b", "mark": "/"}),
        ],
    )
    async def test_is_refused_where_it_cannot_start(self, client, options, code, args):
        unserved = Flow("unserved").then(keep, name="total").build()
        await client.submit(unserved, 3, id="order-3")
        with refused(code, InvalidInput, **args):
            await client.runs.handle("order-3").fork(**options)
        assert await client.runs.count() == 1


@task
def keep_anew(value: Any) -> Any:
    return value


extended = Flow("asking").then(keep).wait_for_signal("answer").then(keep_anew).build()


class TestMigrate:
    async def test_continues_in_the_new_version(self, client, store):
        run = await client.submit(asking, 3)
        async with worker_at(store):
            await until(run, RunStatus.WAITING)

        await client.runs.migrate(run.id, to=extended, by="ann")
        await run.signal("answer", "yes")

        record = await run.record()
        assert (record.version, record.status) == (extended.version, RunStatus.RUNNING)
        [migrated] = [event for event in await run.events() if event.type == "run_migrated"]
        assert migrated.details["by"] == "ann"
        [job] = await store.queries.run_jobs("default", run.id)
        assert job.task == "keep_anew"

    async def test_is_refused_to_another_flow(self, client):
        run = await client.submit(asking, 3)
        with refused("migration.other_flow", MigrationRefused, flow="asking", other="ordering"):
            await client.runs.migrate(run.id, to=ordering)

    async def test_is_refused_while_a_job_is_held_and_done_once_it_is_paused(self, client, worker):
        run = await client.submit(asking, 3)
        await worker.claim()
        with refused("migration.node_running", MigrationRefused, node="keep"):
            await client.runs.migrate(run.id, to=extended)
        await run.pause()
        await client.runs.migrate(run.id, to=extended)
        assert (await run.record()).version == extended.version
