"""``perdure doctor``: what is wrong, what would help, and an exit code by it."""

from __future__ import annotations

import io
from datetime import timedelta

from rich.console import Console

from perdure import Client
from perdure.cli.command import CommandOutput
from perdure.cli.renderer import CliRenderer
from perdure.cli.views.diagnostics import print_health
from perdure.diagnostics import Action, Severity
from perdure.operations.insight.health import QUEUE_UNSERVED, STORE, Health
from tests.cli import sample_tasks as sample
from tests.cli.commands import Commands


class TestExitCode:
    def test_is_0_with_nothing_but_warnings(self, perdure, client):
        client.queues.pause("mail", by="ann")

        shown = perdure("doctor")
        assert shown.exit_code == 0
        assert ["2", "warnings"] in shown.rows
        assert "perdure queues resume mail" in shown.out

    def test_is_1_with_an_error(self, perdure, client):
        client.enqueue(sample.add, 1, 2)

        shown = perdure("doctor")
        assert shown.exit_code == 1
        assert ["1", "error"] in shown.rows

    def test_looks_at_all_namespaces_unless_told_otherwise(self, perdure, url):
        with Client(url, namespace="team-a") as client:
            client.enqueue(sample.add, 1, 2)

        assert perdure("doctor").exit_code == 1
        assert perdure("doctor", "--namespace", "default").exit_code == 0


def test_advises_commands_that_find_the_same_store(url, client):
    client.queues.pause("mail")
    client.queues.pause("big mail")
    with Client(url, namespace="team-a") as other:
        other.queues.pause("mail")

    shown = Commands(None)("doctor", "--store", url).out
    assert f"perdure queues resume mail --store {url}" in shown
    assert f"perdure queues resume 'big mail' --store {url}" in shown
    assert f"perdure queues resume mail --namespace team-a --store {url}" in shown


def test_gives_json(perdure, client, url):
    client.enqueue(sample.add, 1, 2)

    shown = perdure("doctor", "--json")
    assert shown.exit_code == 1
    assert (shown.json["url"], shown.json["is_well"]) == (url, False)
    [error] = [each for each in shown.json["findings"] if each["severity"] == "error"]
    assert error == {
        "code": "health.no_worker",
        "args": {},
        "actions": [
            {
                "operation": "worker.run",
                "args": {},
                "asks": ["module"],
                "rendered": "perdure worker MODULE",
            }
        ],
        "severity": "error",
        "about": "workers",
        "message": "jobs are waiting, but no worker is live",
        "remedy": "Start a worker",
    }


def test_gives_a_store_that_cannot_be_used_as_a_finding(tmp_path):
    shown = Commands(None)("doctor", "--json", "--store", f"sqlite:///{tmp_path}/none/work.db")

    assert shown.exit_code == 3
    [error] = shown.json["findings"]
    assert (error["about"], error["severity"]) == ("store", "error")
    assert error["code"].startswith("store.")


HEALTH = Health(
    url="sqlite:///work.db",
    findings=(
        STORE.finding("store", severity=Severity.OK, latency=timedelta(microseconds=300)),
        QUEUE_UNSERVED.finding(
            "jobs",
            Action("worker.run", {"queues": ("slow",)}, ("module",)),
            queue="slow",
            task="pack",
            flow="orders@v1",
        ),
    ),
)


def printed(width: int) -> list[str]:
    file = io.StringIO()
    out = CommandOutput(renderer=CliRenderer(), is_across=False, as_json=False)
    out.console = Console(file=file, width=width)
    print_health(HEALTH, out)
    return [line.rstrip() for line in file.getvalue().splitlines()]


class TestPicture:
    def test_in_a_wide_terminal(self):
        assert printed(72) == [
            "sqlite:///work.db",
            "ok      store     the store answers in 0.3ms",
            "error   jobs      jobs wait in queue 'slow', which no live worker that",
            "                  has task 'pack' of orders@v1 serves",
            "                  perdure worker MODULE --queues slow",
            "1 error",
        ]

    def test_in_a_narrow_one(self):
        assert printed(40) == [
            "sqlite:///work.db",
            "ok      store",
            "  the store answers in 0.3ms",
            "error   jobs",
            "  jobs wait in queue 'slow', which no",
            "  live worker that has task 'pack' of",
            "  orders@v1 serves",
            "    perdure worker MODULE --queues slow",
            "1 error",
        ]
