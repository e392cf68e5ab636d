"""``make fuzz``: bad input for every target, drawn with new seeds until the time is up.

A failure prints the command that repeats the same examples.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections import Counter

from proof.fuzz.running import fuzz
from proof.fuzz.targets import TARGETS
from tests.postgres_server import SharedServer

# Few of each in a round, so that all targets have a turn on a slow machine too.
EXAMPLES = {
    "calls": 60,
    "stories": 4,
    "shown stories": 1,
    "command lines": 8,
    "corrupt rows": 6,
    "secrets": 20,
    "terminal output": 3,
    "grants": 15,
    "imports": 15,
    "races": 12,
}
EXAMPLES_OTHERWISE = 40


def main() -> int:
    wanted = _wanted()
    tried: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    failures: list[str] = []
    server = SharedServer()
    until = time.monotonic() + wanted.seconds
    number = wanted.seed
    try:
        while True:
            for target, backend in _rounds(wanted):
                name = f"{target} on {backend}"
                url = server.url() if backend == "postgres" else ""
                examples = wanted.examples or EXAMPLES.get(target, EXAMPLES_OTHERWISE)
                try:
                    tally = fuzz(target, backend, examples, number=number, postgres_url=url)
                except Exception as error:
                    failures.append(_failure_text(target, backend, examples, number, error))
                else:
                    tried[name] += tally.tried
                    accepted[name] += tally.accepted
                if time.monotonic() > until:
                    return _summary(tried, accepted, failures)
            number += 1
    finally:
        server.close()


def _wanted() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=600, help="when to stop (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--backend", choices=["memory", "sqlite", "postgres"])
    parser.add_argument("--examples", type=int, help="of each target in a round")
    return parser.parse_args()


def _rounds(wanted: argparse.Namespace) -> list[tuple[str, str]]:
    return [
        (name, backend)
        for name, target in TARGETS.items()
        for backend in target.backends
        if wanted.target in (None, name) and wanted.backend in (None, backend)
    ]


def _failure_text(target: str, backend: str, examples: int, seed: int, error: Exception) -> str:
    traceback.print_exception(error, chain=True, limit=-6)
    command = (
        f"python -m proof.fuzz --seconds 0 --target '{target}' --backend {backend} "
        f"--examples {examples} --seed {seed}"
    )
    print(f"FAILED {target} on {backend}; again: {command}", flush=True)
    return command


def _summary(tried: Counter[str], accepted: Counter[str], failures: list[str]) -> int:
    for name, count in tried.items():
        print(f"{name:28} {count:6} tried, {accepted[name]:6} accepted")
    print(f"{sum(tried.values())} examples, {len(failures)} failures")
    for command in failures:
        print(f"  {command}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
