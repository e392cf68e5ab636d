"""``make fuzz``: bad input of every type, drawn with new seeds until the time is up.

A failure prints the command that repeats the same examples.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections import Counter

from proof.fuzz.node_types import KINDS
from proof.fuzz.running import fuzz
from tests.postgres_server import SharedServer

EXAMPLES = {
    "calls": 200,
    "stories": 10,
    "shown stories": 2,
    "command lines": 20,
    "corrupt rows": 20,
    "secrets": 60,
}
EXAMPLES_OTHERWISE = 100


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
            for found_type, backend in _rounds(wanted):
                name = f"{found_type} on {backend}"
                url = server.url() if backend == "postgres" else ""
                examples = wanted.examples or EXAMPLES.get(found_type, EXAMPLES_OTHERWISE)
                try:
                    tally = fuzz(found_type, backend, examples, number=number, postgres_url=url)
                except Exception as error:
                    failures.append(_told(found_type, backend, examples, number, error))
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
    parser.add_argument("--seconds", type=float, default=180, help="when to stop")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9))
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--backend", choices=["memory", "sqlite", "postgres"])
    parser.add_argument("--examples", type=int, help="of each kind in a round")
    return parser.parse_args()


def _rounds(wanted: argparse.Namespace) -> list[tuple[str, str]]:
    return [
        (name, backend)
        for name, found_type in KINDS.items()
        for backend in found_type.backends
        if wanted.type in (None, name) and wanted.backend in (None, backend)
    ]


def _told(found_type: str, backend: str, examples: int, seed: int, error: Exception) -> str:
    traceback.print_exception(error, chain=True, limit=-6)
    command = (
        f"python -m proof.fuzz --seconds 0 --kind '{found_type}' --backend {backend} "
        f"--examples {examples} --seed {seed}"
    )
    print(f"FAILED {found_type} on {backend}; again: {command}", flush=True)
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
