"""How a store is, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.model.health import Health, Severity, Symptom

_STYLES = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}
_WORDS_WIDTH = max(map(len, Severity)) + 1
_NARROW = 60
"""In fewer columns, texts begin below their heading."""


def health_fields(health: Health) -> dict[str, Any]:
    return {"url": health.url, "is_well": health.is_well, "symptoms": health.symptoms}


def print_health(console: Console, health: Health, options: str = "") -> None:
    """``options`` are what a command needs besides to find the same store."""
    console.print(health.url, style="bold", soft_wrap=True)
    for symptom in health.symptoms:
        _print_symptom(console, symptom, _command(symptom.help, options))
    counts = Counter(symptom.severity for symptom in health.symptoms)
    wrong = [each for each in (Severity.ERROR, Severity.WARNING) if counts[each]]
    told = ", ".join(_counted(counts[each], each) for each in wrong) or "all is well"
    console.print(told, style=_STYLES[wrong[0] if wrong else Severity.OK])


def _print_symptom(console: Console, symptom: Symptom, help: str) -> None:
    word = (f"{symptom.severity:{_WORDS_WIDTH}}", _STYLES[symptom.severity])
    heading = Text.assemble(word, f"{symptom.about:10}")
    if console.width < _NARROW:
        console.print(heading)
        console.print(Padding(Text(symptom.text), (0, 0, 0, 2)))
        indent = 4
    else:
        indent = len(heading)
        lines = Text(symptom.text).wrap(console, max(20, console.width - indent))
        for number, line in enumerate(lines):
            console.print((heading if number == 0 else Text(" " * indent)) + line)
    if help:
        # Not wrapped: it is to be copied.
        console.print(Text(f"{' ' * indent}{help}", style="cyan"), soft_wrap=True)


def _command(help: str, options: str) -> str:
    if not help.startswith("perdure "):
        return help
    return " && ".join(f"{each}{options}" for each in help.split(" && "))


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
