"""Runs an example as somebody would who tries it out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE_SECONDS = 50


def run_example(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(name, arguments),
        cwd=cwd,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@contextmanager
def started_example(name: str, *arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """An example at work, which is killed at the end without a chance to tidy up."""
    with subprocess.Popen(
        _command(name, arguments),
        cwd=cwd,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def next_line(program: subprocess.Popen[str], start: str = "") -> str:
    """The next line that it prints, or the next that begins so."""
    assert program.stdout is not None
    read: list[str] = []
    for line in program.stdout:
        if line.startswith(start):
            return line.rstrip("\n")
        read.append(line)
    raise AssertionError(f"it ended without a line {start!r}: {''.join(read)}")


def killed(program: subprocess.Popen[str]) -> list[str]:
    """What it had printed besides, when it was killed."""
    program.kill()
    assert program.stdout is not None
    return program.stdout.read().splitlines()


def _command(name: str, arguments: tuple[str, ...]) -> list[str]:
    """A script, or a package of several files."""
    if name.endswith(".py"):
        return [sys.executable, str(EXAMPLES / name), *arguments]
    return [sys.executable, "-m", f"examples.{name}", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
