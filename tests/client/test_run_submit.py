"""Submitting runs, and what becomes of them, on workers and in-process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncClient,
    AsyncContext,
    Flow,
    InvalidInput,
    Retry,
    RunCancelled,
    RunExists,
    RunFailed,
    RunStatus,
    RunStuck,
    RunTimeout,
    UnknownFlow,
    run_flow,
    run_flow_async,
    task,
)
from perdure.engine.plan import MAP_WINDOW
from perdure.errors import DefinitionCorrupt, NotDecider, RunNotFound
from perdure.operations import waiting
from perdure.operations.records import ApprovalRecord
from perdure.store.contract import Store
from perdure.testing.contract.builders import new_run
from perdure.verify import verify_store
from tests.client.flows import (
    Order,
    asking,
    failing,
    hanging,
    keep,
    late,
    ordering,
    parent,
    reading,
    refuse,
    shouting,
)
from tests.client.harness import until, worker_at
from tests.support.refusal import failing as failing_with
from tests.support.refusal import refused

# Submitting runs: what is refused, and what an id that is taken means.


@pytest.fixture
async def flows_client(store: Store) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(store, flows=[ordering, asking]) as flows_client:
        yield flows_client


class TestSubmit:
    async def test_begins_a_run_under_the_id_of_the_caller(self, flows_client):
        run = await flows_client.submit(ordering, 3, id="order-3")
        record = await flows_client.runs.get("order-3")
        assert (run.id, run.is_new) == ("order-3", True)
        assert (record.flow, record.version) == ("ordering", ordering.version)
        assert (record.status, record.number) == (RunStatus.RUNNING, 1)

    async def test_makes_up_an_id_where_none_is_given(self, flows_client):
        first, second = (
            await flows_client.submit(ordering, 1),
            await flows_client.submit(ordering, 1),
        )
        assert first.id != second.id

    async def test_takes_the_name_of_a_flow_that_the_client_knows(self, flows_client):
        run = await flows_client.submit("ordering", 3)
        assert (await run.record()).version == ordering.version

    async def test_keeps_the_definitions_of_a_flow_and_of_those_below_it(self, flows_client, store):
        await flows_client.submit(parent, 1)
        for flow in (parent, asking):
            kept = await store.runs.get_definition("default", flow.name, flow.version)
            assert kept == flow.graph.data

    @pytest.mark.every_store
    @pytest.mark.parametrize("on_conflict", ["fail", "use_existing", "replace"])
    async def test_saves_a_definition_again_that_was_pruned(
        self, flows_client, store, clock, on_conflict
    ):
        """Finding 21: a client remembers what it has saved, not what was pruned since."""
        run = await flows_client.submit(parent, 1, id="run-1")
        await run.cancel()
        clock.advance(timedelta(days=8))
        assert await flows_client.store.prune(older_than="7d") >= 1
        while await store.maintenance.prune_definitions("default", timedelta(days=7), 10):
            clock.advance(timedelta(days=8))
        assert await store.admin.flow_stats("default") == []

        await flows_client.submit(parent, 1, id="run-1", on_conflict=on_conflict)
        async with AsyncClient(store) as stranger:
            await stranger.runs.pause("run-1")
        for flow in (parent, asking):
            kept = await store.runs.get_definition("default", flow.name, flow.version)
            assert kept == flow.graph.data

    @pytest.mark.every_store
    async def test_a_fork_saves_the_definition_again_only_if_it_is_added(
        self, flows_client, store, clock
    ):
        """A fork under the id of another run wrote that its definition is in use."""
        await flows_client.submit(ordering, 3, id="order-3")
        clock.advance(timedelta(hours=23))
        with refused("run.exists", RunExists):
            await flows_client.runs.fork("order-3", new_id="order-3")
        clock.advance(timedelta(hours=2))
        stale = new_run(
            namespace="default", flow="ordering", version=ordering.version, needs_definition=True
        )
        with pytest.raises(UnknownFlow):
            await store.runs.submit(stale)

        assert (await flows_client.runs.fork("order-3", new_id="order-4")).is_new
        await store.runs.submit(stale)

    @pytest.mark.every_store
    async def test_a_run_of_a_changed_definition_is_refused_as_corrupt(self, flows_client, store):
        """Finding 12: a version is a hash of the stored bytes, which are compared on loading."""
        changed = ordering.graph.data[:-1] + b',"more":1}'
        await store.runs.save_definition("default", "ordering", ordering.version, changed)
        await flows_client.submit(ordering, 3, id="order-3")

        async with AsyncClient(store) as stranger:
            with refused("flow.definition_corrupt", DefinitionCorrupt, flow=ordering.graph.text):
                await stranger.runs.pause("order-3")

    async def test_evaluates_a_long_condition_off_the_event_loop(self, flows_client):
        """Its patterns are the submitter's, and thirty of them took the loop 35 s to compile."""
        patterns = {
            f"p{number}": "(?i)["
            + "".join(f"{chr(0x100 + each + number)}-\uffff" for each in range(150))
            + "]z"
            for number in range(300)
        }
        where = [
            {"property": "x", "op": "matches", "value": f"{{{{ value.{each} }}}}"}
            for each in patterns
        ]
        flow = Flow("w").wait_for_signal("go", name="w", where={"any": where}).build()
        before = time.thread_time()
        run = await flows_client.submit(flow, patterns)
        assert time.thread_time() - before < 1
        assert [wait.node for wait in await flows_client.waits.list()] == ["w"]
        await run.signal("go", {"x": "no"})
        assert time.thread_time() - before < 2
        assert len(await flows_client.waits.list()) == 1

    async def test_inserts_the_job_of_the_first_node(self, flows_client, store):
        await flows_client.submit(ordering, 3, id="order-3")
        [job] = await store.queries.run_jobs("default", (await flows_client.runs.get("order-3")).id)
        assert (job.task, job.node and job.node.key) == ("read_order", "read_order")


