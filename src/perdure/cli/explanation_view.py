"""Why a run stands where it stands, as text."""

from __future__ import annotations

import ast
import re
import shlex

from rich.console import Console
from rich.text import Text

from perdure.cli.present import STYLES
from perdure.model.explanation import Explanation, Finding, FindingKind

_STUCK = frozenset(
    {
        FindingKind.NO_WORKER,
        FindingKind.NO_VERSION,
        FindingKind.NO_QUEUE,
        FindingKind.NO_TAGS,
        FindingKind.QUEUE_PAUSED,
        FindingKind.FAILED,
    }
)
"""What does not go on unless somebody does something."""


_CALL = re.compile(r"client\.\w+\([^)]*\)")
_COMMANDS: dict[str, tuple[str, str]] = {
    "decide": ("decide", ""),
    "explain": ("runs explain", ""),
    "fork": ("runs fork", "--after NODE"),
    "migrate": ("runs migrate", "--to MODULE:FLOW"),
    "report": ("report", "--status completed --result JSON"),
    "retry": ("runs retry", ""),
    "signal": ("runs signal", "PAYLOAD"),
    "unpause": ("runs unpause", ""),
}
"""Calls of a client that are commands too, with what else they need."""


def print_explanation(console: Console, explanation: Explanation) -> None:
    """A sentence, and below it what was found, with what would help."""
    line = Text(f"{explanation.run} is ")
    line.append(explanation.status.value, style=STYLES[explanation.status])
    console.print(line.append(f". {_flat(explanation.summary)}"), soft_wrap=True)
    for finding in explanation.findings:
        _print_finding(console, finding, explanation.summary)


def _print_finding(console: Console, finding: Finding, summary: str) -> None:
    """Where a finding is told in the sentence already, with its node if any, only its help."""
    told = _flat(finding.text)
    names_its_node = not finding.key or finding.kind is FindingKind.FAILED
    if not names_its_node or told.lower() not in _flat(summary).lower():
        line = Text("  ")
        line.append(finding.key, style="bold")
        line.append(": " if finding.key else "")
        line.append(told, style="red" if finding.kind in _STUCK else "")
        console.print(line, soft_wrap=True)
    if finding.help:
        console.print(Text(f"    → {as_commands(finding.help)}", style="dim"), soft_wrap=True)


def as_commands(help: str) -> str:
    """Advice with calls of a client as the commands that do the same, where there are some."""
    return _CALL.sub(lambda found: _command(found[0]) or found[0], help)


def _command(call: str) -> str | None:
    try:
        parsed = ast.parse(call, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Attribute):
        return None
    command = _COMMANDS.get(parsed.func.attr)
    if command is None:
        return None
    name, more = command
    given = [each.value for each in parsed.args if isinstance(each, ast.Constant)]
    words = [shlex.quote(each) for each in given if isinstance(each, str)]
    return " ".join(filter(None, ["perdure", name, *words, more]))


def _flat(text: str) -> str:
    return " ".join(text.split())
