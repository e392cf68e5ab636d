"""Regular expressions in linear time: ``re`` syntax, matched by simulating an automaton.

Python's own matcher backtracks: a pattern such as ``(a+)+$`` can take exponential time. Here each
character advances a set of states, so the time is bounded by the length of the string times the
size of the pattern, at most ``SIZE_MAX``. The standard library parses the syntax; constructs that
need backtracking, such as back references, are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from perdure.diagnostics import Fault, declare
from perdure.expr.budget import CostBudget
from perdure.model.text import preview
from perdure.model.value import Value

Place = Callable[[str, int], bool]
"""Whether ``^``, ``$`` or a word boundary matches at this index of a string."""

Matches = tuple[bool, ...]
"""For each place of an automaton, whether it matches at one index."""


class PatternState(Value):
    """A state that consumes a character, requires a place, or only leads to others."""

    leads_to: tuple[int, ...]
    takes: int = -1
    asks: int = -1


class Automaton(Value, gc=True):
    """The states of a pattern; ``takes`` and ``asks`` count in the characters and places."""

    states: tuple[PatternState, ...]
    characters: tuple[re.Pattern[str], ...]
    places: tuple[Place, ...]
    start: int
    end: int

    def is_found(self, text: str, budget: CostBudget | None = None) -> bool:
        return _Search(self, text, budget).succeeds()


class _Search:
    """Sets of states are integers with one bit per state: fast to combine and compare."""

    def __init__(self, automaton: Automaton, text: str, budget: CostBudget | None) -> None:
        self._spend = (lambda cost: None) if budget is None else budget.spend
        self._automaton = automaton
        self._text = text
        self._fitting: dict[str, int] = {}
        self._reached: dict[tuple[int, Matches], int] = {}
        self._after: dict[tuple[int, Matches], int] = {}

    def succeeds(self) -> bool:
        end = 1 << self._automaton.end
        self._spend(1 + 2 * len(self._text) * (1 + len(self._automaton.places)))
        current = self._next(0, 0)
        for index, character in enumerate(self._text, start=1):
            if current & end:
                return True
            current = self._next(current & self._states_for(character), index)
        return bool(current & end)

    def _next(self, moved: int, index: int) -> int:
        """The states reached at this index from those that consumed the previous character."""
        matches = tuple(place(self._text, index) for place in self._automaton.places)
        after = self._after.get((moved, matches))
        if after is None:
            self._spend(1 + moved.bit_count())
            after = self._reach(self._automaton.start, matches)  # a match may start anywhere
            for number in _numbers_in(moved):
                after |= self._reach(self._automaton.states[number].leads_to[0], matches)
            self._after[moved, matches] = after
        return after

    def _reach(self, start: int, matches: Matches) -> int:
        """The consuming states, or the end, reachable from this one without a character."""
        reached = self._reached.get((start, matches))
        if reached is not None:
            return reached
        seen, waiting, reached = {start}, [start], 0
        while waiting:
            number = waiting.pop()
            state = self._automaton.states[number]
            if state.takes >= 0 or number == self._automaton.end:
                reached |= 1 << number
            elif state.asks < 0 or matches[state.asks]:
                new = [other for other in state.leads_to if other not in seen]
                seen.update(new)
                waiting += new
        self._spend(len(seen))
        self._reached[start, matches] = reached
        return reached

    def _states_for(self, character: str) -> int:
        """The states that take this character."""
        fitting = self._fitting.get(character)
        if fitting is None:
            self._spend(1 + (len(self._automaton.characters) + len(self._automaton.states)) // 4)
            elements = enumerate(self._automaton.characters)
            fit = {number for number, element in elements if element.match(character)}
            states = enumerate(self._automaton.states)
            fitting = sum(1 << number for number, state in states if state.takes in fit)
            self._fitting[character] = fitting
        return fitting


def _numbers_in(states: int) -> Iterator[int]:
    digits = bin(states)[:1:-1]
    number = digits.find("1")
    while number >= 0:
        yield number
        number = digits.find("1", number + 1)


PATTERN_MAX = 500
"""In characters."""
TEXT_MAX = 10_000
"""Nothing is found in longer strings."""
SIZE_MAX = 2_000
"""The size of a pattern with its repeats expanded: ``[a-z]{1,500}`` fits."""

_GROUPS_MAX = 100
_CACHED_MAX = 256
_COST_UNIT = 50

_parser: Any = import_module("re._parser")
_compiler: Any = import_module("re._compiler")

_ONE_CHARACTER = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
_REFUSED = {
    "GROUPREF": "refers to a group",
    "GROUPREF_EXISTS": "refers to a group",
    "ASSERT": "looks ahead or behind",
    "ASSERT_NOT": "looks ahead or behind",
    "ATOMIC_GROUP": "has an atomic group",
    "POSSESSIVE_REPEAT": "has a possessive repeat",
}


TOO_LONG = declare(
    "pattern.too_long", "is a pattern of {length} characters, more than the {most} allowed"
)
TOO_MANY_GROUPS = declare("pattern.too_many_groups", "is a pattern of more than {most} groups")
NOT_A_PATTERN = declare("pattern.invalid", "is not a pattern: {reason}")
TOO_LARGE = declare(
    "pattern.too_large",
    "is a pattern that is too large with its repeats expanded (over {most} parts)",
)
UNBOUNDED = declare(
    "pattern.unbounded",
    "is a pattern that {what}, so its time has no bound",
)
UNKNOWN_PART = declare(
    "pattern.unknown_part", "is a pattern that uses {part}, which is not supported"
)


class _Unusable(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def pattern_fault(pattern: str) -> Fault | None:
    """Why the pattern cannot be used; None if it can."""
    found = _automaton(pattern)
    return found if isinstance(found, Fault) else None


def is_found(pattern: str, text: str, budget: CostBudget | None = None) -> bool:
    """Whether the pattern matches anywhere in the string; False if that is too long."""
    found = _automaton(pattern)
    if isinstance(found, Fault) or len(text) > TEXT_MAX:
        return False
    return found.is_found(text, budget)


def search_cost(pattern: str, text: str) -> int:
    """An upper bound for the cost of a search, in units of a few microseconds."""
    found = _automaton(pattern)
    size = 0 if isinstance(found, Fault) else len(found.states)
    return 1 + min(len(text), TEXT_MAX) * size // _COST_UNIT


def _automaton(pattern: str) -> Automaton | Fault:
    """The automaton, or the fault of the pattern."""
    if len(pattern) > PATTERN_MAX:
        return TOO_LONG.fault(length=len(pattern), most=PATTERN_MAX)
    return _built(pattern)


@lru_cache(maxsize=_CACHED_MAX)
def _built(pattern: str) -> Automaton | Fault:
    if pattern.count("(") > _GROUPS_MAX:
        return TOO_MANY_GROUPS.fault(most=_GROUPS_MAX)
    try:
        parsed = _parser.parse(pattern)
        return _Building().automaton(parsed)
    # Warnings too: the meaning of such a pattern may change in a future version of Python.
    except (re.error, OverflowError, RecursionError, Warning) as error:
        return NOT_A_PATTERN.fault(reason=preview(str(error)))
    except _Unusable as error:
        return error.fault


class _Building:
    """Builds the states from the end of the pattern, so that each can refer to its successors."""

    def __init__(self) -> None:
        self._states: list[PatternState] = []
        self._characters: dict[str, int] = {}
        self._compiled: list[re.Pattern[str]] = []
        self._places: dict[tuple[str, int], int] = {}
        self._size = 0

    def automaton(self, parsed: Any) -> Automaton:
        end = self._state()
        start = self._sequence(parsed, parsed.state.flags, end)
        return Automaton(
            states=tuple(self._states),
            characters=tuple(self._compiled),
            places=tuple(_place(name, flags) for name, flags in self._places),
            start=start,
            end=end,
        )

    def _state(self, *leads_to: int, takes: int = -1, asks: int = -1) -> int:
        self._states.append(PatternState(leads_to=leads_to, takes=takes, asks=asks))
        return len(self._states) - 1

    def _sequence(self, items: Any, flags: int, following: int) -> int:
        self._grow()
        for operation, argument in reversed(list(items)):
            following = self._item(str(operation), argument, (operation, flags), following)
        return following

    def _grow(self) -> None:
        """Also counts items without states, since an empty group can be repeated forever."""
        self._size += 1
        if self._size > SIZE_MAX:
            raise _Unusable(TOO_LARGE.fault(most=SIZE_MAX))

    def _item(self, name: str, argument: Any, found_type: tuple[Any, int], following: int) -> int:
        operation, flags = found_type
        self._grow()
        if name in _ONE_CHARACTER:
            element = self._character(operation, argument, flags)
            return self._state(following, takes=element)
        match name:
            case "BRANCH":
                _, ways = argument
                return self._state(*[self._sequence(way, flags, following) for way in ways])
            case "SUBPATTERN":
                _, added, removed, inside = argument
                return self._sequence(inside, (flags | added) & ~removed, following)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(argument, flags, following)
            case "AT":
                wanted = (str(argument), flags & (re.MULTILINE | re.ASCII))
                place = self._places.setdefault(wanted, len(self._places))
                return self._state(following, asks=place)
            case _:
                what = _REFUSED.get(name, f"uses {name.lower()}")
                raise _Unusable(UNBOUNDED.fault(what=what))

    def _repeat(self, argument: Any, flags: int, following: int) -> int:
        least, most, inside = argument
        if most == _parser.MAXREPEAT:
            start = self._state()
            again = self._sequence(inside, flags, start)
            self._states[start] = PatternState(leads_to=(again, following))
        else:
            start = following
            for _ in range(most - least):
                start = self._state(self._sequence(inside, flags, start), following)
        for _ in range(least):
            start = self._sequence(inside, flags, start)
        return start

    def _character(self, operation: Any, argument: Any, flags: int) -> int:
        """Compiled by ``re``, so that classes and case folding behave the same."""
        key = f"{operation} {argument} {flags}"
        if key not in self._characters:
            state = _parser.State()
            state.flags = flags
            alone = _parser.SubPattern(state, [(operation, argument)])
            self._characters[key] = len(self._compiled)
            self._compiled.append(_compiler.compile(alone, flags))
        return self._characters[key]


def _place(name: str, flags: int) -> Place:
    by_line = bool(flags & re.MULTILINE)
    match name:
        case "AT_BEGINNING" if by_line:
            return lambda text, index: index == 0 or text[index - 1] == "\n"
        case "AT_BEGINNING" | "AT_BEGINNING_STRING":
            return lambda text, index: index == 0
        case "AT_END" if by_line:
            return lambda text, index: index == len(text) or text[index] == "\n"
        case "AT_END":
            return lambda text, index: text[index : index + 2] in ("", "\n")
        case "AT_END_STRING":
            return lambda text, index: index == len(text)
        case "AT_BOUNDARY":
            return lambda text, index: _is_boundary(text, index, flags)
        case "AT_NON_BOUNDARY":
            return lambda text, index: not _is_boundary(text, index, flags)
        case _:
            raise _Unusable(UNKNOWN_PART.fault(part=name.lower()))


def _is_boundary(text: str, index: int, flags: int) -> bool:
    before = index > 0 and _is_word(text[index - 1], flags)
    after = index < len(text) and _is_word(text[index], flags)
    return before != after


def _is_word(character: str, flags: int) -> bool:
    is_known = character.isascii() or not flags & re.ASCII
    return is_known and (character.isalnum() or character == "_")