class TestRefuses:
    @pytest.mark.parametrize(
        "id, code",
        [
            ("", "argument.name"),
            ("a/b", "run.id_reserved"),
            ("ü" * 129, "run.id_too_long"),
            ("x" * 257, "run.id_too_long"),
            ("a\x00b", "argument.name"),
            ("\ud800", "argument.name"),
            (7, "argument.name"),
        ],
    )
    async def test_an_id_that_cannot_be_used(self, flows_client, id, code):
        with refused(code, InvalidInput):
            await flows_client.submit(ordering, 3, id=id)
        assert await flows_client.runs.count() == 0

    async def test_nothing_of_an_id_of_256_bytes(self, flows_client):
        run = await flows_client.submit(ordering, 3, id="ü" * 128)
        assert (await run.record()).id == "ü" * 128

    async def test_an_input_that_the_first_task_does_not_take(self, flows_client, store):
        with refused("task.invalid_argument", InvalidInput, name="id", task="read_order") as caught:
            await flows_client.submit(ordering, "three")  # type: ignore[misc]
        [fault] = caught.value.faults
        assert fault.where[:2] == ("nodes", "read_order")
        assert await flows_client.runs.count() == 0
        assert await store.runs.get_definition("default", "ordering", ordering.version) is None

    @pytest.mark.parametrize(
        "input, code", [(["a", 1], "task.invalid_argument"), (3, "flow.invalid_input")]
    )
    async def test_items_that_a_map_does_not_take(self, flows_client, input, code):
        with refused(code, InvalidInput):
            await flows_client.submit(shouting, input)
        assert await flows_client.runs.count() == 0

    async def test_an_input_that_no_child_flow_takes(self, flows_client):
        outer = Flow("outer").flow(ordering).build()
        with refused("task.invalid_argument", InvalidInput, task="read_order"):
            await flows_client.submit(outer, "three")

    @pytest.mark.parametrize(
        "input, code",
        [(object(), "payload.not_serializable"), ("long enough", "payload.too_large")],
    )
    async def test_an_input_that_cannot_be_stored(self, store, input, code):
        async with AsyncClient(store, payload_max_bytes=10) as flows_client:
            with refused(code, what="the input of flow 'asking'"):
                await flows_client.submit(asking, input)

    async def test_a_flow_it_does_not_know(self, flows_client):
        with refused("flow.unknown", UnknownFlow, flow="order", known=("asking", "ordering")):
            await flows_client.submit("order")
        flow = Flow("raw").then(keep)
        with refused("flow.not_built", InvalidInput, value=repr(flow)):
            await flows_client.submit(flow)  # type: ignore[call-overload]

    async def test_settings_of_child_flows_that_multiply(self, flows_client):
        """Finding 8: forty small definitions had settings for a trillion child runs."""
        flow = Flow("leaf").then(keep).build()
        sticky = Flow("leaf", sticky="30s").then(keep).build()
        for depth in range(40):
            flow = Flow(f"l{depth}").then(flow, name="a").then(flow, name="b").build()
            sticky = Flow(f"l{depth}").then(sticky, name="a").then(sticky, name="b").build()
        await flows_client.submit(flow, "x", id="without")
        with refused("flow.child_settings_too_large", InvalidInput, flow="l39"):
            await flows_client.submit(sticky, "x", id="with")
        with pytest.raises(RunNotFound):
            await flows_client.runs.get("with")

    async def test_a_client_of_all_namespaces(self, store):
        async with AsyncClient(store, namespace="*") as operator:
            with refused("client.namespace_required", InvalidInput, operation="runs.submit"):
                await operator.submit(ordering, 3)

    def test_two_versions_of_one_name_in_one_client(self, memory_url):
        other = Flow("ordering").then(keep).build()
        with refused("flow.two_versions", InvalidInput, flow="ordering"):
            AsyncClient(memory_url, flows=[ordering, other])

    @pytest.mark.parametrize("policy", ["return", None, 3])
    def test_a_policy_that_is_none(self, memory_url, policy):
        with refused("argument.choice", InvalidInput, name="on_conflict"):
            AsyncClient(memory_url, on_conflict=policy)


