"""``perdure runs``, ``schedules`` and other operations: what operators do."""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime, timedelta

import pytest
from click.shell_completion import ShellComplete

from perdure import Client
from perdure.cli.app import app
from perdure.cli.views.schedules import schedule_columns
from tests.cli import sample_flows, sample_tasks
from tests.cli import sample_flows as sample
from tests.cli.harness import Commands

# ``perdure runs``: what operators do to runs, and how they begin some.


MODULE = "tests.cli.sample_flows"

ORDERS = f"{MODULE}:orders"


class TestSubmit:
    def test_starts_a_run_under_a_given_id(self, perdure, client):
        done = perdure("runs", "submit", ORDERS, "5", "--id", "order-5")
        assert done.exit_code == 0
        assert done.out == f"order-5 submitted, a run of orders@{sample.orders.version}\n"
        assert client.runs.handle("order-5").events()[0].value == 5

    def test_takes_the_settings_of_the_run(self, perdure, client):
        given = ["--priority", "high", "--delay", "1h", "--timeout", "2h", "--max-attempts", "4"]
        placed = [
            "--queue",
            "gpu",
            "--tag",
            "eu",
            "--timeout-skips-waiting",
            "--max-running",
            "3",
            "--sticky",
            "1s",
        ]
        perdure("runs", "submit", ORDERS, "5", "--id", "late", *given, *placed)
        changed = perdure("runs", "set-priority", "late", "1")
        run = client.runs.get("late")
        assert (changed.exit_code, run.status, run.priority) == (0, "queued", 1)
        settings = run.settings
        assert (settings.queue, settings.tags, settings.priority) == ("gpu", ("eu",), 2)
        assert (settings.timeout_ms, settings.max_attempts) == (7_200_000, 4)
        assert (settings.max_running, settings.sticky_ms) == (3, 1_000)
        assert (settings.timeout_counts_waiting, settings.delay_ms) == (False, 3_600_000)
        assert perdure("runs", "set-priority", "late", "urgent").exit_code == 2

    def test_generates_an_id_and_prints_it(self, perdure, client):
        done = perdure("runs", "submit", f"{MODULE}:shipping", "--json").json
        assert done["is_new"] is True
        assert client.runs.get(done["id"]).flow == "shipping"

    def test_may_be_the_first_to_use_a_store(self, tmp_path):
        file = tmp_path / "new.db"
        done = Commands(f"sqlite:///{file}")("runs", "submit", ORDERS, "5")
        assert done.exit_code == 0
        assert file.exists()

    def test_says_that_it_found_the_run(self, perdure, client):
        client.submit(sample.orders, 5, id="order-5")
        again = ("runs", "submit", ORDERS, "5", "--id", "order-5", "--on-conflict", "use_existing")
        assert perdure(*again).out == "order-5 exists already\n"
        assert perdure(*again, "--json").json["is_new"] is False


class TestSignal:
    def test_is_sent_with_payload_and_name(self, perdure, waiting):
        done = perdure("runs", "signal", "order-5", "approval", '{"ok":true}', "--by", "ann")
        assert done.exit_code == 0
        assert done.out.startswith("order-5 has the signal approval, and is ")
        waiting.result(timeout=30)
        [event] = [each for each in waiting.events() if each.type == "signal_received"]
        assert (event.value, event.details["by"]) == ({"ok": True}, "ann")


class TestPauseAndUnpause:
    def test_apply_to_each_with_reason_and_name(self, perdure, client):
        for id in ("a", "b"):
            client.submit(sample.orders, 5, id=id)

        paused = perdure("runs", "pause", "a", "b", "--reason", "lunch", "--by", "ann")
        record = client.runs.get("b")
        unpaused = perdure("runs", "resume", "a", "b", "--json")

        assert paused.out == "a is paused, was running\nb is paused, was running\n"
        assert (record.status, record.reason, record.by) == ("paused", "lunch", "ann")
        assert [(each["before"], each["after"]) for each in unpaused.json] == [
            ("paused", "running"),
            ("paused", "running"),
        ]

    def test_one_that_refuses_does_not_keep_the_others_from_it(self, perdure, client):
        client.submit(sample.orders, 5, id="a")
        client.submit(sample.orders, 5, id="b")
        client.runs.pause("b")

        done = perdure("runs", "resume", "a", "nope", "b", "--json")

        assert done.exit_code == 1
        assert [each["id"] for each in done.json] == ["b"]
        errors = [json.loads(line)["error"] for line in done.error.splitlines()]
        assert [(each["code"], each["args"]["run_id"]) for each in errors] == [
            ("run.not_paused", "a"),
            ("run.not_found", "nope"),
        ]


class TestCancel:
    def test_ends_a_run_with_reason_and_name(self, perdure, client):
        client.submit(sample.orders, 5, id="a")
        done = perdure("runs", "cancel", "a", "--reason", "out of stock", "--by", "ann")
        record = client.runs.get("a")
        assert done.out == "a is cancelled, was running\n"
        assert (record.status, record.reason, record.by) == ("cancelled", "out of stock", "ann")

    def test_undoes_what_was_completed_where_asked(self, perdure, waiting):
        done = perdure("runs", "cancel", "order-5", "--compensate")
        assert done.out == "order-5 is compensating, was waiting\n"
        node_types = [event.type for event in waiting.watch()]
        assert node_types[-2:] == ["node_undone", "run_cancelled"]


