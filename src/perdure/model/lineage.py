"""Lineage: which values each node of a run used, and where they came from."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from perdure.model.ids import RunId
from perdure.model.run import NodeStatus
from perdure.model.value import Value


class UseOrigin(StrEnum):
    INPUT = "input"
    """The run's input."""
    NODE = "node"
    """What a node put out; of a loop, one iteration of it."""
    SIGNAL = "signal"
    ANSWER = "answer"
    """Of somebody who decided on an approval."""
    REPORT = "report"
    """Of an outside party."""
    SECRET = "secret"
    """Only its name is known: its value is nowhere but on the worker that used it."""


class Use(Value):
    """One value that a node used."""

    origin: UseOrigin
    name: str = ""
    """What the node calls it; empty: it is all of its input."""
    source: str = ""
    """The node, the signal or the secret that it is from."""
    port: str = ""
    """On which that node had ended, where there are several."""
    path: tuple[str, ...] = ()
    """The part of it that was taken; empty: all."""
    number: int = 0
    """The event that it was kept with; 0: none, as of a secret."""
    by: str | None = None
    """Who signalled, answered or reported."""
    is_default: bool = False
    """It was missing, and the default of the input was taken."""
    value: Any = None
    """As plain values; of a secret nothing."""

    @property
    def text(self) -> str:
        """Where it came from, as an input is written: ``fetch.output.total``, ``input.id``."""
        match self.origin:
            case UseOrigin.INPUT:
                first = "input"
            case UseOrigin.NODE:
                first = f"{self.source}{f':{self.port}' if self.port else ''}.output"
            case UseOrigin.SECRET:
                first = f"secret.{self.source}"
            case _:
                first = f"{self.origin.value} {self.source}".rstrip()
        by = f" by {self.by}" if self.by is not None else ""
        return ".".join([first, *self.path]) + by


class PartLineage(Value):
    """One item of a map, or one iteration of a loop."""

    key: str
    uses: tuple[Use, ...] = ()
    output: int = 0
    """The event that its output was kept with; 0: it has none yet."""


class NodeLineage(Value):
    """One node that the run has reached."""

    id: str
    kind: str
    status: NodeStatus
    uses: tuple[Use, ...] = ()
    output: int = 0
    """The event that its output was kept with; 0: it has none yet."""
    parts: tuple[PartLineage, ...] = ()
    child: RunId | None = None
    """The run that it started, where it started one."""


class Lineage(Value):
    """Of one run: its nodes in the flow's order, each with what it used."""

    run: RunId
    flow: str
    version: str
    nodes: tuple[NodeLineage, ...]

    def __getitem__(self, node: str) -> NodeLineage:
        for each in self.nodes:
            if each.id == node:
                return each
        raise KeyError(node)