class TestConflicts:
    async def test_fail(self, flows_client):
        await flows_client.submit(ordering, 3, id="order-3")
        with refused("run.exists", RunExists, flow="ordering"):
            await flows_client.submit(ordering, 4, id="order-3")

    async def test_use_what_is_there(self, flows_client):
        await flows_client.submit(ordering, 3, id="order-3")
        again = await flows_client.submit(ordering, 4, id="order-3", on_conflict="use_existing")
        assert not again.is_new
        assert [event.value for event in await again.events()] == [3]

    async def test_never_use_a_run_of_another_flow(self, flows_client):
        await flows_client.submit(ordering, 3, id="order-3")
        with refused("run.other_flow", InvalidInput, existing="ordering", flow="asking"):
            await flows_client.submit(asking, 4, id="order-3", on_conflict="use_existing")

    async def test_replace_what_is_there(self, flows_client):
        await flows_client.submit(ordering, 3, id="order-3")
        again = await flows_client.submit(asking, 4, id="order-3", on_conflict="replace")
        [submitted] = await again.events()
        assert (again.is_new, submitted.value) == (True, 4)
        assert submitted.details["replaced"] is True
        assert await flows_client.runs.count() == 1

    async def test_do_what_the_client_was_made_for(self, store):
        async with AsyncClient(store, on_conflict="use_existing") as flows_client:
            await flows_client.submit(failing, 3, id="order-3")
            assert not (await flows_client.submit(failing, 3, id="order-3")).is_new
            with pytest.raises(RunExists):
                await flows_client.submit(failing, 3, id="order-3", on_conflict="fail")


# What becomes of a run, as the one who waits for it sees it.


