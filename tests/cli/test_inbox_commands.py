"""``perdure inbox`` and ``perdure decide``: what people see, and how they answer."""

from __future__ import annotations

import getpass
from typing import Any

import pytest

from perdure import Client, Flow
from tests.cli.test_errors import assert_told

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1},
        "paid": {"type": "boolean"},
        "reason": {"type": "string"},
    },
    "required": ["amount"],
}


def approving(name: str, **options: Any) -> Any:
    flow = Flow(name).approve("Refund {{ value.id }}?", name="review", **options)
    return flow.then(lambda answer: answer, name="pay").build()


refunds = approving("refunds", message="Please look.", deciders=["finance"])
paying = approving("paying", form=FORM)
several = approving("several", policy={"at_least": 2})
ORDER = {"id": 7, "amount": 120}


@pytest.fixture
def asked(client: Client) -> Client:
    """``order-7`` waits for finance, ``order-8`` for anybody with a form."""
    client.submit(refunds, ORDER, id="order-7")
    client.submit(paying, ORDER, id="order-8")
    return client


class Sealing:
    """A codec that the command line does not have."""

    def encode(self, data: bytes) -> bytes:
        return b"sealed " + data

    def decode(self, data: bytes) -> bytes:
        return data.removeprefix(b"sealed ")


class TestWhatCannotBeReadHere:
    @pytest.fixture(autouse=True)
    def sealed(self, asked: Client, url: str) -> None:
        with Client(url, codec=Sealing()) as other:
            other.submit(refunds, ORDER, id="sealed")

    def test_is_listed_with_the_rest(self, perdure):
        shown = perdure("inbox")

        assert shown.exit_code == 0
        assert {row[0] for row in shown.rows[1:4]} == {
            "order-7:review",
            "order-8:review",
            "sealed:review",
        }
        items = {each["id"]: each for each in perdure("inbox", "--json").items}
        sealed = items.pop("sealed:review")
        assert sealed["fault"]["code"] == "payload.unreadable"
        assert "message" in sealed["fault"]
        assert (sealed["flow"], sealed["deciders"]) == ("refunds", ["finance"])
        assert {each["fault"] for each in items.values()} == {None}

    def test_is_listed_by_its_flow(self, perdure):
        ids = [each["id"] for each in perdure("inbox", "--flow", "refunds", "--json").items]

        assert ids == ["order-7:review", "sealed:review"]

    def test_is_shown_as_far_as_it_can_be(self, perdure):
        shown = perdure("approvals", "get", "sealed:review")

        assert shown.exit_code == 0
        assert "finance" in shown.out
        assert "cannot be read" in shown.out
        assert perdure("waits", "list").exit_code == 0

    def test_is_not_decided_without_a_decision(self, perdure):
        assert perdure("decide", "sealed:review").exit_code == 2


class TestInbox:
    @pytest.mark.usefixtures("asked")
    def test_lists_what_is_to_be_decided(self, perdure):
        head, first, second = perdure("inbox").rows

        assert head == ["APPROVAL", "TITLE", "FOR", "OPEN", "FLOW"]
        assert [*first[:4], *first[-1:]] == ["order-7:review", "Refund", "7?", "finance", "refunds"]
        assert second[0] == "order-8:review"

    @pytest.mark.usefixtures("asked")
    def test_is_of_somebody(self, perdure):
        ids = [each["id"] for each in perdure("inbox", "--for", "ann", "--json").items]
        of_two = perdure("inbox", "--for", "ann", "--for", "finance", "--json").items

        assert ids == ["order-8:review"]
        assert len(of_two) == 2

    @pytest.mark.usefixtures("asked")
    def test_pages_on(self, perdure):
        first = perdure("inbox", "--limit", "1")
        cursor = first.error.partition("--cursor ")[2].partition(",")[0]
        second = perdure("inbox", "--limit", "5", "--cursor", cursor)

        assert [row[0] for row in first.rows[1:]] == ["order-7:review"]
        assert [row[0] for row in second.rows[1:]] == ["order-8:review"]

    def test_may_be_empty(self, perdure, client):
        client.open()

        assert perdure("inbox").out == "no open approvals\n"
        assert perdure("inbox", "--json").items == []

    @pytest.mark.usefixtures("asked")
    def test_shows_one_in_full(self, perdure):
        shown = perdure("approvals", "get", "order-7:review").out

        assert shown.startswith("Refund 7?\nPlease look.\n")
        for text in (
            "for       finance",
            "choices   approve, reject",
            "amount  120",
            "status    open",
        ):
            assert text in shown

    def test_shows_one_that_is_decided_with_who_said_what(self, perdure, asked):
        asked.approvals.decide(
            "order-7:review", "approve", roles=["finance"], by="lea", note="fine"
        )

        shown = perdure("approvals", "get", "order-7:review").out

        assert "status    decided" in shown
        assert 'lea  approve: "fine"' in shown
        fields = perdure("approvals", "get", "order-7:review", "--json").json
        assert (fields["decision"], fields["answers"][0]["by"]) == ("approve", "lea")

    @pytest.mark.usefixtures("asked")
    def test_of_one_that_there_is_not_says_so(self, perdure):
        done = perdure("approvals", "get", "order-7:reviw")

        assert done.exit_code == 1
        assert "did you mean 'review'" in done.error


