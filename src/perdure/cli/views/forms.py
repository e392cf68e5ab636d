"""Prompt for the fields of a form, one by one.

The form is JSON Schema. The type, choices and default of a field decide how to prompt for it; the
engine validates the answer and reports faults by field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from perdure.cli.renderer import CliRenderer
from perdure.cli.views.console import json_line, shortened
from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput, fault_text

Ask = Callable[[str], str]
Show = Callable[[str], object]

_ABSENT: Any = object()
_YES = frozenset({"y", "yes", "true", "1"})
_NO = frozenset({"n", "no", "false", "0"})
_CHOICES_SHOWN_MAX = 20
_DEFAULT_SHOWN_MAX = 60


# The input cannot be parsed as the field's value.
NOTHING_ENTERED = declare("form.nothing_entered", "a value is required")
NOT_A_CHOICE = declare("form.not_a_choice", "choose one of {choices}")
NOT_YES_OR_NO = declare("form.not_yes_or_no", "enter y or n")
NOT_AN_INTEGER = declare("form.not_an_integer", "enter a whole number")
NOT_A_NUMBER = declare("form.not_a_number", "enter a number")
NOT_JSON = declare("form.not_json", "enter JSON: {reason}")
NOT_A_FIELD = declare("form.not_a_field", "--field {text!r} must be NAME=VALUE")


class FormAsking:
    """Prompts for fields; ``given`` has the initial values."""

    def __init__(self, form: Any, given: Any, ask: Ask, show: Show) -> None:
        self._form = form
        self._given = given if isinstance(given, Mapping) else {}
        self._ask = ask
        self._show = show
        self.answers: dict[str, Any] = {}

    @property
    def fields(self) -> list[str]:
        return list(_properties(self._form))

    def ask_for(self, names: Iterable[str], faults: Mapping[str, list[str]] | None = None) -> None:
        """Prompt for these fields; ``faults`` are those of the previous input."""
        for name in names:
            for fault in (faults or {}).get(name, ()):
                self._show(f"{name}: {fault}")
            value = self._field(name)
            self.answers.pop(name, None)
            if value is not _ABSENT:
                self.answers[name] = value

    def named_in(self, faults: Iterable[Fault]) -> dict[str, list[str]]:
        """Faults by the top-level field to prompt for again."""
        by_field: dict[str, list[str]] = {}
        for fault in faults:
            name, *inside = fault.where or ("",)
            text = fault_text(replace(fault, where=tuple(inside)))
            by_field.setdefault(str(name), []).append(text)
        return by_field

    def _field(self, name: str) -> Any:
        field = _resolved(self._form, _properties(self._form)[name])
        default = self.answers.get(name, self._given.get(name, field.get("default", _ABSENT)))
        is_required = name in self._form.get("required", ())
        if description := field.get("description"):
            self._show(str(description))
        for number, choice in enumerate(_choices(field), start=1):
            self._show(f"  {number}) {_value_text(choice)}")
        while True:
            typed = self._ask(_prompt(name, field, default, is_required=is_required)).strip()
            if not typed and default is not _ABSENT:
                return default
            if not typed and not is_required:
                return _ABSENT
            try:
                return understood(typed, field)
            except InvalidInput as error:
                self._show(error.render(CliRenderer()))


def understood(typed: str, field: Mapping[str, Any]) -> Any:
    """Parse text as a value according to the field's schema."""
    if choices := _choices(field):
        return _chosen(typed, choices)
    match _type(field):
        case "boolean":
            return _yes_or_no(typed)
        case "integer" | "number" as wanted:
            return _number(typed, wanted)
        case "string":
            if not typed:
                raise InvalidInput(NOTHING_ENTERED.fault())
            return typed
        case "array":
            return _list(typed, field)
        case "object":
            return _json(typed)
        case _:
            return _json_or_text(typed)


def given_fields(pairs: Iterable[str], form: Any) -> dict[str, Any]:
    """Parse ``name=value`` from the command line."""
    fields: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(NOT_A_FIELD.fault(text=pair))
        field = _resolved(form, _properties(form).get(name, {}))
        try:
            fields[name] = understood(value, field)
        except InvalidInput as error:
            raise InvalidInput(*(each.under(f"--field {name}") for each in error.faults)) from None
    return fields


def _properties(form: Any) -> Mapping[str, Any]:
    found = form.get("properties") if isinstance(form, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _resolved(form: Any, field: Any) -> Mapping[str, Any]:
    """Resolve a field that refers to another place in the form."""
    if not isinstance(field, Mapping):
        return {}
    reference = field.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return field
    found = form
    for part in reference[2:].split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return {**found, **field} if isinstance(found, Mapping) else field


def _type(field: Mapping[str, Any]) -> str:
    named = field.get("type", "")
    if isinstance(named, list):
        named = next((each for each in named if each != "null"), "")
    return str(named)


def _choices(field: Mapping[str, Any]) -> list[Any]:
    found = field.get("enum")
    return found[:_CHOICES_SHOWN_MAX] if isinstance(found, list) else []


def _prompt(name: str, field: Mapping[str, Any], default: Any, *, is_required: bool) -> str:
    hints = {"boolean": "y/n", "integer": "whole number", "number": "number"}
    hint = "" if _choices(field) else hints.get(_type(field), "")
    if default is _ABSENT and not is_required:
        hint = f"{hint}, may be empty" if hint else "may be empty"
    shown = (
        "" if default is _ABSENT else f" [{shortened(_value_text(default), _DEFAULT_SHOWN_MAX)}]"
    )
    label = str(field.get("title") or name)
    return f"{label}{f' ({hint})' if hint else ''}{shown}: "


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    return value if isinstance(value, str) else json_line(value)


def _chosen(typed: str, choices: list[Any]) -> Any:
    for choice in choices:
        if typed == _value_text(choice):
            return choice
    if typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1]
    listed = ", ".join(_value_text(choice) for choice in choices)
    raise InvalidInput(NOT_A_CHOICE.fault(choices=listed))


def _yes_or_no(typed: str) -> bool:
    if typed.lower() in _YES:
        return True
    if typed.lower() in _NO:
        return False
    raise InvalidInput(NOT_YES_OR_NO.fault())


def _number(typed: str, wanted: str) -> int | float:
    try:
        return int(typed)
    except ValueError:
        pass
    try:
        number = json.loads(typed)
    except ValueError:
        number = None
    if wanted == "number" and isinstance(number, float):
        return number
    raise InvalidInput((NOT_AN_INTEGER if wanted == "integer" else NOT_A_NUMBER).fault())


def _list(typed: str, field: Mapping[str, Any]) -> Any:
    """Parse a list: JSON, or strings separated by commas."""
    items = field.get("items")
    are_texts = isinstance(items, Mapping) and _type(items) == "string"
    if are_texts and not typed.startswith("["):
        return [each.strip() for each in typed.split(",") if each.strip()]
    return _json(typed)


def _json(typed: str) -> Any:
    try:
        return json.loads(typed)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(NOT_JSON.fault(reason=str(error))) from None


def _json_or_text(typed: str) -> Any:
    try:
        return json.loads(typed)
    except (ValueError, RecursionError):
        return typed
