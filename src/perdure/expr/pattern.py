"""Regular expressions in linear time: ``re`` syntax, matched by simulating an automaton.

Python's own matcher backtracks: a pattern such as ``(a+)+$`` can take exponential time. Here each
character advances a set of states, so the time is bounded by the length of the string times the
size of the pattern, at most ``SIZE_MAX``. The standard library parses the syntax; constructs that
need backtracking, such as back references, are rejected.

Character classes are matched from their ranges, see ``expr.charset``: ``re`` would visit every
character of a range to compile it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from threading import Lock
from typing import Any

from perdure.diagnostics import Fault, declare
from perdure.expr.budget import COST_MAX, CostBudget, spend_on_loop
from perdure.expr.charset import CharacterSet, CharacterSets, numbers_in
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
    characters: CharacterSets
    takers: tuple[int, ...]
    """The states that take each set of characters."""
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
            for number in numbers_in(moved):
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
            takers = self._automaton.takers
            self._spend(1 + (len(takers) + len(self._automaton.states)) // 4)
            fitting = 0
            for number in numbers_in(self._automaton.characters.with_character(character)):
                fitting |= takers[number]
            self._fitting[character] = fitting
        return fitting


PATTERN_MAX = 500
"""In characters."""
TEXT_MAX = 10_000
"""Nothing is found in longer strings."""
SIZE_MAX = 2_000
"""The size of a pattern with its repeats expanded: ``[a-z]{1,500}`` fits."""

_GROUPS_MAX = 100
_CACHED_MAX = COST_MAX
"""In costs of building: at least the patterns of one evaluation or schema."""
_COST_UNIT = 50
_COST_PER_PATTERN = 60
_COST_PER_CHARACTER = 5
_COST_PER_PART = 5
"""Of building an automaton, in the units of ``expr.budget``."""

_parser: Any = import_module("re._parser")

_ONE_CHARACTER = {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
_TYPES = re.ASCII | re.UNICODE | re.LOCALE
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


class _Built(Value, gc=True):
    """An automaton or why there is none, and what building it costs."""

    automaton: Automaton | None
    fault: Fault | None
    cost: int


def pattern_fault(pattern: str, budget: CostBudget | None = None) -> Fault | None:
    """Why the pattern cannot be used; None if it can."""
    return _automaton(pattern, budget).fault


def is_found(pattern: str, text: str, budget: CostBudget | None = None) -> bool:
    """Whether the pattern matches anywhere in the string; False if that is too long."""
    found = _automaton(pattern, budget).automaton
    if found is None or len(text) > TEXT_MAX:
        return False
    return found.is_found(text, budget)


def search_cost(pattern: str, text: str) -> int:
    """An upper bound for the cost of a search, in units of a few microseconds."""
    found = _automaton(pattern).automaton
    size = 0 if found is None else len(found.states)
    return 1 + min(len(text), TEXT_MAX) * size // _COST_UNIT


def building_cost(pattern: str) -> int:
    """The cost of building a pattern, in the units of ``expr.budget``."""
    return _automaton(pattern).cost


def _automaton(pattern: str, budget: CostBudget | None = None) -> _Built:
    """The automaton, charged once to a budget: cached or not, an evaluation costs the same."""
    if budget is not None and isinstance(found := budget.built.get(pattern), _Built):
        return found
    if len(pattern) > PATTERN_MAX:
        return _refused(TOO_LONG.fault(length=len(pattern), most=PATTERN_MAX), 1)
    cached = _cache.get(pattern)
    if budget is None:
        found = cached or _cache.add(pattern)
        if cached is None:
            spend_on_loop(found.cost)
        return found
    budget.spend(_parsing_cost(pattern))  # builds nothing more once it is exhausted
    found = budget.built[pattern] = cached or _cache.add(pattern)
    budget.spend(found.cost - _parsing_cost(pattern))
    return found


def _parsing_cost(pattern: str) -> int:
    return _COST_PER_PATTERN + len(pattern) * _COST_PER_CHARACTER


def _refused(fault: Fault, cost: int) -> _Built:
    return _Built(automaton=None, fault=fault, cost=cost)


class _Cache:
    """The patterns built last, as many as cost ``_CACHED_MAX`` together."""

    def __init__(self) -> None:
        self._built: dict[str, _Built] = {}
        self._cost = 0
        self._lock = Lock()  # long evaluations run in threads

    def get(self, pattern: str) -> _Built | None:
        return self._built.get(pattern)

    def add(self, pattern: str) -> _Built:
        found = _built(pattern)
        with self._lock:
            self._cost += found.cost - self._remove(pattern)
            self._built[pattern] = found
            while self._cost > _CACHED_MAX:
                self._cost -= self._remove(next(iter(self._built)))
        return found

    def _remove(self, pattern: str) -> int:
        former = self._built.pop(pattern, None)
        return 0 if former is None else former.cost


_cache = _Cache()


def _built(pattern: str) -> _Built:
    cost = _parsing_cost(pattern)
    if pattern.count("(") > _GROUPS_MAX:
        return _refused(TOO_MANY_GROUPS.fault(most=_GROUPS_MAX), cost)
    building = _Building()
    try:
        automaton = building.automaton(_parser.parse(pattern))
    # Warnings too: the meaning of such a pattern may change in a future version of Python.
    except (re.error, OverflowError, RecursionError, Warning) as error:
        fault = NOT_A_PATTERN.fault(reason=preview(str(error)))
    except _Unusable as error:
        fault = error.fault
    else:
        cost += building.size * _COST_PER_PART
        return _Built(automaton=automaton, fault=None, cost=cost)
    return _refused(fault, cost + building.size * _COST_PER_PART)


class _Building:
    """Builds the states from the end of the pattern, so that each can refer to its successors."""

    def __init__(self) -> None:
        self._states: list[PatternState] = []
        self._characters: dict[str, int] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._sets: list[CharacterSet] = []
        self._places: dict[tuple[str, int], int] = {}
        self.size = 0

    def automaton(self, parsed: Any) -> Automaton:
        end = self._state()
        start = self._sequence(parsed, parsed.state.flags, end)
        takers = [0] * len(self._sets)
        for number, state in enumerate(self._states):
            if state.takes >= 0:
                takers[state.takes] |= 1 << number
        return Automaton(
            states=tuple(self._states),
            characters=CharacterSets(self._sets),
            takers=tuple(takers),
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
        self.size += 1
        if self.size > SIZE_MAX:
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
                if added & _TYPES:  # as in `(?a:...)`, which replaces UNICODE
                    flags &= ~_TYPES
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
        """The number of the set of characters; equal ones share it."""
        if not isinstance(argument, list):
            return self._set(operation, argument, flags)
        # By identity first: the text of a class that is repeated would be built many times.
        number = self._known.get((id(argument), flags))
        if number is None:
            number = self._known[id(argument), flags] = self._set(operation, argument, flags)
        return number

    def _set(self, operation: Any, argument: Any, flags: int) -> int:
        key = f"{operation} {argument} {flags}"
        if key not in self._characters:
            self._characters[key] = len(self._sets)
            self._sets.append(CharacterSet(str(operation), argument, flags))
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
