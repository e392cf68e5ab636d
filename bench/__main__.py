"""``python -m bench``: measure, and print the table. ``--quick`` for a rough result."""

from __future__ import annotations

import argparse
import asyncio
import platform
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from bench import raw_postgres, raw_sqlite, raw_steps
from bench.backlog import fill_postgres, fill_sqlite, run_claim_rate, with_backlog
from bench.drain import AnyNoop, drain, raw_drain_postgres, raw_drain_sqlite
from bench.enqueue import enqueue_bulk, enqueue_single
from bench.figures import Figure, print_table
from bench.flows import fan_ms, many_at_once, step_ms, waiting_bytes
from bench.idle import statements_per_minute
from bench.latency import start_latency
from bench.places import QUEUED, queue_postgres, queue_sqlite, with_queue
from bench.tasks import noop, noop_sync
from bench.waiting_figures import waiting_figures
from tests.postgres_server import PostgresServer

IsMet = Callable[[float, float], bool]
Measure = Callable[[str], Awaitable[list[Figure]]]
"""Takes the name of the measure, which names the row if there is only one."""
ON_DISK = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "512MB"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--singles", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="backlog rows of each type")
    parser.add_argument("--waiting-runs", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer rows, one repetition")
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    parser.add_argument("--skip-backlog", action="store_true")
    parser.add_argument("--measure", default="", metavar="PATTERN", help="only what matches it")
    parser.add_argument("--waiting", action="store_true", help="only what is about waiting runs")
    options = parser.parse_args()
    if options.waiting:
        options.measure = "waiting runs$"
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
    repeat, jobs, singles = range(options.repeat), options.jobs, options.singles

    async def draining(name: str, processes: int, task: AnyNoop) -> list[Figure]:
        ours = partial(drain, jobs=jobs, processes=processes, task=task)
        raw = partial(raw_drain_postgres, raw_url, jobs, processes)
        ratio_min = 0.5 if task is noop else None
        return await compared(name, "jobs/s", repeat, lambda: ours(next(places)), raw, ratio_min)

    async def at_once(name: str) -> list[Figure]:
        ours, raw = [], []
        for _ in repeat:
            raw.append(await raw_steps.batched_steps_postgres(raw_url, 200))
            ours.append(await many_at_once(next(places), 200))
        return [Figure(name, "steps/s", ours, raw, ">= 8,000/s", lambda v, _: v >= 8_000)]

    async def idle(name: str) -> list[Figure]:
        sent = [await statements_per_minute(next(places), server.log_path, 30) for _ in repeat]
        return [Figure(name, "/min", sent, (), "< 60", lambda v, _: v < 60)]

    return await measured(
        options,
        {
            "pg: single enqueue": lambda name: compared(
                name,
                "/s",
                repeat,
                lambda: enqueue_single(next(places), singles),
                lambda: raw_postgres.insert_one_by_one(raw_url, singles),
                0.7,
            ),
            "pg: bulk enqueue": lambda name: compared(
                name,
                "/s",
                repeat,
                lambda: enqueue_bulk(next(places), jobs),
                lambda: raw_postgres.insert_bulk(raw_url, jobs),
                0.5,
            ),
            "pg: drain, 1 process": lambda name: draining(name, 1, noop),
            "pg: drain, 2 processes": lambda name: draining(name, 2, noop),
            "pg: drain, 1 process, sync bodies": lambda name: draining(name, 1, noop_sync),
            "pg: drain with a subscriber, and without": lambda name: compared(
                name,
                "jobs/s",
                repeat,
                lambda: drain(next(places), jobs, 1, is_followed=True),
                lambda: drain(next(places), jobs, 1),
            ),
            "pg: idle start": lambda _: latency_figures("pg", places, repeat, p50=3, p99=15),
            "pg: steps of runs": lambda _: run_figures(
                "pg", places, options, partial(raw_steps.step_ms_postgres, raw_url)
            ),
            "pg: 200 runs at once": at_once,
            "pg: claims with a backlog": lambda _: backlog_figures("pg", places, options, repeat),
            "pg: claims with run priorities, and without": lambda name: compared(
                name,
                "jobs/s",
                repeat,
                lambda: run_claim_rate(next(places), 5_000, (1, 2, 3, 4, 5)),
                lambda: run_claim_rate(next(places), 5_000, (3,)),
            ),
            "pg: starts with max_running": lambda _: place_figures("pg", places, repeat),
            "pg: statements of an idle worker": idle,
            "pg: waiting runs": lambda _: waiting_figures("pg", places, options, server.log_path),
        },
    )


async def measure_sqlite(directory: Path, options: argparse.Namespace) -> list[Figure]:
    places = (f"sqlite:///{directory / f'ours_{number}.db'}" for number in range(1000))
    raws = (directory / f"raw_{number}.db" for number in range(1000))
    repeat, jobs, singles = range(options.repeat), options.jobs, options.singles

    async def draining(name: str, processes: int, task: AnyNoop) -> list[Figure]:
        ours, raw = [], []
        for _ in repeat:
            raw.append(raw_drain_sqlite(next(raws), jobs))
            ours.append(await drain(next(places), jobs, processes, task))
        target, is_met = (
            (">= 10,000/s", partial(_is_at_least, 10_000)) if task is noop else ("", None)
        )
        return [Figure(name, "jobs/s", ours, raw, target, is_met)]

    async def raw_one_by_one() -> float:
        return raw_sqlite.insert_one_by_one(next(raws), singles)

    async def raw_bulk() -> float:
        return raw_sqlite.insert_bulk(next(raws), jobs)

    async def raw_step_ms(steps: int) -> float:
        return 1000 / raw_steps.steps_sqlite(next(raws), steps)

    return await measured(
        options,
        {
            "sqlite: single enqueue": lambda name: compared(
                name, "/s", repeat, lambda: enqueue_single(next(places), singles), raw_one_by_one
            ),
            "sqlite: bulk enqueue": lambda name: compared(
                name, "/s", repeat, lambda: enqueue_bulk(next(places), jobs), raw_bulk
            ),
            "sqlite: drain, 1 process": lambda name: draining(name, 1, noop),
            "sqlite: drain, 2 processes": lambda name: draining(name, 2, noop),
            "sqlite: drain, 1 process, sync bodies": lambda name: draining(name, 1, noop_sync),
            "sqlite: drain with a subscriber, and without": lambda name: compared(
                name,
                "jobs/s",
                repeat,
                lambda: drain(next(places), jobs, 1, is_followed=True),
                lambda: drain(next(places), jobs, 1),
            ),
            "sqlite: idle start": lambda _: latency_figures("sqlite", places, repeat),
            "sqlite: steps of runs": lambda _: run_figures("sqlite", places, options, raw_step_ms),
            "sqlite: claims with a backlog": lambda _: backlog_figures(
                "sqlite", places, options, repeat
            ),
            "sqlite: claims with run priorities, and without": lambda name: compared(
                name,
                "jobs/s",
                repeat,
                lambda: run_claim_rate(next(places), 5_000, (1, 2, 3, 4, 5)),
                lambda: run_claim_rate(next(places), 5_000, (3,)),
            ),
            "sqlite: starts with max_running": lambda _: place_figures("sqlite", places, repeat),
            "sqlite: waiting runs": lambda _: waiting_figures("sqlite", places, options),
        },
    )


async def measured(options: argparse.Namespace, measures: Mapping[str, Measure]) -> list[Figure]:
    """The requested measures, one after the other."""
    figures: list[Figure] = []
    for name, measure in measures.items():
        is_skipped = options.skip_backlog and name.endswith("with a backlog")
        if re.search(options.measure, name) and not is_skipped:
            print(f"==> {name}", flush=True)
            figures += await measure(name)
    return figures


async def compared(
    name: str,
    unit: str,
    repeat: range,
    ours: Callable[[], Awaitable[float]],
    raw: Callable[[], Awaitable[float]],
    ratio_min: float | None = None,
) -> list[Figure]:
    """Alternate raw and ours, so that noise affects both alike."""
    pairs = [(await raw(), await ours()) for _ in repeat]
    target, is_met = "", None
    if ratio_min is not None:
        target, is_met = f"ratio >= {ratio_min}", lambda _, ratio: ratio >= ratio_min
    return [
        Figure(name, unit, [pair[1] for pair in pairs], [pair[0] for pair in pairs], target, is_met)
    ]


async def run_figures(
    name: str,
    places: Iterator[str],
    options: argparse.Namespace,
    raw_step_ms: Callable[[int], Awaitable[float]],
) -> list[Figure]:
    """The cost of a step, alone and in long runs; a fan-out; and the memory of waiting runs."""
    is_postgres = name == "pg"
    repeat = range(options.repeat)
    raw = [await raw_step_ms(500) for _ in repeat]
    figures: list[Figure] = []
    for length, runs in ((10, 50), (100, 6), (1_000, 2)):
        ours = [await step_ms(next(places), length, runs) for _ in repeat]
        target, is_met = _step_target(is_postgres, figures[0].value if figures else None)
        figures.append(Figure(f"{name}: step of {length:,}", "ms", ours, raw, target, is_met))
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


async def backlog_figures(
    name: str, places: Iterator[str], options: argparse.Namespace, repeat: range
) -> list[Figure]:
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
    return [
        Figure(
            f"{name}: claims with {options.rows:,} + {options.rows:,} rows",
            "jobs/s",
            full,
            empty,
            "ratio >= 0.8" if name == "pg" else "",
            (lambda _, r: r >= 0.8) if name == "pg" else None,
        )
    ]


async def place_figures(name: str, places: Iterator[str], repeat: range) -> list[Figure]:
    few, many = [], []
    for _ in repeat:
        url = next(places)
        fill = (
            partial(queue_postgres, url)
            if name == "pg"
            else partial(queue_sqlite, Path(url.removeprefix("sqlite:///")))
        )
        before, after = await with_queue(url, 500, fill)
        few.append(before)
        many.append(after)
    label = f"{name}: starts with max_running, {QUEUED:,} runs queued"
    return [Figure(label, "runs/s", many, few, "ratio >= 0.8", lambda _, ratio: ratio >= 0.8)]


def _step_target(is_postgres: bool, short: float | None) -> tuple[str, IsMet]:
    """The target for a step: alone relative to the raw commit, in long runs to short ones."""
    if short is not None:
        return "<= 1.2 x of 10", lambda value, _: value <= 1.2 * short
    if is_postgres:
        return "ratio <= 2", lambda _, ratio: ratio <= 2
    return "<= 0.2 ms", lambda value, _: value <= 0.2


def _is_at_least(limit: float, value: float, _ratio: float) -> bool:
    return value >= limit


def _is_below(limit: float, value: float, _ratio: float) -> bool:
    return value < limit


if __name__ == "__main__":
    main()
