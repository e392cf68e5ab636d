"""``python -m proof.chaos``: chaos on SQLite and on a dedicated PostgreSQL server."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom

import msgspec

from perdure.clock import monotonic
from proof.chaos.faults import Environment
from proof.chaos.harness import ChaosSettings, Harness
from proof.chaos.postgres import PostgresEnvironment
from proof.chaos.sqlite import SqliteEnvironment
from proof.chaos.verdict import ChaosReport, report_lines
from tests.postgres_server import PostgresServer

STORES = ("sqlite", "postgres")
SEED_MAX = 1_000_000
SECONDS_DEFAULT = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run chaos; the exit code says whether there are findings."""
    options = parser().parse_args(arguments)
    logging.getLogger("perdure").addHandler(logging.NullHandler())  # faults are reported separately
    seed = SystemRandom().randrange(SEED_MAX) if options.seed is None else options.seed
    stores = STORES if options.store == "both" else (options.store,)
    reports = [_on(store, seed, options) for store in stores]
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(reports)).decode())
    return 0 if all(report.is_good for report in reports) else 1


def parser() -> ArgumentParser:
    options_parser = ArgumentParser(prog="python -m proof.chaos", description=__doc__)
    options_parser.add_argument("--store", choices=[*STORES, "both"], default="both")
    options_parser.add_argument(
        "--seconds", type=float, default=SECONDS_DEFAULT, help="of faults, each"
    )
    options_parser.add_argument(
        "--seed", type=int, help="of the order of faults; else a random one"
    )
    options_parser.add_argument("--workers", type=int, default=3, help="worker processes")
    options_parser.add_argument("--clients", type=int, default=2, help="client processes")
    options_parser.add_argument("--json", action="store_true", help="the reports as JSON on stdout")
    options_parser.add_argument(
        "--keep", action="store_true", help="keep the logs even if nothing failed"
    )
    return options_parser


def _on(store: str, seed: int, options: Namespace) -> ChaosReport:
    folder = Path(tempfile.mkdtemp(prefix=f"perdure-chaos-{store}-"))
    settings = ChaosSettings(
        seed=seed, seconds=options.seconds, workers=options.workers, clients=options.clients
    )
    screen = Screen(store)
    if store == "postgres":
        with PostgresServer() as server:
            report = run(PostgresEnvironment(server), settings, folder, screen.print_line)
    else:
        report = run(SqliteEnvironment(folder), settings, folder, screen.print_line)
    screen.end()
    for line in report_lines(report):
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)
    if report.is_good and not options.keep:
        shutil.rmtree(folder)
    else:
        print(f"  logs: {folder}", file=sys.stderr, flush=True)
    if not report.is_good:
        print(f"  again: {_command(store, settings)}", file=sys.stderr, flush=True)
    return report


def run(
    environment: Environment,
    settings: ChaosSettings,
    folder: Path,
    print_line: Callable[[str], None],
) -> ChaosReport:
    return asyncio.run(Harness(environment, settings, folder, print_line).run())


def _command(store: str, settings: ChaosSettings) -> str:
    return (
        f'make chaos ARGS="--store {store} --seed {settings.seed} --seconds {settings.seconds:g} '
        f'--workers {settings.workers} --clients {settings.clients}"'
    )


class Screen:
    """Progress output: a status line on a terminal, otherwise plain lines."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._began = monotonic()
        self._is_terminal = sys.stderr.isatty()

    def print_line(self, text: str) -> None:
        line = f"{self._store} {monotonic() - self._began:5.1f} s  {text}"
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{line[:width]}")
            sys.stderr.flush()
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            sys.stderr.write("\r\x1b[K")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
