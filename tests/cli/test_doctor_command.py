"""``perdure doctor``: what is wrong, what would help, and an exit code by it."""

from __future__ import annotations

import io

from rich.console import Console

from perdure import Client
from perdure.cli.health_view import print_health
from perdure.model.health import Health, Severity, Symptom
from tests.cli import sample_tasks as sample
from tests.cli.commands import Commands


class TestExitCode:
    def test_is_0_with_nothing_but_warnings(self, perdure: Commands, client: Client) -> None:
        client.pause_queue("mail", by="ann")

        shown = perdure("doctor")
        assert shown.exit_code == 0
        assert ["2", "warnings"] in shown.rows
        assert "perdure queues resume mail" in shown.out

    def test_is_1_with_an_error(self, perdure: Commands, client: Client) -> None:
        client.enqueue(sample.add, 1, 2)

        shown = perdure("doctor")
        assert shown.exit_code == 1
        assert ["1", "error"] in shown.rows

    def test_looks_at_all_namespaces_unless_told_otherwise(
        self, perdure: Commands, url: str
    ) -> None:
        with Client(url, namespace="team-a") as client:
            client.enqueue(sample.add, 1, 2)

        assert perdure("doctor").exit_code == 1
        assert perdure("doctor", "--namespace", "default").exit_code == 0


def test_advises_commands_that_find_the_same_store(url: str, client: Client) -> None:
    client.pause_queue("mail")

    shown = Commands(None)("doctor", "--store", url)
    assert f"perdure queues resume mail --store {url}" in shown.out


def test_gives_json(perdure: Commands, client: Client, url: str) -> None:
    client.enqueue(sample.add, 1, 2)

    shown = perdure("doctor", "--json")
    assert shown.exit_code == 1
    assert (shown.json["url"], shown.json["is_well"]) == (url, False)
    [error] = [each for each in shown.json["symptoms"] if each["severity"] == "error"]
    assert error == {
        "severity": "error",
        "about": "workers",
        "text": "there is work, and no worker is live",
        "help": "perdure worker MODULE",
    }


HEALTH = Health(
    url="sqlite:///work.db",
    symptoms=(
        Symptom(severity=Severity.OK, about="store", text="it answers in 0.3 ms"),
        Symptom(
            severity=Severity.ERROR,
            about="jobs",
            text="jobs wait in queue 'slow', which no live worker that has orders@v1 serves",
            help="perdure worker MODULE --queues slow",
        ),
    ),
)


def printed(width: int) -> list[str]:
    file = io.StringIO()
    print_health(Console(file=file, width=width), HEALTH)
    return [line.rstrip() for line in file.getvalue().splitlines()]


class TestPicture:
    def test_in_a_wide_terminal(self) -> None:
        assert printed(72) == [
            "sqlite:///work.db",
            "ok      store     it answers in 0.3 ms",
            "error   jobs      jobs wait in queue 'slow', which no live worker that",
            "                  has orders@v1 serves",
            "                  perdure worker MODULE --queues slow",
            "1 error",
        ]

    def test_in_a_narrow_one(self) -> None:
        assert printed(40) == [
            "sqlite:///work.db",
            "ok      store",
            "  it answers in 0.3 ms",
            "error   jobs",
            "  jobs wait in queue 'slow', which no",
            "  live worker that has orders@v1 serves",
            "    perdure worker MODULE --queues slow",
            "1 error",
        ]
