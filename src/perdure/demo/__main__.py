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
from perdure.demo.story import FAST, NORMAL, RUN, DemoResult, Story, stage
from perdure.model.times import brief


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perdure.demo",
        description="A flow on three worker processes on SQLite, one of which is killed.",
    )
    parser.add_argument("--fast", action="store_true", help="less work, in a third of the time")
    parser.add_argument("--yes", action="store_true", help="ask nobody: approve after a while")
    options = parser.parse_args()
    console = stdout_terminal()
    is_interactive = not options.yes and sys.stdin.isatty()
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    try:
        with stage(console, is_interactive=is_interactive) as shown:
            story = Story(folder, FAST if options.fast else NORMAL, shown)
            ending = story.play()
    except KeyboardInterrupt:
        echo(err=True)
        echo("Interrupted; the workers were stopped.", err=True)
        return 130
    tell(console, ending, story)
    return 0 if ending.verdict.is_good else 1


def tell(console: Console, ending: DemoResult, story: Story) -> None:
    """What happened when, the result, and where to look next."""
    console.print()
    print_timeline(console, ending.timeline)
    console.print()
    verdict = ending.verdict
    if verdict.is_good:
        console.print("✓ Nothing was lost, and nothing counted twice", style="bold green")
        for line in (
            f"{verdict.commits} results of nodes and items, each committed once",
            f"{verdict.retried} attempt failed and was retried",
            f"{verdict.repeated} attempts were restarted because their worker was killed",
            "the words add up to as many as the books have",
            f"it took {brief(timedelta(seconds=story.seconds))}",
        ):
            console.print(Padding(line, (0, 0, 0, 2), expand=False))
    else:
        console.print("✗ The record is not what it should be:", style="bold red")
        for problem in verdict.problems:
            console.print(f"  {problem}")
    console.print("\nLook into it yourself:", style="bold")
    # By its name, if that is on the path.
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
        console.print(f"  {line}", soft_wrap=True)  # whole, so that it can be copied
    console.print(f"The flow is in {_shortest(flow.__file__)}", soft_wrap=True)


def _shortest(path: str) -> str:
    return min(path, os.path.relpath(path), key=len)


if __name__ == "__main__":
    sys.exit(main())
