"""``python -m proof.statements``: break SQL statements, and let the contract tests find each."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from proof.statements.mutants import MUTANTS, Backend, Mutant
from proof.statements.plugin import VARIABLE
from tests.postgres_server import URL_VARIABLE, SharedServer

TESTS = "tests/contract/test_stores.py"
FAILED = 1
"""The exit code of pytest if tests ran and failed; any other catches nothing."""
OUTPUT_MAX = 300
"""Maximum characters of unexpected pytest output."""
_FINDER = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", re.MULTILINE)
_INVALID = re.compile(
    r"(syntax error|no such column|no query solution|ambiguous column|"
    r"asyncpg\.exceptions\.(?:PostgresSyntax|UndefinedColumn|UndefinedTable|UndefinedParameter"
    r"|IndeterminateDatatype|DatatypeMismatch|AmbiguousColumn|InvalidColumnReference"
    r"|UndefinedFunction|Grouping)Error).*"
)
"""Database errors for SQL that cannot run. Such a mistake would be obvious."""


@dataclass(frozen=True)
class Hunt:
    """The result for one mutant."""

    name: str
    finder: str | None
    """The test that found it; none: it survived."""
    trouble: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m proof.statements",
        description="Break SQL statements one by one, and let the contract tests find each.",
    )
    parser.add_argument("--only", default="", help="mutants with this in their name")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args(arguments)

    chosen = [
        (backend, mutant)
        for backend, mutants in MUTANTS.items()
        for mutant in mutants
        if options.only in mutant.name(backend)
    ]
    server = SharedServer()
    hunts: list[Hunt] = []
    try:
        os.environ[URL_VARIABLE] = server.url()
        with ThreadPoolExecutor(options.processes) as pool:
            for hunt in pool.map(_hunt, *zip(*chosen, strict=True)) if chosen else ():
                hunts.append(hunt)
                outcome = hunt.finder or hunt.trouble or "SURVIVED"
                print(f"{hunt.seconds:5.1f} s  {hunt.name}\n         {outcome}", flush=True)
        # A test that fails anyway finds nothing.
        finders = sorted({hunt.finder for hunt in hunts if hunt.finder})
        control = _pytest(finders, {}) if finders else None
    finally:
        server.close()

    found = sum(hunt.finder is not None for hunt in hunts)
    for backend in MUTANTS:
        of_backend = [hunt for hunt in hunts if hunt.name.startswith(f"{backend}.")]
        number = sum(hunt.finder is not None for hunt in of_backend)
        print(f"{backend}: {number} of {len(of_backend)} mutants found")
    if control is not None and control.returncode != 0:
        print(f"these fail without a mutant, too:\n{control.stdout}")
        return 1
    return 0 if hunts and found == len(hunts) else 1


def _hunt(backend: Backend, mutant: Mutant) -> Hunt:
    """Run the contract tests, those that should catch a mutant first, until one fails."""
    started_at = time.monotonic()
    name = mutant.name(backend)
    arguments = ["-x", "--tb=short", "-p", "proof.statements.plugin", "-k", backend, TESTS]
    done = _pytest(arguments, {VARIABLE: name})
    found, invalid = _FINDER.search(done.stdout), _INVALID.search(done.stdout)
    finder, trouble = None, ""
    if invalid is not None:
        trouble = f"the mutant itself is broken: {invalid.group()}"
    elif done.returncode == FAILED and found is not None:
        finder = found.group(1)
    elif done.returncode != 0:
        output = f"{done.stdout[-OUTPUT_MAX:]}{done.stderr[-OUTPUT_MAX:]}"
        trouble = f"pytest ends with {done.returncode}: {output}"
    return Hunt(name, finder, trouble, time.monotonic() - started_at)


def _pytest(
    arguments: Sequence[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
