"""How the Python client and the command line spell the operations that diagnostics suggest.

A diagnostic names an operation (``runs.retry``) and its arguments; this table knows the call and
the command for it. It goes away once operations are declared: both are generated from them then.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.diagnostics import Action, safe_repr


@dataclass(frozen=True, slots=True)
class Spelling:
    call: str
    command: str
    positional: tuple[str, ...] = ("id",)
    """Parameters that stand without their name, in this order; all others are named."""
    placeholders: Mapping[str, str] = field(default_factory=dict)
    """What the command line shows for an argument that the user must supply."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Options of the command that are not called like the parameter."""


SPELLINGS: Mapping[str, Spelling] = {
    # The command asks for a decision that is not given; ``--by`` is the login name.
    "approvals.decide": Spelling(
        "client.decide",
        "decide",
        ("id", "decision"),
        {"by": "", "decision": ""},
        {"roles": "--role"},
    ),
    "approvals.get": Spelling("client.approval", "inbox"),
    "approvals.list": Spelling("client.inbox", "inbox", ()),
    "flows.unserved": Spelling("client.stranded", "check", ("module",)),
    "jobs.cancel": Spelling("client.abort", "jobs abort"),
    "jobs.enable": Spelling("client.enable", "jobs enable"),
    "jobs.explain": Spelling("client.explain", "explain"),
    "jobs.get": Spelling("client.job", "jobs show"),
    "jobs.list": Spelling("client.jobs", "jobs list", ()),
    "jobs.resume": Spelling("client.resume", "jobs resume"),
    "jobs.retry": Spelling("client.retry", "jobs retry"),
    "queues.resume": Spelling("client.resume_queue", "queues resume", ("name",)),
    "runs.cancel": Spelling("client.cancel", "runs cancel"),
    "runs.explain": Spelling("client.explain", "explain"),
    "runs.fork": Spelling("client.fork", "runs fork", ("id",), {"after": "NODE"}),
    "runs.get": Spelling("client.run", "runs show"),
    "runs.migrate": Spelling("client.migrate", "runs migrate", ("id",), {"to": "MODULE:FLOW"}),
    "runs.report": Spelling("client.report", "report", ("id", "node"), {"result": "null"}),
    "runs.resume": Spelling("client.unpause", "runs unpause"),
    "runs.retry": Spelling("client.retry", "runs retry"),
    "runs.signal": Spelling("client.signal", "signal", ("id", "name", "payload"), {"payload": ""}),
    "runs.submit": Spelling("client.submit", "submit", ("flow", "input")),
    "schedules.delete": Spelling("client.delete_schedule", "schedules delete", ("name",)),
    "schedules.list": Spelling("client.schedules", "schedules list", ()),
    "schedules.resume": Spelling("client.resume_schedule", "schedules resume", ("name",)),
    "worker.run": Spelling("Worker", "worker", ("module",), {"module": "MODULE"}),
}


def python_call(action: Action) -> str:
    """The call: ``client.signal('order-42', 'paid', ...)``."""
    spelling = _spelling(action)
    has_namespace = spelling.call.startswith("client.")  # the client's, which no call repeats
    given = [
        _python(value) if name in spelling.positional else f"{name}={_python(value)}"
        for name, value in _ordered(action, spelling)
        if not (has_namespace and name == "namespace")
    ]
    return f"{spelling.call}({', '.join(given)})"


def cli_command(action: Action, options: str = "") -> str:
    """The command, with ``options`` such as the store appended: ``perdure runs retry order-42``."""
    spelling = _spelling(action)
    positionals: list[str] = []
    named: list[str] = []
    for name, value in _ordered(action, spelling):
        if value is ...:
            shown = [spelling.placeholders.get(name, name.upper().replace("_", "-"))]
        elif isinstance(value, list | tuple) and spelling.flags.get(name) is None:
            shown = [shlex.quote(",".join(map(str, value)))]
        else:
            shown = [
                shlex.quote(str(each))
                for each in (value if isinstance(value, list | tuple) else [value])
            ]
        for each in filter(None, shown):
            if name in spelling.positional:
                positionals.append(each)
            else:
                named += [spelling.flags.get(name, f"--{name.replace('_', '-')}"), each]
    command = ["perdure", spelling.command]
    if any(each.lstrip("'").startswith("-") for each in positionals):  # not an option, but an id
        return " ".join([*command, *named]) + " ".join([options, "--", *positionals])
    return " ".join([*command, *positionals, *named]) + options


def _spelling(action: Action) -> Spelling:
    """Of an operation that this version does not know, its name: a newer server suggested it."""
    name = action.operation
    return SPELLINGS.get(name) or Spelling(f"client.{name}", name.replace(".", " "))


def _ordered(action: Action, spelling: Spelling) -> Iterator[tuple[str, Any]]:
    """Arguments, positional ones first; what the user must supply is an ellipsis."""
    known = {**action.args, **dict.fromkeys(action.asks, ...)}
    yield from ((name, known.pop(name)) for name in spelling.positional if name in known)
    yield from known.items()


def _python(value: Any) -> str:
    return "..." if value is ... else safe_repr(value)
