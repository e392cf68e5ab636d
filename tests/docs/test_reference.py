"""The reference pages name everything that the code has, with its defaults, and nothing else."""

from __future__ import annotations

import ast
import inspect
import logging
import re
import tomllib
from collections.abc import Callable
from typing import Any, get_args

import pytest

import perdure
from perdure import BuiltFlow, Flow
from perdure.cli.logs import _LEVELS
from perdure.cli.output import ExitCode
from perdure.client.client import AsyncJobs, AsyncRuns
from perdure.flows.assembly import NESTING_MAX
from perdure.flows.check import NODES_MAX
from perdure.flows.options import ApprovalOptions, NodeOptions, TaskOptions
from perdure.flows.settings import RunOptions
from perdure.model.event import Effects, Event
from perdure.operations.catalog import GROUPS
from perdure.operations.records import EventRecord, NodeRecord
from perdure.operations.schedules import Schedules
from perdure.store.postgres import address
from perdure.store.sqlite import address as sqlite_address
from perdure.tasks.context import AsyncContext
from perdure.tasks.options import CallOptions
from perdure.worker import events
from perdure.worker.events import WorkerStats
from tests.docs import cli_page, errors_page, operations_page
from tests.docs.pages import ROOT, page
from tests.postgres_server import WHEEL_REQUIREMENT

SETTINGS = page("docs/reference/settings.md")
ERRORS = page("docs/reference/errors.md")
EVENTS = page("docs/reference/events.md")
CLI = page("docs/reference/cli.md")
URLS = page("docs/reference/store-urls.md")

REQUIRED = inspect.Parameter.empty
NAME = re.compile(r"`([^`]+)`")


def public_names(found_type: type) -> set[str]:
    return {name for name in dir(found_type) if not name.startswith("_")}


class TestSettings:
    @pytest.mark.parametrize(
        "heading, described",
        [
            ("Client", perdure.AsyncClient),
            ("enqueue_many", perdure.AsyncClient.enqueue_many),
            ("submit", perdure.AsyncClient.submit),
            ("schedules.save", Schedules.save),
            ("run_flow", perdure.run_flow),
            ("run_flow", perdure.run_flow_async),
            ("task", perdure.task),
            ("Retry", perdure.Retry),
            ("RetryLater", perdure.RetryLater),
            ("Concurrency", perdure.Concurrency),
            ("Rate", perdure.Rate),
            ("Spacing", perdure.Spacing),
            ("CustomLimit", perdure.CustomLimit),
            ("Worker", perdure.Worker),
            ("JobQueue", perdure.AsyncJobQueue),
        ],
    )
    def test_every_option_is_there_with_its_default(self, heading, described):
        rows = SETTINGS.table_under(heading)
        assert {unquoted(name): default_in(cell) for name, cell, _ in rows} == options_of(described)

    @pytest.mark.parametrize(
        "heading, names",
        [
            ("Options", CallOptions.__optional_keys__),
            ("Options of a run", RunOptions.__optional_keys__),
            ("Handles", public_names(perdure.JobHandle)),
            ("Run handles", public_names(perdure.RunHandle)),
            ("Context", public_names(AsyncContext)),
        ],
    )
    def test_every_name_is_there(self, heading, names):
        assert names_in(SETTINGS.table_under(heading)) == names

    def test_every_call_of_a_client_is_there(self):
        rows = SETTINGS.table_under("Other client methods")
        others = {"enqueue", "enqueue_many", "submit", "namespace", "store_url", *GROUPS}
        of_groups = {"jobs.handle", "jobs.results", "runs.handle"}
        assert names_in(rows) == (public_names(perdure.Client) - others) | of_groups

    def test_the_signatures_of_a_clients_calls_are_right(self):
        shown = [
            call
            for row in SETTINGS.table_under("Other client methods")
            for call in NAME.findall(row[0])
        ]

        groups = {"jobs": AsyncJobs, "runs": AsyncRuns}
        for call in shown:
            group = call.partition("(")[0].rpartition(".")[0]
            own = call.removeprefix(f"{group}.")
            assert is_signature_of(groups.get(group, perdure.AsyncClient), own)

    def test_everything_that_is_known_of_a_node_is_there(self):
        [row] = [row for row in SETTINGS.table_under("Run handles") if row[0] == "`nodes()`"]
        assert NAME.findall(row[1]) == list(NodeRecord.__struct_fields__)

    def test_every_method_of_a_worker_is_named(self):
        attributes = {"tasks", "flows", "settings", "store_url", "given_url", "is_running"}
        methods = public_names(perdure.Worker) - attributes
        text = SETTINGS.text.replace("await ", "")
        assert {name for name in methods if f"`{name}(" not in text} == set()


