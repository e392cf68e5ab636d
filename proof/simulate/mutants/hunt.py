"""The hunt for mutants: each must be caught within its number of seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from proof.simulate.history import simulate
from proof.simulate.many import command, spread
from proof.simulate.mutants import MUTANTS, mutated

FINDING_MAX = 160
SHOWN_MAX = 70
BROKEN = ("AttributeError", "ImportError", "NameError", "TypeError")
"""Errors of a mutant that no longer fits the code. They prove nothing."""
ILL_MAX = 3
"""Seeds that fail without an active mutant, before the hunt for it is abandoned."""


@dataclass(frozen=True)
class Catch:
    """The seed that caught a mutant, and how; no seed: it survived."""

    mutant: str
    seed: int | None
    finding: str


def caught(name: str) -> Catch:
    """Try seed after seed on one mutant."""
    ill = []
    for seed in range(1, MUTANTS[name].seeds_max + 1):
        with mutated(name):
            history = simulate(seed)
        if not history.findings:
            continue
        if any(error in history.findings[0] for error in BROKEN):
            return Catch(name, None, f"the mutant itself is broken: {history.findings[0]}")
        without = simulate(seed).findings
        if not without:
            return Catch(name, seed, history.findings[0])
        ill.append(f"seed {seed} fails without any mutant: {without[0]}")
        if len(ill) == ILL_MAX:
            break
    return Catch(name, None, ill[0] if ill else f"not in {MUTANTS[name].seeds_max} seeds")


def hunt(only: str, processes: int, print_line: Callable[[str], None]) -> int:
    """Hunt all mutants; 1 if one survived."""
    names = [name for name in MUTANTS if only in name]
    catches: list[Catch] = []
    for catch in spread(caught, names, processes):
        catches.append(catch)
        seed = "ESCAPED  " if catch.seed is None else f"seed {catch.seed:4}"
        print_line(f"{seed}  {catch.mutant}: {MUTANTS[catch.mutant].what}")
        print_line(f"           {catch.finding[:FINDING_MAX]}")
        if catch.seed is not None:
            print_line(f"           see it: {command(catch.seed, catch.mutant)}")
    for line in table(catches):
        print_line(line)
    escaped = [catch for catch in catches if catch.seed is None]
    print_line(f"{len(names) - len(escaped)} of {len(names)} mutants were found out")
    return 1 if escaped or not names else 0


def table(catches: Sequence[Catch]) -> Iterator[str]:
    """The caught mutants with their numbers of seeds, the hardest last."""
    width = max((len(catch.mutant) for catch in catches), default=0)
    yield f"{'mutant':{width}}  seeds  found out by"
    for catch in sorted(catches, key=lambda each: (each.seed is None, each.seed or 0, each.mutant)):
        seeds = "none" if catch.seed is None else catch.seed
        yield f"{catch.mutant:{width}}  {seeds:>5}  {catch.finding[:SHOWN_MAX]}"
