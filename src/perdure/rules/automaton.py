"""Finds a pattern in a text by following all ways to match at once, instead of one after another.

Python's own matcher tries one way, goes back, and tries the next: a pattern such as ``(a+)+$`` has
more ways than anyone can wait for. Here each character moves a set of states, so the time is at
most the length of the text times the number of states, whatever the pattern and whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from perdure.model.value import Value

Place = Callable[[str, int], bool]
"""Whether a text has at this index what ``^``, ``$`` or a word boundary asks for."""

Held = tuple[bool, ...]
"""Which of the places of an automaton are at one index."""


class State(Value):
    """One part of a match: it takes a character, asks for a place, or only leads on."""

    leads_to: tuple[int, ...]
    takes: int = -1
    asks: int = -1


class Automaton(Value, gc=True):
    """The states of a pattern; ``takes`` and ``asks`` count in the characters and places."""

    states: tuple[State, ...]
    characters: tuple[re.Pattern[str], ...]
    places: tuple[Place, ...]
    start: int
    end: int

    def is_found(self, text: str) -> bool:
        return _Search(self, text).succeeds()


class _Search:
    """Sets of states are integers with a bit for each, which are quick to join and to compare."""

    def __init__(self, automaton: Automaton, text: str) -> None:
        self._automaton = automaton
        self._text = text
        self._fitting: dict[str, int] = {}
        self._reached: dict[tuple[int, Held], int] = {}
        self._after: dict[tuple[int, Held], int] = {}

    def succeeds(self) -> bool:
        end = 1 << self._automaton.end
        current = self._next(0, 0)
        for index, character in enumerate(self._text, start=1):
            if current & end:
                return True
            current = self._next(current & self._states_for(character), index)
        return bool(current & end)

    def _next(self, moved: int, index: int) -> int:
        """What is reached at this index by the states that took the character before it."""
        held = tuple(place(self._text, index) for place in self._automaton.places)
        after = self._after.get((moved, held))
        if after is None:
            after = self._reach(self._automaton.start, held)  # a match may begin anywhere
            for number in _numbers_in(moved):
                after |= self._reach(self._automaton.states[number].leads_to[0], held)
            self._after[moved, held] = after
        return after

    def _reach(self, start: int, held: Held) -> int:
        """The states that take a character, or are the end, to which this one leads without one."""
        reached = self._reached.get((start, held))
        if reached is not None:
            return reached
        seen, waiting, reached = {start}, [start], 0
        while waiting:
            number = waiting.pop()
            state = self._automaton.states[number]
            if state.takes >= 0 or number == self._automaton.end:
                reached |= 1 << number
            elif state.asks < 0 or held[state.asks]:
                new = [other for other in state.leads_to if other not in seen]
                seen.update(new)
                waiting += new
        self._reached[start, held] = reached
        return reached

    def _states_for(self, character: str) -> int:
        """The states that take this character."""
        fitting = self._fitting.get(character)
        if fitting is None:
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
