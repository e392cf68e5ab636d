"""``perdure init``: create a starter project."""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path

from perdure.cli.command import JSON, PATH, Argument, command
from perdure.cli.output import echo, echo_lines
from perdure.cli.renderer import quoted
from perdure.cli.views.console import json_text
from perdure.diagnostics import declare
from perdure.errors import PerdureError

IS_FILE = declare("cli.is_file", "{path!r} is a file", "Name a folder")
WOULD_OVERWRITE = declare(
    "cli.would_overwrite",
    "{files} would be overwritten in {path!r}; nothing was written",
    "Name another folder",
)


FILES = {
    "orders.py": "orders.py.txt",
    "tests/test_orders.py": "test_orders.py.txt",
    "conftest.py": "conftest.py.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
"""Files of the project, and their templates. Templates have another suffix, so that tools that look
for code do not take them for part of the library."""

NEXT = (
    "perdure dev orders",
    "perdure submit orders 7 --id order-7",
    "perdure decide order-7:review approve",
)
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9]+")


@command(
    Argument(
        ["folder"],
        metavar="[DIR]",
        about="Folder; created if it does not exist",
        type=PATH,
        required=False,
        default=Path("."),
    ),
    JSON,
)
def init(folder: Path, as_json: bool) -> None:
    """Create a starter project.

    The project has a flow, its tests and a README. If one of the files exists, nothing is written.
    """
    _check_free(folder)
    written = _written(folder)
    if as_json:
        echo_lines(json_text({"files": [str(file) for file in written], "next": NEXT}))
        return
    for file in written:
        echo(f"wrote {file}")
    echo()
    echo("what to do next:")
    if folder.resolve() != Path.cwd():
        echo(f"  cd {quoted(str(folder))}")
    first, *others = NEXT
    echo(f"  {first}")
    for each in others:
        echo(f"  {each}  # in another terminal")


def _check_free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise PerdureError(IS_FILE.fault(path=str(folder)))
    taken = [name for name in FILES if os.path.lexists(folder / name)]
    if taken:
        fault = WOULD_OVERWRITE.fault(files=", ".join(taken), path=str(folder))
        raise PerdureError(fault)


def _written(folder: Path) -> list[Path]:
    name = _NOT_IN_A_NAME.sub("-", folder.resolve().name.lower()).strip("-") or "orders"
    templates = resources.files("perdure.cli").joinpath("templates")
    files = []
    try:
        for path, template in FILES.items():
            text = templates.joinpath(template).read_text(encoding="utf-8")
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace("PROJECT", name), encoding="utf-8")
            files.append(file)
    except OSError as error:
        from perdure.transfer.format import UNWRITABLE

        fault = UNWRITABLE.fault(path=str(folder), reason=error.strerror or str(error))
        raise PerdureError(fault) from error
    return files


COMMANDS = {"init": init}