@pytest.mark.usefixtures("working")
class TestResult:
    async def test_is_the_output_of_the_last_node(self, client):
        run = await client.submit(ordering, 3)
        assert await run.result(timeout=20) == 6
        assert await run.status() is RunStatus.COMPLETED

    async def test_is_that_of_the_version_that_was_submitted(self, store):
        old = Flow("paying").wait_for_signal("paid").build()
        new = Flow("paying").wait_for_signal("paid").then(refuse).build()
        async with AsyncClient(store) as client, worker_at(store, [old, new]):
            run = await client.submit(old, 1)
            await run.signal("paid", 90)
            assert await run.result(timeout=20) == 90
            assert (await run.record()).version == old.version

    async def test_has_the_type_of_the_last_task_but_for_a_handle_without_a_flow(self, client):
        run = await client.submit(reading, 3)
        assert await run.result(timeout=20) == Order(id=3, lines=["book", "pen"])
        plain = client.runs.handle(run.id)
        typed = client.runs.handle(run.id, reading)
        assert await plain.result(timeout=20) == {"id": 3, "lines": ["book", "pen"]}
        assert await typed.result(timeout=20) == Order(id=3, lines=["book", "pen"])

    async def test_has_the_items_of_a_map_in_order(self, client):
        words = [f"word {number}" for number in range(30)]
        run = await client.submit(shouting, words)
        assert await run.result(timeout=20) == [word.upper() for word in words]

    async def test_reaches_a_waiter_by_a_hint(self, client, monkeypatch):
        monkeypatch.setattr(waiting, "POLL_SECONDS", 3600.0)
        run = await client.submit(asking, 3)
        result = asyncio.create_task(run.result(timeout=20))
        await until(run, RunStatus.WAITING)
        await client.runs.signal(run.id, "answer", {"approved": False})
        assert await result == {"approved": False}

    async def test_raises_what_a_node_failed_with(self, client):
        run = await client.submit(failing, 3, id="order-3")
        with failing_with(None, RunFailed, type="ValueError") as e:
            await run.result(timeout=20)
        assert (e.value.run_id, e.value.node) == ("order-3", "refuse")
        assert e.value.failure.message == "out of paper"
        assert "out of paper" in e.value.__notes__[0]

    async def test_raises_that_it_was_cancelled(self, client):
        run = await client.submit(hanging, id="order-3")
        result = asyncio.create_task(run.result(timeout=20))
        await client.runs.cancel("order-3", reason="out of stock", by="ann")
        with refused(
            "run.cancelled", RunCancelled, run_id="order-3", by="ann", reason="out of stock"
        ):
            await result

    async def test_raises_after_its_timeout(self, client):
        run = await client.submit(asking, 3, id="order-3")
        await until(run, RunStatus.WAITING)
        with refused("run.result_timeout", RunTimeout, timeout=0.05, status="waiting"):
            await run.result(timeout=0.05)


TIMEOUT = 20


class TestRunFlow:
    def test_gives_the_result_with_its_type(self):
        assert run_flow(ordering, 3, timeout=TIMEOUT) == 6
        assert run_flow(reading, 3, timeout=TIMEOUT) == Order(id=3, lines=["book", "pen"])

    def test_runs_items_side_by_side(self):
        together = threading.Barrier(20)

        @task
        def meet(number: int) -> int:
            together.wait(timeout=TIMEOUT)
            return number

        meeting = Flow("meeting").map(meet).build()

        assert run_flow(meeting, list(range(20)), timeout=TIMEOUT) == list(range(20))

    def test_raises_what_a_node_failed_with(self):
        with failing_with(None, RunFailed, type="ValueError"):
            run_flow(failing, 3, timeout=TIMEOUT)

    def test_raises_after_its_timeout(self):
        with refused("run.result_timeout", RunTimeout, status="waiting"):
            run_flow(late, 3, timeout=0.1)

    @pytest.mark.parametrize("flow", [None, "ordering", Flow("raw").then(keep)])
    def test_refuses_what_is_no_flow(self, flow):
        with refused("flow.not_built", InvalidInput, value=repr(flow)):
            run_flow(flow)

    def test_refuses_an_input_of_the_wrong_type(self):
        with refused("task.invalid_argument", InvalidInput, task="read_order"):
            run_flow(ordering, "three", timeout=TIMEOUT)  # type: ignore[misc]

    def test_leaves_no_thread_behind(self):
        before = set(threading.enumerate())
        run_flow(ordering, 3, timeout=TIMEOUT)
        assert set(threading.enumerate()) <= before


class TestOnAnEventLoop:
    async def test_runs_tasks_on_the_loop_of_the_caller(self):
        @task
        async def loop_of(value: Any) -> bool:
            return asyncio.get_running_loop() is loop

        loop = asyncio.get_running_loop()
        flow = Flow("looping").then(loop_of).build()

        assert await run_flow_async(flow, timeout=TIMEOUT) is True

    async def test_blocks_it_where_that_is_asked_for(self):
        assert run_flow(ordering, 3, timeout=TIMEOUT) == 6

    async def test_stops_when_it_is_cancelled(self):
        running = asyncio.create_task(run_flow_async(late, 3))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


