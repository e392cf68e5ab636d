"""A bounded share of ``make fuzz``, with the same examples in every run."""

from __future__ import annotations

import inspect

import pytest

from perdure import AsyncClient
from perdure.operations.catalog import OPERATIONS
from proof.fuzz.calls import COMMANDS, COMMANDS_LEFT_OUT, LEFT_OUT, METHODS
from proof.fuzz.running import fuzz
from proof.fuzz.targets import TARGETS
from tests.cli.test_command_tree import COMMANDS as ALL

EXAMPLES = {
    "calls": {"memory": 120, "sqlite": 40, "postgres": 10},
    "stories": {"memory": 6, "sqlite": 2, "postgres": 1},
    "shown stories": {"sqlite": 1},
    "flows as data": {"memory": 50},
    "flows as text": {"memory": 40},
    "forms": {"memory": 40},
    "conditions": {"memory": 120},
    "templates": {"memory": 120},
    "store urls": {"sqlite": 80},
    "corrupt rows": {"sqlite": 4, "postgres": 2},
    "secrets": {"memory": 45, "sqlite": 2, "postgres": 4},
    "command lines": {"sqlite": 12},
    "terminal output": {"sqlite": 1, "postgres": 1},
    "titles": {"memory": 60, "sqlite": 20, "postgres": 10},
    "deciders": {"memory": 80, "sqlite": 20, "postgres": 10},
    "grants": {"memory": 20, "sqlite": 5, "postgres": 5},
    "imports": {"sqlite": 12, "postgres": 6},
    "races": {"memory": 10, "sqlite": 5, "postgres": 5},
}
CASES = [(target, backend) for target, counts in EXAMPLES.items() for backend in counts]


def test_every_target_is_tried_on_every_backend_that_it_names() -> None:
    assert {target: set(counts) for target, counts in EXAMPLES.items()} == {
        name: set(target.backends) for name, target in TARGETS.items()
    }


def test_every_method_of_a_client_is_tried() -> None:
    own = {name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction)}
    of_groups = {"jobs.handle", "jobs.results", "runs.handle"}
    public = {name for name in own if name[0] != "_"} | of_groups | OPERATIONS.keys()

    assert METHODS.keys() | LEFT_OUT.keys() == public


def test_every_command_is_tried() -> None:
    assert COMMANDS.keys() | COMMANDS_LEFT_OUT.keys() == ALL.keys()


@pytest.mark.parametrize("target, backend", CASES)
def test_is_accepted_or_refused_by_name(
    target: str, backend: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_server_url") if backend == "postgres" else ""

    tally = fuzz(target, backend, EXAMPLES[target][backend], number=1, postgres_url=url)

    assert tally.tried >= tally.accepted > 0
