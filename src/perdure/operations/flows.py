"""Operations on flow versions: those with runs, and those that no given flow can serve."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from perdure.engine.cached_run import CachedRun
from perdure.engine.migration import differences, nearest_to
from perdure.model import check
from perdure.model.facts import FlowRuns
from perdure.model.graph import Graph
from perdure.model.run import FlowCount, Run, RunFilter
from perdure.operations.backend import AnyFlow
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import Page, page_of_all
from perdure.operations.records import UnservedRun, UnservedVersion

RUNS_AT_ONCE = 100


class Flows(Group):
    """Flow versions with runs."""

    @operation("flows.list", role=Role.VIEWER)
    async def list(self, *, limit: int = 1_000, cursor: str | None = None) -> Page[FlowRuns]:
        """List flow versions and count their runs."""
        store = await self._backend.store()
        return page_of_all(
            "flows.list",
            await store.admin.flow_stats(self._backend.visible),
            limit,
            cursor,
            lambda flow: (flow.namespace, flow.flow, flow.version),
        )

    @operation("flows.unserved", role=Role.VIEWER)
    async def unserved(self, flows: Iterable[AnyFlow]) -> Sequence[UnservedVersion]:
        """List unfinished runs that your flows cannot continue.

        By version. ``flows`` are built flows, or names of the client's ``flows``. Each version
        comes with the most similar of your flows, and each run with the faults that prevent its
        migration to it.
        """
        known = {
            text: each.graph
            for flow in check.listed(flows, "flows", "flows")
            for text, each in self._backend.flow(flow).with_children().items()
        }
        store = await self._backend.store()
        counts = await store.admin.live_flows(self._backend.visible)
        return [
            await self._version(count, tuple(known.values()))
            for count in sorted(counts, key=lambda each: (each.namespace, each.flow, each.version))
            if f"{count.flow}@{count.version}" not in known
        ]

    async def _version(self, count: FlowCount, known: Sequence[Graph]) -> UnservedVersion:
        store = await self._backend.store()
        text = f"{count.flow}@{count.version}"
        graph = await self._backend.graphs.load(store, count.namespace, text)
        nearest = nearest_to(graph, known)
        wanted = RunFilter(
            namespace=count.namespace, flow=count.flow, version=count.version, is_ended=False
        )
        runs: tuple[UnservedRun, ...] = ()
        while page := await store.queries.list_runs(wanted, RUNS_AT_ONCE):
            runs += await self._compared(page, nearest)
            wanted = replace(wanted, before=(page[-1].created_at, page[-1].id))
        return UnservedVersion(
            namespace=count.namespace,
            flow=count.flow,
            version=count.version,
            nearest=None if nearest is None else nearest.version,
            runs=runs,
        )

    async def _compared(
        self, runs: Sequence[Run], nearest: Graph | None
    ) -> tuple[UnservedRun, ...]:
        if nearest is None:
            return tuple(UnservedRun(id=run.id, status=run.status) for run in runs)
        engine = await self._backend.engine()
        loaded = await engine.load_many([(run.namespace, run.id) for run in runs])
        return tuple(
            UnservedRun(
                id=run.id,
                status=run.status,
                differences=differences(found.graph, nearest, found.state)
                if isinstance(found, CachedRun)
                else found.faults,
            )
            for run, found in zip(runs, loaded, strict=True)
        )
