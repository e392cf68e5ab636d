"""Promises that must hold for a history once all work has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.engine.cached_run import CachedRun
from perdure.engine.runs import Graphs, RunEngine
from perdure.errors import PerdureError
from perdure.model import event as events
from perdure.model.event import Effects, StoredEvent, decode_event
from perdure.model.failure import Failure
from perdure.model.graph import ApprovalNode, DelayNode, Graph, SignalNode
from perdure.model.ids import AUXILIARY_PARTS, Key, RunId
from perdure.model.job import Status
from perdure.model.limit import LimitRule
from perdure.model.payload import PlainCodec, from_json
from perdure.model.retry import decode_policy
from perdure.model.run import RunStatus
from perdure.model.settings import RunSettings
from perdure.model.wait import LAST, ReportStatus
from perdure.operations.run_log import RunLog, node_record
from perdure.store.memory.records import StoredJob, StoredRun
from perdure.verify import finding_text
from proof.evidence import EvidenceSettings, verify_with_evidence
from proof.simulate.clients import Asked
from proof.simulate.flows import Reading, Unfinished, Wrong, follow_all
from proof.simulate.loop import at_once
from proof.simulate.run_clocks import ROUNDING, TIMED_OUT
from proof.simulate.tasks import (
    TAPS,
    TAPS_KEY,
    TAPS_SECONDS,
    worked,
)
from proof.simulate.workers import held, left_over
from proof.simulate.world import World

EXHAUSTED = "run.attempts_exhausted"


def early_ends(
    run: RunId, graph: Graph, log: Iterable[StoredEvent], back: timedelta
) -> Iterator[str]:
    """Waits that ended too early, although the clock was set back by no more than ``back``.

    A worker may have found a wait due just before that.
    """
    opened: dict[str, datetime] = {}
    asked: dict[str, int] = {}
    """Durations that are not in the graph."""
    for stored, event in _own(run, log):
        for key, wanted in _awaited(graph, event, asked):
            began = opened.get(key)
            least = timedelta(milliseconds=wanted) - ROUNDING - back
            if began is not None and stored.at - began < least:
                yield f"{key} ended after {stored.at - began}, and was to wait for {wanted} ms"
        if isinstance(event, events.NodePaused) and event.poll_ms is not None:
            asked[f"poll:{event.key}"] = event.poll_ms
        effects: Effects = getattr(event, "effects", events.NOTHING)
        for key in effects.waiting:
            if not (key.startswith("remind:") and key in opened):  # they count from the first
                opened[key] = stored.at
        if isinstance(event, events.RunRetried | events.RunForked):
            opened = dict.fromkeys(effects.waiting, stored.at)


def _awaited(graph: Graph, event: events.Event, asked: dict[str, int]) -> Iterator[tuple[str, int]]:
    """The timed waits that this event ended, and their durations."""
    match event:
        case events.NodeCompleted(cause="timer") | events.NodeCompleted(cause="timeout"):
            node = graph.nodes[event.node]
            if isinstance(node, DelayNode):
                yield event.node, node.delay_ms
            elif isinstance(node, SignalNode | ApprovalNode) and node.timeout_ms is not None:
                yield event.node, node.timeout_ms
        case events.ApprovalReminded():
            node = graph.nodes[event.node]
            if isinstance(node, ApprovalNode) and event.number <= len(node.reminders_ms):
                yield f"remind:{event.node}", node.reminders_ms[event.number - 1]
        case events.NodePollStarted() if (key := f"poll:{event.key}") in asked:
            yield key, asked[key]


def _own(run: RunId, log: Iterable[StoredEvent]) -> list[tuple[StoredEvent, events.Event]]:
    """The run's own events: for a fork, those after the fork, which have their own times."""
    read = [(stored, decode_event(run, stored.number, stored.data)) for stored in log]
    starts = [n for n, (_, event) in enumerate(read) if isinstance(event, events.RunForked)]
    return read[starts[-1] :] if starts else read


def forgotten_reports(run: RunId, log: Iterable[StoredEvent]) -> Iterator[str]:
    """A task with a report before it paused is executed again, and does not wait."""
    early: set[str] = set()
    for stored, event in _own(run, log):
        effects: Effects = getattr(event, "effects", events.NOTHING)
        match event:
            case events.NodeReported() if ReportStatus(event.status) in LAST:
                early.add(event.key)
            case events.NodePaused() if event.key in early and event.key in effects.waiting:
                yield f"{event.key} waits since event {stored.number}, and had its report before"
            case events.RunRetried() | events.CompensationStarted():
                early.clear()
            case events.NodeCompleted():
                early.discard(event.node)
            case events.NodeFailed():
                early.discard(event.key)
        early.difference_update(effects.started)


