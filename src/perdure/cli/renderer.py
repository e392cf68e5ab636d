"""Renders diagnostics for the command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from perdure.diagnostics import PYTHON, Action, Finding, Renderer, as_data, message, remedy
from perdure.model.text import visible

_OPTIONS = {
    "by": "--by",
    "namespace": "--namespace",
    "on_conflict": "--on-conflict",
    "roles": "--role",
}
_PLACEHOLDERS: Mapping[tuple[str, str], str] = {
    # The command prompts for a missing decision; ``--by`` defaults to the login name.
    ("approvals.decide", "by"): "",
    ("approvals.decide", "decision"): "",
    ("runs.fork", "after"): "NODE",
    ("runs.migrate", "to"): "MODULE:FLOW",
    ("runs.report", "result"): "null",
    ("runs.signal", "payload"): "",
}
"""The placeholder of an argument that the reader must supply, if not its name."""


def quoted(text: str) -> str:
    """Quote a word of a command for copying; control characters as shell escapes."""
    if visible(text) == text:
        return shlex.quote(text)
    escaped = text.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{visible(escaped)}'"


def cli_command(action: Action, options: str = "") -> str:
    """The command, with ``options`` such as the store appended: ``perdure runs retry order-42``."""
    # Imported on first use: most commands suggest nothing and must start fast.
    from perdure.cli.app import ALIASES
    from perdure.operations.catalog import LOCAL, OPERATIONS

    name = action.operation
    if name in OPERATIONS:
        positional = OPERATIONS[name].positional
    else:  # a newer server may suggest one that this version does not know
        positional = LOCAL.get(name, ("id",))[:1]
    given: dict[str, Any] = {**action.args, **dict.fromkeys(action.asks, ...)}
    arguments: list[str] = []
    named: list[str] = []
    for parameter in [
        *(each for each in positional if each in given),
        *(each for each in given if each not in positional),
    ]:
        value = given[parameter]
        if value is ...:
            default = parameter.upper().replace("_", "-")
            shown = [_PLACEHOLDERS.get((name, parameter), default)]
        elif isinstance(value, list | tuple) and parameter != "roles":
            shown = [quoted(",".join(map(str, value)))]
        else:
            each_value = value if isinstance(value, list | tuple) else [value]
            shown = [quoted(str(each)) for each in each_value]
        for each in filter(None, shown):
            if parameter in positional:
                arguments.append(each)
            else:
                named += [_OPTIONS.get(parameter, f"--{parameter.replace('_', '-')}"), each]
    short = {operation: word for word, operation in ALIASES.items()}
    words = short.get(name, name.replace(".", " ").replace("_", "-"))
    command = ["perdure", "worker" if name == "worker.run" else words]
    if any(each.lstrip("$'").startswith("-") for each in arguments):  # not an option, but an id
        return " ".join([*command, *named]) + " ".join([options, "--", *arguments])
    return " ".join([*command, *arguments, *named]) + options


class CliRenderer(Renderer):
    """Renders parameters as options and actions as commands.

    ``options``, such as the store in use, are appended to every command. ``names`` maps the
    parameters of the current command to their names on the command line. Other parameters are set
    in application code, so they are rendered as in Python.
    """

    def __init__(self, options: str = "", names: Mapping[str, str] | None = None) -> None:
        self.options = options
        self._names = {**_OPTIONS, **(names or {})}

    def name(self, argument: str) -> str:
        return self._names.get(argument) or PYTHON.name(argument)

    def parameter(self, name: str) -> str:
        return self._names.get(name, name)

    def action(self, action: Action) -> str:
        return cli_command(action, self.options)


def finding_fields(finding: Finding, renderer: CliRenderer) -> dict[str, Any]:
    """A finding as JSON; its actions carry their commands, so the message omits them."""
    texts = {"message": message(finding, renderer), "remedy": remedy(finding, renderer)}
    return {**as_data(finding, renderer), **texts}


def one_line(text: str) -> str:
    """Join the lines of a message: those of database drivers and tasks may have several."""
    return visible(" ".join(text.split()))
