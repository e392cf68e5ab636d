"""The demo from its start to the words at its end."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.padding import Padding

from perdure.cli.present import took
from perdure.cli.terminal import make_console
from perdure.demo import tasks
from perdure.demo.screens import LiveScreen, PlainScreen
from perdure.demo.story import FAST, NORMAL, OutOfPatience, Story
from perdure.demo.verdict import Verdict


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perdure.demo", description="A small workload on SQLite, run and watched."
    )
    parser.add_argument("--fast", action="store_true", help="less work, in a third of the time")
    options = parser.parse_args()
    console = make_console()
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    screen = LiveScreen(console) if console.is_terminal else PlainScreen(console)
    try:
        with screen:
            story = Story(folder, FAST if options.fast else NORMAL, screen)
            verdict = story.run()
    except OutOfPatience as reason:
        sys.stderr.write(f"The demo did not come to its end: {reason}. Logs are in {folder}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; the workers were stopped.\n")
        return 130
    tell(console, verdict, story)
    return 0 if verdict.is_good else 1


def tell(console: Console, verdict: Verdict, story: Story) -> None:
    """The result, and where to look next."""
    console.print()
    if verdict.is_good:
        _tell_result(console, verdict, took(timedelta(seconds=story.seconds)))
    else:
        console.print("✗ The record is not what it should be:", style="bold red")
        for problem in verdict.problems:
            console.print(f"  {problem}")
    console.print("\nLook into it yourself:", style="bold")
    for line in (
        f"export PERDURE_STORE={story.store}",
        f"{_command()} jobs list",
        f"{_command()} depth",
    ):
        console.print(f"  {line}", soft_wrap=True)  # whole, so that it can be copied
    console.print(f"The tasks are in {_shortest(tasks.__file__)}", soft_wrap=True)


def _tell_result(console: Console, verdict: Verdict, duration: str) -> None:
    total = sum(verdict.outcomes.values())
    outcomes = ", ".join(f"{count} {status}" for status, count in sorted(verdict.outcomes.items()))
    console.print(f"✓ {total} jobs, each finished exactly once in the record", style="bold green")
    for line in (
        outcomes,
        f"{verdict.attempts} attempts: {verdict.retried} failed at first, "
        f"{verdict.taken_over} were taken over from the killed worker",
        f"{verdict.words:,} words counted, as many as the books have",
        f"never more than {tasks.LETTERS_A_SECOND} letters in a second",
        f"it took {duration}",
    ):
        console.print(Padding(line, (0, 0, 0, 2), expand=False))


def _command() -> str:
    """How to call the command line here: by its name, if that is on the path."""
    beside = Path(sys.executable).parent / "perdure"
    return "perdure" if shutil.which("perdure") or not beside.exists() else _shortest(str(beside))


def _shortest(path: str) -> str:
    return min(path, os.path.relpath(path), key=len)
