"""What happened in a run: events, outputs, children, lineage; and logs that cannot be read."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    EventLogCorrupt,
    EventRecord,
    Finding,
    Flow,
    InvalidInput,
    Lineage,
    NodeLineage,
    RunNotFound,
    RunStatus,
    UnknownEvent,
    Use,
    UseOrigin,
    task,
)
from perdure.clock import ManualClock, monotonic
from perdure.flows.built import BuiltFlow
from perdure.model.event import (
    EdgeCounts,
    Effects,
    RunPaused,
    RunSubmitted,
    StoredEvent,
    encode_event,
)
from perdure.model.ids import RunId
from perdure.model.job import CLAIMED, NodeRef
from perdure.model.payload import PlainCodec
from perdure.model.run import WaitType
from perdure.operations.run_log import RunLog
from perdure.store.contract import Store

# What happened in a run: its events, outputs and children, afterwards and while it happens.
from perdure.verify.verifier import verify_store
from tests.client.flows import (
    LONG,
    answering,
    asking,
    both,
    failing,
    grandparent,
    hanging,
    keep,
    long,
    ordering,
    outside,
    parent,
    shouting,
)
from tests.client.harness import until, worker_at
from tests.support.held import append_event
from tests.support.refusal import refused


def summaries(events: list[EventRecord]) -> list[tuple[int, str, str | None, RunStatus]]:
    return [(event.number, event.type, event.key, event.status) for event in events]


@pytest.mark.usefixtures("working")
class TestEvents:
    async def test_tell_everything_in_order(self, client):
        run = await client.submit(ordering, 3)
        await run.result(timeout=20)

        events = await run.events()

        assert summaries(events) == [
            (1, "run_submitted", None, RunStatus.RUNNING),
            (2, "node_completed", "read_order", RunStatus.RUNNING),
            (3, "node_completed", "total", RunStatus.RUNNING),
            (4, "run_completed", None, RunStatus.COMPLETED),
        ]
        assert [event.value for event in events] == [3, {"id": 3, "lines": ["book", "pen"]}, 6, 6]
        assert events[0].details["flow"] == "ordering"
        assert [event async for event in run.watch()] == events  # though it has ended

    async def test_include_items_and_signals(self, client):
        mapped = await client.submit(shouting, ["a", "b"])
        asked = await client.submit(asking, 1)
        await mapped.result(timeout=20)
        await until(asked, RunStatus.WAITING)
        await asked.signal("answer", "yes", by="ann")

        items = {event.key: event.value for event in await mapped.events() if event.node}
        [signal] = [each for each in await asked.events() if each.type == "signal_received"]

        assert items == {"shout[0]": "A", "shout[1]": "B", "shout": ["A", "B"]}
        assert (signal.value, signal.details) == ("yes", {"name": "answer", "by": "ann"})

    async def test_include_what_a_node_failed_with(self, client):
        run = await client.submit(failing, 3)
        events = await until(run, RunStatus.FAILED)
        failed = next(event for event in events if event.type == "node_failed")
        assert failed.node == "refuse"
        assert failed.failure is not None
        assert failed.failure.message == "out of paper"
        assert "failure" not in failed.details


@pytest.mark.usefixtures("working")
class TestWatch:
    async def test_tells_what_was_there_and_what_comes(self, client):
        run = await client.submit(asking, 3)
        seen = []

        async with asyncio.timeout(20):
            async for event in run.watch():
                seen.append(event)
                if event.status is RunStatus.WAITING and event.type == "node_completed":
                    await run.signal("answer", 5)

        assert seen == await run.events()
        assert seen[-1].is_final


class TestWatchOfAReplacedRun:
    async def test_ends_with_an_error(self, client, clock):
        run = await client.submit(asking, 3, id="order-3")
        watching = run.watch()
        first = await anext(watching)

        clock.advance(timedelta(seconds=1))
        await client.submit(asking, 4, id="order-3", on_conflict="replace")

        assert first.value == 3
        with pytest.raises(RunNotFound):
            async for _ in watching:
                pass


@pytest.mark.usefixtures("working")
class TestOutputs:
    async def test_are_those_of_completed_nodes(self, client):
        run = await client.submit(failing, [0, False, None, ""])
        await until(run, RunStatus.FAILED)
        assert await run.outputs() == {"keep": [0, False, None, ""]}

    async def test_are_in_the_order_of_the_flow(self, client):
        run = await client.submit(long, 3)
        await run.result(timeout=20)
        outputs = await run.outputs()
        assert list(outputs) == [node.id for node in await run.nodes()]
        assert list(outputs) == LONG


@pytest.mark.usefixtures("working")
class TestChildren:
    async def test_are_listed_with_what_became_of_them(self, client):
        run = await client.submit(parent, 3, id="order-3")
        await until(run, RunStatus.WAITING)

        [child] = await run.children()
        await client.runs.signal(child.id, "answer", 9)

        assert (child.key, child.id) == ("asking", "order-3/asking")
        assert await run.result(timeout=20) == 9
        assert [each.status for each in await run.children()] == [RunStatus.COMPLETED]
        link = (await client.runs.get(child.id)).parent
        assert link is not None
        assert (link.run, link.key) == ("order-3", "asking")


class TestDetails:
    def test_have_effects_by_their_public_names(self):
        log = RunLog(RunId("order-3"), PlainCodec())
        effects = Effects(
            started=("fetch",), edge_counts=(EdgeCounts(node="ship", decided=1, active=1),)
        )

        [record] = log.take(
            [stored(1, RunSubmitted(flow="f", version="1", aging_ms=1, effects=effects))]
        )

        assert record.details["effects"] == {
            "started": ("fetch",),
            "edge_counts": (["ship", 1, 1, 0],),
        }
        assert set(record.details) == {"flow", "version", "aging_ms", "effects"}


class TestALogWithAGap:
    def test_is_refused(self):
        log = RunLog(RunId("order-3"), PlainCodec())
        submitted = RunSubmitted(flow="f", version="1", aging_ms=1)
        with refused("run.log_corrupt", EventLogCorrupt):
            log.take([stored(1, submitted), stored(3, RunPaused())])


def stored(number: int, event: RunSubmitted | RunPaused) -> StoredEvent:
    return StoredEvent(number=number, at=ManualClock()(), data=encode_event(event))


class TestObserve:
    """Looking at a run again and again: what is new, who works, what is missing."""

    async def test_end_with_the_run_and_have_every_event_once(self, client, store):
        run = await client.submit(ordering, 3)
        async with worker_at(store), asyncio.timeout(20):
            seen = [snapshot async for snapshot in run.observe()]
        assert seen[-1].run.status is RunStatus.COMPLETED
        assert [event for snapshot in seen for event in snapshot.events] == await run.events()
        assert list(seen[-1].graph.nodes) == ["read_order", "total"]

    async def test_show_who_works_on_what(self, client, store):
        run = await client.submit(hanging, 1)
        async with (
            worker_at(store) as worker,
            asyncio.timeout(20),
            aclosing(run.observe()) as snapshots,
        ):
            async for snapshot in snapshots:
                if any(job.status in CLAIMED for job in snapshot.jobs):
                    break

        [held] = snapshot.jobs
        assert held.worker == worker.id
        assert held.node == NodeRef(run=run.id, key="never")
        assert [each.info.id for each in snapshot.workers] == [worker.id]

    async def test_show_what_is_waited_for(self, client, store):
        run = await client.submit(asking, 1)
        async with worker_at(store), asyncio.timeout(20), aclosing(run.observe()) as snapshots:
            async for snapshot in snapshots:
                if snapshot.waits:
                    break

        assert [(wait.key, wait.type, wait.name) for wait in snapshot.waits] == [
            ("answer", WaitType.SIGNAL, "answer")
        ]

    async def test_keep_what_nodes_failed_with(self, client, store):
        run = await client.submit(failing, 1)
        async with worker_at(store), asyncio.timeout(20):
            seen = [snapshot async for snapshot in run.observe()]
        assert seen[-1].failures["refuse"].message == "out of paper"

    async def test_of_an_ended_run_are_one(self, client):
        run = await client.submit(asking, 1)
        await run.cancel()
        statuses = [snapshot.run.status async for snapshot in run.observe()]
        assert statuses == [RunStatus.CANCELLED]

    async def test_of_a_run_that_was_replaced_are_refused(self, client, clock):
        run = await client.submit(asking, 1, id="taken")
        async with asyncio.timeout(20), aclosing(run.observe()) as snapshots:
            await anext(snapshots)
            clock.advance(timedelta(seconds=1))
            await client.submit(asking, 2, id="taken", on_conflict="replace")
            with pytest.raises(RunNotFound):
                await anext(snapshots)


# Asking why a run is where it is: everything around it is looked at.


async def only(client: AsyncClient, id: str) -> Finding:
    [finding] = (await client.runs.explain(id)).findings
    return finding


class TestExplain:
    async def test_names_the_version_that_workers_have(self, client, store):
        newer = Flow("ordering").then(keep).build()
        async with worker_at(store):
            await client.submit(newer, 3, id="order-3")
            finding = await only(client, "order-3")
        assert finding.code == "explain.no_version"
        assert finding.args["flow"] == newer.graph.text
        assert finding.args["nearest"] == ordering.graph.text


# Lineage: which upstream values each node of a run used, with the events they were kept with.


SECRET = "hunter-two"


@task
def load(id: int) -> dict[str, Any]:
    return {"id": id, "lines": [{"sku": "pen"}, {"sku": "ink"}], "total": 40}


@task
def price(total: int, id: int) -> dict[str, Any]:
    return {"sum": total + id}


@task
def name_of(line: dict[str, str]) -> str:
    return line["sku"].upper()


@task
def charge(token: str, amount: int) -> str:
    return f"charged {amount} with {token}"


@task
def nothing() -> int:
    return 5


@task
def half(number: float) -> float:
    return number / 2


@task
def same(number: float) -> float:
    return number


@task
def listed(items: list[float]) -> list[float]:
    return items


async def forked(client: AsyncClient, store: Store, **options: Any) -> tuple[Any, Any]:
    """A run that halves 8 until it is 1, and a fork of it, both ended."""
    flow = Flow("halving").then(same).loop(half, until=lambda number: number <= 1, name="halve")
    built = flow.build()
    run = await client.submit(built, 8.0)
    async with worker_at(store, [built]):
        await run.result(timeout=20)
        fork = await run.fork(**options)
        await fork.result(timeout=20)
    assert await verify_store(store) == []
    return run, fork


async def traced(
    client: AsyncClient, store: Store, flow: BuiltFlow, input: Any, **options: Any
) -> Lineage:
    """The lineage of a run of the flow, once it has ended."""
    run = await client.submit(flow, input, **options)
    async with worker_at(store, [flow]):
        await run.result(timeout=20)
    return await client.runs.lineage(run.id)


def lineage_by_node(node: NodeLineage) -> list[tuple[str, str, int, Any]]:
    return [(use.name, use.text, use.number, use.value) for use in node.uses]


class TestInputs:
    async def test_by_name_tell_source_path_event_and_value(self, client, store):
        flow = (
            Flow("named")
            .then(load)
            .then(price, inputs={"total": "load.output.total", "id": "input"})
            .build()
        )

        lineage = await traced(client, store, flow, 3, id="order-3")

        assert (lineage.run, lineage.flow, lineage.version) == ("order-3", "named", flow.version)
        assert [node.id for node in lineage.nodes] == ["load", "price"]
        assert lineage_by_node(lineage["load"]) == [("", "input", 1, 3)]
        assert lineage_by_node(lineage["price"]) == [
            ("id", "input", 1, 3),
            ("total", "load.output.total", 2, 40),
        ]
        assert (lineage["load"].output, lineage["price"].output) == (2, 3)
        assert (lineage["price"].type, lineage["price"].status) == ("task", "completed")

    async def test_that_were_missing_say_that_the_default_was_taken(self, client, store):
        flow = (
            Flow("lacking")
            .then(load)
            .then(
                price,
                inputs={"total": {"from": "load.output.tax", "default": 7}, "id": "input"},
                on_missing="default",
            )
            .build()
        )

        lineage = await traced(client, store, flow, 3)

        id, total = lineage["price"].uses
        assert (total.is_default, total.value) == (True, 7)
        assert id.is_default is False

    async def test_that_are_secret_are_reported_by_name_only(self, client, store, monkeypatch):
        monkeypatch.setenv("PERDURE_SECRET_TOKEN", SECRET)
        flow = (
            Flow("secretive")
            .then(load)
            .then(
                charge,
                config={"token": "{{ token }}", "amount": "{{ amount }}"},
                inputs={"token": "secret.TOKEN", "amount": "load.output.total"},
            )
            .build()
        )

        lineage = await traced(client, store, flow, 3)

        amount, token = lineage["charge"].uses
        assert (token.origin, token.source, token.text) == ("secret", "TOKEN", "secret.TOKEN")
        assert (token.value, token.number) == (None, 0)
        assert amount.value == 40
        assert SECRET not in repr(lineage)


class TestEdges:
    async def test_hand_on_the_output_before(self, client, store):
        flow = Flow("edges").then(load).then(keep).build()
        lineage = await traced(client, store, flow, 3)
        [use] = lineage["keep"].uses
        assert (use.origin, use.source, use.port, use.path) == ("node", "load", "", ())
        assert use.value["total"] == 40

    async def test_of_a_route_name_the_port_and_leave_out_what_was_not_reached(self, client, store):
        flow = (
            Flow("routed")
            .route(lambda value: "big" if value > 5 else "small", {"big": keep, "small": nothing})
            .build()
        )

        lineage = await traced(client, store, flow, 9)

        reached = {node.id for node in lineage.nodes}
        assert "nothing" not in reached
        [use] = lineage["keep"].uses
        assert (use.port, use.number, use.value) == ("big", 1, 9)
        assert use.text.endswith(":big.output")

    async def test_that_are_gathered_are_reported_by_branch(self, client, store):
        flow = Flow("gathering").fork(one=half, other=nothing).join(keep).build()
        lineage = await traced(client, store, flow, 8)
        gathered = {use.name: (use.source, use.value) for use in lineage["keep"].uses}
        assert gathered == {"one": ("half", 4.0), "other": ("nothing", 5)}
        assert lineage["nothing"].uses == ()  # it takes nothing


class TestParts:
    @pytest.mark.parametrize(
        "options, text",
        [({}, "load.output"), ({"inputs": {"lines": "load.output.lines"}}, "load.output.lines")],
    )
    async def test_of_a_map_are_its_items(self, client, store, options, text):
        flow = Flow("mapping").then(load).map(name_of, over="lines", **options).build()
        lineage = await traced(client, store, flow, 3)
        assert lineage_by_node(lineage["name_of"])[0][1] == text
        first, second = lineage["name_of"].parts
        assert (first.key, second.key) == ("name_of[0]", "name_of[1]")
        [use] = second.uses
        assert (use.text, use.value) == ("load.output.lines.1", {"sku": "ink"})
        assert second.output > 0

    async def test_of_a_loop_are_its_iterations(self, client, store):
        flow = Flow("looping").loop(half, until=lambda number: number <= 1, name="halve").build()
        lineage = await traced(client, store, flow, 4)
        first, second = lineage["halve"].parts
        assert [use.text for use in first.uses] == ["input"]
        [use] = second.uses
        assert (use.source, use.number, use.value) == ("halve#1", first.output, 2.0)
        assert second.output == lineage["halve"].output

    async def test_of_a_fork_are_not_those_it_discarded(self, client, store):
        """Finding 24: a loop that a fork starts again has no iteration of the past."""
        run, fork = await forked(client, store, after="halve#2", patch={"same": 2.0})
        assert await fork.result() == 1.0
        node = (await client.runs.lineage(fork.id))["halve"]
        [part] = node.parts
        assert part.output == node.output > len(await run.events()) - 2

    async def test_of_a_fork_is_decided_in_a_thread_if_that_takes_long(self, client, store):
        """Finding 4: a fork compared unread signals on the event loop."""
        where = {"any": [{"property": "list", "op": "contains", "value": 7}] * 100}
        flow = Flow("long").then(half, name="half").wait_for_signal("go", where=where).build()
        run = await client.submit(flow, 4)
        await run.signal("go", {"list": [1] * 10_000})
        async with worker_at(store, [flow]):
            await until(run, RunStatus.WAITING)
        ticks = [monotonic()]

        async def tick() -> None:
            while True:
                await asyncio.sleep(0)
                ticks.append(monotonic())

        ticking = asyncio.create_task(tick())
        await run.fork(after="half", patch={"half": 1.0})
        ticking.cancel()

        longest = max(later - earlier for earlier, later in pairwise(ticks))
        assert longest < (ticks[-1] - ticks[0]) / 2

    async def test_of_a_map_in_a_fork_are_not_those_it_discarded(self, client, store):
        """Finding 24: the same for the items of a map."""
        flow = Flow("mapped").then(listed, name="list").map(half, name="halves").build()
        run = await client.submit(flow, [2, 4])
        async with worker_at(store, [flow]):
            await run.result(timeout=20)
            [first] = [e.number for e in await run.events() if e.type == "item_completed"][:1]
            fork = await run.fork(after=first, patch={"list": [8.0]})
            assert await fork.result(timeout=20) == [4.0]

        node = (await client.runs.lineage(fork.id))["halves"]
        assert [part.output > first for part in node.parts] == [True]


class TestForkOfAnIteration:
    """Finding 24: a fork can change the output of one iteration of a loop."""

    async def test_continues_the_loop_with_the_changed_output(self, client, store):
        """Finding 24: earlier iterations stay, later ones use the new output."""
        run, fork = await forked(client, store, after="halve#1", patch={"halve#1": 16.0})
        assert (await run.result(), await fork.result()) == (1.0, 1.0)
        parts = (await client.runs.lineage(fork.id))["halve"].parts
        assert [use.value for part in parts for use in part.uses] == [8.0, 16.0, 8.0, 4.0, 2.0]

    async def test_checks_again_whether_the_loop_is_done(self, client, store):
        """Finding 24: the changed output may be the last."""
        _, fork = await forked(client, store, after="halve#2", patch={"halve#2": 0.5})
        assert await fork.result() == 0.5

    async def test_that_ended_the_loop_changes_its_result(self, client, store):
        """Finding 24: the last iteration's output is that of the node."""
        for after in (None, "halve#3"):
            _, fork = await forked(client, store, after=after, patch={"halve#3": 0.25})
            assert await fork.result() == 0.25

    @pytest.mark.parametrize(
        "after, patch",
        [
            ("halve#2", {"halve#1": 1.0}),
            ("halve#2", {"halve#3": 1.0}),
            ("halve#2", {"halve[0]": 1.0}),
            ("halve#2", {"check:halve#2": 1.0}),
            ("halve#9", {}),
            (None, {"halve#2": 1.0}),
            ("halve#2", {"same": 1.0, "halve#2": 1.0}),
        ],
        ids=str,
    )
    async def test_is_refused_where_that_cannot_take_effect(self, client, store, after, patch):
        """Finding 24: an iteration that was used, is missing, or will run again."""
        with pytest.raises(InvalidInput) as refused:
            await forked(client, store, after=after, patch=patch)
        codes = {fault.code for fault in refused.value.faults}
        assert codes <= {"run.node_not_completed", "run.patch_not_completed"}


