"""``perdure runs report``, ``broadcast`` and ``lineage``, ``waits list``; explaining waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from perdure import CONTEXT, Client, Context, Flow, Worker, task


@task
def load(id: int) -> dict[str, Any]:
    return {"id": id, "total": 40}


@task
def hand_over(order: dict[str, Any], ctx: Context = CONTEXT) -> Any:
    return ctx.pause("agent", checkpoint={"ticket": order["id"]}, deadline="1d").result


@task
def sign(total: int) -> str:
    return f"signed {total}"


agents = (
    Flow("agents")
    .then(load)
    .then(hand_over)
    .then(sign, inputs={"total": "load.output.total"})
    .build()
)
paying = Flow("paying").wait_for_signal("paid").build()
choosy = (
    Flow("choosy")
    .wait_for_signal("paid", where={"property": "sum", "op": "gt", "value": 5})
    .build()
)
asking = Flow("asking").approve("Ship it?", name="review", deciders=["ann"], deadline="2d").build()


@pytest.fixture
def paused(url: str, client: Client) -> Iterator[str]:
    """``job-1``, whose node ``hand_over`` waits for a report."""
    handle = Worker(url, flows=[agents]).start()
    run = client.submit(agents, 3, id="job-1")
    assert any(event.status == "waiting" for event in run.watch())
    yield run.id
    handle.shutdown()
    assert handle.join(30)


class TestReport:
    def test_lets_the_run_go_on(self, perdure, client, paused):
        done = perdure(
            "runs", "report", paused, "hand_over",
            "--status", "completed", "--result", '{"ok":true}', "--by", "agent-3",
        )  # fmt: skip

        assert done.exit_code == 0
        assert done.out.startswith("accepted: job-1, node hand_over; the run is ")
        assert client.runs.handle(paused).result(timeout=30) == "signed 40"

    def test_says_what_was_there_and_what_comes_too_late(self, perdure, client, paused):
        completed = ("runs", "report", paused, "hand_over", "--status", "completed", "--key", "a")
        perdure(*completed)
        client.runs.handle(paused).result(timeout=30)

        again = perdure(*completed)
        other = perdure(
            "runs", "report", paused, "hand_over", "--status", "failed", "--error", "no"
        )

        assert again.out.startswith("repeated: job-1, node hand_over")
        assert other.out.startswith("ignored: job-1, node hand_over: completed came first")
        assert perdure(*completed, "--json").json["outcome"] == "repeated"

    def test_of_a_node_that_there_is_not_names_the_nearest(self, perdure, paused):
        done = perdure("runs", "report", paused, "handover")

        assert done.exit_code == 1
        assert "run 'job-1' has no node 'handover'; did you mean 'hand_over'?" in done.error


class TestBroadcast:
    def test_says_whom_it_reached(self, perdure, client):
        for id, flow in (("a", paying), ("b", paying), ("c", choosy)):
            client.submit(flow, 1, id=id)

        done = perdure("runs", "broadcast", "paid", '{"sum": 3}')

        last = "2 runs have the signal paid; 1 waits for another one of this name"
        assert done.out.splitlines() == ["a", "b", last]
        again = perdure(
            "runs", "broadcast", "paid", '{"sum": 9}', "--flow", "choosy", "--json"
        ).json
        assert (again["runs"], again["unmatched"]) == (["c"], 0)

    def test_says_that_it_reached_nobody(self, perdure, client):
        assert perdure("runs", "broadcast", "paid").out == "no run waits for the signal paid\n"


class TestWaits:
    def test_are_listed_with_what_they_are_for(self, perdure, paused):
        head, row = perdure("waits", "list").rows

        assert head == ["RUN", "NODE", "FOR", "NAME", "SINCE", "DUE", "DETAIL"]
        assert row[:4] == ["job-1", "hand_over", "external", "agent"]
        assert row[-1] == '{"ticket":3}'

    def test_of_one_kind(self, perdure, client):
        client.submit(paying, 1, id="a")

        assert perdure("waits", "list", "--type", "timer").out == "no waits\n"
        [wait] = perdure("waits", "list", "--type", "signal", "--json").items
        assert (wait["run"], wait["name"]) == ("a", "paid")


class TestLineage:
    def test_shows_what_each_node_used(self, perdure, client, paused):
        client.runs.report(paused, "hand_over", status="completed", result=1, by="agent-3")
        client.runs.handle(paused).result(timeout=30)

        shown = perdure("runs", "lineage", paused).out

        assert "load  task, completed, output in event 2\n  ← input (event 1) = 3\n" in shown
        assert "  total ← load.output.total (event 2) = 40\n" in shown
        assert "← report by agent-3 (event " in shown
        nodes = perdure("runs", "lineage", paused, "--json").json["nodes"]
        assert [node["id"] for node in nodes] == ["load", "hand_over", "sign"]


class TestExplain:
    def test_an_approval_says_who_and_how(self, perdure, client):
        client.submit(asking, 1, id="a")

        told = perdure("runs", "explain", "a").out

        assert "1 approval is pending" in told
        assert "waiting for a decision on 'Ship it?' by 'ann' since 20" in told
        assert "→ perdure decide a:review approve --role ann" in told

    def test_a_report_says_since_when_and_how(self, perdure, paused):
        told = perdure("runs", "explain", paused).out

        assert "waiting for a report at 'agent' since 20" in told
        assert "→ perdure runs report job-1 hand_over --status completed --result null" in told

    def test_a_signal_says_which_one_it_must_be(self, perdure, client):
        client.submit(choosy, 1, id="a")

        told = perdure("runs", "explain", "a").out

        where = '{"property": "sum", "op": "gt", "value": 5}'
        assert f"signal 'paid' with a payload that fits {where}" in told


class TestEvents:
    def test_of_people_are_told(self, perdure, client):
        client.submit(asking, 1, id="a")
        client.approvals.decide("a:review", "approve", by="ann", data={"x": 1}, note="go on")

        lines = perdure("runs", "events", "a").out.splitlines()

        assert lines[1].split()[3:5] == ["approval_answered", "review"]
        assert 'decision=approve by=ann stands_for=ann note="go on" {"x":1}' in lines[1]

    def test_of_outside_parties_are_told(self, perdure, paused):
        perdure(
            "runs", "report", paused, "hand_over", "--progress", "5", "--key", "k", "--by", "agent"
        )

        out = perdure("runs", "events", paused).out

        assert 'name=agent {"ticket":3}' in out
        assert 'status=progress by=agent {"status":"progress","progress":5}' in out
