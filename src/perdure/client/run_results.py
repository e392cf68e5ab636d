"""What a waiter gets of an ended run: its result as its last task declares it, or a typed error."""

from __future__ import annotations

from typing import Any

from perdure.client.results import decoded
from perdure.client.run_records import RunRecord, run_record
from perdure.errors import (
    EventLogCorrupt,
    RunCancelled,
    RunEndedBadly,
    RunFailed,
    RunSkipped,
)
from perdure.flows.built import BuiltFlow
from perdure.model.event import RunCompleted, decode_event
from perdure.model.graph import Call, FlowNode, FlowRef, LoopNode, MapNode, TaskNode
from perdure.model.payload import Codec, Converter
from perdure.model.run import Run, RunStatus
from perdure.store.contract import EventsAfter, Store


def run_ended_badly(run: Run) -> RunEndedBadly | None:
    """The error for a run that has ended without a result; None if it may still have one."""
    record = run_record(run)
    match run.status:
        case RunStatus.FAILED:
            return RunFailed(
                run_id=run.id,
                node=record.failed_node or "",
                reason=_why(record),
                failure=record.failure,
            )
        case RunStatus.CANCELLED:
            return RunCancelled(run_id=run.id, by=record.by, reason=record.reason or "")
        case RunStatus.SKIPPED:
            return RunSkipped(run_id=run.id, reason=record.reason or "")
        case _:
            return None


async def read_result(store: Store, run: Run, codec: Codec) -> Any:
    """The result of a completed run, as plain values."""
    last = EventsAfter(namespace=run.namespace, id=run.id, number=run.number - 1)
    [loaded] = await store.runs.load([last])
    if loaded is None or not loaded.events:
        raise EventLogCorrupt(run_id=run.id, reason=f"event {run.number} is missing")
    stored = loaded.events[0]
    event = decode_event(run.id, stored.number, stored.data)
    if not isinstance(event, RunCompleted):
        raise EventLogCorrupt(
            run_id=run.id, reason=f"it is completed, but event {stored.number} is not its end"
        )
    if not event.ref:
        return None if stored.value is None else decoded(stored.value, codec)
    values = await store.runs.event_values(run.namespace, run.id, [event.ref])
    if event.ref not in values:
        raise EventLogCorrupt(run_id=run.id, reason=f"the value of event {event.ref} is missing")
    return decoded(values[event.ref], codec)


def typed_result(value: Any, flow: BuiltFlow | None) -> Any:
    """A result as the last task's return annotation says, or as it is where that does not fit."""
    convert = None if flow is None else _converter(flow)
    if convert is None:
        return value
    try:
        return convert(value)
    except (ValueError, TypeError):
        return value


def _converter(flow: BuiltFlow) -> Converter | None:
    """How to read a flow's result; None if it has several ends, or an end without a type."""
    graph = flow.graph
    if len(graph.ends) != 1 or graph.definition.gathers:
        return None
    node = graph.nodes[graph.ends[0]]
    match node:
        case TaskNode():
            return _converter_of(flow, node.call)
        case LoopNode() | FlowNode():
            return _converter_of(flow, node.body)
        case MapNode():
            each = _converter_of(flow, node.body)
            return None if each is None else lambda items: [each(item) for item in items]
        case _:
            return None


def _converter_of(flow: BuiltFlow, body: Call | FlowRef) -> Converter | None:
    if isinstance(body, FlowRef):
        return _converter(flow.flows[body.text])
    return flow.tasks[body.task].result_converter


def _why(record: RunRecord) -> str:
    failure = record.failure
    if failure is None:
        return ""
    return f"{failure.type}: {failure.message}" if failure.message else failure.type
