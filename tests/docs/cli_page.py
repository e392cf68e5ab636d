"""``docs/reference/cli.md``: every command with its arguments and options, from their declarations.

``python -m tests.docs.cli_page`` prints the page; ``--write`` keeps it, after a command changed.
Headings, their order, the first paragraph and the tables of a command are made; what else the page
says of it, prose and examples, stays.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from perdure.cli.app import ALIASES, GROUPS, SUMMARIES, app, command_named, parameter_name
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/reference/cli.md"
_SECTION = re.compile(r"^## ", re.MULTILINE)
_TABLE = re.compile(r"^\| (?:argument|option) \|.*\n\|---.*\n(?:\|.*\n)*\n?", re.MULTILINE)


def page(text: str) -> str:
    """The page as it should be, given the page as it is."""
    start, *sections = _SECTION.split(text)
    prose: dict[str, str] = {}
    rest = []
    for section in sections:
        title, _, body = section.partition("\n")
        if title.startswith("perdure "):
            prose[title.removeprefix("perdure ")] = _TABLE.sub("", body).strip("\n")
        else:
            rest.append(f"## {section.strip()}\n")
    made = [_section(words, name, prose.get(words, "")) for words, name in commands()]
    return "\n".join([f"{start.strip()}\n", *made, *rest])


def commands() -> Iterator[tuple[str, str]]:
    """Every command but aliases: its words, and the name of its operation."""
    yield from ((word, word) for word in app.members if word not in {**ALIASES, **GROUPS})
    for name in SUMMARIES:
        if "." in name:
            yield name.replace(".", " ").replace("_", "-"), name


def usage(name: str) -> str:
    """``perdure runs cancel ID...``"""
    arguments = [each for each in command_named(name).params if isinstance(each, click.Argument)]
    words = name.replace(".", " ").replace("_", "-")
    return " ".join(["perdure", words, *(each.human_readable_name for each in arguments)])


def _section(words: str, name: str, prose: str) -> str:
    """The first paragraph is made too: usage, summary and the short word, if there is one."""
    _, _, more = prose.partition("\n\n") if prose.startswith("`perdure ") else ("", "", prose)
    first = f"`{usage(name)}`: {SUMMARIES[name]}"
    for word, operation in ALIASES.items():
        if operation == name:
            first += f" `perdure {word}` is the same."
    parts = [f"## perdure {words}", first, more, *_tables(command_named(name))]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _tables(command: click.Command) -> Iterator[str]:
    options = [
        each for each in command.params if isinstance(each, click.Option) and not each.hidden
    ]
    arguments: list[Any] = [each for each in command.params if isinstance(each, click.Argument)]
    if arguments:
        rows = [f"| `{parameter_name(each)}` | {each.about} |" for each in arguments]
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows])
    rows = [f"| {_names(each)} | {_default(each)} | {each.help} |" for each in options]
    yield "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def _names(option: click.Option) -> str:
    parameter_name = [*sorted(option.opts, key=len, reverse=True), *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar}"
    first, *others = parameter_name
    return ", ".join([f"`{first}{value}`", *(f"`{each}`" for each in others)])


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    shown = isinstance(option.default, str | int) and option.default and not option.is_flag
    return f"`{option.default}`" if shown else ""


if __name__ == "__main__":
    made = page(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
    else:
        sys.stdout.write(made)
