"""The options in advised commands: they lead to the same store, and tell no password."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from perdure import Client
from perdure.cli.options import options_of
from tests.cli import sample_flows
from tests.cli.commands import Commands

SECRET = "hunter2"


@pytest.mark.parametrize(
    "store, told",
    [
        ("postgresql://ann@db/work", " --store postgresql://ann@db/work"),
        (f"postgresql://ann:{SECRET}@db/work", " --store 'postgresql://ann:***@db/work'"),
        (f"postgresql://db/work?password={SECRET}", " --store 'postgresql://db/work?password=***'"),
    ],
)
def test_a_password_is_left_to_the_reader(
    store: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_STORE", raising=False)

    assert options_of(store, "default") == told


def test_no_command_tells_the_password_of_its_store(
    postgres_url: str,
) -> None:
    secret = urlsplit(postgres_url).password
    assert secret
    with Client(postgres_url) as client:
        client.pause_queue("mail")
        client.submit(sample_flows.orders, 5, id="order-5")
        client.submit(sample_flows.orders, 5, id="order-6")
        client.cancel("order-6")

    asked = [["doctor"], ["explain", "order-5"], ["runs", "watch", "order-6"]]
    for words in [*asked, *([*words, "--json"] for words in asked)]:
        shown = Commands(None)(*words, "--store", postgres_url)
        assert shown.out, shown
        assert f":{secret}@" not in shown.out + shown.error, words
        if words in asked:
            assert ":***@" in shown.out + shown.error, words
