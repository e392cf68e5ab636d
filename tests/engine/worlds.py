"""Worlds: what every job, child and wait of a run comes to, whenever and in which order it does."""

from __future__ import annotations

import random
import zlib
from typing import Any

from perdure.model.graph import (
    FAIL,
    ApprovalNode,
    Graph,
    LoopNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.model.value import Value
from tests.engine.played import encoded

NEVER_SENT = "never"
"""A signal that does not come: whoever waits for it waits for its timeout."""


class Outcome(Value):
    """A value, or what went wrong."""

    value: Any = None
    error: str = ""
    is_done: bool | None = None
    port: str = ""
    is_skipped: bool = False


class World:
    """Says the same of the same key with the same input, always."""

    def __init__(self, seed: int, *, failures: int, graphs: dict[str, Graph]) -> None:
        self.seed = seed
        self.failures = failures
        """Of a hundred keys, how many fail."""
        self.graphs = graphs
        """The flows that children are runs of, by name."""
        self.is_mended = False
        """Keys that would fail a run no longer do; a child that failed does so again."""

    def outcome(self, graph: Graph, key: str, node: Node, input: Any) -> Outcome:
        chance = self._chance(graph.name, key, input)
        is_child = graph.name in self.graphs
        is_mended = self.is_mended and not is_child and getattr(node, "on_error", FAIL) == FAIL
        if chance.randrange(100) < self.failures and not is_mended:
            return Outcome(error=f"{node.id} broke")
        if isinstance(node, RouteNode):
            return Outcome(value=chance.choice([*node.ports, "other"]))
        if isinstance(node, LoopNode):
            if key.startswith("check:"):
                return Outcome(value=chance.random() < 0.5)
            is_asked_along = self._chance(graph.name, node.id).random() < 0.5
            is_done = chance.random() < 0.5
            return Outcome(value=self._value(chance), is_done=is_done if is_asked_along else None)
        if isinstance(node, TaskNode) and node.ports and chance.random() < 0.1:
            return Outcome(is_skipped=True)
        port = chance.choice(["", *node.ports]) if isinstance(node, TaskNode) else ""
        return Outcome(value=self._value(chance), port=port)

    def decision(self, graph: Graph, node: ApprovalNode) -> str:
        """What people say; nothing means that they do not."""
        return self._chance(graph.name, "decision", node.id).choice(["approve", "reject", "", "x"])

    def payload(self, signal: str) -> Any:
        return self._value(self._chance("signal", signal))

    def _value(self, chance: random.Random) -> Any:
        numbers = [chance.randrange(100) for _ in range(chance.randrange(4))]
        return chance.choice([chance.randrange(100), numbers, numbers, {"lines": numbers}])

    def _chance(self, *about: Any) -> random.Random:
        return random.Random(zlib.crc32(encoded([self.seed, *about])))


def signals_to_send(graph: Graph) -> list[str]:
    """One for each node that waits and is not to wait in vain."""
    nodes = [node for node in graph.nodes.values() if isinstance(node, SignalNode)]
    return [node.signal for node in nodes if node.signal != NEVER_SENT]
