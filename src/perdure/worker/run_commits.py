"""Outcomes of nodes: decided upon, committed for many runs together, and gone on with in place.

The worker keeps the states of the runs that it works on, so a step costs one commit and no read.
When another worker wrote to a run meanwhile, its events are read and the outcome decided upon anew.
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

from perdure.engine.cached_run import CachedRun
from perdure.engine.graphs import Graphs
from perdure.engine.loading import Loader
from perdure.engine.new_jobs import Place
from perdure.engine.plan import Plan
from perdure.errors import EventLogCorrupt, StoreError, UnknownEvent, UnknownFlow, ValueMissing
from perdure.model.graph import Graph
from perdure.model.ids import RunId
from perdure.model.job import Claim, NewJob
from perdure.model.lane import Lane
from perdure.model.outcome import NodeOutcome, Released, Retried, Settlement
from perdure.model.payload import Codec
from perdure.model.run import CommitAnswer, CommitResult, CommitState, RunCommit
from perdure.rules.decision import Schedule
from perdure.rules.failure import describe
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.nodes import FlowCode, happening_of, repeated_by

RETRY_SECONDS = 1.0
LEAVE_FOR = timedelta(seconds=10)
"""How long a worker leaves the job of a run that it is too old for to newer ones."""
CACHED_RUNS_MAX = 20_000
CACHED_BYTES_MAX = 256 * 1024 * 1024
_log = logging.getLogger("perdure.worker")

Item = tuple[Attempt, NodeOutcome]
RunKey = tuple[str, RunId]
T = TypeVar("T")


class Settled(NamedTuple):
    """What the store made of one node's outcome."""

    attempt: Attempt
    outcome: NodeOutcome
    is_written: bool = False
    goes_on: NewJob | None = None
    answer: CommitAnswer | None = None


Tell = Callable[[Settled], None]


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
            tell(Settled(attempt, outcome))

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
            tell(Settled(attempt, outcome, is_written, goes_on, answer))

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
            tell(Settled(attempt, outcome))
    return [item for item in items if item[0].claim not in stale]
