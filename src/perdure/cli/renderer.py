"""How diagnostics read on the command line."""

from __future__ import annotations

from perdure.actions import cli_command
from perdure.diagnostics import PYTHON, Action, Renderer

_OPTIONS = {
    "by": "--by",
    "live": "--live",
    "namespace": "--namespace",
    "on_conflict": "--on-conflict",
    "roles": "--role",
}


class CliRenderer(Renderer):
    """Parameters as options, actions as commands.

    ``options`` are appended to every command, such as the store that the reader used. Parameters
    without an option are set in the code of the application, so they read as in Python.
    """

    def __init__(self, options: str = "") -> None:
        self._options = options

    def name(self, argument: str) -> str:
        return _OPTIONS.get(argument) or PYTHON.name(argument)

    def action(self, action: Action) -> str:
        return cli_command(action, self._options)
