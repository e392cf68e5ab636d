"""How values appear in messages: as JSON, and never more of it than a line holds."""

from __future__ import annotations

import re
from typing import Any

from perdure.errors import InvalidInput
from perdure.model.payload import to_json

SHOWN_MAX = 80
_BETWEEN_WORDS = re.compile(r"[\s\"']")


def shown(value: Any) -> str:
    """The value as JSON, shortened; what JSON cannot carry is told by its type."""
    try:
        text = to_json(value, "value", max_bytes=2**63).decode()
    except InvalidInput:
        return f"a {type(value).__name__}"
    return cut(text)


def cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"


def first_words(text: str, length_max: int) -> str:
    """The beginning of a text, cut between words.

    A secret is masked as a whole: one that was cut in two would not be recognized.
    """
    if len(text) <= length_max:
        return text
    ends = [found.end() for found in _BETWEEN_WORDS.finditer(text, 0, length_max)]
    return text[: ends[-1]] if ends else ""


def last_words(text: str, length_max: int) -> str:
    """The end of a text, cut between words."""
    if len(text) <= length_max:
        return text
    found = _BETWEEN_WORDS.search(text, len(text) - length_max)
    return text[found.start() :] if found else ""


def type_name(value: Any) -> str:
    """What people call a value of this type."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"
