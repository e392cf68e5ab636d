"""``Plan`` collects decisions about a run into one ``RunCommit``; ``start_run`` makes new runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare
from perdure.engine import snapshot
from perdure.engine.cached_run import CachedRun, RunValues
from perdure.engine.decide import decide, submit
from perdure.engine.decider import Decision, NodeJob, StartChild, is_cancel
from perdure.errors import InvalidInput, TemplateMissing
from perdure.expr.template import input_scope, render_text
from perdure.model.event import Event, NewEvent, Parent, StoredEvent, decode_event, encode_event
from perdure.model.graph import Call, Graph
from perdure.model.ids import RUN_TIMEOUT, JobId, Key, RunId, WorkerId
from perdure.model.job import PRIORITY_DEFAULT, Claim, NewJob, NodeRef
from perdure.model.limit import checked_keys
from perdure.model.outcome import Retried
from perdure.model.payload import Codec, from_json
from perdure.model.run import (
    Continues,
    Finishes,
    LiveType,
    NewRun,
    NewWait,
    NodeSettlement,
    PlaceChange,
    Priorities,
    Retries,
    RunCommit,
    RunState,
    RunStatus,
    RunSummary,
    WaitType,
)
from perdure.model.settings import (
    NO_SETTINGS,
    RunSettings,
    effective_priority,
    inherited,
    placed,
)
from perdure.model.trigger import JobEnded, MigrateRun, Trigger
from perdure.store.admission import with_cooldown

MAP_WINDOW = 1_000
"""How many unfinished items a map has at most, unless it has a ``concurrency``.

