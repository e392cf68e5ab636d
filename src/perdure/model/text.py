"""Bounded previews of values and strings, with control characters escaped."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

from perdure.errors import InvalidInput

PREVIEW_MAX = 80
INDENT = "    "
_BETWEEN_WORDS = re.compile(r"[\s\"']")


def json_preview(value: Any) -> str:
    """The value as JSON, truncated, or the name of its type if it is not JSON."""
    from perdure.model.payload import to_json  # ``perdure --help`` must not load msgspec

    try:
        text = to_json(value, "value", max_bytes=2**63).decode()
    except InvalidInput:
        return f"a {type(value).__name__}"
    return preview(text)


def preview(text: str) -> str:
    return text if len(text) <= PREVIEW_MAX else f"{text[: PREVIEW_MAX - 1]}…"


def first_words(text: str, length_max: int) -> str:
    """The start of a string, truncated between words.

    Half a secret would not be recognized and masked.
    """
    if len(text) <= length_max:
        return text
    ends = [found.end() for found in _BETWEEN_WORDS.finditer(text, 0, length_max)]
    return text[: ends[-1]] if ends else ""


def last_words(text: str, length_max: int) -> str:
    """The end of a string, truncated between words."""
    if len(text) <= length_max:
        return text
    found = _BETWEEN_WORDS.search(text, len(text) - length_max)
    return text[found.start() :] if found else ""


def type_name(value: Any) -> str:
    """The JSON type of a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


# C0, DEL and C1 can move the cursor, erase lines and write to the clipboard of a terminal; the
# others break or reorder lines or cannot be seen, so that people see something else than programs.
_BEYOND_ASCII = (
    r"\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff"
)
_BLANK = re.compile("[\u180b-\u180f\u2800\ufe00-\ufe0f]")
_CONTROL = re.compile(rf"[\x00-\x1f{_BEYOND_ASCII}]")
_CONTROL_IN_LINES = re.compile(rf"[\x00-\x08\x0b-\x1f{_BEYOND_ASCII}]")
_UNESCAPED_IN_JSON = re.compile(f"[{_BEYOND_ASCII}]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def control_in(text: str) -> str:
    """The first control character, or an empty string."""
    found = None if text.isascii() and text.isprintable() else _CONTROL.search(text)
    return "" if found is None else found[0]


def unseen_in(name: str) -> str:
    """The first character that makes two names of people look the same, or an empty string.

    These are control characters and what other text needs for words and emoji: joiners, other
    format characters, blanks, variation selectors.
    """
    for each in name:
        if unicodedata.category(each) in ("Cf", "Cs") or _BLANK.match(each) or control_in(each):
            return each
    return ""


def visible(text: str) -> str:
    """Escape all control characters: ``\\x1b``, ``\\u202e``, ``\\n``."""
    return _CONTROL.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Escape control characters except newlines and tabs."""
    return _CONTROL_IN_LINES.sub(_escape, text)


def visible_block(text: str) -> str:
    """Escape control characters, and indent all lines but the first.

    Then no text can add a line that looks like another line of the output.
    """
    return visible_lines(text).replace("\n", f"\n{INDENT}")


def visible_json(text: str) -> str:
    """Escape all control characters in JSON, without changing its value."""
    return _UNESCAPED_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return _SHORT.get(found[0]) or (f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}")
