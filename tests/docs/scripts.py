"""A page of the documentation as one script, which runs its examples in the order of reading.

The lines of the script are those of the page, so a traceback points into the page. A block whose
first line is ``# name.py`` or ``# name.yaml`` is saved under that name instead; the lines of a
shell block are carried out one by one.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import Block, Page

RUN = frozenset({"python", "sh"})
SHOWN = frozenset({"text", "ini", "mermaid", "sql", "yaml"})
"""Languages that are only read; a Python example must not hide among them."""

DATABASE = re.compile(r"postgresql(\+\w+)?://localhost/app\b")
"""The database of the examples."""

_PROLOGUE = "from tests.docs.acting import save as _save, shell as _shell; "


def needs_database(page: Page) -> bool:
    return any(DATABASE.search(block.code) for block in page.blocks if block.language in RUN)


def script_of(page: Page, database: str | None) -> str:
    """The script that runs all examples of a page, on this database."""
    lines = [""] * (page.text.count("\n") + 2)
    for block in page.blocks:
        code = _with_database(block.code, database)
        if block.language == "python" and block.file_name is None:
            lines[block.line - 1 : block.line - 1 + code.count("\n") + 1] = code.split("\n")
        elif block.language in RUN or block.file_name is not None:
            # Statements of ours stand in the first line of their block.
            lines[block.line - 1] = "; ".join(_acts(block, code)) or "pass"
    lines[0] = _PROLOGUE + (lines[0] or "pass")
    return "\n".join(lines)


def outputs_of(page: Page) -> list[str]:
    """The lines that a run of the page must print, in this order among others."""
    return [line for block in page.blocks if block.is_output for line in block.code.split("\n")]


def missing_lines(wanted: list[str], printed: str) -> list[str]:
    """What of ``wanted`` was not printed in this order; an ellipsis stands for anything."""
    lines = iter(printed.splitlines())
    return [line for line in wanted if not any(_matches(line, each) for each in lines)]


def saved_files(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.language == "python" and block.file_name]


def _acts(block: Block, code: str) -> list[str]:
    if block.file_name is not None:
        return [f"_save({block.file_name!r}, {code!r})"]
    commands = re.sub(r"\\\n\s*", "", code).split("\n")
    return [f"_shell({line!r})" for line in commands if line.strip() and not line.startswith("#")]


def _with_database(code: str, database: str | None) -> str:
    if database is None:
        return code
    address = database.partition("://")[2]
    return DATABASE.sub(lambda found: f"postgresql{found[1] or ''}://{address}", code)


def _matches(wanted: str, printed: str) -> bool:
    parts = (re.escape(part) for part in wanted.rstrip().split("…"))
    return re.fullmatch(".*".join(parts), printed.rstrip()) is not None


def write_script(page: Page, folder: Path, database: str | None) -> Path:
    script = folder / f"{page.path.stem.replace('-', '_')}_page.py"
    script.write_text(script_of(page, database), encoding="utf-8")
    return script