class TestFromOutside:
    async def test_a_signal_names_its_sender(self, client, store):
        run = await client.submit(answering, 1, id="a")
        await run.signal("paid", {"sum": 5}, by="till")
        lineage = await client.runs.lineage("a")
        [use] = lineage["payment"].uses
        assert (use.origin, use.source, use.by) == (UseOrigin.SIGNAL, "paid", "till")
        assert (use.value, use.text) == ({"sum": 5}, "signal paid by till")

    async def test_an_approval_names_its_decider(self, client):
        await client.submit(both, {"id": 1}, id="a")
        for name in ("ann", "bob"):
            await client.approvals.decide("a:review", "approve", by=name)
        lineage = await client.runs.lineage("a")
        asked, *answers = lineage["review"].uses
        assert asked == Use(origin=UseOrigin.INPUT, number=1, value={"id": 1})
        assert [(use.origin, use.by) for use in answers] == [("answer", "ann"), ("answer", "bob")]

    async def test_a_report_names_its_sender(self, client, store):
        run = await client.submit(outside, 7, id="a")
        async with worker_at(store, [outside]):
            await until(run, RunStatus.WAITING)
        await client.runs.report("a", "hand_over", status="completed", result=1, by="agent")

        lineage = await client.runs.lineage("a")

        assert [(use.origin, use.by) for use in lineage["hand_over"].uses] == [
            ("input", None),
            ("report", "agent"),
        ]
        assert lineage["hand_over"].status == "live"

    async def test_a_child_is_named(self, client):
        parent = Flow("parent").flow(answering, name="below").build()
        run = await client.submit(parent, 1, id="a")
        lineage = await run.lineage()
        assert lineage["below"].child == "a/below"