class TestRetry:
    def test_leaves_a_job_of_the_same_id_alone(self, perdure, client):
        """Finding 33: ``runs retry`` retried a job of that id first."""
        job = client.enqueue(sample_tasks.add, 1, 2)
        client.jobs.cancel(job.id)
        client.submit(sample.orders, 5, id=job.id)
        client.runs.cancel(job.id)
        assert perdure("runs", "retry", job.id).out == f"{job.id} is running, was cancelled\n"
        assert client.jobs.get(job.id).status == "cancelled"


class TestFork:
    def test_parts_after_a_node_with_another_output(self, perdure, client, waiting):
        patch = '{"fetch":{"number":6,"lines":["cup"]}}'
        done = perdure("runs", "fork", "order-5", "--after", "fetch", "--patch", patch, "--id", "b")

        assert done.exit_code == 0
        assert done.out.endswith(", a fork of order-5\n")
        fork = client.runs.handle("b")
        fork.signal("approval")
        fork.result(timeout=30)
        assert fork.outputs()["pack"] == ["packed cup"]
        assert waiting.status == "waiting"


class TestMigrate:
    def test_moves_a_run_to_another_version(self, perdure, waiting):
        to = ("runs", "migrate", "order-5", "--to", f"{MODULE}:longer")
        new = sample.longer.version
        assert perdure(*to).out == f"order-5 continues in orders@{new}, and is waiting\n"
        assert perdure(*to, "--json").json["after"] == "waiting"
        assert waiting.record().version == new

    def test_says_what_stands_against_it(self, perdure, waiting):
        to = ("runs", "migrate", "order-5", "--to", f"{MODULE}:renamed")
        perdure.refused("migration.node_missing", *to, exit_code=1, node="fetch")
        assert waiting.record().version == sample.orders.version


class TestWhatCannotBeUnderstood:
    @pytest.mark.parametrize(
        "arguments, code, args",
        [
            (["submit", ORDERS, "five"], "cli.not_json", {"what": "INPUT", "quoted": "'\"five\"'"}),
            (["submit", ORDERS, "[1,"], "cli.not_json", {"what": "INPUT", "quoted": ""}),
            (["submit", ORDERS, '"five"'], "task.invalid_argument", {"name": "number"}),
            (["submit", ORDERS, "5", "--id", "x" * 300], "run.id_too_long", {"most": 256}),
            (["submit", ORDERS, "5", "--on-conflict", "shrug"], "argument.choice", {}),
            (["submit", f"{MODULE}:oders"], "cli.no_attribute", {"nearest": ["orders"]}),
            (["submit", f"{MODULE}:not_built"], "cli.not_a_flow", {}),
            (["submit", f"{MODULE}:worker"], "cli.not_a_flow", {"found": "'Worker'"}),
            (["submit", MODULE], "cli.which_flow", {"advice": ""}),
            (["submit", "tests.cli.sample_tasks"], "cli.which_flow", {"known": ""}),
            (["submit", "tests.cli.nothere:x"], "cli.no_module", {"module": "tests.cli.nothere"}),
            (["signal", "a", "approval", "yes"], "cli.not_json", {"what": "PAYLOAD"}),
            (["fork", "a", "--patch", "{"], "cli.not_json", {"what": "--patch"}),
            (["fork", "a", "--patch", "[]"], "argument.type", {"name": "patch"}),
            (["fork", "a", "--after", "9"], "run.no_such_event", {"last": 1}),
            (["migrate", "a", "--to", f"{MODULE}:worker"], "cli.not_a_flow", {}),
            (["cancel", "a", "--by", ""], "argument.name", {"name": "by"}),
        ],
    )
    def test_is_reported_and_changes_nothing(self, perdure, client, arguments, code, args):
        client.submit(sample.orders, 5, id="a")
        perdure.refused(code, "runs", *arguments, **args)
        assert len(client.runs.list()) == client.runs.get("a").number == 1


# ``perdure schedules``: see them, stop them, start them.


FAR = datetime(2100, 1, 1, 3, tzinfo=UTC)


@pytest.fixture
def nightly(client: Client) -> str:
    """A schedule of a flow whose first tick is far away."""
    client.schedules.save(
        "nightly",
        sample.orders,
        input=5,
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        start_at=FAR,
        overlap="queue",
    )
    return "nightly"


class TestSave:
    def test_takes_a_flow_in_a_file(self, perdure, client, tmp_path):
        file = tmp_path / "ship.yaml"
        file.write_text("flow: ship\nnodes: [{id: first, task: fetch}]\n")
        what = ("schedules", "save", "shipping", str(file), "--every", "1h", "--input", "5")

        refused, saved = perdure(*what), perdure(*what, "--app", MODULE)

        assert (refused.exit_code, saved.exit_code) == (2, 0)
        assert "Pass --app MODULE" in refused.error
        assert client.schedules.get("shipping").flow == "ship"


