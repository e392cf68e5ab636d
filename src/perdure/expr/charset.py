"""Sets of characters of a pattern, matched from their ranges as ``re`` matches them.

``re`` compiles a class by visiting every character of its ranges up to U+FFFF, which takes up to a
second. Here the ranges of all classes of a pattern are merged into sorted tables, so that building
takes time in proportion to the pattern, and one search in a table finds all classes with a
character.

With IGNORECASE, ``re`` compares the lowercase of a character with the folded characters of a class.
Here the characters that fold alike are looked up in the ranges as they are written. Characters
above U+FFFF follow other rules in classes, which ``CharacterSet`` explains.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Literal

_sre: Any = import_module("_sre")
_lower: Callable[[int], int] = _sre.unicode_tolower
_ascii_lower: Callable[[int], int] = _sre.ascii_tolower
_same_upper: dict[int, tuple[int, ...]] = import_module("re._casefix")._EXTRA_CASES
"""Other lowercase characters with the same uppercase, such as long s for s."""

_BMP_LAST = 0xFFFF
_CASED_END = 0x20000
"""No character beyond has a case."""

Folding = Literal["none", "unicode", "ascii"]
Ranges = list[tuple[int, int]]


class CharacterSet:
    """A character, a class or ``.``, as parsed by ``re``.

    ``ranges`` are looked up for each character that folds like the given one. In a class that
    ignores case, ``re`` compares characters above U+FFFF without folding them, and looks up a
    range that reaches beyond U+FFFF, in ``wide``, for the lowercase and its uppercase.
    """

    __slots__ = ("categories", "folding", "is_negated", "ranges", "wide")

    def __init__(self, operation: str, argument: Any, flags: int) -> None:
        self.folding: Folding = "none"
        if flags & re.IGNORECASE:
            self.folding = "unicode" if flags & re.UNICODE else "ascii"
        self.ranges: Ranges = []
        self.wide: Ranges = []
        self.categories: list[str] = []
        self.is_negated = operation in ("NOT_LITERAL", "ANY")
        match operation:
            case "LITERAL" | "NOT_LITERAL":
                folded = _folded(argument, self.folding)
                self.ranges.append((folded, folded))
            case "ANY":
                self.folding = "none"
                if not flags & re.DOTALL:
                    self.ranges.append((ord("\n"), ord("\n")))
            case _:
                self._add_class(argument, flags)

    def _add_class(self, items: Any, flags: int) -> None:
        for operation, argument in items:
            match str(operation):
                case "NEGATE":
                    self.is_negated = True
                case "LITERAL":
                    self.ranges.append((argument, argument))
                case "RANGE":
                    self._add_range(*argument)
                case _:
                    prefix = "UNICODE " if flags & re.UNICODE else ""
                    self.categories.append(f"{prefix}{argument}")

    def _add_range(self, first: int, last: int) -> None:
        if self.folding == "none" or last <= _BMP_LAST:
            self.ranges.append((first, last))
            return
        self.wide.append((first, last))
        if first <= _BMP_LAST:
            self.ranges.append((first, _BMP_LAST))


class CharacterSets:
    """The sets of a pattern; a set of their numbers is an integer with one bit for each."""

    __slots__ = ("_categories", "_negated", "_tables", "_wide")

    def __init__(self, sets: Sequence[CharacterSet]) -> None:
        self._tables = _tables_of([(each.folding, each.ranges) for each in sets])
        self._wide = _tables_of([(each.folding, each.wide) for each in sets])
        self._categories: dict[str, int] = {}
        self._negated = 0
        for number, each in enumerate(sets):
            self._negated |= each.is_negated << number
            for name in each.categories:
                self._categories[name] = self._categories.get(name, 0) | 1 << number

    def with_character(self, character: str) -> int:
        """The sets that contain this character."""
        found, code = 0, ord(character)
        for folding, table in self._tables.items():
            for each in _alike(code, folding):
                found |= table.at(each)
        for folding, table in self._wide.items():
            lower = _folded(code, folding)
            found |= table.at(lower) | table.at(ord(chr(lower).upper()[0]))
        for name, numbers in self._categories.items():
            if _CATEGORIES[name](character):
                found |= numbers
        return found ^ self._negated


class _Table:
    """Which sets contain a character, for each interval between the bounds of their ranges."""

    __slots__ = ("_bounds", "_found")

    def __init__(self, ranges: Sequence[tuple[int, Ranges]]) -> None:
        changes: dict[int, int] = {}
        for number, each in ranges:
            for first, last in _merged(each):
                for bound in (first, last + 1):
                    changes[bound] = changes.get(bound, 0) ^ 1 << number
        self._bounds = sorted(changes)
        found, self._found = 0, [0]
        for bound in self._bounds:
            found ^= changes[bound]
            self._found.append(found)

    def at(self, code: int) -> int:
        return self._found[bisect_right(self._bounds, code)]


def _tables_of(sets: Sequence[tuple[Folding, Ranges]]) -> dict[Folding, _Table]:
    by_folding: dict[Folding, list[tuple[int, Ranges]]] = {}
    for number, (folding, ranges) in enumerate(sets):
        if ranges:
            by_folding.setdefault(folding, []).append((number, ranges))
    return {folding: _Table(each) for folding, each in by_folding.items()}


def _merged(ranges: Ranges) -> Ranges:
    merged: Ranges = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def numbers_in(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    digits = bin(bits)[:1:-1]
    number = digits.find("1")
    while number >= 0:
        yield number
        number = digits.find("1", number + 1)


# Case


def _folded(code: int, folding: Folding) -> int:
    match folding:
        case "none":
            return code
        case "ascii":
            return _ascii_lower(code)
        case "unicode":
            return _lower(code)


def _alike(code: int, folding: Folding) -> Sequence[int]:
    """The characters that fold like this one; above U+FFFF, only its lowercase."""
    if folding == "none":
        return (code,)
    lower = _folded(code, folding)
    if code > _BMP_LAST:
        return (lower,)
    if folding == "ascii":
        return (lower, ord(chr(lower).upper())) if lower < 128 else (lower,)
    capitals = _capitals()
    return [
        each
        for one in (lower, *_same_upper.get(lower, ()))
        for each in (one, *capitals.get(one, ()))
    ]


@cache
def _capitals() -> dict[int, list[int]]:
    """The other characters with each lowercase: K and the kelvin sign for k."""
    found: dict[int, list[int]] = {}
    for code in range(_CASED_END):
        if (lower := _lower(code)) != code:
            found.setdefault(lower, []).append(code)
    return found


# Categories


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


_POSITIVE: dict[str, Callable[[str], bool]] = {
    "UNICODE CATEGORY_DIGIT": str.isdecimal,
    "UNICODE CATEGORY_SPACE": str.isspace,
    "UNICODE CATEGORY_WORD": _is_word,
    "CATEGORY_DIGIT": frozenset("0123456789").__contains__,
    "CATEGORY_SPACE": frozenset(" \t\n\r\f\v").__contains__,
    "CATEGORY_WORD": lambda character: character.isascii() and _is_word(character),
}
_CATEGORIES = _POSITIVE | {
    name.replace("CATEGORY_", "CATEGORY_NOT_"): lambda character, fits=fits: not fits(character)
    for name, fits in _POSITIVE.items()
}
