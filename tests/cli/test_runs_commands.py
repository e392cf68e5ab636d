"""``perdure runs`` and ``perdure explain``: what operators see of runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from perdure import CONTEXT, Client, Concurrency, Context, Flow, Worker, task
from tests.cli import sample_flows as sample
from tests.cli import sample_tasks
from tests.cli.harness import WAIT_SECONDS, Commands
from tests.support.codecs import Reversed

# ``perdure runs``: what operators see of runs.


class TestList:
    def test_shows_the_newest_first(self, perdure, client):
        client.submit(sample.orders, 5, id="first")
        client.submit(sample.shipping, None, id="second")

        shown = perdure("runs", "list")

        assert shown.exit_code == 0
        assert [row[:5] for row in shown.rows] == [
            ["RUN", "STATUS", "FLOW", "VERSION", "EVENTS"],
            ["second", "running", "shipping", sample.shipping.version, "1"],
            ["first", "running", "orders", sample.orders.version, "1"],
        ]

    def test_pages_with_limit_and_cursor(self, perdure, client):
        for id in ("a", "b", "c"):
            client.submit(sample.orders, 5, id=id)

        page = perdure("runs", "list", "--limit", "2")
        cursor = page.error.partition("--cursor ")[2].partition(",")[0]
        following = perdure("runs", "list", "--limit", "2", "--cursor", cursor)

        assert [row[0] for row in page.rows[1:]] == ["c", "b"]
        assert [row[0] for row in following.rows[1:]] == ["a"]
        assert following.error == ""

    def test_says_why_in_a_few_words(self, perdure, client, failed):
        client.submit(sample.orders, 5, id="order-7")
        client.runs.pause("order-7", reason="stock taking", by="ann")
        shown = perdure("runs", "list")
        assert "stock taking (by ann)" in shown.out
        assert "fetch: ValueError: thirteen is suspicious" in shown.out

    def test_looks_at_one_namespace_or_at_all(self, perdure, client, url):
        client.submit(sample.orders, 5, id="ours")
        with Client(url, namespace="team-a") as other:
            other.submit(sample.orders, 5, id="theirs")
        one = perdure("runs", "list", "--namespace", "team-a", "--json")
        everything = perdure("runs", "list", "--namespace", "*")
        assert [run["id"] for run in one.items] == ["theirs"]
        assert [row[1] for row in everything.rows] == ["NAMESPACE", "team-a", "default"]


class TestShow:
    def test_shows_how_far_each_node_is(self, perdure, waiting):
        shown = perdure("runs", "get", "order-5")

        assert shown.exit_code == 0
        assert ["input", "5"] in shown.rows
        assert ["status", "waiting"] in shown.rows
        at = shown.rows.index(["NODE", "TYPE", "STATUS", "OUTPUT"])
        assert shown.rows[at + 1 :] == [
            ["fetch", "task", "completed", '{"number":5,"lines":["pen","ink"]}'],
            ["pack", "map", "completed", '["packed', 'pen","packed', 'ink"]'],
            ["approval", "signal", "live"],
            ["shipping", "child", "-"],
            ["bill", "task", "-"],
        ]

    def test_shows_result_and_children(self, perdure, completed):
        shown = perdure("runs", "get", "order-5")
        assert ["result", '{"label":"L-1","paid":true}'] in shown.rows
        assert ["CHILD", "OF", "RUN", "STATUS"] in shown.rows
        assert ["shipping", "order-5/shipping", "completed"] in shown.rows
        assert "order-5, node shipping" in perdure("runs", "get", "order-5/shipping").out

    def test_shows_the_settings_that_the_run_has(self, perdure, client):
        places = Concurrency(2, key="{{ input }}")
        client.submit(
            sample.orders,
            5,
            id="bounded",
            queue="gpu",
            tags=["eu", "big"],
            timeout="5m",
            timeout_counts_waiting=False,
            max_attempts=3,
            max_running=places,
            sticky="30s",
        )
        rows = perdure("runs", "get", "bounded").rows
        at = rows.index(["queue", "gpu"])
        assert rows[at + 1 : at + 6] == [
            ["tags", "big,", "eu"],
            ["timeout", "5m,", "not", "counting", "waiting"],
            ["max", "attempts", "3"],
            ["max", "running", "2", "per", "key", "'5'"],
            ["sticky", "30s"],
        ]

    def test_shows_the_failure_and_its_place(self, perdure, failed):
        shown = perdure("runs", "get", "order-13")
        assert "node fetch failed" in shown.out
        assert "error  ValueError: thirteen" in shown.out
        assert "sample_flows.py" in shown.out

    def test_gives_all_of_it_as_json(self, perdure, completed):
        shown = perdure("runs", "get", "order-5", "--json").json
        assert (shown["input"], shown["result"]) == (5, {"label": "L-1", "paid": True})
        assert [node["id"] for node in shown["nodes"]] == list(sample.orders.graph.nodes)
        assert shown["nodes"][2]["output"] == {"ok": True}
        assert [child["id"] for child in shown["children"]] == ["order-5/shipping"]
        assert (shown["failure"], "summary" in shown) == (None, False)

    def test_shortens_what_is_long_for_people_only(self, perdure, client):
        client.submit(sample.shipping, "x" * 1000, id="long")
        shown = perdure("runs", "get", "long")
        assert max(len(line) for line in shown.out.splitlines()) < 300
        assert perdure("runs", "get", "long", "--json").json["input"] == "x" * 1000

    def test_says_when_values_cannot_be_read_here(self, perdure, client, url):
        with Client(url, codec=Reversed()) as other:
            other.submit(sample.shipping, {"secret": 1}, id="sealed")
        for command in ("get", "events"):
            shown = perdure("runs", command, "sealed")
            assert shown.exit_code == 0
            assert "not readable here" in shown.out


class TestEvents:
    def test_are_one_a_line(self, perdure, completed):
        shown = perdure("runs", "events", "order-5")

        listed = [(row[0], *row[3:5]) for row in shown.rows]
        assert [int(number) for number, *_ in listed] == list(range(1, len(listed) + 1))
        assert listed[1] == ("2", "node_completed", "fetch")
        items = sorted(row[2] for row in listed if row[1] == "item_completed")
        assert items == ["pack[0]", "pack[1]"]  # in whichever order they were completed
        assert listed[-1][1] == "run_completed"
        [signal] = [line for line in shown.out.splitlines() if "signal_received" in line]
        assert signal.endswith('name=approval by=ann {"ok":true}')

    def test_show_a_failure_in_one_line(self, perdure, failed):
        shown = perdure("runs", "events", "order-13")
        assert shown.exit_code == 0
        assert [row[3] for row in shown.rows] == ["run_submitted", "node_failed", "run_failed"]
        assert shown.out.count("ValueError: thirteen is suspicious") == 2

    @pytest.mark.parametrize("option", [(), ("--json",)])
    def test_are_followed_from_another_process_until_the_end(self, waiting, url, option):
        arguments = ("runs", "events", "order-5", "--follow", "--store", url, *option)
        command = [sys.executable, "-m", "perdure.cli", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout is not None
            seen = [following.stdout.readline() for _ in waiting.events()]
            waiting.signal("approval")
            seen += following.stdout.readlines()
            following.wait(WAIT_SECONDS)

        assert "run_submitted" in seen[0]
        assert "run_completed" in seen[-1]
        assert len(seen) == len(waiting.events())
        assert following.returncode == 0

    @pytest.mark.parametrize("limit, first", [("1", -1), ("3", -3), ("1000", 0)])
    def test_are_followed_from_the_latest_of_a_limit_on(self, perdure, completed, limit, first):
        every = perdure("runs", "events", "order-5").out.splitlines()
        followed = perdure("runs", "events", "order-5", "--follow", "--limit", limit)
        assert len(followed.out.splitlines()) == len(every[first:])
        assert followed.rows[0][0] == every[first].split()[0]
        assert followed.rows[-1][3] == "run_completed"

    def test_are_followed_from_a_cursor_on(self, perdure, completed):
        cursor = perdure("runs", "events", "order-5", "--limit", "2", "--json").json["next"]
        follow = ("runs", "events", "order-5", "--follow", "--cursor")
        assert perdure(*follow, cursor).rows[0][0] == "3"
        perdure.refused("argument.cursor", *follow, "here")


# ``perdure explain`` and ``jobs explain``: of whatever has this id, with commands to type.


branches = {f"b{number}": Flow().wait_for_signal(f"go-{number}") for number in range(30)}

many_waits = Flow("many").fork(**branches).join(sample_tasks.echo).build()


class TestExplainAnything:
    def test_of_a_run(self, perdure, waiting):
        listed = perdure("explain", "order-5")
        assert listed.exit_code == 0
        assert listed.out.startswith("order-5 is waiting. 1 signal is pending.\n")
        assert "    → perdure signal order-5 approval\n" in listed.out

    def test_the_command_that_it_suggests_moves_the_run_on(self, perdure, waiting):
        [finding] = perdure("explain", "order-5", "--json").json["findings"]
        [action] = finding["actions"]
        program, *words = action["rendered"].split()
        assert program == "perdure"
        assert perdure(*words).exit_code == 0
        waiting.result(timeout=30)

    def test_of_a_job(self, perdure, client):
        job = client.enqueue(sample_tasks.add, 1, 2)

        listed = perdure("explain", job.id)

        sentence, command = listed.out.splitlines()
        assert sentence.startswith(
            f"{job.id} is waiting. No worker is live; the job has been ready since "
        )
        assert command == "    → perdure worker MODULE"
        assert perdure("jobs", "explain", job.id).out == listed.out

    def test_of_a_job_of_a_run(self, perdure, client):
        client.submit(sample.orders, 5, id="order-5")
        [job] = client.jobs.list()
        assert "order-5." in perdure("jobs", "explain", job.id).out.split()

    def test_shows_times_in_local_time_and_how_long_ago(self, perdure, waiting):
        [finding] = perdure("explain", "order-5", "--json").json["findings"]
        since = datetime.fromisoformat(finding["args"]["since"])
        listed = perdure("explain", "order-5").out
        assert f" since {since.astimezone():%Y-%m-%d %H:%M:%S} (" in listed
        assert "s ago)" in listed
        assert "+00:00" not in listed

    def test_commands_name_the_store_that_was_given(self, url, client):
        job = client.enqueue(sample_tasks.add, 1, 2)
        client.queues.pause("default", by="ann")
        listed = Commands(None)("explain", job.id, "--store", url)
        assert f"    → perdure queues resume default --store {url}\n" in listed.out

    def test_fits_one_screen(self, perdure, client):
        client.submit(many_waits, None, id="many")
        listed = perdure("explain", "many").out.splitlines()
        assert len(listed) == 22  # a sentence, ten findings with a command each, and how many more
        assert listed[-1] == "  and 20 more: --json has them"
        assert len(perdure("explain", "many", "--json").json["findings"]) == 30


# ``perdure runs report``, ``broadcast`` and ``lineage``, ``waits list``; explaining waits.


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
    def test_resumes_the_run(self, perdure, client, paused):
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


class TestBroadcast:
    def test_reports_the_runs_that_it_reached(self, perdure, client):
        for id, flow in (("a", paying), ("b", paying), ("c", choosy)):
            client.submit(flow, 1, id=id)

        done = perdure("runs", "broadcast", "paid", '{"sum": 3}')

        last = "2 runs have the signal paid; 1 waits for another one of this name"
        assert done.out.splitlines() == ["a", "b", last]
        again = perdure(
            "runs", "broadcast", "paid", '{"sum": 9}', "--flow", "choosy", "--json"
        ).json
        assert (again["runs"], again["unmatched"]) == (["c"], 0)


class TestWaits:
    def test_are_listed_with_what_they_are_for(self, perdure, paused):
        head, row = perdure("waits", "list").rows
        assert head == ["RUN", "NODE", "FOR", "NAME", "SINCE", "DUE", "DETAIL"]
        assert row[:4] == ["job-1", "hand_over", "external", "agent"]
        assert row[-1] == '{"ticket":3}'


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


class TestEventsOfWaits:
    def test_of_approvals_are_shown(self, perdure, client):
        client.submit(asking, 1, id="a")
        client.approvals.decide("a:review", "approve", by="ann", note="go on")
        lines = perdure("runs", "events", "a").out.splitlines()
        assert lines[1].split()[3:5] == ["approval_answered", "review"]
        assert 'decision=approve by=ann stands_for=ann note="go on"' in lines[1]

    def test_of_external_systems_are_reported(self, perdure, paused):
        perdure(
            "runs", "report", paused, "hand_over", "--progress", "5", "--key", "k", "--by", "agent"
        )
        out = perdure("runs", "events", paused).out
        assert 'name=agent {"ticket":3}' in out
        assert 'status=progress by=agent {"status":"progress","progress":5}' in out
