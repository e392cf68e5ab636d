"""The pages of the documentation, taken apart: fenced blocks, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)$")
_HEADING = re.compile(r"^#{1,6} (.+)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"^# (?P<name>\w+\.(?:py|yaml))$")


@dataclass(frozen=True)
class Block:
    """A fenced block. ``line`` is that of its first line of code, counted from 1."""

    info: str
    code: str
    line: int

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]

    @property
    def is_output(self) -> bool:
        """What the examples above it print: the fence says ``text output``."""
        return self.info == "text output"

    @property
    def file_name(self) -> str | None:
        """The file that the block is to be saved as: its first line says ``# name.py``."""
        found = _FILE.match(self.code.partition("\n")[0])
        return found["name"] if found else None


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return _parsed(self.text)[0]

    @cached_property
    def prose(self) -> list[str]:
        """The lines outside fenced blocks."""
        return _parsed(self.text)[1]

    @property
    def links(self) -> list[str]:
        return [link for line in self.prose for link in _LINK.findall(line)]

    @property
    def anchors(self) -> set[str]:
        headings = [found[1] for line in self.prose if (found := _HEADING.match(line))]
        return {_anchor(heading) for heading in headings}

    def table_under(self, heading: str) -> list[list[str]]:
        """The rows of the first table below a heading, without its head."""
        lines = iter(self.prose)
        for line in lines:
            if (found := _HEADING.match(line)) and found[1] == heading:
                return _first_table(list(lines))
        raise AssertionError(f"{self.name} has no heading {heading!r}")


def all_pages() -> list[Page]:
    """What readers are given. The changelog and the rules for contributors have no examples."""
    return [Page(ROOT / "README.md"), *(Page(path) for path in sorted(ROOT.glob("docs/**/*.md")))]


def page(name: str) -> Page:
    return Page(ROOT / name)


def _parsed(text: str) -> tuple[list[Block], list[str]]:
    blocks: list[Block] = []
    prose: list[str] = []
    opened: re.Match[str] | None = None
    start, code = 0, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None and fence is None:
            prose.append(line)
        elif opened is None:
            opened, start, code = fence, number + 1, []
        elif fence is not None and not fence["info"]:
            blocks.append(Block(info=opened["info"].strip(), code="\n".join(code), line=start))
            opened = None
        else:
            code.append(line.removeprefix(opened["indent"]))
    assert opened is None, f"the block that begins in line {start} does not end"
    return blocks, prose


def _first_table(lines: list[str]) -> list[list[str]]:
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("|"):
            # A bar within a cell is written \| .
            cells = re.split(r"(?<!\\)\|", line.strip("|"))
            rows.append([cell.strip().replace("\\|", "|") for cell in cells])
        elif rows or _HEADING.match(line):
            break
    return rows[2:]


def _anchor(heading: str) -> str:
    """As GitHub makes them."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")