class TestOperations:
    def test_are_listed_as_they_are_declared(self):
        found = page("docs/reference/operations.md").text
        assert found == operations_page.page(), "python -m tests.docs.operations_page --write"


class TestErrors:
    def test_are_listed_as_they_are_declared(self):
        assert ERRORS.text == errors_page.page(), "python -m tests.docs.errors_page --write"


class TestEvents:
    def test_every_event_is_there_with_its_fields(self):
        shown = {unquoted(row[0]): NAME.findall(row[1]) for row in EVENTS.table_under("Events")}
        assert shown == {
            found_type.__name__: own_fields(found_type) for found_type in event_types()
        }

    def test_every_event_of_a_run_is_there_with_its_fields(self):
        rows = EVENTS.table_under("Events of a run")
        assert {unquoted(row[0]): NAME.findall(row[1]) for row in rows} == {
            kind_of_type(found_type): list(found_type.__struct_fields__)
            for found_type in get_args(Event)
        }

    def test_everything_on_the_record_of_an_event_is_there(self):
        [line] = [line for line in EVENTS.prose if line.startswith("Every record has")]
        named = set(NAME.findall(line))
        assert named == set(EventRecord.__struct_fields__)

    def test_everything_that_may_follow_from_an_event_is_there(self):
        [line] = [line for line in EVENTS.prose if line.startswith("`effects` ")]
        assert set(NAME.findall(line)) - {"effects", "ref"} == set(Effects.__struct_fields__)

    def test_every_number_is_there(self):
        rows = EVENTS.table_under("Worker statistics")
        assert [unquoted(row[0]) for row in rows] == list(WorkerStats.__struct_fields__)

    def test_every_log_line_is_there_with_its_level(self):
        shown = {
            unquoted(message): level.partition(" ")[0]
            for message, level, _ in EVENTS.table_under("Log lines")
        }
        assert shown == {
            message: logging.getLevelName(level).lower() for level, message in _LEVELS.values()
        }


class TestCommandLine:
    def test_is_listed_as_it_is_declared(self):
        found = cli_page.PAGE.read_text(encoding="utf-8")
        assert found == cli_page.page(found), "python -m tests.docs.cli_page --write"

    def test_every_exit_code_is_there(self):
        assert [int(row[0]) for row in CLI.table_under("Exit codes")] == list(ExitCode)


class TestStoreUrls:
    def test_every_option_of_sqlite_is_there_with_its_default(self):
        rows = URLS.table_under("SQLite")
        assert {unquoted(row[0]): unquoted(row[1]) for row in rows} == sqlite_address._OPTIONS

    def test_every_option_of_postgresql_is_there_with_its_default(self):
        rows = URLS.table_under("PostgreSQL")
        plain = address.parse_address("postgresql://localhost/app")

        assert {unquoted(row[0]): unquoted(row[1]) for row in rows} == {
            "schema": plain.schema,
            "pool": str(plain.pool_max),
            "statement_cache": str(plain.statement_cache),
            "listen": "on" if plain.is_listening else "off",
            "connect_timeout": str(plain.connect_timeout_s),
            "answer_timeout": str(plain.answer_timeout_s),
        }
        assert {unquoted(row[0]) for row in rows} == set(address._OURS)

    def test_every_option_that_is_passed_on_is_there(self):
        [line] = [line for line in URLS.prose if line.startswith("These are passed on")]
        assert set(NAME.findall(line)) - {"perdure"} == set(address._OF_THE_SERVER)


