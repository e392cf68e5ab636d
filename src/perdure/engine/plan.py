"""``Plan`` collects decisions about a run into one ``RunCommit``; ``start_run`` makes new runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare
from perdure.engine import snapshot
from perdure.engine.cached_run import CachedRun, RunValues
from perdure.engine.decide import decide, submit
from perdure.engine.decider import Decision, NodeJob, StartChild
from perdure.errors import InvalidInput
from perdure.model.event import Event, NewEvent, Parent, StoredEvent, decode_event, encode_event
from perdure.model.graph import Graph
from perdure.model.ids import JobId, RunId
from perdure.model.job import Claim, NewJob, NodeRef
from perdure.model.outcome import Retried
from perdure.model.payload import Codec
from perdure.model.run import (
    Continues,
    Finishes,
    NewRun,
    NewWait,
    NodeSettlement,
    Retries,
    RunCommit,
    RunState,
    RunStatus,
    RunSummary,
    WaitType,
)
from perdure.model.trigger import JobEnded, MigrateRun, Trigger
from perdure.store.admission import with_cooldown

INVALID_RUN_INPUT = declare("flow.invalid_input", "flow {flow!r} cannot start with it: {reason}")


class PlanContext:
    """The namespace, graphs and codec for the jobs and child runs of a plan."""

    __slots__ = ("codec", "graph_of", "namespace")

    def __init__(self, namespace: str, graph_of: Callable[[str], Graph], codec: Codec) -> None:
        self.namespace = namespace
        self.graph_of = graph_of
        """Graphs of child flows and migration targets, by ``name@version``."""
        self.codec = codec


def node_job(
    context: PlanContext,
    run: RunId,
    graph: Graph,
    aging: timedelta,
    schedule: NodeJob,
    id: JobId | None = None,
) -> NewJob:
    """The job that executes one key; its input is the call of the task.

    ``id`` is the id of the job that continues in place, if there is one.
    """
    call = schedule.call
    return NewJob(
        id=JobId(clock.new_id()) if id is None else id,
        namespace=context.namespace,
        partition=graph.partition_of(call),
        priority=call.priority,
        aging=aging,
        input=context.codec.encode(call_of(schedule)),
        input_hash=0,
        policy=None if call.policy is None else call.policy.encode(),
        node=NodeRef(run=run, key=schedule.key.text),
    )


def call_of(schedule: NodeJob) -> bytes:
    """The arguments of a key's task, as JSON."""
    plain = b"[[%b],{}]" % schedule.input if schedule.call.takes_input else b"[[],{}]"
    if schedule.resumption is not None:
        plain = b"%b,%b]" % (plain[:-1], schedule.resumption)
    return plain


def new_events(decision: Decision, codec: Codec) -> tuple[NewEvent, ...]:
    return tuple(
        NewEvent(data=encode_event(event), value=None if value is None else codec.encode(value))
        for event, value in decision.events
    )


def new_run(
    context: PlanContext, id: RunId, graph: Graph, decision: Decision, state: RunState
) -> NewRun:
    """A new run after its first decision."""
    aging = timedelta(milliseconds=state.aging_ms)
    children = [child_run(context, id, aging, child) for child in decision.children]
    return NewRun(
        id=id,
        namespace=context.namespace,
        flow=graph.name,
        version=graph.version,
        status=state.status,
        events=new_events(decision, context.codec),
        jobs=tuple(node_job(context, id, graph, aging, each) for each in decision.schedules),
        waits=new_waits(decision.waits, children, context.codec),
        children=tuple(children),
        parent=state.parent,
        summary=summary_of(state),
    )


def start_run(
    context: PlanContext,
    id: RunId,
    graph: Graph,
    input: bytes,
    *,
    aging_ms: int,
    replaced: bool = False,
) -> NewRun:
    """Create a run of a flow; raises if the input would make it fail immediately."""
    values = RunValues(context.codec)
    decision, state = submit(graph, id, input, values, aging_ms=aging_ms, replaced=replaced)
    if state.failure is not None:
        reason = state.failure.message
        raise InvalidInput(INVALID_RUN_INPUT.fault(("input",), flow=graph.name, reason=reason))
    return with_cooldown(new_run(context, id, graph, decision, state), graph)


