"""Why a run or a job stands where it stands, as text and as JSON, with the commands that help."""

from __future__ import annotations

import ast
import re
import shlex
from datetime import datetime
from typing import Any

from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from perdure.cli.present import STYLES, moment
from perdure.model.explanation import Explanation, Finding, FindingKind

_STUCK = frozenset(
    {
        FindingKind.NO_WORKER,
        FindingKind.NO_VERSION,
        FindingKind.NO_TASK,
        FindingKind.NO_QUEUE,
        FindingKind.NO_TAGS,
        FindingKind.QUEUE_PAUSED,
        FindingKind.DISABLED,
        FindingKind.FAILED,
    }
)
"""What does not go on unless somebody does something."""


FINDINGS_SHOWN = 10
"""So that an explanation fits one screen."""

_TEXT = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d")
_CALL = re.compile(rf"""client\.\w+\((?:[^()'"]|{_TEXT})*\)""")
_WORKER = re.compile(r"start a worker with (?:this \w+|queues=(\[.*?\])|tags=(\[.*?\]))")
_COMMANDS: dict[str, tuple[str, str]] = {
    "approval": ("inbox", ""),
    "decide": ("decide", ""),
    "enable": ("jobs enable", ""),
    "explain": ("explain", ""),
    "fork": ("runs fork", "--after NODE"),
    "migrate": ("runs migrate", "--to MODULE:FLOW"),
    "report": ("report", "--status completed --result null"),
    "resume": ("jobs resume", ""),
    "resume_queue": ("queues resume", ""),
    "retry": ("runs retry", ""),
    "signal": ("signal", ""),
    "unpause": ("runs unpause", ""),
}
"""Calls of a client that are commands too, with what else they need."""


def explanation_fields(explanation: Explanation, options: str) -> dict[str, Any]:
    """As JSON: each finding has the command that would help beside the call."""
    findings = [
        {**asdict(finding), "command": command_of(explanation, finding, options)}
        for finding in explanation.findings
    ]
    return {**asdict(explanation), "findings": findings}


def print_explanation(
    console: Console, explanation: Explanation, options: str, now: datetime
) -> None:
    """A sentence, and below it what was found, with what would help."""
    console.print(_first_line(explanation, now), soft_wrap=True)
    if explanation.job is not None and explanation.run is not None:
        console.print(Text(f"  It belongs to run {explanation.run}."), soft_wrap=True)
    for finding in explanation.findings[:FINDINGS_SHOWN]:
        _print_finding(console, finding, explanation.summary, now)
        command = command_of(explanation, finding, options)
        if command:
            console.print(Text(f"    → {command}", style="dim"), soft_wrap=True)
    if len(explanation.findings) > FINDINGS_SHOWN:
        more = len(explanation.findings) - FINDINGS_SHOWN
        console.print(Text(f"  and {more} more: --json has them", style="dim"))


def _first_line(explanation: Explanation, now: datetime) -> Text:
    """Its status and the sentence; where that begins with the status, it is told once."""
    status, summary = explanation.status.value, _flat(explanation.summary)
    said = next((each for each in ("is", "was") if _begins(summary, f"It {each} {status}")), "")
    line = Text(f"{explanation.job or explanation.run} {said or 'is'} ")
    line.append(status, style=STYLES[explanation.status])
    rest = summary[len(f"It {said} {status}") :] if said else f". {summary}"
    return line.append(_with_local_times(rest, now))


def _begins(summary: str, words: str) -> bool:
    return summary.startswith((f"{words} ", f"{words}.", f"{words}:"))


def _print_finding(console: Console, finding: Finding, summary: str, now: datetime) -> None:
    """Where a finding is told in the sentence already, with its node if any, it is enough."""
    told = _flat(finding.text)
    names_its_node = not finding.key or finding.kind is FindingKind.FAILED
    if names_its_node and told.lower() in _flat(summary).lower():
        return
    line = Text("  ")
    line.append(finding.key, style="bold")
    line.append(": " if finding.key else "")
    style = "red" if finding.kind in _STUCK else ""
    line.append(_with_local_times(told, now), style=style)
    console.print(line, soft_wrap=True)


def command_of(explanation: Explanation, finding: Finding, options: str) -> str:
    """What to type, to have done what a finding advises; ``options`` say on which store."""
    return as_commands(finding.help, options, is_job=explanation.run is None)


def as_commands(help: str, options: str = "", *, is_job: bool = False) -> str:
    """Advice with calls of a client as the commands that do the same, where there are some."""
    told = _CALL.sub(lambda found: _command(found[0], options, is_job=is_job), help)
    return _WORKER.sub(lambda found: _worker_command(found, options), told)


def _command(call: str, options: str, *, is_job: bool) -> str:
    try:
        parsed = ast.parse(call, mode="eval").body
    except SyntaxError:
        return call
    if not isinstance(parsed, ast.Call) or not isinstance(parsed.func, ast.Attribute):
        return call
    command = _COMMANDS.get(parsed.func.attr)
    if command is None:
        return call
    name, more = command
    if is_job and parsed.func.attr == "retry":
        name = "jobs retry"
    given = [each.value for each in parsed.args if isinstance(each, ast.Constant)]
    words = [shlex.quote(each) for each in given if isinstance(each, str)]
    for keyword in parsed.keywords:
        if keyword.arg == "roles":
            for role in ast.literal_eval(keyword.value):
                words += ["--role", shlex.quote(role)]
    return " ".join(filter(None, ["perdure", name, *words, more])) + options


def _worker_command(found: re.Match[str], options: str) -> str:
    queues, tags = found.groups()
    words = ["perdure worker MODULE"]
    for option, listed in (("--queues", queues), ("--tags", tags)):
        if listed is not None:
            words += [option, shlex.quote(",".join(ast.literal_eval(listed)))]
    return " ".join(words) + options


def _with_local_times(text: str, now: datetime) -> str:
    """Moments as other views show them, with how long ago they were."""
    return _MOMENT.sub(lambda found: moment(datetime.fromisoformat(found[0]), now), text)


def _flat(text: str) -> str:
    return " ".join(text.split())
