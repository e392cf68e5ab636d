"""How diagnostics read on the command line."""

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
    # The command asks for a decision that is not given; ``--by`` is the login name.
    ("approvals.decide", "by"): "",
    ("approvals.decide", "decision"): "",
    ("runs.fork", "after"): "NODE",
    ("runs.migrate", "to"): "MODULE:FLOW",
    ("runs.report", "result"): "null",
    ("runs.signal", "payload"): "",
}
"""What stands for an argument that the reader must supply, if not its name."""


def quoted(text: str) -> str:
    """One word of a command that can be copied: control characters as a shell reads them."""
    if visible(text) == text:
        return shlex.quote(text)
    escaped = text.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{visible(escaped)}'"


def cli_command(action: Action, options: str = "") -> str:
    """The command, with ``options`` such as the store appended: ``perdure runs retry order-42``."""
    # Imported with the first advice: most commands give none, and must start fast.
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
    """Parameters as options, actions as commands.

    ``options`` are appended to every command, such as the store that the reader used. ``names`` are
    the parameters of the command that was called, as it spells them. Parameters of neither kind are
    set in the code of the application, so they read as in Python.
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
    """A finding as JSON; its actions have their commands, so the message is the sentence alone."""
    texts = {"message": message(finding, renderer), "remedy": remedy(finding, renderer)}
    return {**as_data(finding, renderer), **texts}


def one_line(text: str) -> str:
    """Messages of database drivers and of tasks may have several lines."""
    return visible(" ".join(text.split()))
