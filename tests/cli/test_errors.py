"""Expected errors: one line that names the thing, an exit code, no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import Client
from perdure.cli.output import EXIT_CODES, ExitCode, error_line, exit_code_of
from perdure.cli.renderer import _OPTIONS, CliRenderer
from perdure.diagnostics import declare
from perdure.errors import (
    Conflict,
    InvalidFlow,
    InvalidStoreUrl,
    NotFound,
    RunEnded,
    StoreError,
    UnknownTask,
)
from tests.cli import sample_flows
from tests.cli.harness import Commands
from tests.cli.test_command_tree import COMMANDS, option_names

ORDERS = "tests.cli.sample_flows:orders"


class TestJson:
    def test_has_code_arguments_and_actions_with_their_commands(self, perdure, client):
        answer = perdure("runs", "get", "nope", "--json")

        assert (answer.exit_code, answer.out) == (1, "")
        assert json.loads(answer.error)["error"] == {
            "code": "run.not_found",
            "args": {"run_id": "nope", "what": "run"},
            "actions": [],
            "severity": "error",
            "message": "run 'nope' not found. It may have been pruned",
            "faults": [
                {
                    "code": "run.not_found",
                    "args": {"run_id": "nope", "what": "run"},
                    "actions": [],
                    "severity": "error",
                    "where": [],
                    "message": "run 'nope' not found. It may have been pruned",
                }
            ],
        }

    def test_of_one_command_does_not_outlast_it(self, perdure, client):
        perdure("runs", "get", "nope", "--json")
        [line] = perdure("runs", "get", "nope").error.splitlines()
        assert line.startswith("perdure: ")

    def test_suggests_commands(self, perdure, client):
        client.submit(sample_flows.orders, 5, id="order-5")
        client.runs.cancel("order-5")

        error = perdure.refused("run.ended", "runs", "pause", "order-5", exit_code=1)

        retry, fork = error["actions"]
        assert (retry["operation"], retry["args"]) == ("runs.retry", {"id": "order-5"})
        assert retry["rendered"].startswith("perdure runs retry order-5")
        assert (fork["operation"], fork["asks"]) == ("runs.fork", ["after"])


class TestExitCodes:
    def test_help_lists_all_of_them(self):
        assert {int(each) for each in re.findall(r"\d+", EXIT_CODES)} == set(ExitCode)

    def test_a_missing_store_is_bad_usage(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Commands(None).refused("cli.which_store", "queues", "list", file="perdure.db")

    def test_without_a_store_the_one_in_the_current_folder_is_meant(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with Client("sqlite:///perdure.db") as client:
            client.queues.pause("mail")
        assert "mail (paused)" in Commands(None)("queues", "list").out

    @pytest.mark.parametrize("url", ["mysql://host/db", "work.db", "sqlite://work.db"])
    def test_a_wrong_url_is_bad_usage(self, url):
        for words in (["queues", "list"], ["doctor"]):
            Commands(url).refused("store.invalid_url", *words, url=url)

    def test_memory_cannot_be_looked_into(self):
        for words in (["queues", "list"], ["verify"]):
            Commands("memory://x").refused("cli.store_in_memory", *words)

    @pytest.mark.parametrize(
        "url",
        [
            "sqlite://me:hunter2@[::1/db",
            "sqlite://127.0.0.1/none?sslpassword=hunter2",
            "memory://me:hunter2@127.0.0.1",
            "postgresql:me:hunter2@127.0.0.1:1/x",
            "me:hunter2@127.0.0.1/x",
            "postgresql://127.0.0.1:1/x?PASSWORD=hunter2",
        ],
    )
    def test_no_error_shows_the_password_of_a_url(self, url):
        """Finding 14: also of malformed URLs."""
        for answer in (
            Commands(url)("queues", "list"),
            Commands(None)("queues", "list", "--store", url),
        ):
            assert answer.exit_code > 1
            assert "***" in answer.error
            assert "hunter2" not in answer.error

    @pytest.mark.parametrize("name", ["typo.db", "typo/work.db"])
    def test_a_missing_file_is_3_and_is_not_created(self, tmp_path, name):
        url = f"sqlite:///{tmp_path / name}"
        Commands(url).refused("store.unreachable", "queues", "list", exit_code=3, url=url)
        assert not (tmp_path / name).exists()

    def test_a_file_of_another_type_is_3(self, tmp_path):
        (tmp_path / "notes.txt").write_text("dear diary " * 1000)
        url = f"sqlite:///{tmp_path}/notes.txt"
        Commands(url).refused("store.unreachable", "queues", "list", exit_code=3, url=url)

    @pytest.mark.parametrize("command", ["run", "submit"])
    def test_a_flow_that_is_not_there_makes_no_store(self, command, tmp_path):
        Commands(f"sqlite:///{tmp_path}/new.db").refused("cli.no_module", command, "nope")
        assert not (tmp_path / "new.db").exists()


class TestBadUsage:
    @pytest.mark.parametrize(
        "words, code, name",
        [
            (["jobs", "list", "--colour"], "cli.unknown_option", "--colour"),
            (["--json", "jobs", "list"], "cli.misplaced_option", "--json"),
            (["--store", "sqlite:///work.db", "list"], "cli.misplaced_option", "--store"),
            (["runs", "--store", "a", "list"], "cli.misplaced_option", "--store"),
            (["jobz"], "cli.unknown_command", "jobz"),
            (["runs", "gte"], "cli.unknown_command", "gte"),
            (["runs", "get"], "cli.missing", "ID"),
            (["store", "prune"], "cli.missing", "--older-than"),
            (["jobs", "list", "--limit", "x"], "cli.invalid_value", "--limit"),
            (["jobs", "list", "--status", "lost"], "argument.choice", "--status"),
            (["jobs", "get", "a", "b"], "cli.usage", None),
        ],
    )
    def test_is_json_with_a_code_where_json_is_asked_for(self, words, code, name, perdure):
        answer = perdure(*words, *([] if "--json" in words else ["--json"]))
        assert (answer.exit_code, answer.out) == (2, "")
        error = json.loads(answer.error)["error"]
        assert (error["code"], error["args"].get("name"), error["actions"]) == (code, name, [])

    def test_is_text_where_json_is_an_argument(self, perdure):
        answer = perdure("jobs", "get", "a", "b", "--", "--json")
        assert answer.exit_code == 2
        assert answer.error.startswith("perdure: ")

    @pytest.mark.parametrize(
        "words, name",
        [
            (["store", "prune", "--older-than", "soon"], "--older-than"),
            (["jobs", "list", "--queue", ""], "--queue"),
            (["waits", "list", "--name", ""], "--name"),
            (["queues", "list", "--namespace", ""], "--namespace"),
            (["enqueue", "tests.cli.sample_tasks:add", "1", "2", "--delay", "x"], "--delay"),
            (["schedules", "save", "x", f"{ORDERS}", "--cron", "bad"], "--cron"),
        ],
    )
    def test_of_an_argument_names_it_as_the_command_does(self, words, name, perdure, client):
        client.open()
        answer = perdure(*words)
        assert answer.exit_code == 2
        assert answer.error.startswith(f"perdure: {name} ")


class TestOutput:
    @pytest.mark.parametrize("flags", [[], ["--json"]])
    def test_without_room_is_one_line(self, flags, client, url):
        client.queues.pause("mail")

        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "perdure.cli", "queues", "list", *flags, "--store", url],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )

        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert line.startswith("perdure: cannot write: No space left on device")

    def test_of_an_export_needs_a_file(self, perdure, client, tmp_path, monkeypatch):
        client.open()
        monkeypatch.chdir(tmp_path)
        perdure.refused("cli.export_to_stdout", "store", "export", "-")
        assert not Path("-").exists()


class TestNoTraceback:
    """Expected errors: one line that names the thing, an exit code, no traceback."""

    def test_the_package_runs_as_a_program(self, tmp_path):
        done = subprocess.run(
            [sys.executable, "-m", "perdure", "--version"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert (done.returncode, done.stdout.split()[0]) == (0, "perdure")


TOO_DEEP = declare("test.too_deep", "too deep")


class TestRenderer:
    """Errors in the words of the command line: options, commands, one line."""

    def test_every_option_exists(self):
        existing = set().union(*map(option_names, COMMANDS))
        assert set(_OPTIONS.values()) <= existing

    def test_faults_are_on_one_line(self):
        error = InvalidFlow(TOO_DEEP.fault(("a", 1)), TOO_DEEP.fault(("b",)), flow="ship")
        assert (
            error_line(error, CliRenderer())
            == "flow 'ship' cannot be built: a.1: too deep; too deep"
        )

    def test_messages_of_several_lines_are_joined(self):
        assert error_line(StoreError("disk full\n\tat 3"), CliRenderer()) == "disk full at 3"

    @pytest.mark.parametrize(
        "error, code",
        [
            (UnknownTask(name="mail"), ExitCode.USAGE),
            (InvalidStoreUrl(url="x", reason="y"), ExitCode.USAGE),
            (StoreError("x"), ExitCode.STORE),
            (NotFound("x"), ExitCode.REFUSED),
            (Conflict("x"), ExitCode.REFUSED),
            (RunEnded(run_id="r", operation="pause", status="failed"), ExitCode.REFUSED),
        ],
    )
    def test_the_base_of_an_error_decides_the_exit_code(self, error, code):
        assert exit_code_of(error) is code
