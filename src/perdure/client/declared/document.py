"""A flow as data, with the place in its file of every key and item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from perdure.diagnostics import Fault
from perdure.errors import FaultText, InvalidFlow
from perdure.model.path import Path
from perdure.rules.flow_faults import GENERIC, INVALID_NODE, INVALID_STRUCTURE

FAULTS_MAX = 200
"""How many faults of one flow are told."""


class Mark(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


class FlowFault(FaultText):
    """One fault with its place; ``line`` and ``column`` are 0 where a flow is not from a file."""

    file: str
    line: int
    column: int
    node: str
    """The id of the node that it is about, or nothing."""
    message: str

    def __new__(
        cls,
        message: str,
        *,
        file: str = "",
        mark: Mark | None,
        node: str = "",
        fault: Fault | None = None,
    ) -> FlowFault:
        line, column = mark or (0, 0)
        where_line = f"{file}:{line}: " if file else f"line {line}: "
        place = where_line if line else f"{file}: " if file else ""
        where = f"node {node!r}: " if node else ""
        fault = fault or INVALID_STRUCTURE.fault(message=message)
        told = {"file": file, "line": line, "column": column}
        args = {**fault.args, **{name: value for name, value in told.items() if value}}
        text = f"{place}{where}{message}"
        made = cast(FlowFault, super().__new__(cls, text, replace(fault, args=args)))
        made.file, made.line, made.column = file, line, column
        made.node, made.message = node, message
        return made


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data, and where its parts are in ``file``, as far as there is one."""

    data: Any
    file: str = ""
    marks: Mapping[Path, Mark] = field(default_factory=dict)

    def mark_of(self, path: Path) -> Mark | None:
        """The place of what the path leads to, or of what is around it."""
        if not self.marks:
            return None
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(1, 1))

    def fault(
        self, path: Path, message: str, node: str = "", found: Fault | None = None
    ) -> FlowFault:
        """What is wrong at a path, of which ``found`` is what is known as data."""
        where = ("nodes", node, *path[2:]) if node else path
        if found is None or found.code in GENERIC:
            code = INVALID_NODE if node else INVALID_STRUCTURE
            args = {"node": node, "message": message} if node else {"message": message}
            found = code.fault(found.where if found else (), **args)
        if len(where) >= len(found.where):
            found = replace(found, where=where)
        return FlowFault(message, file=self.file, mark=self.mark_of(path), node=node, fault=found)


class Faults:
    """What is wrong with a flow, up to a bound: with more the search ends, and this is raised."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._found: list[FlowFault] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, *faults: FlowFault) -> None:
        self._found += faults
        if len(self._found) > FAULTS_MAX:
            raise self.error()

    def error(self) -> InvalidFlow:
        return invalid(self._flow, self._found)


def invalid(flow: str, faults: Iterable[FlowFault]) -> InvalidFlow:
    """All faults, each once: by file, and by line in it."""
    once = list(dict.fromkeys(faults))
    files = list(dict.fromkeys(fault.file for fault in once))
    once.sort(key=lambda fault: (files.index(fault.file), fault.line, fault.column))
    if len(once) > FAULTS_MAX:
        once[FAULTS_MAX:] = [FlowFault("and there may be more faults", mark=None)]
    return InvalidFlow(*once, flow=flow)
