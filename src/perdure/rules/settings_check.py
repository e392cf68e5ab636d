"""What is wrong with the settings of one node: its schemas, conditions, and the ports it offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.diagnostics import render
from perdure.errors import FaultText, fault_text
from perdure.model.graph import (
    DEFAULT_PORT,
    ORDINARY,
    ApprovalNode,
    LoopNode,
    Node,
    SignalNode,
    TaskNode,
)
from perdure.model.path import path_text
from perdure.rules.condition import condition_faults
from perdure.rules.form import check_schema

RESERVED_PORTS = (ORDINARY, DEFAULT_PORT)
"""What the ordinary port is called where ports are named."""


def setting_faults(node: Node) -> Iterator[str]:
    match node:
        case TaskNode():
            yield from _schema_faults("input_schema", node.input_schema)
            yield from _schema_faults("output_schema", node.output_schema)
            if node.check is not None:
                yield from _schema_faults("schema of check", node.check.schema)
                yield from _condition_faults("condition of check", node.check.condition)
            yield from name_faults("port", node.ports)
        case ApprovalNode():
            yield from _schema_faults("form", node.form)
            yield from name_faults("answer", node.answers)
        case SignalNode():
            yield from _condition_faults("where", node.where, has_templates=True)
        case LoopNode() if not isinstance(node.until, str):
            yield from _condition_faults("until", node.until)


def name_faults(what: str, names: Sequence[str]) -> Iterator[str]:
    """Of names that become ports."""
    for name, count in Counter(names).items():
        if count > 1:
            yield f"the {what} {name!r} is there {count} times"
        if name in RESERVED_PORTS:
            yield f"no {what} can be called {name!r}: that is the ordinary port; choose another"


def _schema_faults(option: str, schema: Any) -> Iterator[str]:
    if schema is not None:
        for fault in check_schema(schema):
            yield FaultText(f"{option}: {fault_text(fault)}", fault.under(*_place(option)))


def _condition_faults(option: str, data: Any, *, has_templates: bool = False) -> Iterator[str]:
    if data is None:
        return
    for fault in condition_faults(data, has_templates=has_templates):
        place = f" at {path_text(fault.where)}" if fault.where else ""
        yield FaultText(f"{option}{place}: {render(fault)}", fault.under(*_place(option)))


def _place(option: str) -> list[str]:
    """``schema of check`` is at ``check.schema``."""
    return option.split(" of ")[::-1]
