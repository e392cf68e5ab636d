"""Commit outcomes in groups: plain jobs, and nodes of runs, which may continue in place.

The worker caches the runs that it works on, so a step costs one commit and no read. When another
worker wrote to a run meanwhile, its events are read and the outcome is decided again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from perdure.engine.cached_run import CachedRun, Graphs
from perdure.engine.decision import Schedule
from perdure.engine.failures import describe
from perdure.engine.plan import Place, Plan
from perdure.engine.runs import Loader
from perdure.errors import (
    EventLogCorrupt,
    StaleClaim,
    StoreError,
    UnknownEvent,
    UnknownFlow,
    ValueMissing,
)
from perdure.model.graph import Graph
from perdure.model.ids import RunId
from perdure.model.job import Claim, NewJob, Status
from perdure.model.outcome import (
    Buried,
    Cancelled,
    Completed,
    Failed,
    GivenBack,
    NodeOutcome,
    Paused,
    Released,
    Retried,
    Settlement,
    Skipped,
)
from perdure.model.partition import Lane
from perdure.model.payload import Codec
from perdure.model.run import CommitAnswer, CommitResult, CommitState, RunCommit
from perdure.store.batching import Batches
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.nodes import FlowCode, happening_of, repeated_by
from perdure.worker.settings import WorkerSettings
from perdure.worker.steps import owner_of, save_checkpoint

RETRY_SECONDS = 1.0
LEAVE_FOR = timedelta(seconds=10)
"""How long a worker leaves the job of a run that it is too old for to newer ones."""
CACHED_RUNS_MAX = 20_000
CACHED_BYTES_MAX = 256 * 1024 * 1024
_log = logging.getLogger("perdure.worker")

Item = tuple[Attempt, NodeOutcome]
RunKey = tuple[str, RunId]
T = TypeVar("T")


class NodeSettled(NamedTuple):
    """What the store made of one node's outcome."""

    attempt: Attempt
    outcome: NodeOutcome
    is_written: bool = False
    goes_on: NewJob | None = None
    answer: CommitAnswer | None = None


Tell = Callable[[NodeSettled], None]


class _Planned(NamedTuple):
    plan: Plan
    items: list[Item]
    commit: RunCommit
    going_on: dict[Claim, NewJob]


