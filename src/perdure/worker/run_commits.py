"""Outcomes of nodes: decided upon, committed for many runs together, and gone on with in place.

The worker keeps the states of the runs that it works on, so a step costs one commit and no read.
When another worker wrote to a run meanwhile, its events are read and the outcome decided upon anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from perdure.engine.cached_run import CachedRun
from perdure.engine.graphs import Graphs
from perdure.engine.loading import Loader
from perdure.engine.new_jobs import Place
from perdure.engine.plan import Plan
from perdure.errors import PerdureError, StoreError, ValueMissing
from perdure.model.ids import RunId
from perdure.model.job import Claim, NewJob
from perdure.model.outcome import Outcome, Released, Settlement
from perdure.model.payload import Codec
from perdure.model.run import CommitAnswer, CommitResult, CommitState, RunCommit
from perdure.rules.deciding import Schedule
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.nodes import FlowCode, happening_of, repeated_by

RETRY_SECONDS = 1.0
CACHED_RUNS_MAX = 20_000
CACHED_BYTES_MAX = 256 * 1024 * 1024
_log = logging.getLogger("perdure.worker")

Item = tuple[Attempt, Outcome]
RunKey = tuple[str, RunId]


class Settled(NamedTuple):
    """What the store made of one node's outcome."""

    attempt: Attempt
    outcome: Outcome
    is_written: bool
    goes_on: NewJob | None
    answer: CommitAnswer | None


class _Planned(NamedTuple):
    plan: Plan
    items: list[Item]
    commit: RunCommit
    going_on: dict[Claim, NewJob]


class RunCommits:
    """Writes outcomes of node jobs. Used by one writer at a time."""

    def __init__(
        self,
        store: Store,
        graphs: Graphs,
        codec: Codec,
        code: FlowCode,
        may_go_on: Callable[[Attempt, Schedule], bool],
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

    async def write(self, items: Sequence[Item]) -> list[Settled]:
        """Commit these outcomes, however often others get in between; what became of each."""
        settled: list[Settled] = []
        left = list(items)
        while left:
            groups = _by_run(left)
            await self._load_missing(groups, settled)
            planned = [await self._planned(self._runs[key], group) for key, group in groups.items()]
            answer = await self._commit([each.commit for each in planned])
            left = []
            moved_on = []
            for each, result in zip(planned, answer.results, strict=True):
                if result.state is CommitState.DONE:
                    settled += self._done(each, answer)
                elif result.state is CommitState.STALE:
                    left += _without_stale(each.items, result, settled)
                else:
                    left += each.items
                    moved_on.append(each.plan.run)
            await self._catch_up(moved_on)
        return settled

    async def _load_missing(self, groups: dict[RunKey, list[Item]], settled: list[Settled]) -> None:
        """Have the runs of all groups at hand; a run that cannot be used writes nothing."""
        missing = [key for key in groups if key not in self._runs]
        if not missing:
            return
        for key, run in zip(missing, await self._loader.load_many(missing), strict=True):
            if isinstance(run, PerdureError):
                settled += await self._park(groups.pop(key), run)
            else:
                self._keep(key, run)

    async def _park(self, items: list[Item], error: PerdureError) -> list[Settled]:
        """Keep the jobs of a run whose log cannot be used from being executed over and over."""
        _log.error("outcomes are not written, and their jobs parked: %s", error)
        released = [Settlement(claim=attempt.claim, outcome=Released()) for attempt, _ in items]
        await self._store.settle_jobs(released)
        return [Settled(attempt, outcome, False, None, None) for attempt, outcome in items]

    async def _planned(self, run: CachedRun, items: list[Item]) -> _Planned:
        while True:
            plan = Plan(run, Place(run.namespace, self._graphs, self._codec))
            try:
                for attempt, outcome in items:
                    happening = happening_of(attempt, outcome, run.graph, self._code, self._codec)
                    picks = partial(self._may_go_on, attempt)
                    plan.settle(attempt.claim, happening, repeats=repeated_by(outcome), picks=picks)
                commit, going_on = plan.commit()
            except ValueMissing:
                await self._loader.read_values(run, sorted(run.refs))
            else:
                return _Planned(plan, items, commit, going_on)

    async def _commit(self, commits: list[RunCommit]) -> CommitAnswer:
        while True:
            try:
                return await self._store.commit_runs(commits, self._urgent_lanes())
            except StoreError:
                _log.exception("the steps of %d runs were not written", len(commits))
                await asyncio.sleep(RETRY_SECONDS)

    def _done(self, planned: _Planned, answer: CommitAnswer) -> list[Settled]:
        plan, run = planned.plan, planned.plan.run
        before = run.values.size_bytes
        plan.done()
        key = (run.namespace, run.id)
        self._cached_bytes += run.values.size_bytes - before
        if run.state.is_ended or not run.state.jobs:
            self._forget(key)  # nobody here works on it until something else happens
        return [
            Settled(attempt, outcome, True, planned.going_on.get(attempt.claim), answer)
            for attempt, outcome in planned.items
        ]

    async def _catch_up(self, runs: list[CachedRun]) -> None:
        if not runs:
            return
        there = await self._loader.catch_up(runs)
        for run in runs:
            if run not in there:
                self._forget((run.namespace, run.id))

    def _keep(self, key: RunKey, run: CachedRun) -> None:
        self._runs[key] = run
        self._cached_bytes += run.values.size_bytes
        while len(self._runs) > CACHED_RUNS_MAX or (
            self._cached_bytes > CACHED_BYTES_MAX and len(self._runs) > 1
        ):
            self._forget(next(iter(self._runs)))

    def _forget(self, key: RunKey) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._cached_bytes -= run.values.size_bytes


def _by_run(items: Sequence[Item]) -> dict[RunKey, list[Item]]:
    groups: dict[RunKey, list[Item]] = {}
    for attempt, outcome in items:
        node = attempt.job.node
        assert node is not None
        groups.setdefault((attempt.job.namespace, node.run), []).append((attempt, outcome))
    return groups


def _without_stale(items: list[Item], result: CommitResult, settled: list[Settled]) -> list[Item]:
    """The outcomes that are still ours to write."""
    stale = set(result.stale)
    settled += [
        Settled(attempt, outcome, False, None, None)
        for attempt, outcome in items
        if attempt.claim in stale
    ]
    return [item for item in items if item[0].claim not in stale]
