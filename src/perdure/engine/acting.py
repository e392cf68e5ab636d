"""Acting on runs from outside a job: decide, commit, and ask anew if somebody was faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.engine.cached_run import CachedRun
from perdure.engine.graphs import Graphs
from perdure.engine.loading import Loader
from perdure.engine.new_jobs import Place
from perdure.engine.plan import Plan
from perdure.errors import EventLogCorrupt, RunNotFound, ValueMissing
from perdure.model.happening import Happening
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.run import CommitState
from perdure.store.contract import Store

Ended = tuple[CachedRun, Mapping[str, Happening]]
"""A run, and what ended its waits, by their keys."""


class Acting:
    """What clients ask of runs, and what happens to runs by itself."""

    def __init__(self, store: Store, graphs: Graphs, codec: Codec) -> None:
        self.loader = Loader(store, graphs, codec)
        self._store = store
        self._graphs = graphs
        self._codec = codec

    async def act(self, namespace: str, id: RunId, happening: Happening) -> CachedRun:
        """Let something happen to a run; the run as it is afterwards."""
        return (await self.acted(namespace, id, happening)).run

    async def acted(self, namespace: str, id: RunId, happening: Happening) -> Plan:
        """The same; what was written for it, which may be nothing."""
        run = await self.loader.load(namespace, id)
        while True:
            plan = await self.planned(run, happening)
            if plan.is_empty or await self.commit(plan):
                return plan
            if not await self.loader.catch_up([run]):
                raise RunNotFound(run_id=id)

    async def end_waits(self, ended: Sequence[Ended]) -> None:
        """Let waits of several runs end, in one commit for each, all written together.

        A wait that its run does not care about any more is closed all the same. Of a run that has
        moved on meanwhile nothing is written: it may wait for something else by now under the same
        key, so whoever calls this has to look again.
        """
        plans = [await self._ending(run, happenings) for run, happenings in ended]
        await self.commit_all([plan for plan in plans if not plan.is_empty])

    async def planned(self, run: CachedRun, *happenings: Happening) -> Plan:
        while True:
            plan = Plan(run, Place(run.namespace, self._graphs, self._codec))
            try:
                for happening in happenings:
                    plan.happen(happening)
            except ValueMissing as error:
                await self.loader.read_values(run, error.numbers)
            except (msgspec.DecodeError, RecursionError) as error:
                raise EventLogCorrupt(
                    run_id=run.id, reason=f"a value of it cannot be read: {error}"
                ) from error
            else:
                return plan

    async def commit(self, plan: Plan) -> bool:
        """Write a plan; False if the run has moved on since."""
        return bool(await self.commit_all([plan]))

    async def commit_all(self, plans: Sequence[Plan]) -> set[Plan]:
        """Write plans together; those whose runs had not moved on."""
        if not plans:
            return set()
        commits = [plan.commit()[0] for plan in plans]
        answer = await self._store.runs.commit(commits)
        written = {
            plan
            for plan, result in zip(plans, answer.results, strict=True)
            if result.state is CommitState.DONE
        }
        for plan in written:
            plan.done()
        return written

    async def _ending(self, run: CachedRun, happenings: Mapping[str, Happening]) -> Plan:
        plan = await self.planned(run, *happenings.values())
        for key in happenings:
            # A run that is paused still waits for it, and so does one that waits anew.
            if key not in plan.state.live:
                plan.close(key)
        return plan