class TestList:
    def test_shows_what_each_starts_and_when(self, perdure, client, nightly):
        client.schedules.save("sweeping", sample.fetch, args=[1], every="15m", paused=True)
        shown = perdure("schedules", "list")

        assert shown.exit_code == 0
        heads, first, second = shown.rows
        assert heads[:3] == ["SCHEDULE", "STATUS", "STARTS"]
        assert first[:4] == ["nightly", "active", "flow", "orders"]
        assert second[:4] == ["sweeping", "paused", "task", "fetch"]
        assert "0 3 * * *" in shown.out
        assert "every 15m" in shown.out

    def test_a_tick_that_no_worker_has_processed_is_due(self, client, nightly):
        after = FAR + timedelta(days=1, hours=2)
        columns = schedule_columns(client.schedules.list(), after, is_across=False)
        [due] = [column.cells for column in columns if column.title == "NEXT"]
        assert due == ["due for 3h"]


class TestShow:
    def test_shows_all_of_one(self, perdure, client, nightly):
        run = client.schedules.trigger("nightly", by="ann")
        shown = perdure("schedules", "get", "nightly")

        assert shown.exit_code == 0
        for text in (
            "flow orders",
            "0 3 * * * (Europe/Berlin)",
            "queue",
            "1 started, 0 skipped, 0 missed, 0 failed",
            run.id,
            "triggered by ann",
        ):
            assert text in shown.out


class TestActing:
    def test_pausing_and_resuming(self, perdure, client, nightly):
        assert perdure("schedules", "pause", "nightly", "--by", "ann").out == (
            "nightly is paused by ann\n"
        )
        assert client.schedules.get("nightly").is_paused
        assert "ann" in perdure("schedules", "get", "nightly").out
        resumed = perdure("schedules", "resume", "nightly")
        assert resumed.out.startswith("nightly is resumed; next: 2100-01-02")
        assert not client.schedules.get("nightly").is_paused

    def test_triggering_a_flow(self, perdure, client, nightly):
        done = perdure("schedules", "trigger", "nightly", "--json").json
        assert done["run"].startswith("nightly@manual-")
        assert client.runs.get(done["run"]).flow == "orders"
        assert "started run nightly@manual-" in perdure("schedules", "trigger", "nightly").out

    def test_triggering_a_task(self, perdure, client):
        client.schedules.save("fetching", sample.fetch, args=[1], every="1h")
        done = perdure("schedules", "trigger", "fetching")
        [job] = client.jobs.list()
        assert done.out == f"started job {job.id}\n"

    def test_deleting(self, perdure, client, nightly):
        assert perdure("schedules", "delete", "nightly").out == "nightly is deleted\n"
        assert list(client.schedules.list()) == []
        assert perdure("schedules", "delete", "nightly").exit_code == 1

    @pytest.mark.parametrize(
        "option, text, code",
        [
            ("--cron", "bad", "schedule.invalid_cron"),
            ("--cron", "0 0 31 2 *", "schedule.invalid_cron"),
            ("--timezone", "Mars", "schedule.unknown_timezone"),
        ],
    )
    def test_refuses_what_is_no_time(self, perdure, client, option, text, code):
        client.open()
        save = ("schedules", "save", "nightly", ORDERS, "--input", "1", "--cron", "0 3 * * *")
        perdure.refused(code, *save, option, text)


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
        "words, code",
        [
            ([f"{TASKS}:add", "one"], "cli.not_json"),
            ([f"{TASKS}:add", "1"], "task.invalid_call"),
            (["tests.cli.sample_flows:orders"], "cli.not_a_task"),
            ([TASKS], "cli.which_target"),
            ([f"{TASKS}:add", "1", "2", "--run-at", "soon"], "cli.not_a_time"),
            ([f"{TASKS}:add", "1", "2", "--delay", "soon"], "argument.duration"),
        ],
    )
    def test_names_what_cannot_be_parsed(self, words, code, perdure, client):
        client.open()
        perdure.refused(code, "enqueue", *words)


class TestSchedules:
    def test_are_saved_of_flows_and_of_tasks(self, perdure, client):
        flow = ("nightly", "tests.cli.sample_flows:orders", "--cron", "0 3 * * *", "--input", "5")
        task = ("adding", f"{TASKS}:add", "--every", "1h", "--args", "[1, 2]", "--paused")
        named = ("named", f"{TASKS}:add", "--every", "1h", "--kwargs", '{"a": 1, "b": 2}')
        assert perdure("schedules", "save", *flow).out.startswith("nightly is saved; next: ")
        for words in (task, named):
            assert perdure("schedules", "save", *words).exit_code == 0
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


class TestOperations:
    """Commands made of operations: who acts, defaults, pages, completion."""

    def test_who_does_it_is_the_login_name_unless_another_is_given(self, perdure, client):
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
    def test_shells_complete(self, words, incomplete, completed):
        found = ShellComplete(app, {}, "perdure", "_PERDURE_COMPLETE").get_completions(
            words, incomplete
        )
        assert [each.value for each in found] == completed
