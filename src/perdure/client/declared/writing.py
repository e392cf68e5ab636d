"""From a flow that was built to the data that makes it again: short, and with nothing left out."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any

from perdure.client.declared.written_calls import WrittenCalls, duration_text
from perdure.client.declared.written_edges import WrittenEdges
from perdure.model.flow import BuiltFlow
from perdure.model.graph import (
    APPROVE,
    FAIL,
    REJECT,
    ApprovalNode,
    Check,
    DelayNode,
    FlowNode,
    FlowRef,
    Input,
    LoopNode,
    MapNode,
    Node,
    RouteNode,
    SignalNode,
    TaskNode,
)
from perdure.rules.input_check import with_run_input

ITERATIONS_DEFAULT = 50

_Data = dict[str, Any]


def flow_data(flow: BuiltFlow) -> _Data:
    """The flow as ``Flow.from_dict`` takes it: its version comes out the same."""
    definition = flow.graph.definition
    writing = _Writing(flow)
    written: _Data = {"flow": flow.name}
    if definition.on_failure != "stop":
        written["on_failure"] = definition.on_failure
    if definition.cooldown_ms:
        written["cooldown"] = duration_text(timedelta(milliseconds=definition.cooldown_ms))
    if writing.edges.gathers_unasked != definition.gathers:
        written["gathers"] = definition.gathers
    written["nodes"] = [writing.node(node) for node in definition.nodes]
    return deepcopy(written)  # what a caller does with it must not reach the flow


class _Writing:
    def __init__(self, flow: BuiltFlow) -> None:
        self._flow = flow
        self._calls = WrittenCalls(flow)
        self.edges = WrittenEdges(
            flow.graph, {n.id for n in flow.graph.nodes.values() if _inputs(n)}
        )

    def node(self, node: Node) -> _Data:
        kind = self._kind(node)
        config = self._config(node)
        written: _Data = {"id": node.id, **kind}
        if config:
            written["config"] = config
        elif isinstance(node, TaskNode) and node.config is not None:
            written["config"] = {}
        inputs = _inputs(node)
        if inputs:
            written["inputs"] = {each.name: _source(each) for each in inputs}
        written.update(self.edges.of(node))
        written.update(self._calls.settings_of(node))
        written.update(self._policies(node))
        written.update(self.edges.ports_of(node))
        return written

    def _kind(self, node: Node) -> _Data:
        match node:
            case TaskNode(kind=""):
                return {"task": node.call.task}
            case TaskNode():
                return {"kind": node.kind}
            case RouteNode():
                return {"kind": "route"}
            case MapNode():
                return {"kind": "map"}
            case LoopNode():
                return {"kind": "loop"}
            case DelayNode():
                return {"kind": "delay"}
            case SignalNode():
                return {"kind": "signal"}
            case ApprovalNode():
                return {"kind": "approval"}
            case FlowNode():
                return {"kind": "flow"}

    def _config(self, node: Node) -> _Data | None:
        match node:
            case TaskNode():
                config: _Data | None = node.config
                return config
            case RouteNode():
                return {"key": node.key} if node.key else {"task": node.call.task}
            case MapNode():
                given = {"over": node.over, "concurrency": node.concurrency}
                return {**self._body(node), **_but(given, None)}
            case LoopNode():
                until = node.until if node.until is not None else {"task": node.check.task}
                most = {"max_iterations": node.iterations_max}
                return {
                    **self._body(node),
                    "until": until,
                    **_but(most, ITERATIONS_DEFAULT),
                    **_but({"on_max": node.on_max}, FAIL),
                }
            case DelayNode():
                return {"until": node.until} if node.until else {"for": _ms(node.delay_ms)}
            case SignalNode():
                return self._signal(node)
            case ApprovalNode():
                return self._approval(node)
            case FlowNode():
                return self._body(node)

    def _body(self, node: MapNode | LoopNode | FlowNode) -> _Data:
        if not isinstance(node.body, FlowRef):
            return {"task": node.body.task}
        named = [each for each in self._flow.graph.children if each.name == node.body.name]
        return {"flow": node.body.name if len(named) == 1 else node.body.text}

    def _signal(self, node: SignalNode) -> _Data:
        written: _Data = {} if node.signal == node.id else {"name": node.signal}
        if node.timeout_ms is not None:
            written["timeout"] = _ms(node.timeout_ms)
        written.update(_but({"on_timeout": node.on_timeout}, FAIL))
        written.update(_but({"where": node.where}, None))
        return written

    def _approval(self, node: ApprovalNode) -> _Data:
        said = self.edges.said_by_next(node)
        written: _Data = {
            "title": node.title,
            **_but({"message": node.message}, ""),
            **_but({"form": node.form, "show": _listed(node.shows), "data": node.data}, None),
            **_but({"deciders": list(node.deciders)}, []),
            **_policy(node.quorum),
            **_but({"answers": list(node.answers)}, [APPROVE, REJECT]),
        }
        if node.timeout_ms is not None:
            written["deadline"] = _ms(node.timeout_ms)
        if node.default_answer is not None:
            answer = node.default_answer
            data = _but({"data": answer.data}, None)
            written["on_timeout"] = {"decision": answer.decision, **data}
        elif node.on_timeout != said.get("on_timeout", FAIL):
            written["on_timeout"] = node.on_timeout
        if node.on_reject != said.get("on_reject", FAIL):
            written["on_reject"] = node.on_reject
        written.update(_but({"reminders": [_ms(each) for each in node.reminders_ms]}, []))
        further = [{"after": _ms(e.after_ms), "to": list(e.deciders)} for e in node.escalations]
        written.update(_but({"escalate": further}, []))
        if node.notify is not None:
            written["notify"] = node.notify.task
        return written

    def _policies(self, node: Node) -> _Data:
        written = _but({"on_error": getattr(node, "on_error", FAIL)}, FAIL)
        written.update(_but({"on_missing": getattr(node, "on_missing", "error")}, "error"))
        if isinstance(node, TaskNode):
            written.update(_but({"on_timeout": node.on_timeout}, FAIL))
            schemas = {"input_schema": node.input_schema, "output_schema": node.output_schema}
            written.update(_but({**schemas, "check": _check(node.check)}, None))
        undo = getattr(node, "undo", None)
        if undo is not None:
            written["undo"] = undo.task
        return written


def _inputs(node: Node) -> tuple[Input, ...]:
    """The inputs that were told; the run's input is added where a template names it."""
    if isinstance(node, RouteNode):
        return ()
    told = tuple(each for each in node.inputs if each != Input(name="input"))
    is_added = with_run_input(_with(node, told)) == node
    return told if is_added else node.inputs


def _with(node: Any, inputs: tuple[Input, ...]) -> Any:
    from msgspec.structs import replace

    return replace(node, inputs=inputs)


def _source(input: Input) -> Any:
    if input.secret:
        return f"secret.{input.secret}"
    source = ".".join([f"{input.source}.output" if input.source else "input", *input.path])
    return source if input.default is None else {"from": source, "default": input.default}


def _check(check: Check | None) -> _Data | None:
    if check is None:
        return None
    given = _but({"schema": check.schema, "condition": check.condition}, None)
    return {**given, **_but({"advisory": check.is_advisory}, False)}


def _policy(quorum: int) -> _Data:
    if quorum == 1:
        return {}
    return {"policy": {"at_least": quorum} if quorum else "all"}


def _listed(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def _but(given: _Data, default: Any) -> _Data:
    """What is not as it would be anyway."""
    return {key: value for key, value in given.items() if value != default}


def _ms(milliseconds: int) -> str:
    return duration_text(timedelta(milliseconds=milliseconds))
