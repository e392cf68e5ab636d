"""Parts of long texts, cut between words.

A secret in a text is masked as a whole. One that was cut in two would not be recognised.
"""

from __future__ import annotations

import re

_BETWEEN = re.compile(r"[\s\"']")


def beginning(text: str, length_max: int) -> str:
    """What is whole of the first characters."""
    if len(text) <= length_max:
        return text
    ends = [found.end() for found in _BETWEEN.finditer(text, 0, length_max)]
    return text[: ends[-1]] if ends else ""


def ending(text: str, length_max: int) -> str:
    """What is whole of the last characters."""
    if len(text) <= length_max:
        return text
    found = _BETWEEN.search(text, len(text) - length_max)
    return text[found.start() :] if found else ""
