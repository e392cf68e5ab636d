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
    NotDecider,
    NotFound,
    RunEnded,
    StoreError,
    UnknownTask,
)
from tests.cli import sample_flows
from tests.cli.harness import Commands, assert_refused
from tests.cli.test_command_tree import COMMANDS, option_names


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
        assert_refused(perdure("runs", "get", "nope"), 1, "run 'nope' not found")

    def test_suggests_commands(self, perdure, client):
        client.submit(sample_flows.orders, 5, id="order-5")
        client.runs.cancel("order-5")

        answer = perdure("runs", "pause", "order-5", "--json")

        error = json.loads(answer.error)["error"]
        assert error["code"] == "run.ended"
        retry, fork = error["actions"]
        assert (retry["operation"], retry["args"]) == ("runs.retry", {"id": "order-5"})
        assert retry["rendered"].startswith("perdure runs retry order-5")
        assert (fork["operation"], fork["asks"]) == ("runs.fork", ["after"])


class TestExitCodes:
    def test_help_tells_all_of_them(self):
        assert {int(each) for each in re.findall(r"\d+", EXIT_CODES)} == set(ExitCode)

    def test_a_missing_store_is_bad_usage(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

        assert_refused(
            Commands(None)("queues", "list"),
            2,
            "--store URL",
            "PERDURE_STORE",
            "perdure.db was not found",
        )

    def test_without_a_store_the_one_in_the_current_folder_is_meant(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with Client("sqlite:///perdure.db") as client:
            client.queues.pause("mail")
        assert "mail (paused)" in Commands(None)("queues", "list").out

    @pytest.mark.parametrize("url", ["mysql://host/db", "work.db", "sqlite://work.db"])
    def test_a_wrong_url_is_bad_usage(self, url):
        assert_refused(Commands(url)("queues", "list"), 2, url, "sqlite:///")

    def test_memory_cannot_be_looked_into(self):
        for words in (["queues", "list"], ["verify"]):
            assert_refused(Commands("memory://x")(*words), 2, "one process")

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
            assert_refused(answer, answer.exit_code, "***")
            assert answer.exit_code > 1
            assert "hunter2" not in answer.error

    @pytest.mark.parametrize("name", ["typo.db", "typo/work.db"])
    def test_a_missing_file_is_3_and_is_not_created(self, tmp_path, name):
        file = tmp_path / name
        assert_refused(Commands(f"sqlite:///{file}")("queues", "list"), 3, name)
        assert not file.exists()

    def test_a_file_of_another_type_is_3(self, tmp_path):
        file = tmp_path / "notes.txt"
        file.write_text("dear diary " * 1000)
        assert_refused(Commands(f"sqlite:///{file}")("queues", "list"), 3, "notes.txt")

    @pytest.mark.parametrize("command", ["run", "submit"])
    def test_a_flow_that_is_not_there_makes_no_store(self, command, tmp_path):
        file = tmp_path / "new.db"
        assert_refused(Commands(f"sqlite:///{file}")(command, "nope"), 2, "module 'nope' not found")
        assert not file.exists()

    def test_a_namespace_that_is_no_name_is_bad_usage(self, perdure, client):
        assert_refused(perdure("queues", "list", "--namespace", ""), 2, "namespace")


class TestBadUsage:
    @pytest.mark.parametrize(
        "words, code, name",
        [
            (["jobs", "list", "--colour"], "cli.unknown_option", "--colour"),
            (["--json", "jobs", "list"], "cli.misplaced_option", "--json"),
            (["jobz"], "cli.unknown_command", "jobz"),
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
        assert_refused(perdure("jobs", "get", "a", "b", "--", "--json"), 2, "extra argument")

    @pytest.mark.parametrize(
        "words, name",
        [
            (["store", "prune", "--older-than", "soon"], "--older-than"),
            (["jobs", "list", "--queue", ""], "--queue"),
            (["waits", "list", "--name", ""], "--name"),
        ],
    )
    def test_of_an_argument_names_it_as_the_command_does(self, words, name, perdure, client):
        client.open()
        assert_refused(perdure(*words), 2, f"perdure: {name} must be")


class TestOptions:
    @pytest.mark.parametrize("before", [[], ["runs"]])
    def test_of_a_command_that_stand_before_it(self, before, perdure):
        told = perdure(*before, "--store", "sqlite:///work.db", "list")
        path = " ".join(["perdure", *before])
        assert_refused(told, 2, f"--store goes after the command. Write {path} COMMAND --store")

    def test_an_id_of_no_approval_is_quoted_once(self, perdure, client):
        client.open()
        assert_refused(
            perdure("approvals", "get", "nope"),
            1,
            "approval 'nope' not found: the id of an approval is RUN:NODE",
        )


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
        assert_refused(perdure("store", "export", "-"), 2, "needs a file, not stdout")
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

    def test_parameters_are_options(self):
        error = NotDecider(approval_id="o:ask", by="eve", deciders=("ann",))
        assert error_line(error, CliRenderer()).endswith(
            "with --by, and in which roles with --role"
        )

    def test_parameters_without_an_option_are_those_of_the_application(self):
        assert error_line(UnknownTask(name="mail"), CliRenderer()).endswith(
            "Pass the task in tasks=..."
        )

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

    @pytest.mark.parametrize("command", [["runs", "cancel", "a"], ["signal", "a", "approval"]])
    def test_a_command_suggests_others_on_its_store(self, command, url, client):
        client.submit(sample_flows.orders, 5, id="a")
        client.runs.cancel("a")
        done = Commands(None)(*command, "--store", url)
        assert done.exit_code == 1
        assert (
            f"perdure runs retry a --store {url} or perdure runs fork a --after NODE" in done.error
        )
