"""Migrating: a run goes on in another version of its flow, if nothing it has done would be lost."""

from __future__ import annotations

from perdure.client.run_acts import RunActs, moved
from perdure.client.run_records import RunMoved
from perdure.diagnostics import Fault, declare
from perdure.engine.cached_run import CachedRun
from perdure.engine.migration import differences
from perdure.errors import MigrationRefused
from perdure.flows.built import BuiltFlow
from perdure.model.ids import RunId
from perdure.model.job import HELD
from perdure.model.trigger import MigrateRun
from perdure.store.contract import Store

NODE_RUNNING = declare(
    "migration.node_running",
    "node {node!r} is being executed; pause the run first, or wait for its end",
)


async def migrate(acts: RunActs, id: RunId, to: BuiltFlow, by: str | None) -> RunMoved:
    """Move the run; checked anew whenever it has gone on in the meantime."""
    before = await acts.found(id)
    runs, store = await acts.runs(), await acts.store()
    acts.graphs.add(to.graphs)
    command = MigrateRun(to=to.graph.ref, by=by)
    while True:
        run = await runs.load(before.namespace, id)
        # Planned first: an ended run is refused as such, whatever the versions are.
        plan = await runs.plan(run, lambda plan: plan.apply(command))
        if reasons := (*differences(run.graph, to.graph, run.state), *await _held(store, run)):
            raise MigrationRefused(*reasons, run_id=id, to=to.graph.text)
        if run.graph.version == to.version:
            return moved(before, run)
        await acts.graphs.save(store, before.namespace, to.graphs)
        if await runs.commit([plan]):
            return moved(before, run)


async def _held(store: Store, run: CachedRun) -> tuple[Fault, ...]:
    """Jobs that a worker executes: their outcome would be that of another version."""
    return tuple(
        NODE_RUNNING.fault(("nodes", job.node.key), node=job.node.key)
        for job in await store.queries.run_jobs(run.namespace, run.id)
        if job.status in HELD and job.node is not None
    )
