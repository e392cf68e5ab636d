"""Which runs that are under way the code at hand could not go on with, and where they could go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from perdure.client.run_acts import RunActs
from perdure.diagnostics import render
from perdure.engine.cached_run import CachedRun
from perdure.engine.migration import differences, nearest_to
from perdure.flows.built import BuiltFlow
from perdure.model.graph import Graph
from perdure.model.ids import RunId
from perdure.model.run import FlowCount, Run, RunFilter, RunStatus
from perdure.model.value import Value

RUNS_AT_ONCE = 100


class StrandedRun(Value):
    """A run that is under way in a version which is not at hand."""

    id: RunId
    status: RunStatus
    differences: tuple[str, ...] = ()
    """Why it cannot be migrated to the nearest version."""


class StrandedVersion(Value):
    """A version of a flow that is not at hand, with its runs."""

    namespace: str
    flow: str
    version: str
    nearest: str | None
    """The version at hand that is most like it; None: there is no flow of its name."""
    runs: tuple[StrandedRun, ...]

    @property
    def migratable(self) -> int:
        """How many of the runs could be migrated to the nearest version."""
        return 0 if self.nearest is None else sum(not run.differences for run in self.runs)


async def stranded(
    acts: RunActs, namespace: str | None, flows: Iterable[BuiltFlow]
) -> list[StrandedVersion]:
    """What unended runs there are of versions other than these, by version; newest first."""
    known = {text: each.graph for flow in flows for text, each in flow.with_children().items()}
    store = await acts.store()
    return [
        await _stranded_version(acts, count, list(known.values()))
        for count in sorted(await store.admin.live_flows(namespace), key=_order)
        if f"{count.flow}@{count.version}" not in known
    ]


def _order(count: FlowCount) -> tuple[str, str, str]:
    return (count.namespace, count.flow, count.version)


async def _stranded_version(
    acts: RunActs, count: FlowCount, known: Sequence[Graph]
) -> StrandedVersion:
    graph = await acts.graphs.load(
        await acts.store(), count.namespace, f"{count.flow}@{count.version}"
    )
    nearest = nearest_to(graph, known)
    runs: list[StrandedRun] = []
    async for page in _pages(acts, count):
        runs.extend(await _compared(acts, page, nearest))
    return StrandedVersion(
        namespace=count.namespace,
        flow=count.flow,
        version=count.version,
        nearest=None if nearest is None else nearest.version,
        runs=tuple(runs),
    )


async def _pages(acts: RunActs, count: FlowCount) -> AsyncIterator[list[Run]]:
    store = await acts.store()
    before = None
    while True:
        wanted = RunFilter(
            namespace=count.namespace,
            flow=count.flow,
            version=count.version,
            is_ended=False,
            before=before,
        )
        page = await store.queries.list_runs(wanted, RUNS_AT_ONCE)
        if page:
            yield page
        if len(page) < RUNS_AT_ONCE:
            return
        before = (page[-1].created_at, page[-1].id)


async def _compared(acts: RunActs, runs: Sequence[Run], nearest: Graph | None) -> list[StrandedRun]:
    if nearest is None:
        return [StrandedRun(id=run.id, status=run.status) for run in runs]
    in_store = await acts.runs()
    loaded = await in_store.load_many([(run.namespace, run.id) for run in runs])
    return [
        StrandedRun(
            id=run.id,
            status=run.status,
            differences=tuple(map(render, differences(found.graph, nearest, found.state)))
            if isinstance(found, CachedRun)
            else (str(found),),
        )
        for run, found in zip(runs, loaded, strict=True)
    ]
