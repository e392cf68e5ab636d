"""Flows run in-process: the same results as on workers, with nothing stored."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import (
    CONTEXT,
    AsyncContext,
    Flow,
    InvalidInput,
    Retry,
    RunFailed,
    RunStuck,
    RunTimeout,
    run_flow,
    run_flow_async,
    task,
)
from perdure.errors import NotDecider
from perdure.model.wait import Report, ReportStatus
from tests.client.flows import (
    Order,
    asking,
    failing,
    keep,
    late,
    ordering,
    parent,
    reading,
    shouting,
)
from tests.support.refusal import refused

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

    def test_needs_no_work_for_an_empty_map(self):
        assert run_flow(shouting, [], timeout=TIMEOUT) == []

    def test_raises_what_a_node_failed_with(self):
        with pytest.raises(RunFailed, match="out of paper"):
            run_flow(failing, 3, timeout=TIMEOUT)

    def test_raises_after_its_timeout(self):
        with pytest.raises(RunTimeout, match="it is waiting"):
            run_flow(late, 3, timeout=0.1)

    @pytest.mark.parametrize("flow", [None, "ordering", Flow("raw").then(keep)])
    def test_refuses_what_is_no_flow(self, flow):
        with refused("flow.not_built", InvalidInput, value=repr(flow)):
            run_flow(flow)

    def test_refuses_an_input_of_the_wrong_type(self):
        with pytest.raises(InvalidInput, match="'id' of task 'read_order'"):
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
    def test_are_delivered(self):
        answer = {"approved": False}

        assert run_flow(asking, 3, signals={"answer": answer}, timeout=TIMEOUT) == answer

    def test_are_several_in_a_list(self):
        twice = Flow("twice").wait_for_signal("answer").wait_for_signal("answer", name="again")

        result = run_flow(twice.build(), signals={"answer": [1, 2]}, timeout=TIMEOUT)

        assert result == 2

    def test_reach_child_flows(self):
        assert run_flow(parent, 3, signals={"answer": 5}, timeout=TIMEOUT) == 5

    @pytest.mark.parametrize("flow", [asking, parent])
    def test_that_nobody_brings_are_named(self, flow):
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


class TestAnswers:
    def test_decide_approvals(self):
        flow = deciding.build()

        found = run_flow(flow, 3, answers={"boss": "approve"}, timeout=TIMEOUT)

        assert [found["decision"], found["by"]] == ["approve", ["ann"]]

    def test_say_who_decides_and_with_what(self):
        flow = deciding.build()
        answer = {"decision": "approve", "by": "bob", "note": "fine"}

        found = run_flow(flow, 3, answers={"boss": answer}, timeout=TIMEOUT)

        assert [each["by"] for each in found["answers"]] == ["bob"]
        assert found["answers"][0]["note"] == "fine"

    def test_are_several_in_a_list(self):
        flow = Flow("both").approve("Go?", name="ok", deciders=["ann", "bob"], policy="all").build()

        found = run_flow(flow, 3, answers={"ok": ["approve", "approve"]}, timeout=TIMEOUT)

        assert found["by"] == ["ann", "bob"]
        with refused("run.needs_answer", RunStuck, title="Go?", node="ok", flow="both"):
            run_flow(flow, 3, answers={"ok": "approve"}, timeout=TIMEOUT)

    def test_reach_child_flows(self):
        outer = Flow("outer").flow(deciding.build()).build()

        found = run_flow(outer, 3, answers={"boss": "approve"}, timeout=TIMEOUT)

        assert found["decision"] == "approve"

    def test_that_cannot_be_are_refused(self):
        flow = deciding.build()
        from_eve = {"decision": "approve", "by": "eve"}

        with pytest.raises(NotDecider, match="'eve' may not decide"):
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

    def test_may_be_more_than_a_result(self):
        reports = [
            Report(status=ReportStatus.PROGRESS, progress=50),
            Report(status=ReportStatus.FAILED, error="no paper"),
        ]

        found = run_flow(sending, 3, reports={"send": reports}, timeout=TIMEOUT)

        assert found == [3, "failed", None, "no paper"]

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

    def test_that_nobody_brings_are_named(self):
        with refused("run.needs_report", RunStuck, step="supplier", node="send"):
            run_flow(sending, 3, timeout=TIMEOUT)

    def test_that_nothing_waits_for_are_refused(self):
        with refused("flow.node_waits_for_none", node="sned", what="reports"):
            run_flow(sending, 3, reports={"sned": 1})


def test_secrets_are_those_that_are_given():
    @task
    def length(text: str) -> int:
        return len(text)

    flow = Flow("secret").then(length, config={"text": "{{ secret.key }}"}).build()

    assert run_flow(flow, secrets={"key": "0123456789"}, timeout=TIMEOUT) == 10


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