def left_done(run: RunId, graph: Graph, log: Iterable[StoredEvent]) -> Iterator[str]:
    """A failed run has undone its completed nodes, and the items of maps that did not complete.

    Not a fork: what the original run completed belongs to both.
    """
    done: dict[str, int] = {}
    for stored in log:
        match event := decode_event(run, stored.number, stored.data):
            case events.NodeCompleted():
                done = {key: at for key, at in done.items() if Key.parse(key).node != event.node}
                done[event.node] = stored.number
            case events.ItemCompleted():
                done[event.key] = stored.number
            case events.NodeUndone() | events.UndoFailed():
                done.pop(Key(node=event.node, item=event.item).text, None)
            case events.RunForked():
                return
            case events.RunFailed():
                for key, at in done.items():
                    if getattr(graph.nodes[Key.parse(key).node], "undo", None) is not None:
                        yield f"it failed, and {key} of event {at} was not undone"


def attempts_beyond(run: RunId, log: Iterable[StoredEvent], most: int) -> Iterator[str]:
    """A run fails when this many attempts of its nodes have failed since its start or retry."""
    count = 0
    for stored, event in _own(run, log):
        match event:
            case events.RunRetried():
                count = 0
            case events.NodeRetried(is_snoozed=False) | events.NodeFailed(cause="" | "attempts"):
                count += Key.parse(event.key).part not in AUXILIARY_PARTS
                if count > most:
                    yield f"event {stored.number} is its failed attempt {count} of {most}"
            case events.RunFailed(failure=failure) | events.CompensationStarted(failure=failure):
                if failure is not None and failure.code == EXHAUSTED and count != most:
                    yield f"it had no attempts left after {count} of {most}"
            case events.RunCompleted() if count >= most:
                yield f"it is completed, and {count} attempts failed of {most}"


MAY_FAIL_BY = (
    "perdure.errors.Permanent",
    "perdure.errors.WorkerCrashed",
    "perdure.errors.RunCancelled",
)
"""The only reasons for a run to fail: its tasks have more attempts than failures."""
JOBS_MAY_FAIL_BY = (
    *MAY_FAIL_BY,
    "perdure.errors.AttemptTimeout",
    "perdure.errors.DeadlineExceeded",
)
LIMITS = (LimitRule(key=TAPS_KEY, starts_max=TAPS, window=timedelta(seconds=TAPS_SECONDS)),)
"""The guard checks concurrency: tasks outlive their expired leases."""
STRICT_TASKS = ("urgent", "timed", "snoozing")
"""Tasks with fewer attempts than failures."""


def judge(world: World, asked: Asked) -> Iterator[str]:
    """All violations, besides those that the verifier finds."""
    yield from left_over(world)
    yield from (f"job {id} is claimed, but no worker is left" for id in held(world))
    yield from _lost(world, asked)
    graphs = Graphs(graph for each in world.flows.values() for graph in each.flow.graphs)
    runs = RunEngine(world.plain_store(), graphs, PlainCodec())
    for run in list(world.state.records.runs.values()):
        yield from (f"run {run.id} of {run.flow}: {each}" for each in _run(world, runs, run))
        if run.status is RunStatus.CANCELLED and not _may_be_cancelled(asked, run):
            yield f"run {run.id} was cancelled, but no client asked for it"
    for job in world.state.jobs.values():
        yield from (
            f"job {job.id} of {job.partition.task}: {each}" for each in _job(asked, job, world)
        )


AFTER_A_STEP = frozenset({"verify.schedule_next_tick", "verify.awaited_children.ended"})
"""What the verifier may find after the clock was set back: a schedule does not repeat its ticks,
and a child that has ended is noticed by the next poll. Unfinished work is found at the end."""


async def checked(world: World) -> list[str]:
    """The current findings of the verifier."""
    world.loop.alone = world.loop.home
    try:
        settings = EvidenceSettings(limits=LIMITS, allows_pruned=world.is_pruned)
        found = await verify_with_evidence(
            world.plain_store(), list(world.evidence.lines), settings
        )
    finally:
        world.loop.alone = None
    expected = AFTER_A_STEP if world.seconds_back else frozenset()
    return [f"verifier: {finding_text(each)}" for each in found if each.code not in expected]


def _lost(world: World, asked: Asked) -> Iterator[str]:
    for id in asked.runs:
        if ("default", RunId(id)) not in (world.state.records.runs.keys() | world.guard.pruned):
            yield f"run {id} was accepted, and is gone"
    for id in asked.jobs:
        if id not in (world.state.jobs.keys() | world.guard.pruned):
            yield f"job {id} was accepted, and is gone"


