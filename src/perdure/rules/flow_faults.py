"""What is wrong with a flow, as text and as data: the loader of YAML still reads the texts."""

from __future__ import annotations

from perdure.diagnostics import Fault, declare
from perdure.errors import FaultText, InvalidInput

INVALID_NODE = declare("flow.invalid_node", "node {node!r}: {message}")
INVALID_STRUCTURE = declare("flow.invalid_structure", "{message}")
GENERIC = (INVALID_NODE.name, INVALID_STRUCTURE.name, InvalidInput.CODE.name)
"""Codes of what is told in words alone."""


def at(message: str, *where: str | int) -> FaultText:
    """A problem at this place within a node."""
    return FaultText(message, INVALID_NODE.fault(where, message=message))


def whole_fault(error: InvalidInput) -> Fault:
    """The error as one fault, also where it has several."""
    if len(error.faults) == 1:
        return error.faults[0]
    return Fault(code=error.code, args=error.diagnostic.args)


def flow_fault(label: str, problem: str | InvalidInput, node: str = "") -> FaultText:
    """A problem of what the label names: a node by its id, or else of the flow."""
    text = f"{label}: {problem}"
    fault = problem.fault if isinstance(problem, FaultText) else None
    if isinstance(problem, InvalidInput):
        fault = whole_fault(problem)
    where = fault.where if fault else ()
    if fault is None or fault.code in GENERIC:
        message = str(problem)
        if not node:
            return FaultText(text, INVALID_STRUCTURE.fault(where, message=text))
        fault = INVALID_NODE.fault(where, node=node, message=message)
    return FaultText(text, fault.under("nodes", node) if node else fault)
