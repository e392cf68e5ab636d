"""The command line: run workers, inspect and control jobs and runs.

Commands import lazily, so that help and completion are fast.
"""

from __future__ import annotations


def main() -> None:
    from perdure.cli.app import app
    from perdure.cli.output import output_flushed

    with output_flushed():
        app(prog_name="perdure")
