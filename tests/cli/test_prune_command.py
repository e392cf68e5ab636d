"""``perdure store prune``, ``perdure queues`` and ``perdure flows list``."""

from __future__ import annotations

from tests.cli import sample_flows
from tests.cli import sample_tasks as sample
from tests.cli.commands import Commands
from tests.cli.test_errors import assert_told


class TestPrune:
    def test_counts_first_and_removes_when_told_to(self, perdure, client, failed):
        client.enqueue(sample.add, 1, 2).cancel()

        counted = perdure("store", "prune", "--older-than", "0s")
        assert counted.exit_code == 0
        assert counted.out == "1 job (1 cancelled) and 1 run (1 failed)\n"
        assert "--yes" in counted.error
        assert len(client.runs.list()) == 1

        removed = perdure("store", "prune", "--older-than", "0s", "--yes")
        assert removed.out == "deleted 2 of 1 job (1 cancelled) and 1 run (1 failed)\n"
        assert list(client.runs.list()) == []
        assert perdure("store", "prune", "--older-than", "0s").out == "0 jobs and 0 runs\n"

    def test_leaves_what_is_younger_or_ended_otherwise(self, perdure, client, failed):
        assert perdure("store", "prune", "--older-than", "1h", "-y", "--json").json["removed"] == 0
        only = ("--older-than", "0s", "--status", "completed", "--yes")
        assert perdure("store", "prune", *only, "--json").json == {
            "jobs": {},
            "runs": {},
            "removed": 0,
        }
        assert len(client.runs.list()) == 1

    def test_refuses_what_it_does_not_know(self, perdure, client):
        client.open()

        assert_told(
            perdure("store", "prune", "--older-than", "soon"), 2, "must be a duration (got 'soon')"
        )
        assert_told(
            perdure("store", "prune", "--older-than", "1d", "--status", "running"),
            2,
            "must be one of",
        )
        assert_told(perdure("store", "prune"), 2, "--older-than")
        assert_told(
            perdure("store", "prune", "--older-than", "1d", "--namespace", "*"), 2, "namespace"
        )


class TestQueues:
    def test_are_paused_and_resumed(self, perdure, client):
        client.open()

        assert perdure("queues", "pause", "mail", "--by", "ann").out == "queue mail is paused\n"
        [paused] = client.queues.list()
        assert (paused.name, paused.paused_by) == ("mail", "ann")

        resumed = perdure("queues", "resume", "mail", "--json").json
        assert resumed == {"queue": "mail", "state": "open"}
        assert list(client.queues.list()) == []


class TestFlowsList:
    def test_counts_the_runs_of_a_store(self, perdure, failed):
        heads, row, child = perdure("flows", "list").rows

        assert heads[:4] == ["FLOW", "VERSION", "LIVE", "ENDED"]
        assert row[:4] == ["orders", sample_flows.orders.version, "0", "1"]
        assert child == ["shipping", sample_flows.shipping.version, "0", "0"]

    def test_gives_json(self, perdure, failed):
        flows = perdure("flows", "list", "--json").items

        found = {each["flow"]: (each["live"], each["ended"]) for each in flows}
        assert found == {"orders": (0, 1), "shipping": (0, 0)}

    def test_says_that_there_is_none(self, perdure, client):
        client.open()

        assert perdure("flows", "list").out == "no flows\n"

    def test_lists_those_of_a_module(self):
        shown = Commands(None)("flows", "list", "tests.cli.sample_flows:orders")

        assert ["orders", sample_flows.orders.version] in [row[:2] for row in shown.rows]
        as_json = Commands(None)("flows", "list", "tests.cli.sample_flows:orders", "--json").json
        assert {each["name"] for each in as_json} == {"orders", "shipping"}


def test_a_flow_in_a_file_is_submitted_too(perdure, client, tmp_path):
    file = tmp_path / "wait.yaml"
    file.write_text("flow: wait\nnodes:\n  - id: pause\n    type: delay\n    config: {for: 1h}\n")

    shown = perdure("submit", str(file), "--id", "w-1", "--json").json

    assert shown == {"id": "w-1", "is_new": True}
    assert client.runs.get("w-1").flow == "wait"