def child_run(context: PlanContext, parent: RunId, aging: timedelta, child: StartChild) -> NewRun:
    graph = context.graph_of(child.flow.text)
    decision, state = submit(
        graph,
        child.id,
        child.input,
        RunValues(context.codec),
        aging_ms=round(aging / timedelta(milliseconds=1)),
        parent=Parent(run=parent, key=child.key.text),
    )
    return new_run(context, child.id, graph, decision, state)


def new_waits(waits: list[NewWait], children: list[NewRun], codec: Codec) -> tuple[NewWait, ...]:
    """The waits to open; a wait for a child that ended when it started is due immediately."""
    if not waits:  # the common case
        return ()
    ended = {child.id for child in children if child.is_ended}
    opened: list[NewWait] = []
    for wait in waits:
        if wait.type is WaitType.CHILD and wait.name in ended:
            opened.append(replace(wait, delay=timedelta(0)))
        elif wait.detail:
            opened.append(replace(wait, detail=codec.encode(wait.detail)))
        else:
            opened.append(wait)
    return tuple(opened)


def summary_of(state: RunState) -> bytes:
    """The reason for a run's status, for lists and for callers that wait for the run."""
    return msgspec.json.encode(
        RunSummary(reason=state.reason, by=state.by, failure=state.failure, node=state.failed_node)
    )


_SUMMARIZED = frozenset(
    {RunStatus.PAUSED, RunStatus.COMPENSATING, RunStatus.FAILED, RunStatus.CANCELLED}
)
_ENDS = Finishes()