Runs keep the window that they were submitted with.
"""
GATHERED_MAX_BYTES = 64 * 1024 * 1024
"""How many bytes values may have together (see ``RunSubmitted``): as many as outputs of a map."""

INVALID_RUN_INPUT = declare("flow.invalid_input", "flow {flow!r} cannot start with it: {reason}")


class PlanContext:
    """The namespace, graphs and codec for the jobs and child runs of a plan."""

    __slots__ = ("codec", "graph_of", "namespace", "worker")

    def __init__(
        self,
        namespace: str,
        graph_of: Callable[[str], Graph],
        codec: Codec,
        worker: WorkerId | None = None,
    ) -> None:
        self.namespace = namespace
        self.graph_of = graph_of
        """Graphs of child flows and migration targets, by ``name@version``."""
        self.codec = codec
        self.worker = worker
        """The worker that plans, if one does."""


def node_job(
    context: PlanContext,
    run: RunId,
    graph: Graph,
    state: RunState,
    schedule: NodeJob,
    id: JobId | None = None,
) -> NewJob:
    """The job that executes one key; its input is the call of the task.

    ``id`` is the id of the job that continues in place, if there is one.
    """
    call = schedule.call
    partition = placed(graph.partition_of(call), state.settings, schedule.key.node)
    return NewJob(
        id=JobId(clock.new_id()) if id is None else id,
        namespace=context.namespace,
        partition=replace(partition, keys=limit_keys(schedule)) if call.keys else partition,
        priority=effective_priority(state.priority, call.priority),
        aging=timedelta(milliseconds=state.aging_ms),
        input=context.codec.encode(call_of(schedule)),
        input_hash=0,
        policy=None if call.policy is None else call.policy.encode(),
        node=NodeRef(run=run, key=schedule.key.text),
    )


def limit_keys(schedule: NodeJob) -> tuple[str, ...]:
    """The limit keys of a node's job; none if they cannot be rendered from its input.

    Then the worker that has the code computes them, and the attempt fails if it cannot either.
    """
    scope = input_scope(from_json(schedule.input))
    try:
        return checked_keys([render_text(template, scope) for template in schedule.call.keys])
    except (InvalidInput, TemplateMissing):
        return ()


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
    context: PlanContext,
    id: RunId,
    graph: Graph,
    decision: Decision,
    state: RunState,
    first_items: int | None = None,
) -> NewRun:
    """A new run after its first decision."""
    children = child_runs(context, id, state, decision.children, first_items)
    return NewRun(
        id=id,
        namespace=context.namespace,
        flow=graph.name,
        version=graph.version,
        status=state.status,
        events=new_events(decision, context.codec),
        jobs=tuple(node_job(context, id, graph, state, each) for each in decision.schedules),
        waits=new_waits(decision.waits, children, context.codec, state),
        children=tuple(children),
        parent=state.parent,
        summary=summary_of(state),
        settings=state.settings,
        priority=state.priority,
        aging=timedelta(milliseconds=state.aging_ms),
    )


def start_run(
    context: PlanContext,
    id: RunId,
    graph: Graph,
    input: bytes,
    *,
    aging_ms: int,
    replaced: bool = False,
    settings: RunSettings = NO_SETTINGS,
) -> NewRun:
    """Create a run of a flow; raises if the input would make it fail immediately."""
    decide_first = partial(
        submit,
        graph,
        id,
        input,
        RunValues(context.codec),
        aging_ms=aging_ms,
        map_window=MAP_WINDOW,
        gathered_max_bytes=GATHERED_MAX_BYTES,
        replaced=replaced,
        priority=PRIORITY_DEFAULT if settings.priority is None else settings.priority,
    )
    at_once = replace(settings, delay_ms=None, run_at=None, max_running=None)
    decision, state = decide_first(settings=at_once)
    if state.failure is not None:
        reason = state.failure.message
        raise InvalidInput(INVALID_RUN_INPUT.fault(("input",), flow=graph.name, reason=reason))
    if settings.starts_queued:
        decision, state = decide_first(settings=settings)
    return with_cooldown(new_run(context, id, graph, decision, state), graph)


def child_runs(
    context: PlanContext,
    parent: RunId,
    state: RunState,
    children: Sequence[StartChild],
    first_items: int | None = None,
) -> list[NewRun]:
    """Children of a run that is in this state, with the settings stored for their nodes.

    Maps in them start ``first_items`` items altogether, by default a window, but at least one each,
    and more once that one ends. Otherwise a map in a map could start a million items in one commit.
    """
    runs: list[NewRun] = []
    if not children:  # the common case
        return runs
    share = max(1, (first_items or MAP_WINDOW) // len(children))
    for child in children:
        graph = context.graph_of(child.flow.text)
        settings = inherited(state.settings, child.key.node)
        decision, started = submit(
            graph,
            child.id,
            child.input,
            RunValues(context.codec),
            aging_ms=state.aging_ms,
            map_window=MAP_WINDOW,
            gathered_max_bytes=GATHERED_MAX_BYTES,
            parent=Parent(run=parent, key=child.key.text),
            settings=settings,
            priority=state.priority if settings.priority is None else settings.priority,
            first_items=share if share < MAP_WINDOW else 0,
        )
        runs.append(new_run(context, child.id, graph, decision, started, share))
    return runs


def new_waits(
    waits: list[NewWait], children: list[NewRun], codec: Codec, state: RunState
) -> tuple[NewWait, ...]:
    """The waits to open; a wait for a child that ended when it started is due immediately."""
    if not waits:  # the common case
        return ()
    ended = {child.id for child in children if child.is_ended}
    opened: list[NewWait] = []
    for wait in waits:
        if wait.type is WaitType.CHILD and wait.name in ended:
            opened.append(replace(wait, delay=timedelta(0)))
        elif wait.key == RUN_TIMEOUT:
            if not state.is_ended:  # it may have ended since in the same decision
                opened.append(replace(wait, is_stopped=is_clock_stopped(state)))
        elif wait.detail:
            opened.append(replace(wait, detail=codec.encode(wait.detail)))
        else:
            opened.append(wait)
    return tuple(opened)


def is_clock_stopped(state: RunState) -> bool:
    """Whether the clock of the run's timeout stands still in this state."""
    settings = state.settings
    stops = settings.timeout_ms is not None and not settings.timeout_counts_waiting
    return stops and state.status is RunStatus.WAITING


def summary_of(state: RunState) -> bytes:
    """The reason for a run's status, for lists and for callers that wait for the run."""
    return msgspec.json.encode(
        RunSummary(reason=state.reason, by=state.by, failure=state.failure, node=state.failed_node)
    )


def call_of_key(graph: Graph, key: Key) -> Call:
    """The call that the job of a key executes."""
    node: Any = graph.nodes[key.node]
    call = getattr(node, _CALLS.get(key.part, "call"), None) or node.body
    assert isinstance(call, Call)
    return call


