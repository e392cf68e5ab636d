"""Patches code with a defect, and restores it.

Each defect is a small, plausible mistake. It is applied at run time, in the process of a
simulation, and reverted afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Change = tuple[Any, str, Any]
"""Object, attribute, and new value."""

SEEDS_MAX = 300


@dataclass(frozen=True)
class Mutant:
    """One defect."""

    name: str
    what: str
    changes: Callable[[], list[Change]]
    seeds_max: int = SEEDS_MAX
    """It must be caught within this many seeds."""


MUTANTS: dict[str, Mutant] = {}


def mutant(what: str, seeds_max: int = SEEDS_MAX) -> Callable[[Callable[[], list[Change]]], None]:
    def register(changes: Callable[[], list[Change]]) -> None:
        name = changes.__name__.removeprefix("_")
        MUTANTS[name] = Mutant(name, what, changes, seeds_max)

    return register


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """Apply one defect within the block; none without a name."""
    if name is None:
        yield
        return
    changes = MUTANTS[name].changes()
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in changes]
    try:
        for owner, attribute, value in changes:
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)


def nothing(*args: Any, **kwargs: Any) -> None:
    pass
