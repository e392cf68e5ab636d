"""The command line: ``perdure worker``, ``perdure jobs``, ``perdure depth``, ``perdure workers``.

Commands import what they need when they run, so that help and completion come at once.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

_NEEDED = ("typer", "rich")


def main() -> None:
    """Run the command line, or say how to install it."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"perdure: the command line needs {' and '.join(missing)}: pip install 'perdure[cli]'\n"
        )
        sys.exit(2)
    from perdure.cli.app import app

    app(prog_name="perdure")
