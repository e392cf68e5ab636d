"""Acting on one run from outside a job: decide, commit, and ask anew if somebody was faster."""

from __future__ import annotations

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

    async def act(
        self, namespace: str, id: RunId, happening: Happening, *, closes: str | None = None
    ) -> CachedRun:
        """Let something happen to a run; the run as it is afterwards.

        ``closes`` is a wait that ends with it, whether or not the run cares any more.
        """
        run = await self.loader.load(namespace, id)
        while True:
            plan = await self.planned(run, happening)
            if closes is not None:
                plan.close(closes)
            if plan.is_empty or await self.commit(plan):
                return run
            if not await self.loader.catch_up([run]):
                raise RunNotFound(id)

    async def planned(self, run: CachedRun, happening: Happening) -> Plan:
        while True:
            plan = Plan(run, Place(run.namespace, self._graphs, self._codec))
            try:
                plan.happen(happening)
            except ValueMissing:
                await self.loader.read_values(run, sorted(run.refs))
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
