"""When two JSON values are the same: 1 and 1.0 are, 1 and true are not, at any depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(one: Any, other: Any) -> bool:
    # A stack of its own: hostile values are nested deeper than Python can call.
    pairs = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if one.keys() != other.keys():
                return False
            pairs += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
            if len(one) != len(other):
                return False
            pairs += zip(one, other, strict=True)
        elif isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True
