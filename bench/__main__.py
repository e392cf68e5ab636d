"""``python -m bench``: measure, and print the table. ``--quick`` for a first look."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from bench import raw_postgres, raw_sqlite, raw_steps
from bench.backlog import fill_postgres, fill_sqlite, with_backlog
from bench.drain import drain, raw_drain_postgres, raw_drain_sqlite
from bench.enqueue import enqueue_bulk, enqueue_single
from bench.figures import Figure, print_table
from bench.flows import fan_ms, many_at_once, step_ms, waiting_bytes
from bench.idle import statements_per_minute
from bench.latency import start_latency
from bench.waiting_figures import waiting_figures
from tests.postgres_server import PostgresServer

IsMet = Callable[[float, float], bool]
ON_DISK = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "512MB"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--singles", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="backlog rows of each kind")
    parser.add_argument("--waiting-runs", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer rows, one repetition")
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    parser.add_argument("--skip-backlog", action="store_true")
    parser.add_argument("--waiting", action="store_true", help="only what is about waiting runs")
    options = parser.parse_args()
    if options.quick:
        options.repeat, options.rows, options.singles = 1, 100_000, 500
        options.waiting_runs, options.decisions = 1_000, 50
    figures: list[Figure] = []
    if options.only != "sqlite":
        with PostgresServer(ON_DISK) as server:
            figures += asyncio.run(measure_postgres(server, options))
    if options.only != "postgres":
        with tempfile.TemporaryDirectory() as directory:
            figures += asyncio.run(measure_sqlite(Path(directory), options))
    print(f"\nPython {platform.python_version()}, {options.repeat} repetitions\n")
    print_table(figures)
    sys.exit(any(figure.verdict == "MISSED" for figure in figures))


async def measure_postgres(server: PostgresServer, options: argparse.Namespace) -> list[Figure]:
    raw_url = server.url()
    places = (f"{raw_url}?schema=bench_{number}" for number in range(1000))
    repeat = range(options.repeat)
    if options.waiting:
        return await waiting_figures("pg", places, options, server.log_path)
    say("PostgreSQL: enqueueing")
    ours, raw = [], []
    for _ in repeat:
        raw.append(await raw_postgres.insert_one_by_one(raw_url, options.singles))
        ours.append(await enqueue_single(next(places), options.singles))
    figures = [Figure("pg: single enqueue", "/s", ours, raw, "ratio >= 0.7", lambda _, r: r >= 0.7)]
    ours, raw = [], []
    for _ in repeat:
        raw.append(await raw_postgres.insert_bulk(raw_url, options.jobs))
        ours.append(await enqueue_bulk(next(places), options.jobs))
    figures.append(
        Figure("pg: bulk enqueue", "/s", ours, raw, "ratio >= 0.5", lambda _, r: r >= 0.5)
    )
    for processes in (1, 2):
        say(f"PostgreSQL: draining with {processes} processes")
        ours, raw = [], []
        for _ in repeat:
            raw.append(await raw_drain_postgres(raw_url, options.jobs, processes))
            ours.append(await drain(next(places), options.jobs, processes))
        name = f"pg: drain, {processes} process{'es' if processes > 1 else ''}"
        figures.append(Figure(name, "jobs/s", ours, raw, "ratio >= 0.5", lambda _, r: r >= 0.5))
    figures += await latency_figures("pg", places, repeat, p50=3, p99=15)
    figures += await run_figures(
        "pg", places, options, partial(raw_steps.step_ms_postgres, raw_url)
    )
    say("PostgreSQL: 200 runs at once")
    ours, raw = [], []
    for _ in repeat:
        raw.append(await raw_steps.batched_steps_postgres(raw_url, 200))
        ours.append(await many_at_once(next(places), 200))
    figures.append(
        Figure("pg: 200 runs at once", "steps/s", ours, raw, ">= 8,000/s", lambda v, _: v >= 8_000)
    )
    if not options.skip_backlog:
        say(f"PostgreSQL: claiming with {options.rows:,} waiting and finished rows")
        figures.append(await backlog_figure("pg", places, options, repeat))
    say("PostgreSQL: listening to an idle worker")
    log = server.log_path
    idle = [await statements_per_minute(next(places), log, 30) for _ in repeat]
    figures.append(
        Figure("pg: statements of an idle worker", "/min", idle, (), "< 60", lambda v, _: v < 60)
    )
    return figures + await waiting_figures("pg", places, options, log)


async def measure_sqlite(directory: Path, options: argparse.Namespace) -> list[Figure]:
    places = (f"sqlite:///{directory / f'ours_{number}.db'}" for number in range(1000))
    raws = (directory / f"raw_{number}.db" for number in range(1000))
    repeat = range(options.repeat)
    if options.waiting:
        return await waiting_figures("sqlite", places, options)
    say("SQLite: enqueueing")
    ours, raw = [], []
    for _ in repeat:
        raw.append(raw_sqlite.insert_one_by_one(next(raws), options.singles))
        ours.append(await enqueue_single(next(places), options.singles))
    figures = [Figure("sqlite: single enqueue", "/s", ours, raw)]
    ours, raw = [], []
    for _ in repeat:
        raw.append(raw_sqlite.insert_bulk(next(raws), options.jobs))
        ours.append(await enqueue_bulk(next(places), options.jobs))
    figures.append(Figure("sqlite: bulk enqueue", "/s", ours, raw))
    for processes in (1, 2):
        say(f"SQLite: draining with {processes} processes")
        ours, raw = [], []
        for _ in repeat:
            raw.append(raw_drain_sqlite(next(raws), options.jobs))
            ours.append(await drain(next(places), options.jobs, processes))
        name = f"sqlite: drain, {processes} process{'es' if processes > 1 else ''}"
        figures.append(Figure(name, "jobs/s", ours, raw, ">= 10,000/s", lambda v, _: v >= 10_000))
    figures += await latency_figures("sqlite", places, repeat)

    async def raw_step_ms(steps: int) -> float:
        return 1000 / raw_steps.steps_sqlite(next(raws), steps)

    figures += await run_figures("sqlite", places, options, raw_step_ms)
    if not options.skip_backlog:
        say(f"SQLite: claiming with {options.rows:,} waiting and finished rows")
        figures.append(await backlog_figure("sqlite", places, options, repeat))
    return figures + await waiting_figures("sqlite", places, options)


async def run_figures(
    name: str,
    places: Iterator[str],
    options: argparse.Namespace,
    raw_step_ms: Callable[[int], Awaitable[float]],
) -> list[Figure]:
    """What a step costs, alone and in long runs; a fan; and what waiting runs hold."""
    say(f"{name}: steps of runs")
    is_postgres = name == "pg"
    repeat = range(options.repeat)
    raw = [await raw_step_ms(500) for _ in repeat]
    figures: list[Figure] = []
    for length, runs in ((10, 50), (100, 6), (1_000, 2)):
        ours = [await step_ms(next(places), length, runs) for _ in repeat]
        aim, is_met = _step_aim(is_postgres, figures[0].value if figures else None)
        figures.append(Figure(f"{name}: step of {length:,}", "ms", ours, raw, aim, is_met))
    fans = [await fan_ms(next(places), 10) for _ in repeat]
    is_quick = partial(_is_below, 50) if is_postgres else None
    figures.append(
        Figure(f"{name}: 1 -> 100 -> join", "ms", fans, (), "< 50 ms" if is_quick else "", is_quick)
    )
    held = [await waiting_bytes(next(places), 10_000) for _ in repeat[:1]]
    figures.append(Figure(f"{name}: memory of 10,000 waiting runs", "bytes each", held))
    return figures


async def latency_figures(
    name: str, places: Iterator[str], repeat: range, p50: float = 0, p99: float = 0
) -> list[Figure]:
    say(f"{name}: start latency on an idle system")
    pairs = [await start_latency(next(places), 200) for _ in repeat]
    return [
        Figure(
            f"{name}: idle start {label}",
            "ms",
            [pair[index] for pair in pairs],
            (),
            f"< {limit} ms" if limit else "",
            partial(_is_below, limit) if limit else None,
        )
        for index, (label, limit) in enumerate((("p50", p50), ("p99", p99)))
    ]


async def backlog_figure(
    name: str, places: Iterator[str], options: argparse.Namespace, repeat: range
) -> Figure:
    empty, full = [], []
    for _ in repeat:
        url = next(places)

        async def fill(rows: int, url: str = url) -> None:
            if name == "pg":
                await fill_postgres(url, rows)
            else:
                await fill_sqlite(Path(url.removeprefix("sqlite:///")), rows)

        before, after = await with_backlog(url, options.rows, 5_000, fill)
        empty.append(before)
        full.append(after)
    return Figure(
        f"{name}: claims with {options.rows:,} + {options.rows:,} rows",
        "jobs/s",
        full,
        empty,
        "ratio >= 0.8" if name == "pg" else "",
        (lambda _, r: r >= 0.8) if name == "pg" else None,
    )


def _step_aim(is_postgres: bool, short: float | None) -> tuple[str, IsMet]:
    """What a step may cost: alone against the raw commit, in long runs against short ones."""
    if short is not None:
        return "<= 1.2 x of 10", lambda value, _: value <= 1.2 * short
    if is_postgres:
        return "ratio <= 2", lambda _, ratio: ratio <= 2
    return "<= 0.2 ms", lambda value, _: value <= 0.2


def _is_below(limit: float, value: float, _ratio: float) -> bool:
    return value < limit


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


if __name__ == "__main__":
    main()
