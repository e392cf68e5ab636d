"""``perdure runs``: what operators see of runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perdure import Client
from tests.cli import sample_flows as sample
from tests.cli.processes import PATIENCE_SECONDS


class Reversed:
    """A codec that the command line does not have."""

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


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

    @pytest.mark.parametrize("option", [("--status", "paused"), ("--flow", "shipping")])
    def test_filters(self, perdure, client, option):
        client.submit(sample.orders, 5)
        client.submit(sample.shipping, None, id="wanted")
        client.runs.pause("wanted")

        shown = perdure("runs", "list", *option, "--json")

        assert [run["id"] for run in shown.items] == ["wanted"]

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

    def test_says_that_there_is_nothing(self, perdure, client):
        assert perdure("runs", "list").out == "no runs\n"
        assert perdure("runs", "list", "--json").json == {"items": [], "next": None}

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

        told = [(row[0], *row[3:5]) for row in shown.rows]
        assert [int(number) for number, *_ in told] == list(range(1, len(told) + 1))
        assert told[1] == ("2", "node_completed", "fetch")
        items = sorted(row[2] for row in told if row[1] == "item_completed")
        assert items == ["pack[0]", "pack[1]"]  # in whichever order they were completed
        assert told[-1][1] == "run_completed"
        [signal] = [line for line in shown.out.splitlines() if "signal_received" in line]
        assert signal.endswith('name=approval by=ann {"ok":true}')

    def test_give_json(self, perdure, completed):
        events = perdure("runs", "events", "order-5", "--json").items

        assert [event["number"] for event in events] == list(range(1, len(events) + 1))
        assert events[1]["value"] == {"number": 5, "lines": ["pen", "ink"]}
        assert events[-1]["status"] == "completed"

    def test_tell_a_failure_in_one_line(self, perdure, failed):
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
            following.wait(PATIENCE_SECONDS)

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

        followed = perdure("runs", "events", "order-5", "--follow", "--cursor", cursor)
        refused = perdure("runs", "events", "order-5", "--follow", "--cursor", "here")

        assert followed.exit_code == 0
        assert followed.rows[0][0] == "3"
        assert refused.exit_code == 2

    def test_following_a_run_that_failed_exits_with_one(self, perdure, failed):
        shown = perdure("runs", "events", "order-13", "--follow")

        assert shown.exit_code == 1
        assert shown.rows[-1][3] == "run_failed"

    def test_following_a_run_that_was_cancelled_exits_as_watching_it_does(self, perdure, waiting):
        waiting.cancel(by="ann")

        followed = perdure("runs", "events", "order-5", "--follow")

        assert followed.exit_code == 4
        assert perdure("runs", "watch", "order-5").exit_code == 4


class TestExplain:
    def test_says_what_a_run_waits_for(self, perdure, waiting):
        shown = perdure("runs", "explain", "order-5")

        assert shown.exit_code == 0
        assert shown.out.startswith("order-5 is waiting. ")
        assert "  approval: waiting for signal 'approval'" in shown.out

    def test_says_what_keeps_it_from_going_on(self, perdure, client):
        client.submit(sample.orders, 5, id="order-5")

        shown = perdure("runs", "explain", "order-5")
        found = perdure("runs", "explain", "order-5", "--json").json

        assert "  fetch: no worker is live" in shown.out
        assert (found["run"], found["status"]) == ("order-5", "running")
        [finding] = found["findings"]
        assert (finding["code"], finding["about"]) == ("explain.no_worker", "fetch")
        assert finding["args"]["flow"] == f"orders@{sample.orders.version}"
        assert [each["rendered"] for each in finding["actions"]] == ["perdure worker MODULE"]
        assert found["headline"] == [finding]

    def test_names_the_version_that_workers_have(self, perdure, client, waiting):
        client.submit(sample.longer, 5, id="newer")

        shown = perdure("runs", "explain", "newer")

        assert f"no live worker has orders@{sample.longer.version}" in shown.out.lower()
        assert f"orders@{sample.orders.version}" in shown.out
        assert "    → perdure worker MODULE\n" in shown.out
        assert "    → perdure runs migrate newer --to MODULE:FLOW\n" in shown.out
        assert "client." not in shown.out

    def test_helps_with_commands(self, perdure, waiting):
        waiting.pause()

        shown = perdure("runs", "explain", "order-5")

        assert max(len(line) for line in shown.out.splitlines()) < 200
        assert "    → perdure runs resume order-5\n" in shown.out
        assert "    → perdure signal order-5 approval\n" in shown.out

    def test_tells_reasons_once(self, perdure, client):
        client.submit(sample.orders, 5, id="order-5")
        client.runs.pause("order-5", reason="stock taking", by="ann")

        shown = perdure("runs", "explain", "order-5")

        assert shown.out.startswith("Run 'order-5' is paused by ann since ")
        assert shown.out.count("paused") == 1
        assert shown.out.count(": stock taking") == 1

    def test_tells_a_failure_once_and_in_one_line(self, perdure, failed):
        shown = perdure("runs", "explain", "order-13")

        assert shown.exit_code == 0
        assert shown.out.count("ValueError: thirteen is suspicious") == 1
        assert shown.out.endswith("    → perdure runs retry order-13\n")
