"""How values and stored texts appear to people: bounded, and without characters that act."""

from __future__ import annotations

import json
import re
from typing import Any

from perdure.errors import InvalidInput

SHOWN_MAX = 80
_BETWEEN_WORDS = re.compile(r"[\s\"']")


def shown(value: Any) -> str:
    """The value as JSON, shortened; what JSON cannot carry is told by its type."""
    from perdure.model.payload import to_json  # the command line starts without msgspec

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


# C0, DEL and C1 move cursors, erase lines and reach the clipboard of a terminal; the others break a
# line or reorder it, so that a reader sees another text than a program.
_BEYOND_ASCII = (
    r"\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f"
)
_CONTROL = re.compile(rf"[\x00-\x1f{_BEYOND_ASCII}]")
_CONTROL_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_BEYOND_ASCII}]")
_UNESCAPED_IN_JSON = re.compile(f"[{_BEYOND_ASCII}]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    """One line with its control characters escaped: ``\\x1b``, ``\\u202e``, ``\\n``."""
    return _CONTROL.sub(_escape, text)


def visible_lines(text: str) -> str:
    """The same of a text that may have several lines: newlines and tabs stay."""
    return _CONTROL_IN_LINES.sub(_escape, text)


def visible_json(text: str) -> str:
    """JSON of the same value, in which all control characters are escaped."""
    return _UNESCAPED_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return _SHORT.get(found[0]) or (f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}")