class RunCommits:
    """Writes outcomes of node jobs; those of one run by one writer at a time."""

    def __init__(
        self,
        store: Store,
        graphs: Graphs,
        codec: Codec,
        code: FlowCode,
        may_go_on: Callable[[Attempt, int, Lane], bool],
        urgent_lanes: Callable[[], Sequence[str]],
    ) -> None:
        self._store = store
        self._graphs = graphs
        self._codec = codec
        self._code = code
        self._loader = Loader(store, graphs, codec)
        self._may_go_on = may_go_on
        self._urgent_lanes = urgent_lanes
        self._runs: OrderedDict[RunKey, CachedRun] = OrderedDict()
        self._cached_bytes = 0

    async def write(self, items: Sequence[Item], tell: Tell) -> None:
        """Commit these outcomes, however often others get in between; tells what became of each.

        A store that cannot be reached now is tried again until it can.
        """
        left = list(items)
        while left:
            groups = _by_run(left)
            runs = await self._at_hand(groups, tell)
            planned = [await self._planned(run, groups[key]) for key, run in runs.items()]
            if not planned:
                return
            commits = [each.commit for each in planned]
            commit = partial(self._store.runs.commit, commits, self._urgent_lanes())
            answer = await _insist(commit)
            left = []
            moved_on = []
            for each, result in zip(planned, answer.results, strict=True):
                if result.state is CommitState.DONE:
                    self._done(each, answer, tell)
                elif result.state is CommitState.STALE:
                    left += _without_stale(each.items, result, tell)
                else:
                    left += each.items
                    moved_on.append(each.plan.run)
            if moved_on:
                await self._catch_up(moved_on)

    async def _at_hand(
        self, groups: dict[RunKey, list[Item]], tell: Tell
    ) -> dict[RunKey, CachedRun]:
        """The runs of all groups; of one that cannot be used nothing is written."""
        outdated = [run for key in groups if (run := self._outdated(key, groups[key]))]
        if outdated:
            await self._catch_up(outdated)
        runs = {key: run for key in groups if (run := self._runs.get(key)) is not None}
        missing = [key for key in groups if key not in runs]
        if missing:
            loaded = await _insist(partial(self._loader.load_many, missing))
            for key, found in zip(missing, loaded, strict=True):
                if isinstance(found, CachedRun):
                    runs[key] = found
                    self._keep(key, found)
                else:
                    await self._leave(groups[key], found, tell)
        return runs

    async def _leave(self, items: list[Item], error: Exception, tell: Tell) -> None:
        """Keep the jobs of a run whose log cannot be used from being executed over and over.

        What a newer version wrote is left to workers of that version; else the jobs are parked.
        """
        _log.error("outcomes are not written, and their jobs left: %s", error)
        left: Released | Retried = Released()
        if isinstance(error, UnknownEvent):
            left = Retried(
                failure=describe(error), delay=LEAVE_FOR, hold_off=LEAVE_FOR, is_postponed=True
            )
        settlements = [Settlement(claim=attempt.claim, outcome=left) for attempt, _ in items]
        await _insist(partial(self._store.jobs.settle, settlements))
        for attempt, outcome in items:
            tell(NodeSettled(attempt, outcome))

    def _outdated(self, key: RunKey, items: list[Item]) -> CachedRun | None:
        """The cached run, if a job says that others wrote to it since, or began it anew."""
        run = self._runs.get(key)
        if run is None or all(attempt.job.created_at <= run.as_of for attempt, _ in items):
            return None
        return run

    async def _planned(self, run: CachedRun, items: list[Item]) -> _Planned:
        while True:
            plan = Plan(run, Place(run.namespace, self._graphs, self._codec))
            try:
                for attempt, outcome in items:
                    happening = happening_of(attempt, outcome, run.graph, self._code, self._codec)
                    plan.settle(
                        attempt.claim,
                        happening,
                        repeats=repeated_by(outcome),
                        picks=partial(self._picks, attempt, run.graph),
                    )
                commit, going_on = plan.commit()
            except ValueMissing as error:
                await _insist(partial(self._loader.read_values, run, error.numbers))
            except (msgspec.DecodeError, RecursionError) as error:
                raise EventLogCorrupt(
                    run_id=run.id, reason=f"a value of it cannot be read: {error}"
                ) from error
            else:
                return _Planned(plan, items, commit, going_on)

    def _picks(self, attempt: Attempt, graph: Graph, schedule: Schedule) -> bool:
        call = schedule.call
        return self._may_go_on(attempt, call.priority, graph.lane_of(call))

    def _done(self, planned: _Planned, answer: CommitAnswer, tell: Tell) -> None:
        plan, run = planned.plan, planned.plan.run
        before = run.values.size_bytes
        plan.done()
        key = (run.namespace, run.id)
        if key in self._runs:
            self._cached_bytes += run.values.size_bytes - before
            self._evict()
        if answer.now is not None:
            run.as_of = answer.now
        if run.state.is_ended or not run.state.jobs:
            self._forget(key)  # nobody here works on it until something else happens
        for attempt, outcome in planned.items:
            is_written = plan.settles(attempt.claim)  # else it came too late
            goes_on = planned.going_on.get(attempt.claim)
            tell(NodeSettled(attempt, outcome, is_written, goes_on, answer))

    async def _catch_up(self, runs: list[CachedRun]) -> None:
        """Take in what others wrote; what that cannot be done with is loaded anew."""
        there: list[CachedRun] = []
        with suppress(EventLogCorrupt, UnknownEvent, UnknownFlow):
            there = await _insist(partial(self._loader.catch_up, runs))
        for run in runs:
            if run not in there:
                self._forget((run.namespace, run.id))

    def _keep(self, key: RunKey, run: CachedRun) -> None:
        self._runs[key] = run
        self._cached_bytes += run.values.size_bytes
        self._evict()

    def _evict(self) -> None:
        """Forget the runs that were loaded first, if there are too many, or they are too large."""
        while len(self._runs) > CACHED_RUNS_MAX or (
            self._cached_bytes > CACHED_BYTES_MAX and len(self._runs) > 1
        ):
            self._forget(next(iter(self._runs)))

    def _forget(self, key: RunKey) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._cached_bytes -= run.values.size_bytes


