"""``perdure jobs``, ``queues``, ``workers``, ``prune``: what operators see and do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from perdure import Client, Flow, JobQueue, Worker
from perdure.cli.commands.jobs import COMMANDS
from perdure.store.opening import store_at
from tests.cli import sample_flows
from tests.cli import sample_tasks as sample
from tests.cli.harness import Commands, record_worker
from tests.client.harness import CountedStore
from tests.support.codecs import Reversed

# ``perdure jobs``: what operators see and do.


def finish(url: str, client: Client, *ids: str) -> None:
    """Run the given jobs to their end."""
    handle = Worker(url, tasks=sample.worker.tasks).start()
    client.jobs.results([client.jobs.handle(id) for id in ids], timeout=30, return_errors=True)
    handle.shutdown()
    assert handle.join(30)


class TestList:
    def test_shows_the_newest_first(self, perdure, client):
        first = client.enqueue(sample.add, 1, 2)
        second = client.enqueue(sample.greet.options(delay="1h", group="night"), "ann")

        shown = perdure("jobs", "list")

        assert shown.exit_code == 0
        assert [row[:4] for row in shown.rows] == [
            ["JOB", "STATUS", "TASK", "QUEUE"],
            [second.id, "scheduled", "greet", "mail"],
            [first.id, "waiting", "add", "default"],
        ]
        assert "night" in shown.out

    @pytest.mark.parametrize(
        "option",
        [("--status", "scheduled"), ("--queue", "mail"), ("--task", "greet"), ("--group", "night")],
    )
    def test_filters(self, perdure, client, option):
        client.enqueue(sample.add, 1, 2)
        wanted = client.enqueue(sample.greet.options(delay="1h", group="night"), "ann")
        shown = perdure("jobs", "list", *option, "--json")
        assert [job["id"] for job in shown.items] == [wanted.id]


class TestShow:
    def test_shows_input_and_result(self, perdure, client, url):
        job = client.enqueue(sample.greet.options(group="night", fingerprint="ann-1"), "ann")
        finish(url, client, job.id)

        shown = perdure("jobs", "get", job.id)

        assert shown.exit_code == 0
        pairs = dict(line.split(maxsplit=1) for line in shown.out.splitlines() if line.strip())
        assert pairs["status"].strip() == "completed"
        assert pairs["args"].strip() == '["ann"]'
        assert pairs["result"].strip() == '"hello ann"'
        assert pairs["group"].strip() == "night"
        assert pairs["fingerprint"].strip() == "ann-1"
        assert pairs["progress"].startswith("100%")

    def test_shows_every_failure_with_its_cause_and_place(self, perdure, client, url):
        job = client.enqueue(sample.fail, "boom")
        finish(url, client, job.id)
        shown = perdure("jobs", "get", job.id)
        assert "attempt 1 failed" in shown.out
        assert "RuntimeError: boom" in shown.out
        assert "caused by  KeyError: 'inner'" in shown.out
        assert "sample_tasks.py" in shown.out

    def test_gives_all_of_it_as_json(self, perdure, client, url):
        job = client.enqueue(sample.fail_once)
        finish(url, client, job.id)

        shown = perdure("jobs", "get", job.id, "--json").json

        assert (shown["id"], shown["status"], shown["result"]) == (job.id, "completed", 2)
        assert shown["args"] == []
        [failed] = shown["failed_attempts"]
        assert failed["attempt"] == 1
        assert failed["failure"]["message"] == "not the first time"

    @pytest.mark.parametrize("status", ["waiting", "completed"])
    def test_reads_a_job_without_failures_once(self, memory_url, status):
        counting = CountedStore(store_at(memory_url))
        with Client(counting.as_store()) as ours:
            job = ours.enqueue(sample.greet, "ann")
            if status == "completed":
                with JobQueue(counting.as_store()) as queue:
                    held = queue.dequeue("worker", queues=["mail"])
                    assert held is not None
                    queue.ack(held, "hello ann")
            counting.calls.clear()

            call: Any = COMMANDS["jobs.get"].call
            record, failures = call(ours, None, id=job.id)

        assert (record.status, failures) == (status, [])
        assert counting.calls == {"queries.get_job": 1}

    @pytest.mark.parametrize("value", [0, False, "", [], None], ids=repr)
    def test_shows_a_falsy_result_as_it_is(self, perdure, client, url, value):
        job = client.enqueue(sample.echo, value)
        finish(url, client, job.id)
        shown = perdure("jobs", "get", job.id)
        assert ["result", json.dumps(value)] in shown.rows

    def test_says_when_values_cannot_be_read_here(self, perdure, client, url):
        with Client(url, codec=Reversed()) as other:
            job = other.enqueue(sample.echo, "secret")
        shown = perdure("jobs", "get", job.id)
        assert shown.exit_code == 0
        assert "not readable here" in shown.out
        assert perdure("jobs", "get", job.id, "--json").json["args"] is None


class TestRetry:
    def test_refuses_what_cannot_be_retried_and_does_the_rest(self, perdure, client, url):
        waiting = client.enqueue(sample.add.options(delay="1h"), 1, 2)
        failed = client.enqueue(sample.fail, "boom")
        finish(url, client, failed.id)

        done = perdure("jobs", "retry", waiting.id, "no-such-job", failed.id, "--json")

        assert done.exit_code == 1
        assert [moved["id"] for moved in done.json] == [failed.id]
        errors = [json.loads(line)["error"] for line in done.error.splitlines()]
        assert [(each["code"], each["args"]["job_id"]) for each in errors] == [
            ("job.illegal_transition", waiting.id),
            ("job.not_found", "no-such-job"),
        ]


class TestAbort:
    def test_says_that_a_finished_job_stays_as_it_is(self, perdure, client, url):
        job = client.enqueue(sample.add, 1, 2)
        finish(url, client, job.id)
        done = perdure("jobs", "cancel", job.id)
        assert done.exit_code == 0
        assert done.out == f"{job.id} was completed already\n"


class TestJobsOfRuns:
    def test_are_listed_and_shown_with_run_and_node(self, perdure, client):
        client.submit(sample_flows.orders, 5, id="order-5")
        [job] = client.jobs.list()

        heads, row = perdure("jobs", "list").rows
        shown = perdure("jobs", "get", job.id)

        assert heads[-2:] == ["RUN", "NODE"]
        assert row[-2:] == ["order-5", "fetch"]
        assert ["run", "order-5"] in shown.rows
        assert ["node", "fetch"] in shown.rows
        assert perdure("jobs", "get", job.id, "--json").json["node"] == {
            "run": "order-5",
            "key": "fetch",
        }

    @pytest.mark.parametrize("command", ["cancel", "retry"])
    def test_are_left_unchanged(self, perdure, client, command):
        client.submit(sample_flows.orders, 5, id="order-5")
        [job] = client.jobs.list()
        before = client.jobs.get(job.id)
        done = perdure("jobs", command, job.id)
        assert (done.exit_code, done.out) == (1, "")
        assert "order-5" in done.error
        assert client.jobs.get(job.id) == before


class TestWatch:
    def test_follows_a_job_from_another_process(self, client, url, folder):
        release = folder / "release"
        job = client.enqueue(sample.hold, str(release))
        command = [sys.executable, "-m", "perdure.cli", "jobs", "watch", job.id, "--store", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            seen = [watching.stdout.readline().split()[0]]
            handle = Worker(url, tasks=[sample.hold]).start()
            seen.append(watching.stdout.readline().split()[0])
            release.touch()
            seen += [line.split()[0] for line in watching.stdout]
        handle.shutdown()

        assert handle.join(30)
        assert seen == ["waiting", "active", "completed"]
        assert watching.returncode == 0

    def test_exits_with_one_and_the_reason_when_it_failed(self, perdure, client, url):
        job = client.enqueue(sample.fail, "boom")
        finish(url, client, job.id)
        shown = perdure("jobs", "watch", job.id)
        assert shown.exit_code == 1
        assert shown.rows[-1][0] == "failed"
        assert "RuntimeError: boom" in shown.error

    def test_prints_json_lines(self, perdure, client, url):
        job = client.enqueue(sample.add, 1, 2)
        finish(url, client, job.id)
        shown = perdure("jobs", "watch", job.id, "--json")
        assert shown.json["status"] == "completed"
        assert shown.json["progress"]["percent"] == 100


# ``perdure queues list`` and ``perdure workers list``.


class TestDepth:
    def test_counts_by_queue_and_status(self, perdure, client):
        client.enqueue_many(sample.greet, ["a", "b"])
        client.enqueue(sample.add.options(delay="1h"), 1, 2)

        assert perdure("queues", "list").rows == [
            ["QUEUE", "WAITING", "SCHEDULED"],
            ["default", "1"],
            ["mail", "2"],
            ["total", "2", "1"],
        ]

    def test_counts_runs_below_with_those_that_wait_for_people(self, perdure, client, url):
        flow = Flow("asks").approve("Ship it?", name="check").build()
        client.submit(flow)
        Worker(url, flows=[flow]).run_until_idle()

        assert perdure("queues", "list").rows == [
            ["no", "jobs"],
            [],
            ["RUNS", "OF", "WAITING", "FOR", "PEOPLE"],
            ["default", "1", "1"],
        ]
        [runs] = perdure("queues", "list", "--json").json["runs"]
        assert (runs["counts"], runs["waiting_for_people"]) == ({"waiting": 1}, 1)

    def test_marks_a_paused_queue_even_without_jobs(self, perdure, client):
        client.queues.pause("mail", by="ann")
        shown = perdure("queues", "list")
        assert ["mail", "(paused)"] in shown.rows
        queues = perdure("queues", "list", "--json").items
        assert [(each["name"], each["paused_by"]) for each in queues] == [("mail", "ann")]


class TestWorkers:
    def test_lists_those_that_are_alive(self, perdure, client, url):
        handle = Worker(url, tasks=[sample.add], concurrency=7, id="w-1", tags=["gpu"]).start()
        try:
            shown = perdure("workers", "list")
            as_json = perdure("workers", "list", "--json").items
        finally:
            handle.shutdown()
            handle.join()

        heads, row = shown.rows
        found = dict(zip(heads, row, strict=True))
        assert found["WORKER"] == "w-1"
        assert found["PID"] == str(os.getpid())
        assert found["RUNS"] == "0/7"
        assert found["TAGS"] == "gpu"
        assert found["STATE"] == "live"
        assert [(each["info"]["id"], each["status"]) for each in as_json] == [("w-1", "live")]

    def test_says_of_one_that_was_killed_that_it_is_silent(self, perdure, client, url):
        record_worker(url, id="w-2", lease=timedelta(microseconds=1))
        heads, row = perdure("workers", "list").rows
        [as_json] = perdure("workers", "list", "--json").items
        assert row[heads.index("STATE")] == "silent"
        assert (as_json["info"]["id"], as_json["status"]) == ("w-2", "silent")


class TestPrune:
    def test_counts_first_and_removes_on_request(self, perdure, client, failed):
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

    @pytest.mark.parametrize(
        "age, status, removed",
        [("1h", "failed", 0), ("0s", "completed", 0), ("0s", "failed", 1)],
    )
    def test_leaves_what_is_younger_or_ended_otherwise(
        self, perdure, client, failed, age, status, removed
    ):
        only = ("--older-than", age, "--status", status, "--yes", "--json")
        assert perdure("store", "prune", *only).json["removed"] == removed
        assert len(client.runs.list()) == 1 - removed


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

    def test_lists_those_of_a_module(self):
        shown = Commands(None)("flows", "list", "tests.cli.sample_flows:orders")
        assert ["orders", sample_flows.orders.version] in [row[:2] for row in shown.rows]
        as_json = Commands(None)("flows", "list", "tests.cli.sample_flows:orders", "--json").json
        assert {each["name"] for each in as_json} == {"orders", "shipping"}


class TestSubmit:
    def test_a_flow_in_a_file_is_submitted_too(self, perdure, client, tmp_path):
        file = tmp_path / "wait.yaml"
        file.write_text(
            "flow: wait\nnodes:\n  - id: pause\n    type: delay\n    config: {for: 1h}\n"
        )
        shown = perdure("submit", str(file), "--id", "w-1", "--json").json
        assert shown == {"id": "w-1", "is_new": True}
        assert client.runs.get("w-1").flow == "wait"