class TestRuns:
    async def test_a_node_that_was_not_reached_is_no_part_of_it(self, client):
        await client.submit(outside, 1, id="a")
        lineage = await client.runs.lineage("a")
        assert [node.id for node in lineage.nodes] == ["hand_over"]
        with pytest.raises(KeyError, match="keep"):
            lineage["keep"]


class TestCorruptLog:
    """Runs whose log cannot be read: nothing is done with them, but they can be got rid of."""

    async def test_with_an_event_that_does_not_follow_is_refused_by_every_reader(
        self, client, store
    ):
        handle = await client.submit(ordering, 3, id="order-3")
        await append_event(
            store, "order-3", b'{"type":"NodeCompleted","node":"x","then":{"started":["y[7]"]}}'
        )

        for read in (handle.events, handle.nodes, handle.lineage):
            with refused("run.log_corrupt", EventLogCorrupt):
                await read()
        with refused("run.log_corrupt", EventLogCorrupt):
            await client.runs.handle("order-3").fork()

    async def test_makes_room_for_a_new_one(self, client, store, worker, caplog):
        await client.submit(ordering, 3, id="order-3")
        await append_event(store, "order-3")
        again = await client.submit(asking, 4, id="order-3", on_conflict="replace")
        assert [event.value for event in await again.events()] == [4]
        assert (await again.record()).flow == "asking"
        assert len(await worker.claim_all()) == 1
        [record] = [each for each in caplog.records if "cancelled" in each.msg]
        assert record.fields["run"] == "order-3"

    async def test_makes_room_with_all_below_it(self, client, store):
        await client.submit(grandparent, 3, id="order-3")
        await append_event(store, "order-3/parent")
        await client.submit(ordering, 4, id="order-3", on_conflict="replace")
        assert [run.id for run in await client.runs.list()] == ["order-3"]

    async def test_of_a_newer_version_is_left_to_newer_clients(self, client, store):
        await client.submit(ordering, 3, id="order-3")
        await append_event(store, "order-3", b'{"type":"NodeDreamt"}')
        with pytest.raises(UnknownEvent):
            await client.submit(ordering, 4, id="order-3", on_conflict="replace")

    async def test_is_removed_in_time_once_it_has_ended(self, client, store, clock):
        for id in ("live", "ended"):
            await client.submit(ordering, 3, id=id)
        await append_event(store, "live")
        await append_event(store, "ended", status=RunStatus.FAILED)
        clock.advance(timedelta(hours=2))

        kept = dict.fromkeys([RunStatus.COMPLETED, RunStatus.FAILED], timedelta(hours=1))
        removed = await store.maintenance.prune_runs("default", kept, 10)

        assert removed == 1
        assert [run.id for run in await client.runs.list()] == ["live"]
