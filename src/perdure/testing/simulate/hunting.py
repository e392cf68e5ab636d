"""The hunt for mutants: each must be found out within its number of seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from perdure.testing.simulate.history import simulate
from perdure.testing.simulate.many import spread
from perdure.testing.simulate.mutants import MUTANTS, mutated

FINDING_MAX = 160


@dataclass(frozen=True)
class Catch:
    """By which seed a mutant was found out, and how; no seed: it was not."""

    mutant: str
    seed: int | None
    finding: str


def caught(name: str) -> Catch:
    """Try seed after seed on one mutant."""
    for seed in range(1, MUTANTS[name].seeds_max + 1):
        with mutated(name):
            history = simulate(seed)
        if history.findings and not simulate(seed).findings:  # else it is not the mutant's doing
            return Catch(name, seed, history.findings[0])
    return Catch(name, None, "")


def hunt(only: str, processes: int, tell: Callable[[str], None]) -> int:
    """Hunt all mutants; 1 if one got away."""
    names = [name for name in MUTANTS if only in name]
    escaped: list[str] = []
    for catch in spread(caught, names, processes):
        mutant = MUTANTS[catch.mutant]
        if catch.seed is None:
            escaped.append(catch.mutant)
            tell(f"ESCAPED  {catch.mutant}: {mutant.what} (in {mutant.seeds_max} seeds)")
        else:
            tell(f"seed {catch.seed:4}  {catch.mutant}: {mutant.what}")
            tell(f"           {catch.finding[:FINDING_MAX]}")
    tell(f"{len(names) - len(escaped)} of {len(names)} mutants were found out")
    for name in escaped:
        tell(f"  not found out: {name}")
    return 1 if escaped or not names else 0
