"""``perdure inbox`` and ``perdure decide``: what people see, and how they answer."""

from __future__ import annotations

import getpass
import re
from typing import Any

import pytest

from perdure import Client, Flow
from perdure.cli.views.forms import FormAsking, given_fields, understood
from perdure.errors import InvalidInput
from perdure.forms.schema import NOT_JSON_VALUE, REQUIRED
from tests.cli.harness import Keyboard
from tests.support.codecs import Sealing
from tests.support.refusal import refused

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


refunds = approving("refunds", message="Please look.\nstatus    decided", deciders=["role:finance"])

paying = approving("paying", form=FORM)

edited = approving("edited", form=FORM, policy={"at_least": 2})

several = approving("several", policy={"at_least": 2})

ORDER = {"id": 7, "amount": 120}


@pytest.fixture
def asked(client: Client) -> Client:
    """``order-7`` waits for finance, ``order-8`` for anybody with a form."""
    client.submit(refunds, ORDER, id="order-7")
    client.submit(paying, ORDER, id="order-8")
    return client


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
        assert (sealed["flow"], sealed["deciders"]) == ("refunds", ["role:finance"])
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
        perdure.refused("payload.unreadable", "decide", "sealed:review")


class TestInbox:
    @pytest.mark.usefixtures("asked")
    def test_lists_what_is_to_be_decided(self, perdure):
        head, first, second = perdure("inbox").rows

        assert head == ["APPROVAL", "TITLE", "FOR", "OPEN", "FLOW"]
        assert [*first[:4], *first[-1:]] == [
            "order-7:review",
            "Refund",
            "7?",
            "role:finance",
            "refunds",
        ]
        assert second[0] == "order-8:review"

    @pytest.mark.usefixtures("asked")
    def test_filters_by_person(self, perdure):
        ids = [each["id"] for each in perdure("inbox", "--for", "ann", "--json").items]
        of_two = perdure("inbox", "--for", "ann", "--for", "role:finance", "--json").items
        assert ids == ["order-8:review"]
        assert len(of_two) == 2

    @pytest.mark.usefixtures("asked")
    def test_shows_one_in_full(self, perdure):
        shown = perdure("approvals", "get", "order-7:review").out

        title, *message = shown.splitlines()[:3]
        assert title == "Refund 7?"
        assert [line.rstrip() for line in message] == ["  Please look.", "  status    decided"]
        for text in (
            "for       role:finance",
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


class TestDecide:
    def test_takes_everything_from_the_command_line(self, perdure, asked):
        options = ("--role", "finance", "--by", "lea", "--note", "ok")
        done = perdure("decide", "order-7:review", "approve", *options)

        assert (done.exit_code, done.out) == (0, "order-7:review is decided: approve\n")
        [answer] = asked.approvals.get("order-7:review").answers
        assert (answer.by, answer.note, answer.stands_for) == ("lea", "ok", ("role:finance",))

    def test_of_data_that_was_changed_needs_its_revision(self, perdure, client):
        """Finding 22: the command line passes the revision that the person was shown."""
        client.submit(edited, ORDER, id="order-9")
        perdure("decide", "order-9:review", "approve", "--by", "ann", "--field", "amount=1")
        decide = ("decide", "order-9:review", "approve", "--by", "bob")

        error = perdure.refused("approval.changed", *decide, exit_code=1)
        assert error["args"]["data"]["amount"] == 1
        shown = perdure("approvals", "get", "order-9:review").out
        lines = [line.rstrip() for line in shown.splitlines()]
        opened, now = lines.index("as opened:"), lines.index("now (revision 1):")
        assert lines[opened + 1 : opened + 3] == ["  id      7", "  amount  120"]
        assert lines[now + 1 : now + 3] == ["  id      7", "  amount  1"]
        assert "(edited) Refund 7?" in lines[0]
        assert "(edited) Refund 7?" in perdure("inbox").out
        assert "revision  1" in shown
        assert perdure(*decide, "--revision", "1").exit_code == 0
        assert client.approvals.get("order-9:review").data["amount"] == 1

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

    @pytest.mark.parametrize(
        "arguments, code",
        [
            (["approve", "--field", "amount=0"], "form.minimum"),
            (["approve", "--field", "amount"], "form.not_a_field"),
            (["approve", "--field", "amount=x"], "form.not_an_integer"),
            (["approve", "--data", "[1]", "--field", "amount=3"], "cli.data_not_an_object"),
            (["approve", "--data", "{"], "cli.not_json"),
            ([], "cli.which_decision"),
        ],
    )
    def test_refuses_what_it_does_not_understand(self, perdure, asked, arguments, code):
        perdure.refused(code, "decide", "order-8:review", *arguments)
        assert asked.approvals.get("order-8:review").is_open

    def test_of_several_says_what_is_missing(self, perdure, client):
        client.submit(several, ORDER, id="order-9")
        done = perdure("decide", "order-9:review", "approve", "--by", "ann")
        assert done.out == "order-9:review is open: 1 answer, needs 2 that agree\n"
        assert perdure("inbox").rows[1][-2:] == ["1/2", "several"]


_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def form_asked(client: Client) -> Client:
    client.submit(paying, ORDER, id="order-8")
    return client


class TestDecideAtATerminal:
    """``perdure decide`` at a terminal: it shows what is asked, and asks for what is missing."""

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
    def test_what_is_shown_fits_the_terminal(self, url, columns, command):
        with Keyboard(columns, *command, "--store", url) as keyboard:
            lines = _ESCAPES.sub("", keyboard.rest()).splitlines()
        assert keyboard.exit_code == 0
        assert [line for line in lines if len(line) > columns] == []
        assert any("order-8" in line or line.startswith("review") for line in lines)

    def test_asks_for_the_decision_and_every_field_until_they_fit(self, url, form_asked):
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
        [answer] = form_asked.approvals.get("order-8:review").answers
        assert answer.data == {"amount": 90, "paid": True}

    def test_asks_why_something_is_rejected_and_for_no_fields(self, url, form_asked):
        with Keyboard(80, "decide", "order-8:review", "--store", url, "--by", "ann") as keyboard:
            keyboard.answer("Decision (approve, reject): ", "2")
            keyboard.answer("Why (may be empty): ", "too much")
            written = keyboard.rest()
        assert "order-8:review is decided: reject" in written
        [answer] = form_asked.approvals.get("order-8:review").answers
        assert (answer.by, answer.note, answer.data) == ("ann", "too much", None)

    def test_decides_nothing_when_the_person_leaves(self, url, form_asked):
        with Keyboard(80, "decide", "order-8:review", "approve", "--store", url) as keyboard:
            keyboard.expect("amount (whole number) [120]: ")
            keyboard.leave()
            written = keyboard.rest()
        assert keyboard.exit_code == 130
        assert "nothing was decided" in written
        assert form_asked.approvals.get("order-8:review").is_open

    def test_asks_nothing_where_nothing_is_missing(self, url, client):
        client.submit(refunds, ORDER, id="order-7")
        with Keyboard(
            80, "decide", "order-7:review", "approve", "--role", "finance", "--store", url
        ) as keyboard:
            written = keyboard.rest()
        assert written == "order-7:review is decided: approve\n"

    def test_asks_nothing_of_a_person_who_may_not_decide(self, url, client):
        client.submit(refunds, ORDER, id="order-7")
        with Keyboard(80, "decide", "order-7:review", "--by", "eve", "--store", url) as keyboard:
            written = keyboard.rest()
        assert keyboard.exit_code == 1
        assert written.startswith("perdure: 'eve' may not decide on approval 'order-7:review'")


class Person:
    """Types prepared answers, and remembers what was said."""

    def __init__(self, *typed: str) -> None:
        self._typed = list(typed)
        self.prompts: list[str] = []
        self.printed: list[str] = []

    def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self._typed.pop(0)

    def tell(self, text: str) -> None:
        self.printed.append(text)


def form(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def answers(person: Person, form: Any, given: Any = None) -> Any:
    asking = FormAsking(form, given, person.ask, person.tell)
    asking.ask_for(asking.fields)
    return asking.answers


class TestAsking:
    def test_goes_through_the_fields_in_their_order(self):
        person = Person("5", "y")
        fields = form("amount", "paid", amount={"type": "integer"}, paid={"type": "boolean"})
        assert answers(person, fields) == {"amount": 5, "paid": True}
        assert person.prompts == ["amount (whole number): ", "paid (y/n): "]

    def test_shows_title_description_and_choices(self):
        person = Person("2")
        size = {"title": "Size", "description": "How much.", "enum": ["small", "large"]}
        assert answers(person, form("size", size=size)) == {"size": "large"}
        assert person.printed == ["How much.", "  1) small", "  2) large"]
        assert person.prompts == ["Size: "]

    def test_takes_what_is_there_or_the_default_for_nothing_typed(self):
        person = Person("", "", "")
        fields = form(
            "amount",
            amount={"type": "integer"},
            why={"type": "string", "default": "as asked"},
            paid={"type": "boolean", "default": False},
        )

        given = answers(person, fields, {"amount": 120, "other": 1})

        assert given == {"amount": 120, "why": "as asked", "paid": False}
        assert person.prompts == [
            "amount (whole number) [120]: ",
            "why [as asked]: ",
            "paid (y/n) [n]: ",
        ]

    def test_leaves_out_what_may_be_empty(self):
        person = Person("")
        assert answers(person, form(why={"type": "string"})) == {}
        assert person.prompts == ["why (may be empty): "]

    def test_asks_again_until_it_understands(self):
        person = Person("", "much", "5")
        assert answers(person, form("amount", amount={"type": "integer"})) == {"amount": 5}
        assert person.printed == ["enter a whole number", "enter a whole number"]

    def test_asks_again_for_what_did_not_fit_with_the_reason(self):
        person = Person("0", "fine", "7")
        fields = form("amount", amount={"type": "integer"}, why={"type": "string"})
        asking = FormAsking(fields, None, person.ask, person.tell)
        asking.ask_for(asking.fields)

        faults = asking.named_in(
            [REQUIRED.fault(("amount",)), NOT_JSON_VALUE.fault(("why", 0), reason="wrong")]
        )
        asking.ask_for(["amount"], faults)

        assert faults == {"amount": ["is required"], "why": ["0: cannot be checked: wrong"]}
        assert asking.answers == {"amount": 7, "why": "fine"}
        assert person.printed == ["amount: is required"]
        assert person.prompts[-1] == "amount (whole number) [0]: "

    def test_follows_references_within_the_form(self):
        person = Person("3")
        fields = {**form("n", n={"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "integer"}}}
        assert answers(person, fields) == {"n": 3}

    def test_of_a_form_without_fields_asks_nothing(self):
        assert answers(Person(), {"type": "object"}) == {}
        assert answers(Person(), True) == {}


class TestAskingForFields:
    """Asking for the fields of a form: by type, with choices and defaults, and again if need be."""

    @pytest.mark.parametrize(
        "field, typed, value",
        [
            ({"type": "string"}, "12", "12"),
            ({"type": "integer"}, "12", 12),
            ({"type": "number"}, "1.5", 1.5),
            ({"type": "number"}, "2", 2),
            ({"type": ["null", "integer"]}, "3", 3),
            ({"type": "boolean"}, "Y", True),
            ({"type": "boolean"}, "no", False),
            ({"enum": ["small", "large"]}, "large", "large"),
            ({"enum": ["small", "large"]}, "2", "large"),
            ({"enum": [1, 2, 30]}, "30", 30),
            ({"enum": [3, 2, 1]}, "3", 3),
            ({"enum": [True, None]}, "2", None),
            ({"type": "array", "items": {"type": "string"}}, "a, b", ["a", "b"]),
            ({"type": "array"}, "[1, 2]", [1, 2]),
            ({"type": "object"}, '{"a": 1}', {"a": 1}),
            ({}, "true", True),
            ({}, "text", "text"),
        ],
    )
    def test_what_is_typed_is_read_by_the_type_of_its_field(self, field, typed, value):
        read = understood(typed, field)
        assert (read, type(read)) == (value, type(value))

    @pytest.mark.parametrize(
        "field, typed, code",
        [
            ({"type": "integer"}, "1.5", "form.not_an_integer"),
            ({"type": "number"}, "much", "form.not_a_number"),
            ({"type": "number"}, "true", "form.not_a_number"),
            ({"type": "boolean"}, "maybe", "form.not_yes_or_no"),
            ({"enum": ["a", "b"]}, "3", "form.not_a_choice"),
            ({"type": "object"}, "{", "form.not_json"),
            ({"type": "string"}, "", "form.nothing_entered"),
        ],
    )
    def test_what_cannot_be_read_is_reported_and_asked_for_again(self, field, typed, code):
        with refused(code, InvalidInput):
            understood(typed, field)

    def test_fields_on_the_command_line_are_read_by_type_too(self):
        fields = form(amount={"type": "integer"}, why={"type": "string"})
        given = given_fields(["amount=5", "why=a=b", "other=[1]"], fields)
        assert given == {"amount": 5, "why": "a=b", "other": [1]}
