"""``python -m proof.simulate``: many seeds, or one of them step by step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from proof.simulate.history import simulate
from proof.simulate.many import failure_lines, processes_there, simulate_many

SEEDS = 2_000


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.mutants:
        from proof.simulate.mutants.hunt import hunt

        return hunt(options.only, options.processes, _print_line)
    if options.seed is not None:
        return _one(options.seed, options.mutant, options.trace)
    seeds = range(options.first, options.first + options.seeds)
    tally = simulate_many(seeds, options.processes, _print_line)
    return 1 if tally.failed else 0


def _one(seed: int, mutant: str | None, is_traced: bool) -> int:
    from proof.simulate.mutants import mutated

    with mutated(mutant):
        history = simulate(seed, _print_line if is_traced else None)
    lines = (
        list(failure_lines(history, mutant)) if history.findings else [f"seed {seed}: all is well"]
    )
    for line in lines:
        _print_line(line)
    _print_line(f"history {history.digest}, {history.steps} steps, {history.seconds:.1f} s")
    return 1 if history.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m proof.simulate",
        description="Simulate clients, workers and engine from seeds, and check what they did.",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: every step")
    parser.add_argument("--processes", type=int, default=processes_there())
    parser.add_argument("--mutants", action="store_true", help="break the code, and find it out")
    parser.add_argument("--only", default="", help="with --mutants: those with this in their name")
    parser.add_argument("--mutant", help="with --seed: with the code broken so")
    return parser


def _print_line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
