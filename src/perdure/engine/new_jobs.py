"""Jobs and runs as they are inserted because of a decision."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare
from perdure.engine.graphs import Graphs
from perdure.engine.run_values import RunValues
from perdure.model.event import NewEvent, Parent, encode_event
from perdure.model.graph import Graph
from perdure.model.ids import JobId, RunId
from perdure.model.job import NewJob, NodeRef
from perdure.model.payload import Codec
from perdure.model.run import NewRun, NewWait, RunState, RunSummary, WaitKind
from perdure.rules.decide import submit
from perdure.rules.decision import Decision, Schedule, StartChild

INVALID_RUN_INPUT = declare("flow.invalid_input", "flow {flow!r} cannot start with it: {reason}")


class Place:
    """Where something new belongs, and how its values are written."""

    __slots__ = ("codec", "graphs", "namespace")

    def __init__(self, namespace: str, graphs: Graphs, codec: Codec) -> None:
        self.namespace = namespace
        self.graphs = graphs
        self.codec = codec


def node_job(
    place: Place,
    run: RunId,
    graph: Graph,
    aging: timedelta,
    schedule: Schedule,
    id: JobId | None = None,
) -> NewJob:
    """The job that executes one key; its input is the call of the task.

    ``id`` is that of the job that goes on with it, if one does.
    """
    call = schedule.call
    return NewJob(
        id=JobId(clock.new_id()) if id is None else id,
        namespace=place.namespace,
        lane=graph.lane_of(call),
        priority=call.priority,
        aging=aging,
        input=place.codec.encode(call_of(schedule)),
        input_hash=0,
        policy=None if call.policy is None else call.policy.encode(),
        node=NodeRef(run=run, key=schedule.key.text),
    )


def call_of(schedule: Schedule) -> bytes:
    """What a key's task is called with, as JSON."""
    plain = b"[[%b],{}]" % schedule.input if schedule.call.takes_input else b"[[],{}]"
    if schedule.resumption is not None:
        plain = b"%b,%b]" % (plain[:-1], schedule.resumption)
    return plain


def new_events(decision: Decision, codec: Codec) -> tuple[NewEvent, ...]:
    return tuple(
        NewEvent(data=encode_event(event), value=None if value is None else codec.encode(value))
        for event, value in decision.events
    )


def new_run(place: Place, id: RunId, graph: Graph, decision: Decision, state: RunState) -> NewRun:
    """A run as its first decision left it."""
    aging = timedelta(milliseconds=state.aging_ms)
    children = [child_run(place, id, aging, child) for child in decision.children]
    return NewRun(
        id=id,
        namespace=place.namespace,
        flow=graph.name,
        version=graph.version,
        status=state.status,
        events=new_events(decision, place.codec),
        jobs=tuple(node_job(place, id, graph, aging, each) for each in decision.schedules),
        waits=new_waits(decision.waits, children, place.codec),
        children=tuple(children),
        parent=state.parent,
        summary=summary_of(state),
    )


def child_run(place: Place, parent: RunId, aging: timedelta, child: StartChild) -> NewRun:
    graph = place.graphs[child.flow.text]
    decision, state = submit(
        graph,
        child.id,
        child.input,
        RunValues(place.codec),
        aging_ms=round(aging / timedelta(milliseconds=1)),
        parent=Parent(run=parent, key=child.key.text),
    )
    return new_run(place, child.id, graph, decision, state)


def new_waits(waits: list[NewWait], children: list[NewRun], codec: Codec) -> tuple[NewWait, ...]:
    """The waits to open; one for a child that ended as soon as it began is due at once."""
    if not waits:  # as nearly always
        return ()
    ended = {child.id for child in children if child.is_ended}
    opened: list[NewWait] = []
    for wait in waits:
        if wait.kind is WaitKind.CHILD and wait.name in ended:
            opened.append(replace(wait, delay=timedelta(0)))
        elif wait.detail:
            opened.append(replace(wait, detail=codec.encode(wait.detail)))
        else:
            opened.append(wait)
    return tuple(opened)


def summary_of(state: RunState) -> bytes:
    """Why a run is as it is, for lists and for whoever waits."""
    return msgspec.json.encode(
        RunSummary(reason=state.reason, by=state.by, failure=state.failure, node=state.failed_node)
    )
