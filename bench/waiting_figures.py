"""Runs that wait, as lines of the table: each against what it can be compared with."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figures import Figure
from bench.latency import start_latency
from bench.waiting import Decisions, Waiting, idle_statements, waiting


async def waiting_figures(
    name: str, places: Iterator[str], options: argparse.Namespace, log: Path | None = None
) -> list[Figure]:
    """How soon a decision starts what follows, and what runs that wait for people cost."""
    count = options.waiting_runs
    print(f"==> {name}: {count:,} runs that wait for people", flush=True)
    costs: list[Waiting] = []
    starts: list[float] = []
    for _ in range(options.repeat):
        starts.append((await start_latency(next(places), options.decisions))[0])
        costs.append(await waiting(next(places), count, options.decisions))
    alone = decision_figures(f"{name}: decision to start", [each.alone for each in costs], starts)
    among = decision_figures(
        f"{name}: decision to start, {count:,} waiting", [each.among for each in costs], starts
    )
    idle = [each.idle_before for each in costs]

    def figure(what: str, unit: str, of: str, raw: Sequence[float] = ()) -> Figure:
        return Figure(f"{name}: {what}", unit, [getattr(each, of) for each in costs], raw)

    figures = [
        *alone,
        *among,
        figure(f"open {count:,} waiting runs", "/s", "opened_per_second"),
        figure("a waiting run in the store", "bytes", "bytes_each"),
        figure(f"idle worker, {count:,} waiting", "ms/s of processor", "idle_after", idle),
        figure("inbox, a page of 50", "ms", "inbox_ms"),
        figure("inbox, a page of 50 of few", "ms", "other_inbox_ms"),
        figure("broadcast to 1,000", "ms", "broadcast_ms"),
    ]
    if log is not None:
        pairs = [
            [await idle_statements(next(places), log, runs) for runs in (0, count)]
            for _ in range(options.repeat)
        ]
        sent, raw = [pair[1] for pair in pairs], [pair[0] for pair in pairs]
        label = f"{name}: statements of an idle worker, {count:,} waiting"
        figures.append(Figure(label, "/min", sent, raw, "ratio <= 1.1", lambda _, r: r <= 1.1))
    return figures


def decision_figures(
    label: str, decisions: Sequence[Decisions], starts: Sequence[float]
) -> list[Figure]:
    """Against the start of a job on an idle system, measured beside it."""
    return [
        Figure(f"{label}, p50", "ms", [each.p50 for each in decisions], starts),
        Figure(f"{label}, p99", "ms", [each.p99 for each in decisions]),
        Figure(f"{label}, after decide() p50", "ms", [each.after_p50 for each in decisions]),
        Figure(f"{label}, decide() p50", "ms", [each.call_p50 for each in decisions]),
    ]
