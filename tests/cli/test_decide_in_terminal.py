"""``perdure decide`` at a terminal: it shows what is asked, and asks for what is missing."""

from __future__ import annotations

import re

import pytest

from perdure import Client
from tests.cli.keyboard import Keyboard
from tests.cli.test_inbox_commands import ORDER, paying, refunds

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def asked(client: Client) -> Client:
    client.submit(paying, ORDER, id="order-8")
    return client


@pytest.mark.parametrize("columns", [40, 160])
@pytest.mark.parametrize(
    "command",
    [
        ["inbox"],
        ["approvals", "get", "order-8:review"],
        ["waits", "list"],
        ["runs", "lineage", "order-8"],
    ],
)
@pytest.mark.usefixtures("asked")
def test_what_is_shown_fits_the_terminal(url, columns, command):
    with Keyboard(columns, *command, "--store", url) as keyboard:
        lines = _ESCAPES.sub("", keyboard.rest()).splitlines()

    assert keyboard.exit_code == 0
    assert [line for line in lines if len(line) > columns] == []
    assert any("order-8" in line or line.startswith("review") for line in lines)


def test_asks_for_the_decision_and_every_field_until_they_fit(url, asked):
    with Keyboard(60, "decide", "order-8:review", "--store", url) as keyboard:
        keyboard.answer("Decision (approve, reject): ", "maybe")
        keyboard.answer("Decision (approve, reject): ", "approve")
        keyboard.answer("amount (whole number) [120]: ", "0")
        keyboard.answer("paid (y/n, may be empty): ", "y")
        keyboard.answer("reason (may be empty): ", "")
        keyboard.answer("amount (whole number) [0]: ", "90")
        written = keyboard.rest()

    assert "order-8:review is decided: approve" in written
    shown = _ESCAPES.sub("", keyboard.written)
    assert shown.startswith("Refund 7?\n")
    assert "choose one of approve, reject" in shown
    assert "amount: " in shown
    assert [len(line) > 60 for line in shown.splitlines()].count(True) == 0
    [answer] = asked.approvals.get("order-8:review").answers
    assert answer.data == {"amount": 90, "paid": True}


def test_asks_why_something_is_rejected_and_for_no_fields(url, asked):
    with Keyboard(80, "decide", "order-8:review", "--store", url, "--by", "ann") as keyboard:
        keyboard.answer("Decision (approve, reject): ", "2")
        keyboard.answer("Why (may be empty): ", "too much")
        written = keyboard.rest()

    assert "order-8:review is decided: reject" in written
    [answer] = asked.approvals.get("order-8:review").answers
    assert (answer.by, answer.note, answer.data) == ("ann", "too much", None)


def test_decides_nothing_when_the_person_leaves(url, asked):
    with Keyboard(80, "decide", "order-8:review", "approve", "--store", url) as keyboard:
        keyboard.expect("amount (whole number) [120]: ")
        keyboard.leave()
        written = keyboard.rest()

    assert keyboard.exit_code == 130
    assert "nothing was decided" in written
    assert asked.approvals.get("order-8:review").is_open


def test_asks_nothing_where_nothing_is_missing(url, client):
    client.submit(refunds, ORDER, id="order-7")

    with Keyboard(
        80, "decide", "order-7:review", "approve", "--role", "finance", "--store", url
    ) as keyboard:
        written = keyboard.rest()

    assert written == "order-7:review is decided: approve\n"


def test_asks_nothing_of_somebody_who_may_not_decide(url, client):
    client.submit(refunds, ORDER, id="order-7")

    with Keyboard(80, "decide", "order-7:review", "--by", "eve", "--store", url) as keyboard:
        written = keyboard.rest()

    assert keyboard.exit_code == 1
    assert written.startswith("perdure: 'eve' may not decide on approval 'order-7:review'")
