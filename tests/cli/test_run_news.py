"""What is new about runs from one look to the next."""

from __future__ import annotations

from perdure import Client
from perdure.cli.commands.dev import RunWatch, news_text
from tests.cli import sample_flows as sample

VERSION = sample.orders.version


def news(watch: RunWatch, client: Client) -> list[str]:
    return [news_text(each) for each in watch.news(client.runs.list())]


def test_runs_that_were_there_before_are_not_news(client):
    client.submit(sample.orders, 5, id="old")
    watch = RunWatch()

    assert news(watch, client) == []
    assert news(watch, client) == []


def test_tells_of_each_change_once_in_the_order_of_beginning(client):
    watch = RunWatch()
    news(watch, client)

    client.submit(sample.orders, 5, id="a")
    client.submit(sample.orders, 5, id="b")
    assert news(watch, client) == [
        f"a started, a run of orders@{VERSION}",
        f"b started, a run of orders@{VERSION}",
    ]

    client.runs.pause("a")
    client.runs.cancel("b")
    assert news(watch, client) == ["a is paused", "b is cancelled"]

    client.runs.resume("a")
    assert news(watch, client) == ["a continues"]
    assert news(watch, client) == []


def test_a_run_that_ended_between_two_looks_began_and_ended(client):
    watch = RunWatch()
    news(watch, client)
    client.submit(sample.orders, 5, id="quick")
    client.runs.cancel("quick")

    assert news(watch, client) == [
        f"quick started, a run of orders@{VERSION}",
        "quick is cancelled",
    ]


def test_says_why_a_run_failed_and_how_to_see_what_one_waits_for(client, failed, waiting):
    watch = RunWatch()
    list(watch.news([]))

    said = news(watch, client)
    assert "order-5 waits; see perdure runs explain order-5" in said
    assert any(line.startswith("order-13 failed at fetch: ") for line in said)
