"""``python -m bench.compare TREE``: compare this tree with another, in alternating slices.

A machine's speed drifts by more than a change costs, so figures of two separate runs say little.
Here both trees have a client and a worker process running at the same time, and each slice of one
is followed immediately by the same slice of the other, in alternating order. Two processes of one
tree differ by a few percent too (hashing, memory layout), so both are restarted for each session.
The ratio is the median over sessions of their medians; the range is that of the sessions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from statistics import median

from bench.slices import SLICES
from tests.postgres_server import PostgresServer

HERE = Path(__file__).parent.parent
ON_DISK = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "512MB"}

Session = list[tuple[float, float]]
"""Milliseconds of this tree and the other, round by round."""


class Side:
    """A tree under measurement, with its own client and worker on a store of its own."""

    def __init__(self, tree: Path, url: str) -> None:
        search = os.pathsep.join([str(tree / "src"), str(tree)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.slices", url],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": search},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._read()

    def measure(self, name: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)

    def _read(self) -> str:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            sys.exit(f"{self.process.args!r} ended")
        return line.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.compare")
    parser.add_argument("tree", type=Path, help="a checkout of the revision to compare with")
    parser.add_argument("--sessions", type=int, default=7, help="restarts of both trees")
    parser.add_argument("--rounds", type=int, default=8, help="slices of each row in a session")
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    parser.add_argument("--rows", default=",".join(SLICES).replace(", ", "; "), metavar="A,B")
    options = parser.parse_args()
    names = [name.replace("; ", ", ") for name in options.rows.split(",")]
    print(
        f"time of this tree / time of {options.tree}; "
        f"{options.sessions} sessions of {options.rounds} rounds\n"
    )
    with ExitStack() as stack:
        stores: dict[str, list[str]] = {}
        if options.only != "sqlite":
            url = stack.enter_context(PostgresServer(ON_DISK)).url()
            stores["pg"] = [f"{url}?schema={side}" for side in ("ours", "theirs")]
        if options.only != "postgres":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stores["sqlite"] = [f"sqlite:///{folder}/{side}.db" for side in ("ours", "theirs")]
        for store, urls in stores.items():
            results: dict[str, list[Session]] = {name: [] for name in names}
            for number in range(options.sessions):
                # Each has its own store, because the schema versions may differ; alternating, so
                # that neither always starts first.
                trees = [(0, HERE), (1, options.tree.resolve())]
                started = {
                    at: Side(tree, urls[at]) for at, tree in trees[:: 1 if number % 2 else -1]
                }
                sides = [started[0], started[1]]
                for name in names:
                    results[name].append(_measured(sides, name, options.rounds))
                for side in sides:
                    side.close()
            for name in names:
                print(_row(f"{store}: {name}", results[name]), flush=True)


def _measured(sides: list[Side], name: str, rounds: int) -> Session:
    """Milliseconds of both sides, round by round, after one round to warm up."""
    for side in sides:
        side.measure(name)
    results = []
    for number in range(rounds):
        order = (0, 1) if number % 2 else (1, 0)
        took = {index: sides[index].measure(name) for index in order}
        results.append((took[0], took[1]))
    return results


def _row(label: str, sessions: list[Session]) -> str:
    ratios = sorted(median(ours / theirs for ours, theirs in each) for each in sessions)
    ours, theirs = (median(column) for column in zip(*chain(*sessions), strict=True))
    return (
        f"{label:28} {ours:9.3f} ms {theirs:9.3f} ms  ratio {median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
    )


if __name__ == "__main__":
    main()
