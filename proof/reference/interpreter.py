"""A second interpreter of flows: recursive and naive, to compare the engine with.

It goes back from the ends of a graph to its beginnings, and knows nothing of events, orders,
counts or states.
"""

from __future__ import annotations

from typing import Any

from perdure.model.graph import (
    ApprovalNode,
    DelayNode,
    Edge,
    FlowNode,
    FlowRef,
    Graph,
    Input,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
    inputs_of,
)
from perdure.model.value import Value
from proof.reference.drawing import NEVER_SENT, Outcome, World


class End(Value):
    """How a node ends."""

    status: str
    value: Any = None
    port: str = ""


class Result(Value):
    """How a run ends."""

    status: str
    value: Any
    nodes: dict[str, str]
    outputs: dict[str, Any]


class NodeIsSkipped(Exception):
    pass


class NodeFails(Exception):
    def __init__(self, type: str, message: str) -> None:
        super().__init__(message)
        self.error = {"type": type, "message": message}


def interpret(graph: Graph, input: Any, world: World) -> Result:
    return Interpreter(graph, input, world).result()


class Interpreter:
    def __init__(self, graph: Graph, input: Any, world: World) -> None:
        self.graph = graph
        self.input = input
        self.world = world
        self.ends: dict[str, End] = {}

    def result(self) -> Result:
        ends = {node.id: self.end(node) for node in self.graph.definition.nodes}
        nodes = {id: end.status for id, end in ends.items()}
        outputs = {id: end.value for id, end in ends.items() if end.status == "completed"}
        if "failed" in nodes.values():
            return Result(status="failed", value=None, nodes=nodes, outputs=outputs)
        last = {
            id: value
            for id, value in outputs.items()
            if not any(
                edge.source == id and edge.port == ends[id].port
                for edge in self.graph.definition.edges
            )
        }
        value = last if self.graph.definition.gathers else next(iter(last.values()), None)
        return Result(status="completed", value=value, nodes=nodes, outputs=outputs)

    def end(self, node: Node) -> End:
        if node.id not in self.ends:
            self.ends[node.id] = self._end(node)
        return self.ends[node.id]

    def _end(self, node: Node) -> End:
        edges = [edge for edge in self.graph.definition.edges if edge.target == node.id]
        sources = [self.end(self.graph.nodes[edge.source]) for edge in edges]
        if any(source.status in ("failed", "blocked") for source in sources):
            return End(status="blocked")
        taken = [
            (edge, source.value)
            for edge, source in zip(edges, sources, strict=True)
            if source.status == "completed" and source.port == edge.port
        ]
        if edges and not taken:
            return End(status="skipped")
        try:
            value, port = self._execute(node, self._input(node, taken))
        except NodeFails as failure:
            on_error = getattr(node, "on_error", "fail")
            if on_error == "fail":
                return End(status="failed")
            if on_error == "continue":
                return End(status="completed")
            return End(status="completed", value=failure.error, port=on_error)
        except NodeIsSkipped:
            return End(status="skipped")
        return End(status="completed", value=value, port=port)

    def _input(self, node: Node, taken: list[tuple[Edge, Any]]) -> Any:
        if inputs_of(node):
            return {each.name: self._named(node, each) for each in inputs_of(node)}
        if isinstance(node, TaskNode) and node.gathers:
            return {edge.name or edge.source: value for edge, value in taken}
        return taken[0][1] if taken else self.input

    def _named(self, node: Node, input: Input) -> Any:
        if not input.source:
            return self.input
        source = self.end(self.graph.nodes[input.source])
        if source.status == "completed":
            return source.value
        assert isinstance(node, TaskNode)
        if node.on_missing == "skip":
            raise NodeIsSkipped
        if node.on_missing == "default":
            return None
        message = f"node {input.source!r} has no output in this run"
        raise NodeFails(
            "perdure.errors.InvalidInput",
            f"node {node.id!r}: its input {input.name!r} is missing: {message}",
        )

    def _execute(self, node: Node, input: Any) -> tuple[Any, str]:
        match node:
            case TaskNode() | FlowNode():
                outcome = self._call(node, node.id, input)
                if outcome.is_skipped:
                    raise NodeIsSkipped
                return outcome.value, outcome.port
            case ApprovalNode():
                return self._approve(node, input)
            case RouteNode():
                key = self._call(node, node.id, input).value
                if key in node.ports:
                    return input, key
                if "default" in node.ports:
                    return input, "default"
                known = ", ".join(map(repr, node.ports))
                raise NodeFails(
                    "perdure.errors.InvalidInput",
                    f"route {node.id!r} has no branch for {key!r} and no default; it has {known}",
                )
            case MapNode():
                return self._map(node, input), ""
            case LoopNode():
                return self._loop(node, input)
            case DelayNode():
                return input, ""
            case SignalNode():
                if node.signal != NEVER_SENT:
                    return self.world.payload(node.signal), ""
                if node.on_timeout == "fail":
                    raise NodeFails("", "")  # a wait has no port for errors
                return None, "" if node.on_timeout == "continue" else node.on_timeout

    def _approve(self, node: ApprovalNode, input: Any) -> tuple[Any, str]:
        said, port, data = self.world.decision(self.graph, node), node.on_timeout, input
        decision = said or None
        if not said and node.default_answer is not None:
            decision, data = node.default_answer.decision, node.default_answer.data
        if decision is not None:
            port = {"approve": "continue", "reject": node.on_reject, "x": "x"}[decision]
        if port == "fail":
            raise NodeFails("", "")  # it has no port for errors
        answers = [{"by": "ann", "decision": said, "note": None, "data": None}] if said else []
        output = {
            "decision": decision,
            "data": data,
            "by": [each["by"] for each in answers],
            "answers": answers,
            "timed_out": not said,
        }
        return output, "" if port == "continue" else port

    def _map(self, node: MapNode, input: Any) -> list[Any]:
        place, bad = f"map {node.id!r}", "perdure.errors.InvalidInput"
        if node.over is not None:
            if not isinstance(input, dict):
                raise NodeFails(bad, f"{place}: its input must be an object with the key 'lines'")
            if node.over not in input:
                known = ", ".join(map(repr, input)) or "none at all"
                raise NodeFails(bad, f"{place}: its input has no key 'lines'; it has {known}")
            input = input[node.over]
        if not isinstance(input, list):
            what = "its input" if node.over is None else "'lines' of its input"
            raise NodeFails(bad, f"{place}: {what} must be a list")
        return [self._item(node, number, item) for number, item in enumerate(input)]

    def _item(self, node: MapNode, number: int, item: Any) -> Any:
        try:
            return self._call(node, f"{node.id}[{number}]", item).value
        except NodeFails:
            if node.on_error == "continue":
                return None
            raise

    def _loop(self, node: LoopNode, value: Any) -> tuple[Any, str]:
        for iteration in range(1, node.iterations_max + 1):
            outcome = self._call(node, f"{node.id}#{iteration}", value)
            value, is_done = outcome.value, outcome.is_done
            if is_done is None:
                check = self.world.outcome(self.graph, f"check:{node.id}#{iteration}", node, value)
                is_done = _checked(check).value
            if is_done:
                return value, ""
        if node.on_max == "fail":
            raise NodeFails(
                "perdure.errors.LoopExhausted",
                f"loop {node.id!r} is not done after {node.iterations_max} iterations",
            )
        return value, "" if node.on_max == "continue" else node.on_max

    def _call(self, node: Node, key: str, input: Any) -> Outcome:
        body = getattr(node, "body", None)
        if not isinstance(body, FlowRef):
            return _checked(self.world.outcome(self.graph, key, node, input))
        result = interpret(self.world.graphs[body.name], input, self.world)
        if result.status == "failed":
            raise NodeFails("OSError", f"child of {node.id} broke")
        return Outcome(value=result.value)


def _checked(outcome: Outcome) -> Outcome:
    if outcome.error:
        raise NodeFails("OSError", outcome.error)
    return outcome
