"""The ``switch`` node type: choose a port by a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.graph import DEFAULT_PORT, ORDINARY
from perdure.model.text import json_preview, type_name
from perdure.nodes.config import TEMPLATE_IN_PORT, has_template
from perdure.tasks.context import Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, Fail, complete, failed

_LISTED_MAX = 20
"""Cases listed in a message."""

NOT_A_CASE = declare("switch.invalid_case", "{found} cannot be a case, only a string or a number")


class Switch(NodeType):
    """Continues on the port that the value names, or on ``default``."""

    name = "switch"

    class Config(NodeConfig):
        value: Any
        cases: list[str | int | float | bool | None] | None = None
        """The values with ports; ``default`` stands for all others.

        By default, they are the ports in ``next``.
        """

    def execute(self, config: Config, ctx: Context) -> Complete | Fail:
        if config.cases is None:
            return complete(config.value)
        ports = {port_text(case) for case in config.cases}
        try:
            port = port_text(config.value)
        except InvalidInput:
            port = DEFAULT_PORT
        if port in ports and port != DEFAULT_PORT:
            return complete(config.value, port)
        if DEFAULT_PORT in ports:
            return complete(config.value, ORDINARY)
        return failed(
            f"the value is {json_preview(config.value)}, but the cases are {_listed(ports)}"
        )

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        cases = config.get("cases")
        if not isinstance(cases, list | tuple):
            return ()
        ports = [port_text(case) for case in cases if not _faults(case)]
        return tuple(dict.fromkeys(port for port in ports if port != DEFAULT_PORT))

    def followed_by(self, config: Any, ports: Sequence[str]) -> Any:
        """The cases default to the ports in ``next``."""
        if not ports or not isinstance(config, Mapping) or config.get("cases") is not None:
            return config
        return {**config, "cases": list(ports)}

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        cases = config.get("cases")
        if not isinstance(cases, list | tuple):
            return []
        return [
            replace(fault, where=("cases", at))
            for at, case in enumerate(cases)
            for fault in _faults(case)
        ]


def port_text(value: Any) -> str:
    """The port for a value, as written in ``next``: 1, 1.0 and "1" are the same."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return str(int(value))
        case int() | float():
            return str(value)
        case str():
            return check.name(value, "case")
        case _:
            raise InvalidInput(NOT_A_CASE.fault(found=type_name(value)))


def _faults(case: Any) -> tuple[Fault, ...]:
    if has_template(case):
        return (TEMPLATE_IN_PORT.fault(),)
    try:
        port_text(case)
    except InvalidInput as error:
        return error.faults
    return ()


def _listed(ports: set[str]) -> str:
    if not ports:
        return "none"
    some = ", ".join(map(repr, sorted(ports)[:_LISTED_MAX]))
    return some if len(ports) <= _LISTED_MAX else f"{some} and {len(ports) - _LISTED_MAX} others"
