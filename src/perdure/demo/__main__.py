"""Run the demo: ``python -m perdure.demo [--fast]``."""

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

from perdure.cli.output import echo
from perdure.cli.terminal import stdout_terminal
from perdure.cli.views.timeline import print_timeline
from perdure.demo import flow
from perdure.demo.story import FAST, NORMAL, RUN, DemoResult, Story, demo_screen
from perdure.model.times import brief


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perdure.demo",
        description="Run a flow on three worker processes and kill one of them.",
    )
    parser.add_argument("--fast", action="store_true", help="do less work")
    parser.add_argument("--yes", action="store_true", help="approve automatically")
    options = parser.parse_args()
    console = stdout_terminal()
    is_interactive = not options.yes and sys.stdin.isatty()
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    try:
        with demo_screen(console, is_interactive=is_interactive) as screen:
            story = Story(folder, FAST if options.fast else NORMAL, screen)
            result = story.play()
    except KeyboardInterrupt:
        echo(err=True)
        echo("Interrupted; the workers were stopped.", err=True)
        return 130
    print_result(console, result, story)
    return 0 if result.verdict.is_good else 1


def print_result(console: Console, result: DemoResult, story: Story) -> None:
    """Print the timeline, the verdict, and commands to try next."""
    console.print()
    print_timeline(console, result.timeline)
    console.print()
    verdict = result.verdict
    if verdict.is_good:
        console.print("✓ Nothing was lost, and nothing was counted twice", style="bold green")
        for line in (
            f"{verdict.commits} results of nodes and items, each committed exactly once",
            f"{verdict.retried} attempt failed and was retried",
            f"{verdict.repeated} attempts were restarted because their worker was killed",
            "the word count matches the books",
            f"total time: {brief(timedelta(seconds=story.seconds))}",
        ):
            console.print(Padding(line, (0, 0, 0, 2), expand=False))
    else:
        console.print("✗ The log of the run is wrong:", style="bold red")
        for problem in verdict.problems:
            console.print(f"  {problem}")
    console.print("\nInspect the run:", style="bold")
    # By name if it is on the PATH.
    beside = Path(sys.executable).parent / "perdure"
    by_name = shutil.which("perdure") or not beside.exists()
    command = "perdure" if by_name else _shortest(str(beside))
    for line in (
        f"export PERDURE_STORE={story.store}",
        f"{command} runs get {RUN}",
        f"{command} runs timeline {RUN}",
        f"{command} runs events {RUN}",
        f"{command} runs lineage {RUN}",
        f"{command} approvals get {RUN}:sign_off",
    ):
        console.print(f"  {line}", soft_wrap=True)  # not wrapped, so that it can be copied
    console.print(f"The flow is in {_shortest(flow.__file__)}", soft_wrap=True)


def _shortest(path: str) -> str:
    return min(path, os.path.relpath(path), key=len)


if __name__ == "__main__":
    sys.exit(main())
