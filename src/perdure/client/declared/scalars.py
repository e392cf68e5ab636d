"""What a plain scalar of YAML means: as YAML 1.2 has it (core schema), and JSON can carry.

``yes``, ``no``, ``on``, ``off``, ``1:30`` and dates are texts, which YAML 1.1 takes for something
else.
"""

from __future__ import annotations

import math
import re
from typing import Any

from perdure.errors import InvalidInput

NULLS = re.compile(r"null|Null|NULL|~|")
BOOLEANS = re.compile(r"true|True|TRUE|false|False|FALSE")
INTEGERS = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOATS = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""What is stored as a whole number."""

_DIGITS_MAX = 100
_BASES = {"0o": 8, "0x": 16}


def plain_scalar(text: str) -> Any:
    if NULLS.fullmatch(text):
        return None
    if BOOLEANS.fullmatch(text):
        return text.lower() == "true"
    if len(text) > _DIGITS_MAX:
        return text
    if INTEGERS.fullmatch(text):
        return checked_number(int(text[2:], _BASES[text[:2]]) if text[:2] in _BASES else int(text))
    if FLOATS.fullmatch(text):
        return checked_number(float(re.sub(r"\.(inf|nan)", r"\1", text.lower())))
    return text


def checked_number(number: int | float) -> int | float:
    if isinstance(number, int) and not INTEGER_MIN <= number <= INTEGER_MAX:
        raise InvalidInput(
            f"{str(number)[:40]} is too large for a whole number; write it as a text"
        )
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidInput(f"{number} is not a number that JSON has; write it as a text")
    return number
