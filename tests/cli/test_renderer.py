"""Errors in the words of the command line: options, commands, one line."""

from __future__ import annotations

import pytest

from perdure.cli.output import ExitCode, error_line, exit_code_of
from perdure.cli.renderer import _OPTIONS, CliRenderer
from perdure.diagnostics import Action, declare
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
from tests.cli.commands import Commands
from tests.cli.test_command_tree import COMMANDS, options_of

TOO_DEEP = declare("test.too_deep", "too deep")


def test_parameters_are_options():
    error = NotDecider(approval_id="o:ask", by="eve", deciders=("ann",))

    assert error_line(error, CliRenderer()).endswith("with --by, and in which roles with --role")


def test_parameters_without_an_option_are_those_of_the_application():
    assert error_line(UnknownTask(name="mail"), CliRenderer()).endswith(
        "Pass the task in tasks=..."
    )


def test_every_option_exists():
    existing = set().union(*map(options_of, COMMANDS))

    assert set(_OPTIONS.values()) <= existing


def test_actions_are_commands_on_the_same_store():
    assert (
        CliRenderer(" --store b.db").action(Action("runs.retry", {"id": "a b"}))
        == "perdure runs retry 'a b' --store b.db"
    )


def test_faults_are_on_one_line():
    error = InvalidFlow(TOO_DEEP.fault(("a", 1)), TOO_DEEP.fault(("b",)), flow="ship")

    assert (
        error_line(error, CliRenderer()) == "flow 'ship' cannot be built: a.1: too deep; too deep"
    )


def test_messages_of_several_lines_are_joined():
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
def test_the_base_of_an_error_decides_the_exit_code(error, code):
    assert exit_code_of(error) is code


@pytest.mark.parametrize("command", [["runs", "cancel", "a"], ["signal", "a", "approval"]])
def test_a_command_suggests_others_on_its_store(command, url, client):
    client.submit(sample_flows.orders, 5, id="a")
    client.runs.cancel("a")

    done = Commands(None)(*command, "--store", url)

    assert done.exit_code == 1
    assert f"perdure runs retry a --store {url} or perdure runs fork a --after NODE" in done.error
