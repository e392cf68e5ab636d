"""The options in advised commands: they lead to the same store, and tell no password."""

from __future__ import annotations

import ast
import shlex
from urllib.parse import urlsplit

import pytest

from perdure import Client
from perdure.cli.command import options_of
from perdure.cli.renderer import cli_command
from perdure.diagnostics import Action
from tests.architecture.source_tree import SRC
from tests.cli import sample_flows
from tests.cli.commands import Commands
from tests.docs.acting import command_named

SECRET = "hunter2"


@pytest.mark.parametrize(
    "store, told",
    [
        ("postgresql://ann@db/work", " --store postgresql://ann@db/work"),
        (f"postgresql://ann:{SECRET}@db/work", " --store 'postgresql://ann:***@db/work'"),
        (f"postgresql://db/work?password={SECRET}", " --store 'postgresql://db/work?password=***'"),
    ],
)
def test_a_password_is_left_to_the_reader(store, told, monkeypatch):
    monkeypatch.delenv("PERDURE_STORE", raising=False)

    assert options_of(store, "default") == told


def test_no_command_tells_the_password_of_its_store(
    postgres_url,
):
    secret = urlsplit(postgres_url).password
    assert secret
    with Client(postgres_url) as client:
        client.queues.pause("mail")
        client.submit(sample_flows.orders, 5, id="order-5")
        client.submit(sample_flows.orders, 5, id="order-6")
        client.runs.cancel("order-6")

    asked = [["doctor"], ["explain", "order-5"], ["runs", "watch", "order-6"]]
    for words in [*asked, *([*words, "--json"] for words in asked)]:
        shown = Commands(None)(*words, "--store", postgres_url)
        assert shown.out, shown
        assert f":{secret}@" not in shown.out + shown.error, words
        if words in asked:
            assert ":***@" in shown.out + shown.error, words


PARSED = [
    Action("approvals.decide", {"id": "r:a", "decision": "approve", "roles": ("x",)}, ("by",)),
    Action("approvals.get", {"id": "r:a"}),
    Action("jobs.enable", {"id": "j"}),
    Action("jobs.explain", {"id": "j"}),
    Action("jobs.list", {"status": "dead", "namespace": "n"}),
    Action("jobs.resume", {"id": "j"}),
    Action("jobs.retry", {"id": "j"}),
    Action("queues.resume", {"name": "mail", "namespace": "n"}),
    Action("runs.cancel", {"id": "r", "namespace": "n"}),
    Action("runs.explain", {"id": "r"}),
    Action("runs.fork", {"id": "r"}, ("after",)),
    Action("runs.migrate", {"id": "r"}, ("to",)),
    Action("runs.report", {"id": "r", "node": "a", "status": "completed"}, ("result",)),
    Action("runs.resume", {"id": "r"}),
    Action("runs.retry", {"id": "r", "namespace": "n"}),
    Action("runs.signal", {"id": "r", "name": "go"}, ("payload",)),
    Action("worker.run", {"queues": ("a", "b"), "tags": ("x",), "namespace": "n"}, ("module",)),
]


@pytest.mark.parametrize("action", PARSED, ids=lambda action: action.operation)
def test_every_command_that_findings_advise_is_understood(action):
    program, *words = shlex.split(cli_command(action, " --store sqlite:///work.db"))
    command, rest = command_named(words)

    assert program == "perdure"
    assert command.make_context("perdure", rest)


def test_no_action_of_a_finding_is_left_out():
    advised = {
        node.args[0].value
        for name in ("explain", "health")
        for node in ast.walk(ast.parse((SRC / "operations" / "insight" / f"{name}.py").read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Action"
        if isinstance(node.args[0], ast.Constant)
    }

    assert advised <= {each.operation for each in PARSED}