async def _insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the store until it answers. Repeated, a commit counts once."""
    while True:
        try:
            return await ask()
        except StoreError:
            _log.exception("outcomes of runs were not written; trying again")
            await asyncio.sleep(RETRY_SECONDS)


def _by_run(items: Sequence[Item]) -> dict[RunKey, list[Item]]:
    groups: dict[RunKey, list[Item]] = {}
    for attempt, outcome in items:
        node = attempt.job.node
        assert node is not None
        groups.setdefault((attempt.job.namespace, node.run), []).append((attempt, outcome))
    return groups


def _without_stale(items: list[Item], result: CommitResult, tell: Tell) -> list[Item]:
    """The outcomes that are still ours to write."""
    stale = set(result.stale)
    for attempt, outcome in items:
        if attempt.claim in stale:
            tell(NodeSettled(attempt, outcome))
    return [item for item in items if item[0].claim not in stale]


BATCH_MAX = 500
STEPS_MAX = 64
WRITERS = 2
"""Steps are decided upon before they are committed: while the store is at one batch of them, the
next is decided. Of one run there is never more than one commit under way."""

JobSettled = Callable[[Attempt, NodeOutcome, Status | None], None]
NodesSettled = Callable[[NodeSettled], None]


class Commits:
    """Takes outcomes, and tells what the store made of each: a status, or None if it was stale."""

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        runs: RunCommits,
        settled: JobSettled,
        node_settled: NodesSettled,
        codec: Codec,
    ) -> None:
        self._store = store
        self._runs = runs
        self._codec = codec
        self._settled = settled
        self._node_settled = node_settled
        self._dropped = _dropped_kinds(settings)
        self._jobs = Batches(self._write_jobs, batch_max=BATCH_MAX)
        self._nodes = Batches(
            self._write_nodes, batch_max=STEPS_MAX, writers=WRITERS, key=lambda item: _run_of(*item)
        )

    def __len__(self) -> int:
        """Outcomes that wait for the next write."""
        return len(self._jobs) + len(self._nodes)

    def add(self, attempt: Attempt, outcome: NodeOutcome) -> None:
        batches = self._nodes if moves_run(attempt, outcome) else self._jobs
        batches.add((attempt, outcome), starts=not attempt.writes_itself)

    async def write_here(self) -> None:
        """Write what was added, within the caller's own task if nobody is writing."""
        await self._nodes.write_here()
        await self._jobs.write_here()

    async def flush(self) -> None:
        await self._nodes.flush()
        await self._jobs.flush()

    async def _write(self, pair: tuple[Attempt, NodeOutcome]) -> None:
        if moves_run(*pair):
            await self._write_nodes([pair])
        else:
            await self._write_jobs([pair])

    async def _write_nodes(self, batch: list[tuple[Attempt, NodeOutcome]]) -> None:
        left = {id(attempt): (attempt, outcome) for attempt, outcome in batch}

        def tell(settled: NodeSettled) -> None:
            del left[id(settled.attempt)]
            self._node_settled(settled)

        try:
            await self._runs.write(batch, tell)
        except Exception as error:
            await self._write_apart(list(left.values()), error)

    async def _write_jobs(self, batch: list[tuple[Attempt, NodeOutcome]]) -> None:
        for attempt, outcome in batch:
            if isinstance(outcome, Paused):
                await self._save_checkpoint(attempt, outcome)
        settlements = [self._settlement(attempt, outcome) for attempt, outcome in batch]
        try:
            statuses = await self._settle(settlements)
        except Exception as error:
            await self._write_apart(batch, error)
        else:
            for (attempt, outcome), status in zip(batch, statuses, strict=True):
                self._settled(attempt, outcome, status)

    async def _save_checkpoint(self, attempt: Attempt, outcome: Paused) -> None:
        """Before the job is parked: from then on somebody may resume it."""
        job = attempt.job
        while True:
            try:
                await save_checkpoint(self._store, job, owner_of(job), self._codec, outcome)
            except StaleClaim:  # as its settlement will tell
                return
            except StoreError:
                _log.exception("the checkpoint of job %s was not written", job.claim.id)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _settle(self, settlements: list[Settlement]) -> list[Status | None]:
        while True:
            try:
                return await self._store.jobs.settle(settlements)
            except StoreError:
                _log.exception("outcomes of %d jobs were not written", len(settlements))
                await asyncio.sleep(RETRY_SECONDS)

    async def _write_apart(
        self, batch: list[tuple[Attempt, NodeOutcome]], error: Exception
    ) -> None:
        """One outcome that the store refuses must not take the others with it."""
        if len(batch) != 1:
            for pair in batch:
                await self._write(pair)
            return
        [(attempt, outcome)] = batch
        _log.error("the outcome of job %s was refused", attempt.claim.id, exc_info=error)
        if attempt.progress is not None:  # it may be what was refused
            attempt.progress = None
            await self._write((attempt, outcome))
        elif isinstance(outcome, Completed | Buried | Cancelled | Paused | Skipped):
            await self._write((attempt, Failed(failure=describe(error))))
        elif attempt.job.node is not None:
            self._node_settled(NodeSettled(attempt, outcome))
        else:
            self._settled(attempt, outcome, None)

    def _settlement(self, attempt: Attempt, outcome: NodeOutcome) -> Settlement:
        assert not isinstance(outcome, Skipped), "only nodes are skipped"
        return Settlement(
            claim=attempt.job.claim,
            outcome=Released() if isinstance(outcome, Paused) else outcome,
            progress=attempt.progress,
            is_dropped=isinstance(outcome, self._dropped),
        )


def moves_run(attempt: Attempt, outcome: NodeOutcome) -> bool:
    """Whether an outcome is the affair of a run, rather than of the job alone."""
    return attempt.job.node is not None and not isinstance(outcome, GivenBack | Released)


def _run_of(attempt: Attempt, outcome: NodeOutcome) -> tuple[str, str]:
    """What two commits must not be about at the same time: one of them would come too late."""
    assert attempt.job.node is not None
    return attempt.job.namespace, attempt.job.node.run


def _dropped_kinds(settings: WorkerSettings) -> tuple[type, ...]:
    """The outcomes after which a job is hidden at once."""
    kinds: list[type] = []
    if settings.keep_completed == timedelta(0):
        kinds += [Completed, Cancelled]
    if settings.keep_failed == timedelta(0):
        kinds.append(Failed)
    if settings.keep_dead == timedelta(0):
        kinds.append(Buried)
    return tuple(kinds)
