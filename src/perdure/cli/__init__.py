"""The command line: run workers, look at jobs and runs of flows, act on them.

Commands import what they need when they run, so that help and completion come at once.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

_NEEDED = ("click", "rich")


def main() -> None:
    """Run the command line, or say how to install it."""
    need_extra("the command line")
    from perdure.cli.app import app
    from perdure.cli.output import output_told

    with output_told():
        app(prog_name="perdure")


def need_extra(what: str) -> None:
    """End the program with a hint when the packages for terminals are not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"perdure: {what} needs {' and '.join(missing)}: pip install 'perdure[cli]'\n"
        )
        sys.exit(2)