def _run(world: World, runs: RunEngine, stored: StoredRun) -> Iterator[str]:
    place = stored.place
    state, records = world.state, world.state.records
    if stored.is_ended and (jobs := state.of_run.ids(place)):
        yield f"it is {stored.status}, and has jobs: {list(jobs)}"
    if stored.is_ended and (waits := records.waits_of(place)):
        yield f"it is {stored.status}, and waits for {sorted(wait.key for wait in waits)}"
    try:
        run = at_once(runs.load(*place))
    except PerdureError as error:
        yield f"it cannot be loaded: {error}"
        return
    if run.state.status is not stored.status:
        yield f"its log says {run.state.status}, its row {stored.status}"
    yield from _result(world, run)
    log = [kept.event for kept in records.events[place]]
    yield from early_ends(run.id, run.graph, log, timedelta(seconds=world.seconds_back))
    yield from forgotten_reports(run.id, log)
    yield from left_done(run.id, run.graph, log)
    if stored.settings.max_attempts is not None:
        yield from attempts_beyond(run.id, log, stored.settings.max_attempts)
    failure = run.state.failure
    if failure is not None and not _may_fail_by(failure, run.state.settings):
        yield f"it failed, which it should not have: {failure.type}: {failure.message}"


def _may_fail_by(failure: Failure, settings: RunSettings) -> bool:
    match failure.code:
        case code if code == TIMED_OUT:
            return settings.timeout_ms is not None or settings.deadline is not None
        case code if code == EXHAUSTED:
            return settings.max_attempts is not None
        case _:
            return failure.type in MAY_FAIL_BY


def _result(world: World, run: CachedRun) -> Iterator[str]:
    """The run's outputs follow from its input and from each other."""
    log = RunLog(run.id, PlainCodec())
    log.take(each.event for each in world.state.records.events[run.namespace, run.id])
    nodes = {id: node_record(log, node) for id, node in run.graph.nodes.items()}
    parts = world.flows[f"{run.state.flow}@{run.state.version}"].parts
    try:
        result = follow_all(parts, Reading(nodes), log.value(1))
    except Unfinished as error:
        if run.state.status is RunStatus.COMPLETED:
            yield f"it is completed, though {error}"
    except Wrong as error:
        yield str(error)
    else:
        if run.state.status is RunStatus.COMPLETED:
            found = log.value(run.state.result_ref)
            if found != result:
                yield f"its result is {found!r}, not {result!r}"


def _may_be_cancelled(asked: Asked, run: StoredRun) -> bool:
    is_scheduled = run.id.startswith(("tick", "tock"))  # by the next tick, if configured
    return run.parent is not None or is_scheduled or run.id in asked.cancelled | asked.replaced


def _job(asked: Asked, job: StoredJob, world: World) -> Iterator[str]:
    if job.node is not None:
        return
    if job.status is Status.COMPLETED:
        number = next(n for t, n in world.tasks.plain_ones.items() if t.name == job.partition.task)
        arguments: Any = msgspec.json.decode(job.input)[0]
        value = arguments[0] if arguments else None
        found = from_json(job.output or b"null")
        if found["n"] != worked(number, value):
            yield f"it gave {found!r} for {value!r}"
    if job.status in (Status.FAILED, Status.DEAD) and job.history:
        failure = job.history[-1].failure
        is_strict = job.partition.task in STRICT_TASKS or job.max_attempts is not None
        may_fail = is_strict or job.id in asked.nacked
        if failure.type not in JOBS_MAY_FAIL_BY and not may_fail:
            yield f"it failed, which it should not have: {failure.type}: {failure.message}"
    if job.id not in asked.nacked:
        yield from _attempts(job, world)
    is_stopped = job.id in asked.aborted and job.id not in asked.revived
    if is_stopped and job.status is not Status.CANCELLED:
        yield f"it was aborted, and is {job.status}"
    if job.attempt < 0:
        yield f"it has {job.attempt} attempts"


def _attempts(job: StoredJob, world: World) -> Iterator[str]:
    """Failures and snoozes use up the attempts of a plain job, and no job has more."""
    task = next(each for each in world.tasks.plain_ones if each.name == job.partition.task)
    retry = (decode_policy(job.policy).retry if job.policy else None) or task.retry
    retries = task.max_snoozes if retry is None else retry.retries
    most, spent = job.max_attempts or retries + 1, job.failures + job.snoozes
    has_failed = job.status in (Status.FAILED, Status.DEAD)
    if spent > (most if has_failed else most - 1):
        yield f"it is {job.status} after {spent} failures and snoozes, and has {most} attempts"
    is_crashed = job.history and job.history[-1].failure.type == "perdure.errors.WorkerCrashed"
    if job.status is Status.DEAD and not is_crashed and spent != most:
        yield f"it is dead after {spent} of {most} attempts"
