"""How diagnostics read on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.actions import cli_command
from perdure.diagnostics import PYTHON, Action, Finding, Renderer, as_data, message, remedy

_OPTIONS = {
    "by": "--by",
    "live": "--live",
    "namespace": "--namespace",
    "on_conflict": "--on-conflict",
    "roles": "--role",
}


class CliRenderer(Renderer):
    """Parameters as options, actions as commands.

    ``options`` are appended to every command, such as the store that the reader used. ``names`` are
    the parameters of the command that was called, as it spells them. Parameters of neither kind are
    set in the code of the application, so they read as in Python.
    """

    def __init__(self, options: str = "", names: Mapping[str, str] | None = None) -> None:
        self._options = options
        self._names = {**_OPTIONS, **(names or {})}

    def name(self, argument: str) -> str:
        return self._names.get(argument) or PYTHON.name(argument)

    def parameter(self, name: str) -> str:
        return self._names.get(name, name)

    def action(self, action: Action) -> str:
        return cli_command(action, self._options)


def finding_fields(finding: Finding, renderer: CliRenderer) -> dict[str, Any]:
    """A finding as JSON; its actions have their commands, so the message is the sentence alone."""
    texts = {"message": message(finding, renderer), "remedy": remedy(finding, renderer)}
    return {**as_data(finding, renderer), **texts}


def one_line(text: str) -> str:
    """Messages of database drivers and of tasks may have several lines."""
    return " ".join(text.split())