class TestSignals:
    def test_reach_child_flows(self):
        assert run_flow(parent, 3, signals={"answer": 5}, timeout=TIMEOUT) == 5

    @pytest.mark.parametrize("flow", [asking, parent])
    def test_that_no_caller_passes_are_named(self, flow):
        place: dict[str, Any] = {"node": "answer", "flow": "asking"}
        with refused("run.needs_signal", RunStuck, signal="answer", **place):
            run_flow(flow, 3, timeout=TIMEOUT)

    def test_that_nothing_waits_for_are_refused(self):
        with refused("flow.unknown_signal", flow="parent", name="question"):
            run_flow(parent, 3, signals={"question": 1})


@task
async def send(number: int, ctx: AsyncContext = CONTEXT) -> Any:
    report = await ctx.pause("supplier")
    return [number, report.status, report.result, report.error]


sending = Flow("sending").then(send).build()
deciding = Flow("deciding").approve("Order {{ input }}?", name="boss", deciders=["ann", "bob"])


@task
def decision_of(answer: dict[str, Any]) -> dict[str, Any]:
    return {"done": answer["decision"] == "approve"}


class TestAnswers:
    @pytest.mark.parametrize(
        "answer, by", [("approve", "ann"), ({"decision": "approve", "by": "bob"}, "bob")]
    )
    def test_decide_approvals_in_the_name_of_the_next_decider_or_of_another(self, answer, by):
        found = run_flow(deciding.build(), 3, answers={"boss": answer}, timeout=TIMEOUT)
        assert [found["decision"], found["by"]] == ["approve", [by]]

    def test_are_several_in_a_list(self):
        flow = Flow("both").approve("Go?", name="ok", deciders=["ann", "bob"], policy="all").build()
        found = run_flow(flow, 3, answers={"ok": ["approve", "approve"]}, timeout=TIMEOUT)
        assert found["by"] == ["ann", "bob"]
        with refused("run.needs_answer", RunStuck, title="Go?", node="ok", flow="both"):
            run_flow(flow, 3, answers={"ok": "approve"}, timeout=TIMEOUT)

    def test_may_follow_one_another(self):
        flow = Flow("row").approve("A?", name="a").approve("B?", name="b").approve("C?", name="c")
        answers = dict.fromkeys(["a", "b", "c"], "approve")
        found = run_flow(flow.build(), 3, answers=answers, timeout=TIMEOUT)
        assert found["decision"] == "approve"
        del answers["b"]
        with refused("run.needs_answer", RunStuck, node="b"):
            run_flow(flow.build(), 3, answers=answers, timeout=TIMEOUT)

    def test_are_taken_in_turn_by_iterations_and_items(self):
        asked = Flow("asked").approve("Order {{ input }}?", name="boss", on_reject="no")
        turn = asked.then(decision_of, name="yes").then(decision_of, name="no", after="boss:no")
        looped = Flow("looped").loop(turn.build(), until="done", max_iterations=5).build()
        answers = ["reject", "reject", "approve"]
        assert run_flow(looped, 3, answers={"boss": answers}, timeout=TIMEOUT)["done"]

        mapped = Flow("mapped").map(turn.build(), over="numbers").build()
        given = {"numbers": list(range(12))}
        wanted = [number % 3 == 0 for number in range(12)]
        answers = ["approve" if each else "reject" for each in wanted]
        found = run_flow(mapped, given, answers={"boss": answers}, timeout=TIMEOUT)
        assert [each["done"] for each in found] == wanted

        def by_title(approval: ApprovalRecord) -> Any:
            number = int(approval.title.split()[1].rstrip("?"))
            return None if number > 20 else {"decision": "approve" if wanted[number] else "reject"}

        found = run_flow(mapped, given, answers={"boss": by_title}, timeout=TIMEOUT)
        assert [each["done"] for each in found] == wanted
        with refused("run.needs_answer", RunStuck, node="boss"):
            run_flow(mapped, {"numbers": [30]}, answers={"boss": by_title}, timeout=TIMEOUT)
        with refused("flow.invalid_reply", InvalidInput, node="boss"):
            run_flow(mapped, given, answers={"boss": lambda approval: 5}, timeout=TIMEOUT)

    def test_of_all_nodes_come_from_one_function(self):
        flow = Flow("row").approve("A?", name="a").approve("B?", name="b").build()
        titles: list[str] = []

        def approve(approval: ApprovalRecord) -> str:
            titles.append(approval.title)
            return "approve"

        assert run_flow(flow, 3, answers=approve, timeout=TIMEOUT)["decision"] == "approve"
        assert titles == ["A?", "B?"]

    def test_reach_child_flows(self):
        outer = Flow("outer").flow(deciding.build()).build()
        found = run_flow(outer, 3, answers={"boss": "approve"}, timeout=TIMEOUT)
        assert found["decision"] == "approve"

    def test_that_cannot_be_are_refused(self):
        flow = deciding.build()
        from_eve = {"decision": "approve", "by": "eve"}

        with refused("approval.not_decider", NotDecider, by="eve"):
            run_flow(flow, 3, answers={"boss": from_eve}, timeout=TIMEOUT)
        with refused("flow.node_waits_for_none", node="bos", known=("boss",)):
            run_flow(flow, 3, answers={"bos": "approve"})
        with refused("flow.invalid_reply", InvalidInput, node="boss"):
            run_flow(flow, 3, answers={"boss": {"choice": "approve"}})
        with refused("argument.type", InvalidInput, name="answers"):
            run_flow(flow, 3, answers=["approve"])  # type: ignore[arg-type]


