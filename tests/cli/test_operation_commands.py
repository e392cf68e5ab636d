"""Commands made of operations: enqueueing, scheduling, counting, pages, defaults, completion."""

from __future__ import annotations

import getpass
from datetime import datetime

import pytest
from click.shell_completion import ShellComplete

from perdure.cli.app import app
from tests.cli import sample_flows, sample_tasks
from tests.cli.test_errors import assert_told

TASKS = "tests.cli.sample_tasks"


class TestEnqueue:
    def test_takes_arguments_as_json_and_options(self, perdure, client):
        done = perdure(
            "enqueue", f"{TASKS}:add", "1", "2", "--queue", "slow", "--delay", "1h", "--tag", "gpu"
        )

        [job] = client.jobs.list()
        assert done.out == f"{job.id} is enqueued\n"
        assert (job.queue, job.status, job.tags) == ("slow", "scheduled", ("gpu",))
        assert client.jobs.get(job.id).args == [1, 2]

    def test_takes_arguments_by_name(self, perdure, client):
        perdure("jobs", "enqueue", f"{TASKS}:greet", "--kwargs", '{"name": "ann"}')

        [job] = client.jobs.list()
        assert client.jobs.get(job.id).args == ["ann"]

    def test_says_that_the_fingerprint_is_taken(self, perdure, client):
        again = ("enqueue", f"{TASKS}:add", "1", "2", "--fingerprint", "once")

        first = perdure(*again, "--json").json
        assert first["is_new"]
        assert perdure(*again, "--json").json == {**first, "is_new": False}

    @pytest.mark.parametrize(
        "words, told",
        [
            ([f"{TASKS}:add", "one"], "ARG 'one' is not JSON"),
            ([f"{TASKS}:add", "1"], "task 'add'"),
            (["tests.cli.sample_flows:orders"], "not a task"),
            ([TASKS], "must name one task or flow"),
            ([f"{TASKS}:add", "1", "2", "--run-at", "soon"], "--run-at 'soon' is not a time"),
            ([f"{TASKS}:add", "1", "2", "--delay", "soon"], "--delay must be a duration"),
        ],
    )
    def test_tells_what_cannot_be_understood(self, words, told, perdure, client):
        client.open()

        assert_told(perdure("enqueue", *words), 2, told)


class TestSchedules:
    def test_are_saved_of_flows_and_of_tasks(self, perdure, client):
        flow = ("nightly", "tests.cli.sample_flows:orders", "--cron", "0 3 * * *", "--input", "5")
        task = ("adding", f"{TASKS}:add", "--every", "1h", "--args", "[1, 2]", "--paused")

        assert perdure("schedules", "save", *flow).out.startswith("nightly is saved; next: ")
        assert perdure("schedules", "save", *task).exit_code == 0
        assert client.schedules.get("nightly").flow == "orders"
        assert client.schedules.get("adding").is_paused

    def test_times_are_local_unless_they_say_otherwise(self, perdure, client):
        words = ("x", f"{TASKS}:add", "--every", "1h", "--args", "[1, 2]")
        perdure("schedules", "save", *words, "--start-at", "2100-01-01T12:00")

        assert client.schedules.get("x").start_at == datetime(2100, 1, 1, 12).astimezone()


class TestReading:
    def test_counts(self, perdure, client):
        client.enqueue(sample_tasks.add, 1, 2)

        assert perdure("jobs", "count", "--status", "waiting").out == "1\n"
        assert perdure("runs", "count", "--json").json == 0

    def test_pages_as_json(self, perdure, client):
        ids = [job.id for job in client.enqueue_many(sample_tasks.greet, ["a", "b", "c"])]

        first = perdure("jobs", "list", "--limit", "2", "--json")
        rest = perdure("jobs", "list", "--json", "--cursor", first.json["next"])

        assert [each["id"] for each in (*first.items, *rest.items)] == ids[::-1]
        assert rest.json["next"] is None

    def test_attempts_of_a_job_that_has_not_failed(self, perdure, client):
        job = client.enqueue(sample_tasks.add, 1, 2)

        assert perdure("jobs", "attempts", job.id).out == "no failed attempts\n"

    def test_a_cursor_of_another_list_is_refused(self, perdure, client):
        for id in ("a", "b"):
            client.submit(sample_flows.orders, 5, id=id)
        cursor = perdure("runs", "list", "--limit", "1", "--json").json["next"]

        assert_told(perdure("jobs", "list", "--cursor", cursor), 2, "is not a cursor of jobs.list")


def test_who_does_it_is_the_login_name_unless_another_is_given(perdure, client):
    client.submit(sample_flows.orders, 5, id="a")

    perdure("runs", "pause", "a")

    assert client.runs.get("a").by == getpass.getuser()


@pytest.mark.parametrize(
    "words, incomplete, completed",
    [
        ([], "do", ["doctor"]),
        (["runs"], "re", ["report", "resume", "retry"]),
        (["runs", "list"], "--st", ["--status", "--store"]),
        (["runs", "list", "--status"], "co", ["compensating", "completed"]),
        (["submit", "--on-conflict"], "f", ["fail"]),
    ],
)
def test_shells_complete(words, incomplete, completed):
    found = ShellComplete(app, {}, "perdure", "_PERDURE_COMPLETE").get_completions(
        words, incomplete
    )

    assert [each.value for each in found] == completed