_CALLS = {"check": "check", "undo": "undo", "notify": "notify"}
"""The fields of nodes with the calls of auxiliary jobs."""

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
        self._is_started: bool | None = None
        self._reprioritizes = False
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
        if isinstance(ended.outcome, Retried) and not decision.cancel_all:
            following = ended.outcome
            if self.state.settings.sticky_ms is not None:
                following = replace(following, hold_off=timedelta(0))  # no other worker is better
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

    def retries(self, claim: Claim) -> bool:
        """Whether the job gets another attempt: the run may end instead."""
        return isinstance(self._settled[claim], Retried)

    def close(self, key: str) -> None:
        """Close a wait that nothing depends on any more."""
        self._close_waits.append(key)

    def build(self) -> None:
        """Build the commit."""
        run, state = self.run, self.state
        jobs = [self._job(each) for each in self._schedules]
        self.next_jobs = {}
        settlements: list[NodeSettlement] = []
        for claim, following in self._settled.items():
            then: Finishes | Continues | Retries = _ENDS
            if isinstance(following, NodeJob):
                job = self.next_jobs[claim] = self._job(following, claim.id)
                then = Continues(job=job)
            elif following is not None:
                then = Retries(outcome=following)
            settlements.append(NodeSettlement(claim=claim, job_outcome=then))
        children = child_runs(self._context, run.id, state, self._children)
        is_snapshot_due = snapshot.is_due(state, run.snapshot_number) and not state.is_ended
        self.commit = RunCommit(
            namespace=run.namespace,
            run=run.id,
            expected=run.state.number,
            token=self.token,
            events=tuple(self._events),
            status=state.status,
            created_at=run.created_at,
            settlements=tuple(settlements),
            jobs=tuple(jobs),
            waits=new_waits(self._waits, children, self._context.codec, state),
            close_waits=tuple(self._close_waits),
            children=tuple(children),
            cancel_keys=tuple(self._cancel_keys),
            cancel_all=self._cancel_all,
            suspend=self._suspend,
            version=self._version,
            summary=self._summary(),
            snapshot=snapshot.take(state) if is_snapshot_due else None,
            is_started=self._is_started,
            place=self._place(),
            stop_clock=self._stop_clock(),
            priorities=self._priorities() if self._reprioritizes else None,
        )
        if state.settings.sticky_ms is not None:
            self.commit = replace(
                self.commit,
                worker=self._context.worker if settlements else None,
                sticky=timedelta(milliseconds=state.settings.sticky_ms),
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
            self._drop(lambda key: not is_cancel(key))
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
        if decision.is_started is not None:
            self._is_started = decision.is_started
        self._reprioritizes = self._reprioritizes or decision.reprioritizes

    def _drop(self, is_dropped: Callable[[str], bool]) -> None:
        """Drop jobs, waits and children of this plan that a later decision cancelled."""
        self._schedules = [each for each in self._schedules if not is_dropped(each.key.text)]
        self._waits = [each for each in self._waits if not is_dropped(each.key)]
        self._children = [each for each in self._children if not is_dropped(each.key.text)]
        for claim, what in self._settled.items():
            if what is not None:
                key = what.key.text if isinstance(what, NodeJob) else self._repeated[claim]
                self._settled[claim] = None if is_dropped(key) else what

    def _job(self, schedule: NodeJob, id: JobId | None = None) -> NewJob:
        return node_job(self._context, self.run.id, self._graph, self.state, schedule, id)

    def _stop_clock(self) -> bool | None:
        """Whether the clock of the run's timeout stops or continues."""
        settings = self.state.settings
        if settings.timeout_counts_waiting or settings.timeout_ms is None:  # the common case
            return None
        before, after = is_clock_stopped(self.run.state), is_clock_stopped(self.state)
        return None if before is after else after

    def _place(self) -> PlaceChange | None:
        state = self.state
        if state.settings.max_running is None:  # the common case
            return None
        key = state.settings.place_key(state.flow)
        if key is None or not (state.is_ended or state.is_queued or self.run.state.is_queued):
            return None
        return PlaceChange(key=key, aging=timedelta(milliseconds=self.state.aging_ms))

    def _priorities(self) -> Priorities:
        state = self.state
        return Priorities(
            run=state.priority,
            jobs=tuple(
                (text, effective_priority(state.priority, call.priority))
                for text, live_type in sorted(state.live.items())
                if live_type is LiveType.JOB
                for call in (call_of_key(self._graph, Key.parse(text)),)
            ),
            aging=timedelta(milliseconds=state.aging_ms),
        )

    def _summary(self) -> bytes | None:
        before, after = self.run.state.status, self.state.status
        if before is after or not {before, after} & _SUMMARIZED:
            return None
        return summary_of(self.state)