class TestDependencies:
    def test_every_dependency_is_there_with_its_reason(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = [name for extra in project["optional-dependencies"].values() for name in extra]
        wanted = {
            re.match(r"[\w-]+", each)[0]  # type: ignore[index]  # a requirement begins with a name
            for each in [*project["dependencies"], *extras, WHEEL_REQUIREMENT]
        }
        assert wanted <= set(NAME.findall(page("docs/dependencies.md").text))


def kind_of_type(found_type: type) -> str:
    """As records of events call it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", found_type.__name__).lower()


def unquoted(cell: str) -> str:
    return cell.strip("`")


def default_in(cell: str) -> Any:
    return REQUIRED if cell == "required" else ast.literal_eval(unquoted(cell))


def options_of(described: Callable[..., Any]) -> dict[str, Any]:
    """The named parameters; a dataclass that keeps other values than it takes shows the latter."""
    varying = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(described).parameters.values()
    skipped = ("self", "task") if inspect.isfunction(described) else ("self",)
    return {
        each.name: each.default
        for each in parameters
        if each.kind not in (*varying, inspect.Parameter.POSITIONAL_ONLY)
        and each.name not in skipped
    }


def names_in(rows: list[list[str]]) -> set[str]:
    return {shown.partition("(")[0] for row in rows for shown in NAME.findall(row[0])}


def is_signature_of(found_type: type, call: str) -> bool:
    """Whether ``call`` names the parameters and the defaults of a method, in their order."""
    name = call.partition("(")[0]
    parsed = ast.parse(f"def {call.replace('…', '...')}: pass").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    real = list(inspect.signature(getattr(found_type, name)).parameters.values())[1:]
    given = parsed.args
    names = [each.arg for each in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    defaults = [ast.unparse(each) for each in [*given.defaults, *given.kw_defaults] if each]
    named = [each for each in real if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    wanted = [repr(each.default) for each in named if each.default is not REQUIRED]
    same = all(a in (b, "...") for a, b in zip(defaults, wanted, strict=True))
    return names == [each.name for each in named] and same


def event_types() -> list[type[events.WorkerEvent]]:
    found = [each for each in vars(events).values() if inspect.isclass(each)]
    bases = (events.WorkerEvent, events.JobEvent)
    return [each for each in found if issubclass(each, events.WorkerEvent) and each not in bases]


def own_fields(found_type: type[events.WorkerEvent]) -> list[str]:
    base = events.JobEvent if issubclass(found_type, events.JobEvent) else events.WorkerEvent
    return [name for name in found_type.__struct_fields__ if name not in base.__struct_fields__]


# The page about the flow builder names everything that the builder takes, and nothing else.


PAGE = page("docs/reference/flow-builder.md")
OWN = [name for name in vars(Flow) if not name.startswith("_") and name != "build"]
VARYING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def builder_options_of(described: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(described).parameters.values()
    return {
        each.name: each.default
        for each in parameters
        if each.kind not in VARYING and each.name != "self"
    }


def builder_default_in(cell: str) -> Any:
    return inspect.Parameter.empty if cell == "required" else ast.literal_eval(cell.strip("`"))


@pytest.mark.parametrize("name", ["Flow", *OWN])
def test_every_option_of_a_call_is_there_with_its_default(name):
    described = Flow.__init__ if name == "Flow" else getattr(Flow, name)
    shown = {NAME.findall(row[0])[0]: builder_default_in(row[1]) for row in PAGE.table_under(name)}
    assert shown == builder_options_of(described)


@pytest.mark.parametrize(
    "heading,options",
    [
        ("Options of a node", NodeOptions.__optional_keys__),
        ("Options of an approval", ApprovalOptions.__optional_keys__),
        (
            "Options of tasks and node types",
            TaskOptions.__optional_keys__ - NodeOptions.__optional_keys__,
        ),
    ],
)
def test_every_option_of_a_node_is_there(heading, options):
    rows = PAGE.table_under(heading)
    assert {NAME.findall(row[0])[0] for row in rows} == options


def test_every_name_on_a_built_flow_is_there():
    rows = PAGE.table_under("build")
    built = Flow("any").then(lambda value: value, name="node").build()
    shown = {name.partition("(")[0] for row in rows for name in NAME.findall(row[0])}
    assert isinstance(built, BuiltFlow)
    assert shown == {name for name in dir(built) if not name.startswith("_")}


def test_the_limits_are_right():
    [line] = [line for line in PAGE.prose if line.startswith("- A flow has at most")]
    assert re.findall(r"[\d,]+", line)[:2] == [f"{NODES_MAX:,}", str(NESTING_MAX)]
