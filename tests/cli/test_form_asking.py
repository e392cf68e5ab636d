"""Asking for the fields of a form: by type, with choices and defaults, and again if need be."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.cli.views.forms import FormAsking, given_fields, understood
from perdure.errors import InvalidInput
from perdure.forms.schema import NOT_JSON_VALUE, REQUIRED
from tests.support.refusal import refused


class Person:
    """Types prepared answers, and remembers what was said."""

    def __init__(self, *typed: str) -> None:
        self._typed = list(typed)
        self.prompts: list[str] = []
        self.told: list[str] = []

    def ask(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self._typed.pop(0)

    def tell(self, text: str) -> None:
        self.told.append(text)


def form(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def answers(person: Person, form: Any, given: Any = None) -> Any:
    asking = FormAsking(form, given, person.ask, person.tell)
    asking.ask_for(asking.fields)
    return asking.answers


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
def test_what_is_typed_is_read_by_the_type_of_its_field(field, typed, value):
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
def test_what_cannot_be_read_is_told_and_asked_for_again(field, typed, code):
    with refused(code, InvalidInput):
        understood(typed, field)


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
        assert person.told == ["How much.", "  1) small", "  2) large"]
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
        assert person.told == ["enter a whole number", "enter a whole number"]

    def test_asks_again_for_what_did_not_fit_with_the_reason(self):
        person = Person("0", "fine", "7")
        fields = form("amount", amount={"type": "integer"}, why={"type": "string"})
        asking = FormAsking(fields, None, person.ask, person.tell)
        asking.ask_for(asking.fields)

        faults = asking.named_in(
            [
                REQUIRED.fault(("amount",)),
                NOT_JSON_VALUE.fault(("why", 0), reason="wrong"),
            ]
        )
        asking.ask_for(["amount"], faults)

        assert faults == {"amount": ["is required"], "why": ["0: cannot be checked: wrong"]}
        assert asking.answers == {"amount": 7, "why": "fine"}
        assert person.told == ["amount: is required"]
        assert person.prompts[-1] == "amount (whole number) [0]: "

    def test_follows_references_within_the_form(self):
        person = Person("3")
        fields = {**form("n", n={"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "integer"}}}

        assert answers(person, fields) == {"n": 3}

    def test_of_a_form_without_fields_asks_nothing(self):
        assert answers(Person(), {"type": "object"}) == {}
        assert answers(Person(), True) == {}


def test_fields_on_the_command_line_are_read_by_type_too():
    fields = form(amount={"type": "integer"}, why={"type": "string"})

    given = given_fields(["amount=5", "why=a=b", "other=[1]"], fields)

    assert given == {"amount": 5, "why": "a=b", "other": [1]}
