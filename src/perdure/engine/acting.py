"""Acting on one run from outside a job: decide, commit, and ask anew if somebody was faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.engine.cached_run import CachedRun
from perdure.engine.graphs import Graphs
from perdure.engine.loading import Loader
from perdure.engine.new_jobs import Place
from perdure.engine.plan import Plan
from perdure.errors import RunNotFound, ValueMissing
from perdure.model.happening import Happening
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.run import CommitState
from perdure.store.contract import Store


class Acting:
    """What clients ask of runs, and what happens to runs by itself."""

    def __init__(self, store: Store, graphs: Graphs, codec: Codec) -> None:
        self.loader = Loader(store, graphs, codec)
        self._store = store
        self._graphs = graphs
        self._codec = codec

    async def act(self, namespace: str, id: RunId, happening: Happening) -> CachedRun:
        """Let something happen to a run; the run as it is afterwards."""
        run = await self.loader.load(namespace, id)
        await self._insist(run, [happening])
        return run

    async def end_waits(self, run: CachedRun, ended: Mapping[str, Happening]) -> None:
        """Let waits of a run end, by their keys, in one commit.

        One that the run does not care about any more is closed all the same.
        """
        await self._insist(run, list(ended.values()), list(ended))

    async def _insist(
        self, run: CachedRun, happenings: Sequence[Happening], closes: Sequence[str] = ()
    ) -> None:
        while True:
            plan = await self.planned(run, *happenings)
            for key in closes:
                # A run that is paused still waits for it, and so does one that waits anew.
                if key not in plan.state.live:
                    plan.close(key)
            if plan.is_empty or await self.commit(plan):
                return
            if not await self.loader.catch_up([run]):
                raise RunNotFound(run.id)

    async def planned(self, run: CachedRun, *happenings: Happening) -> Plan:
        while True:
            plan = Plan(run, Place(run.namespace, self._graphs, self._codec))
            try:
                for happening in happenings:
                    plan.happen(happening)
            except ValueMissing as error:
                await self.loader.read_values(run, error.numbers)
            else:
                return plan

    async def commit(self, plan: Plan) -> bool:
        """Write a plan; False if the run has moved on since."""
        commit, _ = plan.commit()
        answer = await self._store.commit_runs([commit])
        if answer.results[0].state is not CommitState.DONE:
            return False
        plan.done()
        return True
