"""Graphs of every shape, and worlds to run them in, for Hypothesis to draw."""

from __future__ import annotations

import random
import zlib
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.model.graph import (
    FAIL,
    ApprovalNode,
    DefaultAnswer,
    Definition,
    Edge,
    FlowRef,
    Graph,
    Input,
    LoopNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
    ports_of,
)
from perdure.model.value import Value
from tests.rules.graphs import approval, call, child, delay, loop, mapped, route, signal, task
from tests.rules.played import encoded

NESTED = FlowRef(name="nested", version="n1")
ON_ERROR = st.sampled_from(["fail", "fail", "continue", "oops"])

NODE_TYPES = [
    "task",
    "task",
    "ports",
    "join",
    "route",
    "map",
    "loop",
    "delay",
    "signal",
    "late",
    "approval",
    "child",
]


@st.composite
def worlds(draw: st.DrawFn, *, failures: int = 15) -> World:
    """With a flow for children, which has children without children."""
    nested = draw(graphs(name=NESTED.name, nodes_max=4, is_nested=True))
    share = draw(st.sampled_from([0, failures]))
    return World(draw(st.integers(0, 2**31)), failures=share, graphs={NESTED.name: nested})


@st.composite
def graphs(
    draw: st.DrawFn,
    *,
    name: str = "flow",
    nodes_max: int = 9,
    is_nested: bool = False,
    has_undo: bool = False,
) -> Graph:
    ids = [f"n{number}" for number in range(draw(st.integers(1, nodes_max)))]
    nodes = [_node(draw, id, is_nested, has_undo) for id in ids]
    edges = [edge for number in range(1, len(nodes)) for edge in _edges(draw, nodes, number)]
    nodes = [_with_inputs(draw, node, edges) for node in nodes]
    return Graph(
        Definition(
            name=name,
            nodes=tuple(draw(st.permutations(nodes))),
            edges=tuple(draw(st.permutations(edges))),
            gathers=draw(st.booleans()),
            on_failure=draw(st.sampled_from(["stop", "finish"])),
        )
    )


def _node(draw: st.DrawFn, id: str, is_nested: bool, has_undo: bool) -> Node:
    options: dict[str, Any] = {"on_error": draw(ON_ERROR)}
    undo: dict[str, Any] = {"undo": call("undo")} if has_undo and draw(st.booleans()) else {}
    body = NESTED if not is_nested and draw(st.booleans()) else call(id)
    match draw(st.sampled_from(NODE_TYPES)):
        case "join":
            return task(id, gathers=True, **options)
        case "route":
            ports = draw(st.sampled_from([("x",), ("x", "y"), ("x", "default")]))
            return route(id, *ports, on_error=draw(st.sampled_from(["fail", "oops"])))
        case "map":
            over = draw(st.sampled_from([None, None, "lines"]))
            window = draw(st.sampled_from([None, 1, 2]))
            return mapped(id, body, over=over, concurrency=window, **options, **undo)
        case "loop":
            on_max = draw(st.sampled_from(["fail", "continue", "enough"]))
            return loop(id, body, on_max=on_max, **options, **undo)
        case "delay":
            return delay(id)
        case "signal":
            return signal(id, draw(st.sampled_from(["s", "t"])))
        case "late":
            on_timeout = draw(st.sampled_from(["fail", "continue", "late"]))
            return signal(id, NEVER_SENT, timeout_ms=1, on_timeout=on_timeout)
        case "ports":
            return task(id, ports=("p", "q"), undo=bool(undo), **options)
        case "approval":
            return _approval(draw, id)
        case "child" if not is_nested:
            return child(id, NESTED, **options, **undo)
        case _:
            return task(id, undo=bool(undo), **options)


def _approval(draw: st.DrawFn, id: str) -> Node:
    return approval(
        id,
        answers=("approve", "reject", "x"),
        on_reject=draw(st.sampled_from(["fail", "continue", "no"])),
        timeout_ms=60_000,
        on_timeout=draw(st.sampled_from(["fail", "continue", "late"])),
        default_answer=draw(st.sampled_from([None, DefaultAnswer(decision="reject", data=1)])),
        reminders_ms=draw(st.sampled_from([(), (10_000, 20_000)])),
        notify=draw(st.sampled_from([None, call("tell")])),
    )


def _with_inputs(draw: st.DrawFn, node: Node, edges: list[Edge]) -> Node:
    """Some nodes take outputs of any that lead to them, instead of what their edges hand on."""
    before = _before(node.id, edges)
    if not isinstance(node, TaskNode) or node.gathers or not draw(st.booleans()):
        return node
    sources = draw(st.lists(st.sampled_from(["", *sorted(before)]), unique=True, max_size=3))
    inputs = tuple(Input(name=f"i{n}", source=source) for n, source in enumerate(sources))
    on_missing = draw(st.sampled_from(["error", "default", "skip"]))
    return replace(node, inputs=inputs, on_missing=on_missing)


def _before(id: str, edges: list[Edge]) -> set[str]:
    found: set[str] = set()
    to_visit = [id]
    while to_visit:
        target = to_visit.pop()
        for edge in edges:
            if edge.target == target and edge.source not in found:
                found.add(edge.source)
                to_visit.append(edge.source)
    return found


def _edges(draw: st.DrawFn, nodes: list[Node], number: int) -> list[Edge]:
    """Edges to a node from those before it, by some of their ports."""
    ways = [(node.id, port) for node in nodes[:number] for port in ports_of(node)]
    taken = draw(st.lists(st.sampled_from(ways), unique=True, max_size=3))
    return [Edge(source=source, target=nodes[number].id, port=port) for source, port in taken]


NEVER_SENT = "never"
"""A signal that is never sent: waits for it time out."""


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
