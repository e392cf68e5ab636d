"""The lineage of a run as text: below each node the values that it used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from perdure.cli.present import STYLES, as_json_line, shortened
from perdure.cli.run_view import VALUE_LENGTH_MAX
from perdure.operations.insight.lineage import Lineage, NodeLineage, Use, UseOrigin

PARTS_MAX = 20
"""How many items or iterations of one node are shown to people."""


def print_lineage(console: Console, lineage: Lineage) -> None:
    for node in lineage.nodes:
        console.print(_head(node), soft_wrap=True)
        for line in _lines(node):
            room = min(VALUE_LENGTH_MAX, console.width)
            console.print(Text(shortened_line(line, room)), soft_wrap=True)


def shortened_line(line: str, room: int) -> str:
    """Cut, with the spaces that it begins with."""
    indent = len(line) - len(line.lstrip())
    return f"{' ' * indent}{shortened(line, max(20, room - indent))}"


def _head(node: NodeLineage) -> Text:
    line = Text(node.id, style="bold")
    line.append(f"  {node.kind}, ", style="not bold")
    line.append(node.status.value, style=f"not bold {STYLES.get(node.status, '')}")
    if node.output:
        line.append(f", output in event {node.output}", style="not bold")
    if node.child is not None:
        line.append(f", run {node.child}", style="not bold")
    return line


def _lines(node: NodeLineage) -> Iterator[str]:
    yield from _uses(node.uses, "  ")
    for part in node.parts[:PARTS_MAX]:
        output = f", output in event {part.output}" if part.output else ""
        yield f"  {part.key}{output}"
        yield from _uses(part.uses, "    ")
    if len(node.parts) > PARTS_MAX:
        yield f"  and {len(node.parts) - PARTS_MAX} more: --json has them all"


def _uses(uses: Sequence[Use], indent: str) -> Iterator[str]:
    for use in uses:
        name = f"{use.name} " if use.name else ""
        if use.origin is UseOrigin.SECRET:
            yield f"{indent}{name}← {use.text}"
            continue
        place = f" (event {use.number})" if use.number else ""
        default = " (the default)" if use.is_default else ""
        yield f"{indent}{name}← {use.text}{place}{default} = {as_json_line(use.value)}"