class TestDecide:
    def test_takes_everything_from_the_command_line(self, perdure, asked):
        done = perdure(
            "decide",
            "order-7:review",
            "approve",
            "--role",
            "finance",
            "--by",
            "lea",
            "--note",
            "ok",
        )

        assert (done.exit_code, done.out) == (0, "order-7:review is decided: approve\n")
        [answer] = asked.approvals.get("order-7:review").answers
        assert (answer.by, answer.note, answer.stands_for) == ("lea", "ok", ("finance",))

    def test_is_by_the_one_who_is_logged_in(self, perdure, asked):
        perdure("decide", "order-8:review", "approve")

        assert asked.approvals.get("order-8:review").answers[0].by == getpass.getuser()

    def test_takes_data_as_json_and_fields_by_name(self, perdure, asked):
        done = perdure(
            "decide", "order-8:review", "approve", "--data", '{"amount": 5, "paid": false}',
            "--field", "paid=y", "--field", "reason=12", "--json",
        )  # fmt: skip

        assert done.json["status"] == "decided"
        [answer] = asked.approvals.get("order-8:review").answers
        assert answer.data == {"amount": 5, "paid": True, "reason": "12"}

    def test_says_what_is_wrong_with_each_field(self, perdure, asked):
        done = perdure("decide", "order-8:review", "approve", "--field", "amount=0")

        assert done.exit_code == 2
        assert "amount: " in done.error
        assert asked.approvals.get("order-8:review").is_open

    @pytest.mark.parametrize(
        "arguments, reason",
        [
            (["--field", "amount"], "--field 'amount' must be NAME=VALUE"),
            (["--field", "amount=x"], "--field amount: enter a whole number"),
            (["--data", "[1]", "--field", "amount=3"], "--data must be an object"),
            (["--data", "{"], "--data '{' is not JSON"),
        ],
    )
    @pytest.mark.usefixtures("asked")
    def test_refuses_data_that_it_does_not_understand(self, perdure, arguments, reason):
        done = perdure("decide", "order-8:review", "approve", *arguments)

        assert done.exit_code == 2
        assert reason in done.error

    @pytest.mark.usefixtures("asked")
    def test_without_a_decision_says_which_there_are(self, perdure):
        done = perdure("decide", "order-7:review")

        assert_told(done, 2, "order-7:review", "'approve' or 'reject'")

    @pytest.mark.usefixtures("asked")
    def test_is_refused_to_who_may_not(self, perdure):
        done = perdure("decide", "order-7:review", "approve", "--by", "eve")

        assert done.exit_code == 1
        assert "'eve' may not decide" in done.error
        assert "with --by, and in which roles with --role" in done.error

    @pytest.mark.usefixtures("asked")
    def test_twice_says_who_was_first(self, perdure):
        perdure("decide", "order-8:review", "approve", "--by", "ann")

        done = perdure("decide", "order-8:review", "reject", "--by", "bob")

        assert done.exit_code == 1
        assert "is closed: approve by ann" in done.error

    def test_of_several_says_what_is_missing(self, perdure, client):
        client.submit(several, ORDER, id="order-9")

        done = perdure("decide", "order-9:review", "approve", "--by", "ann")

        assert done.out == "order-9:review is open: 1 answer, needs 2 that agree\n"
        assert perdure("inbox").rows[1][-2:] == ["1/2", "several"]
