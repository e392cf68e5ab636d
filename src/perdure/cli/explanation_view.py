"""Why a run or a job is where it is, as text and as JSON, with the commands that help."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from perdure.cli.present import STYLES, moment
from perdure.cli.renderer import CliRenderer, finding_fields, one_line
from perdure.diagnostics import Finding, Severity, message, remedy
from perdure.operations.insight.explain import STATES_STATUS, Explanation

FINDINGS_SHOWN = 10
"""So that an explanation fits one screen."""


class LocalRenderer(CliRenderer):
    """Times in the local time zone, with how far away they are."""

    def __init__(self, options: str, now: datetime) -> None:
        super().__init__(options)
        self._now = now

    def value(self, value: Any) -> str:
        return moment(value, self._now) if isinstance(value, datetime) else super().value(value)


def explanation_fields(explanation: Explanation, options: str) -> dict[str, Any]:
    """As JSON: each suggested action has its command."""
    renderer = CliRenderer(options)
    return {
        "run": explanation.run,
        "job": explanation.job,
        "status": explanation.status,
        "summary": explanation.summarize(renderer),
        "headline": [finding_fields(each, renderer) for each in explanation.headline],
        "findings": [finding_fields(each, renderer) for each in explanation.findings],
    }


def print_explanation(
    console: Console, explanation: Explanation, options: str, now: datetime
) -> None:
    """Print the summary and the findings below it, each with what would help."""
    renderer = LocalRenderer(options, now)
    summary = one_line(explanation.summarize(renderer))
    line = Text()
    if not any(each.code in STATES_STATUS for each in explanation.headline):
        line.append(f"{explanation.job or explanation.run} is ")
        line.append(explanation.status.value, style=STYLES[explanation.status])
        line.append(". ")
    console.print(line.append(summary), soft_wrap=True)
    if explanation.job is not None and explanation.run is not None:
        console.print(Text(f"  It belongs to run {explanation.run}."), soft_wrap=True)
    for finding in explanation.findings[:FINDINGS_SHOWN]:
        # The summary does not say which node it is about, unless the finding itself does.
        is_told = finding in explanation.headline and (
            not finding.about or finding.about == finding.args.get("node")
        )
        if not is_told:
            _print_finding(console, finding, renderer)
        for command in map(renderer.action, finding.actions):
            console.print(Text(f"    → {command}", style="dim"), soft_wrap=True)
        if not finding.actions and (advice := remedy(finding, renderer)):
            console.print(Text(f"    → {advice}", style="dim"), soft_wrap=True)
    if len(explanation.findings) > FINDINGS_SHOWN:
        more = len(explanation.findings) - FINDINGS_SHOWN
        console.print(Text(f"  and {more} more: --json has them", style="dim"))


def _print_finding(console: Console, finding: Finding, renderer: CliRenderer) -> None:
    line = Text("  ")
    line.append(finding.about, style="bold")
    line.append(": " if finding.about else "")
    style = "red" if finding.severity is Severity.ERROR else ""
    line.append(one_line(message(finding, renderer)), style=style)
    console.print(line, soft_wrap=True)
