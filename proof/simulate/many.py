"""Runs many histories, in one process per core."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from perdure import clock
from proof.simulate.history import History, simulate

SHOWN_MAX = 5
"""Failing seeds whose findings are printed; the others are only counted."""
FINDINGS_MAX = 4

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class Tally:
    """The totals of many histories."""

    histories: int = 0
    steps: int = 0
    seconds: float = 0.0
    runs: int = 0
    jobs: int = 0
    failed: list[History] = field(default_factory=list)

    def add(self, history: History) -> None:
        self.histories += 1
        self.steps += history.steps
        self.seconds += history.seconds
        self.runs += history.runs
        self.jobs += history.jobs
        if history.findings:
            self.failed.append(history)


def simulate_many(seeds: Sequence[int], processes: int, print_line: Callable[[str], None]) -> Tally:
    """Simulate all seeds, reporting progress."""
    tally, began_at = Tally(), clock.monotonic()
    printed_at = began_at
    for history in spread(simulate, seeds, processes):
        tally.add(history)
        if history.findings and len(tally.failed) <= SHOWN_MAX:
            for line in failure_lines(history):
                print_line(line)
        if (now := clock.monotonic()) - printed_at > 5:
            printed_at = now
            rate = tally.histories / (now - began_at)
            print_line(f"  {tally.histories} of {len(seeds)} histories, {rate:.1f}/s")
    spent = clock.monotonic() - began_at
    print_line(
        f"{tally.histories} histories in {spent:.0f} s: {tally.runs} runs and {tally.jobs} jobs in "
        f"{tally.seconds / 3600:.1f} simulated hours, {tally.steps} steps; "
        f"{len(tally.failed)} failed"
    )
    return tally


def failure_lines(history: History, mutant: str | None = None) -> Iterator[str]:
    """The findings of a history, and how to replay it."""
    yield f"seed {history.seed} failed:"
    for finding in history.findings[:FINDINGS_MAX]:
        yield f"    {finding}"
    if (more := len(history.findings) - FINDINGS_MAX) > 0:
        yield f"    and {more} more"
    yield f"  see it: {command(history.seed, mutant)}"


def command(seed: int, mutant: str | None = None) -> str:
    """The command that replays a seed step by step."""
    broken = "" if mutant is None else f" --mutant {mutant}"
    return f"python -m proof.simulate --seed {seed}{broken} --trace"


def spread(work: Callable[[T], R], items: Sequence[T], processes: int) -> Iterator[R]:
    """Results in order of completion, from several processes or from this one."""
    if processes <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
    spawning: Any = multiprocessing.get_context("spawn")
    with spawning.Pool(processes, _prepare) as pool:
        yield from pool.imap_unordered(work, items)


def processes_there() -> int:
    return os.cpu_count() or 1


def _prepare() -> None:
    """Freeze imported objects: each history collects its own garbage."""
    gc.collect()
    gc.freeze()
