"""Results of finished jobs and runs: the value in its declared type, or an error."""

from __future__ import annotations

from typing import Any

from perdure.errors import (
    EventLogCorrupt,
    JobCancelled,
    JobDead,
    JobDisabled,
    JobFailed,
    JobUnsuccessful,
    RunCancelled,
    RunFailed,
    RunSkipped,
    RunUnsuccessful,
)
from perdure.flows.built import BuiltFlow
from perdure.model.event import RunCompleted, decode_event
from perdure.model.failure import Failure
from perdure.model.graph import Call, FlowNode, FlowRef, LoopNode, MapNode, TaskNode
from perdure.model.job import JobState, Status
from perdure.model.payload import Codec, Converter
from perdure.model.run import Run, RunStatus
from perdure.operations.records import decoded, run_record
from perdure.store.contract import EventsAfter, Store
from perdure.tasks.task import Task


def job_error(state: JobState) -> JobUnsuccessful | None:
    """The error of a job that ended without a result; None if it may still get one."""
    id, failure = state.id, state.failure
    why = _failure_text(failure)
    match state.status:
        case Status.FAILED:
            return JobFailed(job_id=id, reason=why, failure=failure)
        case Status.DEAD:
            return JobDead(job_id=id, reason=why, failure=failure, attempt=state.attempt)
        case Status.CANCELLED:
            return JobCancelled(job_id=id, reason=why, failure=failure)
        case Status.DISABLED:
            return JobDisabled(job_id=id)
        case _:
            return None


def job_result(output: bytes, codec: Codec, task: Task[..., Any] | None) -> Any:
    """The result in the task's declared type, or as plain values if it does not fit."""
    return _converted(decoded(output, codec), None if task is None else task.result_converter)


def run_error(run: Run) -> RunUnsuccessful | None:
    """The error of a run that ended without a result; None if it may still get one."""
    record = run_record(run)
    match run.status:
        case RunStatus.FAILED:
            return RunFailed(
                run_id=run.id,
                node=record.failed_node or "",
                reason=_failure_text(record.failure),
                failure=record.failure,
            )
        case RunStatus.CANCELLED:
            return RunCancelled(run_id=run.id, by=record.by, reason=record.reason or "")
        case RunStatus.SKIPPED:
            return RunSkipped(run_id=run.id, reason=record.reason or "")
        case _:
            return None


async def run_result(store: Store, run: Run, codec: Codec, flow: BuiltFlow | None) -> Any:
    """The result of a completed run, in the declared type of the flow's last task."""
    value = await run_output(store, run)
    plain = None if value is None else decoded(value, codec)
    return _converted(plain, None if flow is None else _converter(flow))


async def run_output(store: Store, run: Run) -> bytes | None:
    """The result of a completed run as stored."""
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
        return stored.value
    values = await store.runs.event_values(run.namespace, run.id, [event.ref])
    if event.ref not in values:
        reason = f"the value of event {event.ref} is missing"
        raise EventLogCorrupt(run_id=run.id, reason=reason)
    return values[event.ref]


def _converted(value: Any, convert: Converter | None) -> Any:
    if convert is None:
        return value
    try:
        return convert(value)
    except (ValueError, TypeError):
        return value


def _converter(flow: BuiltFlow) -> Converter | None:
    """The converter of a flow's result; None if it has several ends or an untyped one."""
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


def _failure_text(failure: Failure | None) -> str:
    if failure is None:
        return ""
    return f"{failure.type}: {failure.message}" if failure.message else failure.type