class TestReports:
    def test_are_results(self):
        found = run_flow(sending, 3, reports={"send": {"sent": True}}, timeout=TIMEOUT)
        assert found == [3, "completed", {"sent": True}, None]

    def test_reach_items_of_a_map(self):
        flow = Flow("items").map(send).build()
        reports = {"send": [["a"]], "send[1]": [["b"]]}
        found = run_flow(flow, [1, 2], reports=reports, timeout=TIMEOUT)
        assert [each[2] for each in found] == [["a"], ["b"]]

    def test_can_be_given_to_another_run_as_well(self):
        reports = {"send": ["sent"]}
        found = [run_flow(sending, 3, reports=reports, timeout=TIMEOUT) for _ in range(2)]
        assert found[0] == found[1]
        assert reports == {"send": ["sent"]}

    def test_that_no_caller_passes_are_named(self):
        with refused("run.needs_report", RunStuck, step="supplier", node="send"):
            run_flow(sending, 3, timeout=TIMEOUT)

    def test_that_nothing_waits_for_are_refused(self):
        with refused("flow.node_waits_for_none", node="sned", what="reports"):
            run_flow(sending, 3, reports={"sned": 1})


class TestSkipDelays:
    def test_makes_timers_fire_at_once(self):
        assert run_flow(late, 3, skip_delays=True, timeout=TIMEOUT) == 3

    def test_lets_the_time_for_a_signal_run_out(self):
        hoping = (
            Flow("hoping")
            .wait_for_signal("answer", timeout="3d", on_timeout="continue")
            .then(keep)
            .build()
        )

        assert run_flow(hoping, skip_delays=True, timeout=TIMEOUT) is None
        assert run_flow(hoping, signals={"answer": 1}, skip_delays=True, timeout=TIMEOUT) == 1

    def test_lets_the_next_attempt_come_at_once(self):
        attempts: list[int] = []

        @task(retries=Retry(3, first="1h", max="1h"))
        def third_time(value: int) -> int:
            attempts.append(value)
            if len(attempts) < 3:
                raise ValueError("not yet")
            return value

        flow = Flow("patient").then(third_time).build()

        assert run_flow(flow, 7, skip_delays=True, timeout=TIMEOUT) == 7
        assert len(attempts) == 3


class TestSecrets:
    def test_secrets_are_those_that_are_given(self):
        @task
        def length(text: str) -> int:
            return len(text)

        flow = Flow("secret").then(length, config={"text": "{{ secret.key }}"}).build()

        assert run_flow(flow, secrets={"key": "0123456789"}, timeout=TIMEOUT) == 10