class Plan:
    """Decisions about one run, and the commit that writes them.

    Starts from a cached run, which it does not change before :meth:`done`.
    """

    commit: RunCommit
    """The commit; set by ``build``."""
    next_jobs: dict[Claim, NewJob]
    """What each settled job continues with; set by ``build``."""

    def __init__(self, run: CachedRun, context: PlanContext) -> None:
        self.run = run
        self.state = run.state
        self.lists = run.values.lists
        self.token = random.getrandbits(62)
        self._context = context
        self._graph = run.graph
        self._events: list[NewEvent] = []
        self._fresh: dict[int, bytes] = {}
        self._settled: dict[Claim, NodeJob | Retried | None] = {}
        self._repeated: dict[Claim, str] = {}
        """The keys of jobs that return to the queue."""
        self._schedules: list[NodeJob] = []
        self._waits: list[NewWait] = []
        self._children: list[StartChild] = []
        self._close_waits: list[str] = []
        self._cancel_keys: list[str] = []
        self._cancel_all = False
        self._suspend: bool | None = None
        self._version: str | None = None
        self.first = run.state.number + 1
        """The number of its first event."""
        self.committed_at: datetime | None = None
        """The store's time of the commit; set by ``RunEngine.commit``."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._events and not self._settled and not self._close_waits

    @property
    def events(self) -> list[Event]:
        """The events that the plan adds to the log."""
        return [
            decode_event(self.run.id, number, event.data)
            for number, event in enumerate(self._events, start=self.first)
        ]

    @property
    def stored_events(self) -> list[StoredEvent]:
        """The plan's events as stored; only after the commit."""
        assert self.committed_at is not None
        return [
            StoredEvent(number=number, at=self.committed_at, data=event.data, value=event.value)
            for number, event in enumerate(self._events, start=self.first)
        ]

    def apply(self, trigger: Trigger) -> None:
        """Decide about a trigger other than the end of a claimed job."""
        self._add(self._decide(trigger))

    def settle(
        self, claim: Claim, ended: JobEnded, can_continue: Callable[[NodeJob], bool]
    ) -> None:
        """Decide about the end of a claimed job, and let the job continue in place if possible.

        If no events follow, the job is left alone: it was cancelled, or this outcome was already
        written and the job has continued since.
        """
        decision = self._decide(ended)
        if not decision.events:
            return
        following: NodeJob | Retried | None = None
        if isinstance(ended.outcome, Retried):
            following = ended.outcome
            self._repeated[claim] = ended.key.text
        else:
            for place, each in enumerate(decision.schedules):
                if can_continue(each):
                    following = decision.schedules.pop(place)
                    break
        self._add(decision)
        self._settled[claim] = following

    def settles(self, claim: Claim) -> bool:
        return claim in self._settled

    def close(self, key: str) -> None:
        """Close a wait that nothing depends on any more."""
        self._close_waits.append(key)

    def build(self) -> None:
        """Build the commit."""
        run, state = self.run, self.state
        aging = timedelta(milliseconds=state.aging_ms)
        jobs = [self._job(aging, each) for each in self._schedules]
        self.next_jobs = {}
        settlements: list[NodeSettlement] = []
        for claim, following in self._settled.items():
            then: Finishes | Continues | Retries = _ENDS
            if isinstance(following, NodeJob):
                job = self.next_jobs[claim] = self._job(aging, following, claim.id)
                then = Continues(job=job)
            elif following is not None:
                then = Retries(outcome=following)
            settlements.append(NodeSettlement(claim=claim, job_outcome=then))
        children = [child_run(self._context, run.id, aging, each) for each in self._children]
        is_snapshot_due = snapshot.is_due(state, run.snapshot_number) and not state.is_ended
        self.commit = RunCommit(
            namespace=run.namespace,
            run=run.id,
            expected=run.state.number,
            token=self.token,
            events=tuple(self._events),
            status=state.status,
            settlements=tuple(settlements),
            jobs=tuple(jobs),
            waits=new_waits(self._waits, children, self._context.codec),
            close_waits=tuple(self._close_waits),
            children=tuple(children),
            cancel_keys=tuple(self._cancel_keys),
            cancel_all=self._cancel_all,
            suspend=self._suspend,
            version=self._version,
            summary=self._summary(),
            snapshot=snapshot.take(state) if is_snapshot_due else None,
        )

    def done(self) -> None:
        """After the commit: update the cached run to the state of the plan."""
        run = self.run
        if snapshot.is_due(self.state, run.snapshot_number) and not self.state.is_ended:
            run.snapshot_number = self.state.number
        run.state = self.state
        for number, json in self._fresh.items():
            run.values.put(number, json)
        run.values.trim()
        run.graph = self._graph

    def _decide(self, trigger: Trigger) -> Decision:
        if isinstance(trigger, MigrateRun):  # later decisions use the new version
            self._graph = self._context.graph_of(trigger.to.text)
        decision, self.state = decide(self._graph, self.run.id, self.state, trigger, self)
        return decision

    def json(self, number: int) -> bytes:
        """The value of an event, also of this plan's own (see ``engine.run_view.Values``)."""
        fresh = self._fresh.get(number)
        return self.run.values.json(number) if fresh is None else fresh

    def _add(self, decision: Decision) -> None:
        first = self.run.state.number + len(self._events) + 1
        for number, (event, value) in enumerate(decision.events, start=first):
            stored = None if value is None else self._context.codec.encode(value)
            self._events.append(NewEvent(data=encode_event(event), value=stored))
            if value is not None:
                self._fresh[number] = value
        if decision.cancel_all:
            self._drop(lambda key: True)
            self._cancel_all = True
        if decision.cancel_keys:
            dropped = set(decision.cancel_keys)
            self._drop(lambda key: key in dropped)
            self._cancel_keys.extend(decision.cancel_keys)
        self._schedules.extend(decision.schedules)
        self._waits.extend(decision.waits)
        self._children.extend(decision.children)
        self._close_waits.extend(decision.close_waits)
        self._suspend = decision.suspend if decision.suspend is not None else self._suspend
        self._version = decision.version or self._version

    def _drop(self, is_dropped: Callable[[str], bool]) -> None:
        """Drop jobs, waits and children of this plan that a later decision cancelled."""
        self._schedules = [each for each in self._schedules if not is_dropped(each.key.text)]
        self._waits = [each for each in self._waits if not is_dropped(each.key)]
        self._children = [each for each in self._children if not is_dropped(each.key.text)]
        for claim, what in self._settled.items():
            if what is not None:
                key = what.key.text if isinstance(what, NodeJob) else self._repeated[claim]
                self._settled[claim] = None if is_dropped(key) else what

    def _job(self, aging: timedelta, schedule: NodeJob, id: JobId | None = None) -> NewJob:
        return node_job(self._context, self.run.id, self._graph, aging, schedule, id)

    def _summary(self) -> bytes | None:
        before, after = self.run.state.status, self.state.status
        if before is after or not {before, after} & _SUMMARIZED:
            return None
        return summary_of(self.state)
