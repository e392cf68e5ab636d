"""The command line: run workers, look at jobs and runs of flows, act on them.

Commands import what they need when they run, so that help and completion come at once.
"""

from __future__ import annotations


def main() -> None:
    from perdure.cli.app import app
    from perdure.cli.output import output_told

    with output_told():
        app(prog_name="perdure")
