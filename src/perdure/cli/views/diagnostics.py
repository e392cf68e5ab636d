"""Explanations and health reports as text and JSON, with suggested commands."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.cli.renderer import CliRenderer, finding_fields, one_line
from perdure.cli.views.console import STYLES, moment
from perdure.diagnostics import Finding, Severity, message, remedy
from perdure.model.text import visible
from perdure.operations.insight.explain import STATES_STATUS, Explanation
from perdure.operations.insight.health import Health

if TYPE_CHECKING:
    from perdure.cli.command import CommandOutput

FINDINGS_SHOWN = 10
"""So that an explanation fits one screen."""


class LocalRenderer(CliRenderer):
    """Renders times in the local time zone, with their distance from now."""

    def __init__(self, options: str, now: datetime) -> None:
        super().__init__(options)
        self._now = now

    def value(self, value: Any) -> str:
        return moment(value, self._now) if isinstance(value, datetime) else super().value(value)


def explanation_fields(explanation: Explanation, out: CommandOutput) -> dict[str, Any]:
    """As JSON: each suggested action has its command."""
    renderer = out.renderer
    return {
        "run": explanation.run,
        "job": explanation.job,
        "status": explanation.status,
        "summary": explanation.summarize(renderer),
        "headline": [finding_fields(each, renderer) for each in explanation.headline],
        "findings": [finding_fields(each, renderer) for each in explanation.findings],
    }


def print_explanation(explanation: Explanation, out: CommandOutput) -> None:
    """Print the summary and its findings, each with suggested commands."""
    console, renderer = out.console, LocalRenderer(out.renderer.options, out.now)
    summary = one_line(explanation.summarize(renderer))
    line = Text()
    if not any(each.code in STATES_STATUS for each in explanation.headline):
        verb = "has" if explanation.status.value == "failed" else "is"
        line.append(visible(f"{explanation.job or explanation.run} {verb} "))
        line.append(explanation.status.value, style=STYLES[explanation.status])
        line.append(". ")
    console.print(line.append(summary), soft_wrap=True)
    if explanation.job is not None and explanation.run is not None:
        console.print(Text(visible(f"  It belongs to run {explanation.run}.")), soft_wrap=True)
    for finding in explanation.findings[:FINDINGS_SHOWN]:
        # The summary does not name its node, unless the finding does.
        is_in_headline = finding in explanation.headline and (
            not finding.about or finding.about == finding.args.get("node")
        )
        if not is_in_headline:
            _print_explained(console, finding, renderer)
        for command in map(renderer.action, finding.actions):
            console.print(Text(visible(f"    → {command}"), style="dim"), soft_wrap=True)
        if not finding.actions and (advice := remedy(finding, renderer)):
            console.print(Text(visible(f"    → {advice}"), style="dim"), soft_wrap=True)
    if len(explanation.findings) > FINDINGS_SHOWN:
        more = len(explanation.findings) - FINDINGS_SHOWN
        console.print(Text(f"  and {more} more: --json has them", style="dim"))


def _print_explained(console: Console, finding: Finding, renderer: CliRenderer) -> None:
    line = Text("  ")
    line.append(visible(finding.about), style="bold")
    line.append(": " if finding.about else "")
    style = "red" if finding.severity is Severity.ERROR else ""
    line.append(one_line(message(finding, renderer)), style=style)
    console.print(line, soft_wrap=True)


_SEVERITY_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_WORDS_WIDTH = max(map(len, Severity)) + 1
_NARROW = 60
"""Below this width, texts start below their heading."""


def health_fields(health: Health, out: CommandOutput) -> dict[str, Any]:
    findings = [finding_fields(each, out.renderer) for each in health.findings]
    return {"url": health.url, "is_well": health.is_well, "findings": findings}


def print_health(health: Health, out: CommandOutput) -> None:
    console = out.console
    console.print(health.url, style="bold", soft_wrap=True)
    for finding in health.findings:
        _print_health_finding(console, finding, out.renderer)
    counts = Counter(finding.severity for finding in health.findings)
    wrong = [each for each in (Severity.ERROR, Severity.WARNING) if counts[each]]
    counted = ", ".join(f"{counts[each]} {each}{'s' * (counts[each] != 1)}" for each in wrong)
    console.print(
        counted or "no problems found", style=_SEVERITY_STYLES[wrong[0] if wrong else Severity.OK]
    )


def _print_health_finding(console: Console, finding: Finding, renderer: CliRenderer) -> None:
    word = (f"{finding.severity:{_WORDS_WIDTH}}", _SEVERITY_STYLES[finding.severity])
    heading = Text.assemble(word, f"{visible(finding.about):10}")
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
        # Not wrapped, so that it can be copied.
        console.print(Text(f"{' ' * indent}{visible(advice)}", style="cyan"), soft_wrap=True)
