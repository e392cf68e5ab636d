"""Waiting runs, as rows of the table, each with its baseline."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.figures import Figure
from bench.idle import statements_per_minute
from bench.waiting import IDLE_SECONDS, Decisions, Waiting, waiting


async def waiting_figures(
    name: str, places: Iterator[str], options: argparse.Namespace, log: Path | None = None
) -> list[Figure]:
    """How soon a decision starts the next node, and the cost of runs that wait for people."""
    count = options.waiting_runs
    costs: list[Waiting] = []
    statements: list[tuple[float, float]] = []
    for number in range(1, options.repeat + 1):
        print(f"==> {name}: {count:,} runs that wait for people, {number}", flush=True)
        empty, full = next(places), next(places)
        costs.append(await waiting(empty, full, count, options.decisions))
        if log is not None:
            pair = [await statements_per_minute(url, log, IDLE_SECONDS) for url in (empty, full)]
            statements.append((pair[0], pair[1]))
    figures = [
        *decision_figures(f"{name}: decision", costs, lambda each: each.alone),
        *decision_figures(f"{name}: decision, {count:,} wait", costs, lambda each: each.among),
        *cost_figures(name, count, costs),
    ]
    if statements:
        sent, raw = [pair[1] for pair in statements], [pair[0] for pair in statements]
        label = f"{name}: statements of an idle worker, {count:,} wait"
        figures.append(Figure(label, "/min", sent, raw, "ratio <= 1.1", lambda _, r: r <= 1.1))
    return figures


def decision_figures(
    label: str, costs: Sequence[Waiting], of: Callable[[Waiting], Decisions]
) -> list[Figure]:
    """Relative to the start of a job on an idle system, measured in between."""
    starts = [each.start_p50 for each in costs]
    decisions = [of(each) for each in costs]
    return [
        Figure(f"{label} to start, p50", "ms", [each.p50 for each in decisions], starts),
        Figure(f"{label} to start, p99", "ms", [each.p99 for each in decisions]),
        Figure(f"{label}: decide() to start, p50", "ms", [each.after_p50 for each in decisions]),
        Figure(f"{label}: decide(), p50", "ms", [each.call_p50 for each in decisions]),
    ]


def cost_figures(name: str, count: int, costs: Sequence[Waiting]) -> list[Figure]:
    def figure(what: str, unit: str, of: str, raw: Sequence[float] = ()) -> Figure:
        return Figure(f"{name}: {what}", unit, [getattr(each, of) for each in costs], raw)

    alone = [each.idle_alone for each in costs]
    return [
        figure(f"open {count:,} waiting runs", "/s", "opened_per_second"),
        figure("a waiting run in the store", "bytes", "bytes_each"),
        figure(f"idle worker, {count:,} wait", "ms/s of processor", "idle_among", alone),
        figure("inbox, a page of 50", "ms", "inbox_ms"),
        figure("inbox, a page of the few for others", "ms", "other_inbox_ms"),
        figure("broadcast to 1,000", "ms", "broadcast_ms"),
    ]
