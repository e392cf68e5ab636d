"""``perdure runs``: what operators do to runs, and how they begin some."""

from __future__ import annotations

import pytest

from tests.cli import sample_flows as sample
from tests.cli import sample_tasks
from tests.cli.commands import Commands

MODULE = "tests.cli.sample_flows"
ORDERS = f"{MODULE}:orders"


class TestSubmit:
    def test_begins_a_run_under_an_id_of_ones_own(self, perdure, client):
        done = perdure("runs", "submit", ORDERS, "5", "--id", "order-5")

        assert done.exit_code == 0
        assert done.out == f"order-5 started, a run of orders@{sample.orders.version}\n"
        assert client.runs.handle("order-5").events()[0].value == 5

    def test_makes_up_an_id_and_tells_it(self, perdure, client):
        done = perdure("runs", "submit", f"{MODULE}:shipping", "--json").json

        assert done["is_new"] is True
        assert client.runs.get(done["id"]).flow == "shipping"

    def test_may_be_the_first_to_use_a_store(self, tmp_path):
        file = tmp_path / "new.db"

        done = Commands(f"sqlite:///{file}")("runs", "submit", ORDERS, "5")

        assert done.exit_code == 0
        assert file.exists()

    @pytest.mark.parametrize(
        "policy, exit_code, status",
        [
            ("fail", 1, "paused"),
            ("use_existing", 0, "paused"),
            ("replace", 0, "running"),
        ],
    )
    def test_of_an_id_that_is_taken_does_as_it_is_told(
        self, perdure, client, policy, exit_code, status
    ):
        client.submit(sample.orders, 5, id="order-5")
        client.runs.pause("order-5")

        done = perdure("runs", "submit", ORDERS, "6", "--id", "order-5", "--on-conflict", policy)

        assert done.exit_code == exit_code
        assert client.runs.get("order-5").status == status

    def test_says_that_it_found_the_run(self, perdure, client):
        client.submit(sample.orders, 5, id="order-5")
        again = ("runs", "submit", ORDERS, "5", "--id", "order-5", "--on-conflict", "use_existing")

        assert perdure(*again).out == "order-5 exists already\n"
        assert perdure(*again, "--json").json["is_new"] is False


class TestSignal:
    def test_is_brought_with_payload_and_name(self, perdure, waiting):
        done = perdure("runs", "signal", "order-5", "approval", '{"ok":true}', "--by", "ann")

        assert done.exit_code == 0
        assert done.out.startswith("order-5 has the signal approval, and is ")
        waiting.result(timeout=30)
        [event] = [each for each in waiting.events() if each.type == "signal_received"]
        assert (event.value, event.details["by"]) == ({"ok": True}, "ann")

    def test_that_no_node_waits_for_is_refused(self, perdure, client):
        client.submit(sample.orders, 5, id="order-5")

        done = perdure("runs", "signal", "order-5", "aproval")

        assert done.exit_code == 2
        assert "did you mean 'approval'?" in done.error


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

    def test_pausing_again_says_so(self, perdure, client):
        client.submit(sample.orders, 5, id="a")
        client.runs.pause("a")

        assert perdure("runs", "pause", "a").out == "a was paused already\n"

    def test_one_that_refuses_does_not_keep_the_others_from_it(self, perdure, client):
        client.submit(sample.orders, 5, id="a")
        client.submit(sample.orders, 5, id="b")
        client.runs.pause("b")

        done = perdure("runs", "resume", "a", "nope", "b")

        assert done.exit_code == 1
        assert done.out == "b is running, was paused\n"
        assert "run 'a': it is running, not paused" in done.error
        assert "run 'nope' not found" in done.error

    def test_want_to_know_which(self, perdure, client):
        for command in ("pause", "resume", "cancel", "retry"):
            answer = perdure("runs", command)
            assert answer.exit_code == 2
            assert f"ID is required. See perdure runs {command} --help" in answer.error


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

    def test_of_an_ended_run_is_refused(self, perdure, client):
        client.submit(sample.orders, 5, id="a")
        client.runs.cancel("a")

        for command in ("cancel", "pause", "resume"):
            done = perdure("runs", command, "a")
            assert done.exit_code == 1
            assert "run 'a': it is cancelled. To run it again: perdure runs retry a" in done.error
        assert perdure("runs", "signal", "a", "approval").exit_code == 1