async def keys_of(client: AsyncClient, store: Store, namespace: str) -> list[str]:
    """The keys that a failing run with a bit of everything had, in their order."""
    seen: list[str] = []

    @task
    async def note(value: Any, ctx: AsyncContext = CONTEXT) -> Any:
        seen.append(ctx.idempotency_key)
        return value

    @task
    async def is_second(value: Any, ctx: AsyncContext = CONTEXT) -> bool:
        seen.append(ctx.idempotency_key)
        return ctx.iteration == 2

    @task
    async def refuse(value: Any) -> None:
        raise ValueError("no")

    flow = (
        Flow("keys")
        .then(note, name="first", undo=note)
        .map(note, name="each", concurrency=1)
        .loop(note, name="again", until=is_second)
        .then(refuse)
        .build()
    )
    async with worker_at(store, [flow], namespace):
        run = await client.submit(flow, [7, 8], id="order-3", on_conflict="replace")
        with pytest.raises(RunFailed):
            await run.result(timeout=20)
    return seen


class TestIdempotencyKeys:
    """What idempotency keys are made of, as the documentation tells it."""

    async def test_are_made_of_run_node_iteration_and_item(self, client, store):
        keys = await keys_of(client, store, "default")

        assert keys == [
            "order-3:first:0",
            "order-3:each:0[0]",
            "order-3:each:0[1]",
            "order-3:again:1",
            "order-3:again:1~check",
            "order-3:again:2",
            "order-3:again:2~check",
            "order-3:first:0~undo",
        ]
        replacing = await keys_of(client, store, "default")
        async with AsyncClient(store, namespace="other") as other:
            elsewhere = await keys_of(other, store, "other")
        assert keys == replacing == elsewhere


# Large maps: submitted, worked on and undone in windows.


@task
async def half(number: int) -> float:
    if number < 0:
        raise ValueError("negative")
    return number / 2


@task
async def double_all(numbers: list[float]) -> None:
    undone.extend(numbers)


undone: list[float] = []
halving = Flow("halving").map(half, undo=double_all).build()
nested = Flow("nested").map(halving, concurrency=2_000).build()


@pytest.mark.every_store
class TestLargeMap:
    async def test_starts_in_windows_and_ends_in_order(self, store):
        """Finding 8: 520,000 items were written in one commit."""
        numbers = list(range(2 * MAP_WINDOW + 3))
        async with AsyncClient(store, flows=[halving]) as client:
            run = await client.submit(halving, numbers)
            jobs = await store.queries.run_jobs("default", run.id)
            assert len(jobs) == MAP_WINDOW
            async with worker_at(store, [halving], concurrency=50):
                await client.runs.pause(run.id)
                await client.runs.resume(run.id)
                assert await run.result(timeout=60) == [number / 2 for number in numbers]
        assert await verify_store(store) == []

    async def test_of_maps_shares_one_window_at_first(self, store):
        """Finding 8: children in a map started all their items in one commit."""
        async with AsyncClient(store, flows=[nested]) as client:
            run = await client.submit(nested, [[1, 2, 3]] * (MAP_WINDOW // 2))
            assert await client.jobs.count() == MAP_WINDOW
            async with worker_at(store, [nested, halving], concurrency=50):
                assert await run.result(timeout=60) == [[0.5, 1, 1.5]] * (MAP_WINDOW // 2)
        assert await verify_store(store) == []

    async def test_that_fails_is_undone_item_by_item(self, store):
        """Finding 21: completed items stayed done."""
        undone.clear()
        count = 30
        one_by_one = Flow("one-by-one").map(half, concurrency=1, undo=double_all).build()
        async with AsyncClient(store, flows=[one_by_one]) as client:
            run = await client.submit(one_by_one, [*range(count), -1, 7])
            async with worker_at(store, [one_by_one]):
                with pytest.raises(RunFailed):
                    await run.result(timeout=60)
        assert undone == [number / 2 for number in reversed(range(count))]
        assert await verify_store(store) == []

    async def test_with_too_many_items_is_refused(self, store):
        """Finding 8: a list of any length was accepted."""
        few = Flow("few").map(half, items_max=2).build()
        async with AsyncClient(store, flows=[few]) as client:
            with refused("node.too_many_items", InvalidInput, count=3, most=2):
                await client.submit(few, [1, 2, 3])
            assert await client.runs.count() == 0
