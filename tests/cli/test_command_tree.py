"""What holds for every command: help, JSON, and errors in one line with the documented code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.cli.app import ALIASES, SUMMARIES, command_named
from perdure.operations.catalog import OPERATIONS
from tests.cli.commands import Commands
from tests.cli.test_errors import assert_told

MODULE = "tests.cli.sample_flows"
NOBODY = "postgresql://nobody:secret@127.0.0.1:1/none"
ON_THEIR_OWN = {"worker", "dev"}
"""They start processes and take over the log; their own tests start them as such."""

READS_FIRST = {"flows validate", "store import"}
"""They say what is wrong with their file before they ask for the store."""


def words_of(name: str) -> str:
    """The words of a command: ``jobs cancel-group`` for ``jobs.cancel_group``."""
    return name.replace(".", " ").replace("_", "-")


NAMES = {words_of(name): name for name in SUMMARIES} | ALIASES
COMMANDS: dict[str, Any] = {words: command_named(name) for words, name in NAMES.items()}


def arguments_of(name: str) -> list[str]:
    """Something for everything that a command must be given; the first argument is ``nope``."""
    parameters = COMMANDS[name].params
    places = [each for each in parameters if each.param_type_name == "argument"]
    given = ["nope" for number, each in enumerate(places) if each.required or number == 0]
    for option in parameters:
        if option.param_type_name == "option" and option.required:
            value = {"--to": f"{MODULE}:orders", "--older-than": "1d"}[option.opts[0]]
            given += [option.opts[0], value]
    return [*name.split(), *given]


def those_that_take(*metavars: str) -> list[str]:
    def first(command: Any) -> str | None:
        places = [each for each in command.params if each.param_type_name == "argument"]
        return places[0].metavar if places else None

    return [name for name, command in COMMANDS.items() if first(command) in metavars]


def options_of(name: str) -> set[str]:
    return {text for each in COMMANDS[name].params for text in each.opts}


NOT_ON_THE_COMMAND_LINE = {
    "jobs.enqueue_many": "its inputs come from code",
    "jobs.find_result": "its input comes from code",
    "runs.observe": "runs watch draws it",
    "store.now": "of use to programs only",
}


def test_every_operation_is_a_command_with_the_same_summary():
    left_out = NOT_ON_THE_COMMAND_LINE
    declared = {name: each.summary for name, each in OPERATIONS.items() if name not in left_out}

    assert {name: SUMMARIES.get(name) for name in declared} == declared
    assert left_out.keys() <= OPERATIONS.keys()


def test_aliases_are_declared_of_operations_and_commands():
    assert set(ALIASES.values()) <= SUMMARIES.keys()


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_help_of_a_command_begins_with_its_summary(name):
    assert (command_named(name).help or "").split("\n\n")[0] == SUMMARIES[name]


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_summary_is_short(name):
    assert len(SUMMARIES[name].split()) < 10


def test_every_command_gives_json():
    assert [name for name in COMMANDS if "--json" not in options_of(name)] == []


@pytest.mark.parametrize(
    "name", [*those_that_take("ID", "ID..."), "schedules get", "schedules pause"]
)
def test_an_unknown_id_is_refused_with_1(name, client, perdure):
    client.open()

    assert_told(perdure(*arguments_of(name)), 1, "nope")


@pytest.mark.parametrize(
    "name",
    [
        each
        for each in those_that_take("FLOW", "MODULE[:FLOW]", "MODULE[:NAME]", "MODULE:TASK")
        if each not in ON_THEIR_OWN
    ],
)
def test_an_unknown_module_is_bad_usage(name, client, perdure):
    client.open()

    assert_told(perdure(*arguments_of(name)), 2, "module 'nope' not found")


@pytest.mark.parametrize(
    "name",
    [
        each
        for each in COMMANDS
        if "--store" in options_of(each)
        if each not in ON_THEIR_OWN | READS_FIRST | {"doctor", "store health"}
    ],
)
def test_a_store_that_cannot_be_reached_is_3(name, tmp_path, monkeypatch):
    """For a doctor it is what was looked for: told on stdout, with the same exit code."""
    monkeypatch.chdir(tmp_path)
    arguments = arguments_of(name)
    if name in those_that_take("FLOW", "MODULE[:FLOW]", "MODULE[:NAME]"):
        arguments = [*name.split(), f"{MODULE}:orders"]
    if name in those_that_take("MODULE:TASK"):
        arguments = [*name.split(), f"{MODULE}:pack", "1"]
    if name == "schedules save":
        arguments = [*name.split(), "nightly", f"{MODULE}:orders", "--every", "1h"]
    if name == "flows list":
        arguments = name.split()

    answer = Commands(NOBODY)(*arguments)

    assert_told(answer, 3, "cannot open the store", "Is the server running")
    assert "secret" not in answer.error


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_bad_usage(name):
    answer = Commands(None)(*name.split(), "--colour")

    assert_told(answer, 2, "unknown option --colour", f"See perdure {name} --help")


@pytest.mark.parametrize("name", COMMANDS)
def test_bad_usage_is_json_where_json_is_asked_for(name):
    answer = Commands(None)(*name.split(), "--json", "--colour")

    assert (answer.exit_code, answer.out) == (2, "")
    error = json.loads(answer.error)["error"]
    assert (error["code"], error["args"]["name"]) == ("cli.unknown_option", "--colour")
    assert error["actions"] == []


@pytest.mark.parametrize("name", ["jobz", "runs gte"])
def test_an_unknown_command_is_bad_usage_with_the_nearest_names(name):
    assert_told(Commands(None)(*name.split()), 2, "unknown command", "did you mean", "--help")