class TestRetry:
    def test_lets_a_failed_run_go_on(self, perdure, client):
        client.submit(sample.orders, 5, id="a")
        client.runs.cancel("a")

        done = perdure("runs", "retry", "a", "--by", "ann")

        assert done.out == "a is running, was cancelled\n"
        assert client.runs.handle("a").events()[-1].details["by"] == "ann"

    def test_of_a_live_run_is_refused(self, perdure, client):
        client.submit(sample.orders, 5, id="a")

        done = perdure("runs", "retry", "a")

        assert done.exit_code == 1
        assert "cannot retry run 'a': it is running" in done.error

    def test_of_an_unknown_run_speaks_of_runs(self, perdure, client):
        assert "run 'nope' not found" in perdure("runs", "retry", "nope").error

    def test_is_never_of_a_job_that_has_the_same_id(self, perdure, client):
        job = client.enqueue(sample_tasks.add, 1, 2)
        job.cancel()
        client.submit(sample.orders, 5, id=job.id)
        client.runs.cancel(job.id)

        assert perdure("runs", "retry", job.id).out == f"{job.id} is running, was cancelled\n"
        assert job.status == "cancelled"


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

    def test_parts_after_an_event(self, perdure, client, waiting):
        done = perdure("runs", "fork", "order-5", "--after", "1", "--json", "--by", "ann").json

        events = client.runs.handle(done["id"]).events()
        assert [event.type for event in events[:2]] == ["run_submitted", "run_forked"]

    def test_after_a_node_that_has_not_completed_is_refused(self, perdure, waiting):
        done = perdure("runs", "fork", "order-5", "--after", "bill")

        assert done.exit_code == 2
        assert "completed: 'fetch', 'pack'" in done.error


class TestMigrate:
    def test_moves_a_run_to_another_version(self, perdure, waiting):
        to = ("runs", "migrate", "order-5", "--to", f"{MODULE}:longer")
        new = sample.longer.version

        assert perdure(*to).out == f"order-5 continues in orders@{new}, and is waiting\n"
        assert perdure(*to, "--json").json["after"] == "waiting"
        assert waiting.record().version == new

    def test_says_in_one_line_what_stands_against_it(self, perdure, waiting):
        done = perdure("runs", "migrate", "order-5", "--to", f"{MODULE}:renamed")

        assert done.exit_code == 1
        [line] = done.error.splitlines()
        assert "node 'fetch' is completed, but the new version does not have it; " in line
        assert waiting.record().version == sample.orders.version


class TestWhatCannotBeUnderstood:
    @pytest.mark.parametrize(
        "arguments, told",
        [
            (["submit", ORDERS, "five"], "INPUT 'five' is not JSON"),
            (["submit", ORDERS, "five"], "needs quotes of its own: '\"five\"'"),
            (["submit", ORDERS, "[1,"], "INPUT '[1,' is not JSON"),
            (["submit", ORDERS, '"five"'], "argument 'number' of task 'fetch'"),
            (["submit", ORDERS, "5", "--id", "x" * 300], "256"),
            (["submit", f"{MODULE}:oders"], "has no 'oders'; did you mean 'orders'?"),
            (["submit", f"{MODULE}:not_built"], "call .build() on it"),
            (["submit", f"{MODULE}:worker"], "is 'Worker', not a flow"),
            (["submit", MODULE], f"{MODULE}:shipping, {ORDERS}"),
            (["submit", "tests.cli.sample_tasks"], "It has none"),
            (["submit", "tests.cli.nothere:x"], "module 'tests.cli.nothere' not found"),
            (["signal", "a", "approval", "yes"], "PAYLOAD 'yes' is not JSON"),
            (["fork", "a", "--patch", "{"], "--patch '{' is not JSON"),
            (
                ["fork", "a", "--patch", "[]"],
                "--patch must be a mapping of node ids to new outputs (got [])",
            ),
            (["fork", "a", "--after", "9"], "it has events 1 to 1"),
            (["migrate", "a", "--to", f"{MODULE}:worker"], "not a flow"),
            (["cancel", "a", "--by", ""], "by"),
        ],
    )
    def test_is_told_in_one_line_and_changes_nothing(self, perdure, client, arguments, told):
        client.submit(sample.orders, 5, id="a")

        done = perdure("runs", *arguments)

        assert done.exit_code == 2
        assert told in done.error
        assert len(done.error.splitlines()) == 1
        assert len(client.runs.list()) == client.runs.get("a").number == 1

    def test_includes_a_policy_that_does_not_exist(self, perdure):
        done = perdure("runs", "submit", ORDERS, "5", "--on-conflict", "shrug")

        assert done.exit_code == 2
        assert "replace" in done.error

    @pytest.mark.parametrize(
        "command", ["get", "events", "explain", "pause", "resume", "cancel", "fork"]
    )
    def test_an_unknown_run_is_told_with_1(self, perdure, client, command):
        done = perdure("runs", command, "nope")

        assert (done.exit_code, done.out) == (1, "")
        assert done.error.startswith("perdure: run 'nope' not found")
        assert len(done.error.splitlines()) == 1
