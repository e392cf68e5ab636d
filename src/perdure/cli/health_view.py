"""How a store is, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.cli.renderer import CliRenderer, finding_fields, one_line
from perdure.diagnostics import Finding, Severity, message, remedy
from perdure.operations.insight.health import Health

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_WORDS_WIDTH = max(map(len, Severity)) + 1
_NARROW = 60
"""In fewer columns, texts begin below their heading."""


def health_fields(health: Health, options: str = "") -> dict[str, Any]:
    renderer = CliRenderer(options)
    findings = [finding_fields(each, renderer) for each in health.findings]
    return {"url": health.url, "is_well": health.is_well, "findings": findings}


def print_health(console: Console, health: Health, options: str = "") -> None:
    """``options`` are what a command needs besides to find the same store."""
    console.print(health.url, style="bold", soft_wrap=True)
    renderer = CliRenderer(options)
    for finding in health.findings:
        _print_finding(console, finding, renderer)
    counts = Counter(finding.severity for finding in health.findings)
    wrong = [each for each in (Severity.ERROR, Severity.WARNING) if counts[each]]
    told = ", ".join(f"{counts[each]} {each}{'s' * (counts[each] != 1)}" for each in wrong)
    console.print(told or "all is well", style=_STYLES[wrong[0] if wrong else Severity.OK])


def _print_finding(console: Console, finding: Finding, renderer: CliRenderer) -> None:
    word = (f"{finding.severity:{_WORDS_WIDTH}}", _STYLES[finding.severity])
    heading = Text.assemble(word, f"{finding.about:10}")
    text = Text(one_line(message(finding, renderer)))
    if console.width < _NARROW:
        console.print(heading)
        console.print(Padding(text, (0, 0, 0, 2)))
        indent = 4
    else:
        indent = len(heading)
        lines = text.wrap(console, max(20, console.width - indent))
        for number, line in enumerate(lines):
            console.print((heading if number == 0 else Text(" " * indent)) + line)
    commands = [renderer.action(each) for each in finding.actions]
    for advice in commands or filter(None, [remedy(finding, renderer)]):
        # Not wrapped: it is to be copied.
        console.print(Text(f"{' ' * indent}{advice}", style="cyan"), soft_wrap=True)
