"""``perdure queues list`` and ``perdure workers list``."""

from __future__ import annotations

import os
from datetime import timedelta

from perdure import Worker
from tests.cli import sample_tasks as sample
from tests.cli.records import record_worker


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

    def test_marks_a_paused_queue_even_without_jobs(self, perdure, client):
        client.queues.pause("mail", by="ann")

        shown = perdure("queues", "list")
        assert ["mail", "(paused)"] in shown.rows

        queues = perdure("queues", "list", "--json").items
        assert [(each["name"], each["paused_by"]) for each in queues] == [("mail", "ann")]

    def test_says_that_there_is_nothing(self, perdure, client):
        assert perdure("queues", "list").out == "no jobs\n"
        assert perdure("queues", "list", "--json").items == []


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
        assert [(each["info"]["id"], each["state"]) for each in as_json] == [("w-1", "live")]
        assert perdure("workers", "list").out == "no workers\n"

    def test_says_of_one_that_was_killed_that_it_is_silent(self, perdure, client, url):
        record_worker(url, id="w-2", lease=timedelta(microseconds=1))

        heads, row = perdure("workers", "list").rows
        [as_json] = perdure("workers", "list", "--json").items

        assert row[heads.index("STATE")] == "silent"
        assert (as_json["info"]["id"], as_json["state"]) == ("w-2", "silent")
