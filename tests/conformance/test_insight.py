"""What operators ask now and then: how a store is, which flows it has, what has ended."""

from __future__ import annotations

from perdure.clock import ManualClock
from perdure.model.facts import ORPHANS_MAX, EndedCounts, FlowRuns, OrphanedRun
from perdure.model.ids import RunId
from perdure.model.job import Status
from perdure.model.run import RunStatus
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, MINUTE, put_in
from tests.conformance.run_builders import (
    COMPLETED,
    FAILED,
    FLOW,
    NAMESPACE,
    OTHER_NAMESPACE,
    PAUSED,
    RUN,
    VERSION,
    WAITING,
    child_wait,
    go_on,
    new_child,
    node_job,
    signal,
    submit,
)


class TestAdminInspectStorage:
    async def test_finds_nothing_wrong_with_a_new_store(self, store: Store) -> None:
        found = await store.admin.inspect_storage()

        assert (found.damages, found.missing_indexes, found.invalid_indexes) == ((), {}, {})
        assert found.orphaned_runs == ()
        assert found.schema_version is None or found.schema_version >= 4

    async def test_names_runs_that_have_no_job_and_no_wait(self, store: Store) -> None:
        await submit(store)
        await submit(store, id=RunId("waits"), status=WAITING, waits=(signal(),))
        await submit(store, id=RunId("works"), jobs=(node_job(run=RunId("works")),))
        await submit(store, id=RunId("paused"), status=PAUSED)
        await submit(store, id=RunId("over"), status=COMPLETED)
        await submit(store, namespace=OTHER_NAMESPACE)

        assert set((await store.admin.inspect_storage()).orphaned_runs) == {
            OrphanedRun(run=RUN, namespace=NAMESPACE),
            OrphanedRun(run=RUN, namespace=OTHER_NAMESPACE),
        }

    async def test_names_no_more_than_so_many_of_them(self, store: Store) -> None:
        for number in range(ORPHANS_MAX + 1):
            await submit(store, id=RunId(f"run-{number:03}"))

        assert len((await store.admin.inspect_storage()).orphaned_runs) == ORPHANS_MAX


class TestAdminFlowStats:
    async def test_counts_runs_of_every_stored_version(
        self, store: Store, clock: ManualClock
    ) -> None:
        for namespace, version in (
            (NAMESPACE, VERSION),
            (NAMESPACE, "v2"),
            (OTHER_NAMESPACE, "v1"),
        ):
            await store.runs.save_definition(namespace, FLOW, version, b"{}")
        await submit(store)
        clock.advance(MINUTE)
        await submit(store, id=RunId("second"))
        await submit(store, id=RunId("over"), status=COMPLETED)

        counted = FlowRuns(
            namespace=NAMESPACE,
            flow=FLOW,
            version=VERSION,
            live=2,
            ended=1,
            last_submitted_at=clock(),
        )
        unused = FlowRuns(
            namespace=NAMESPACE, flow=FLOW, version="v2", live=0, ended=0, last_submitted_at=None
        )
        assert await store.admin.flow_stats(NAMESPACE) == [counted, unused]
        assert [each.namespace for each in await store.admin.flow_stats(None)] == [
            NAMESPACE,
            NAMESPACE,
            OTHER_NAMESPACE,
        ]


class TestAdminCountEnded:
    async def test_counts_what_pruning_would_remove(self, store: Store, clock: ManualClock) -> None:
        await put_in(store, Status.COMPLETED, namespace=NAMESPACE)
        await put_in(store, Status.DEAD, namespace=NAMESPACE)
        await submit(store, status=FAILED)
        clock.advance(HOUR)
        await put_in(store, Status.COMPLETED, namespace=NAMESPACE)
        await put_in(store, Status.COMPLETED, namespace=OTHER_NAMESPACE)
        await put_in(store, Status.WAITING, namespace=NAMESPACE)
        await submit(store, id=RunId("just now"), status=COMPLETED)

        ended = await store.admin.count_ended(NAMESPACE, HOUR)

        jobs = {Status.COMPLETED: 1, Status.DEAD: 1}
        assert ended == EndedCounts(jobs=jobs, runs={RunStatus.FAILED: 1})
        assert await store.maintenance.prune_jobs(NAMESPACE, dict.fromkeys(jobs, HOUR), 10) == 2
        assert await store.maintenance.prune_runs(NAMESPACE, {RunStatus.FAILED: HOUR}, 10) == 1
        assert await store.admin.count_ended(NAMESPACE, HOUR) == EndedCounts(jobs={}, runs={})

    async def test_leaves_out_children_which_go_with_their_parent(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(status=COMPLETED),))
        await go_on(store, status=COMPLETED)
        clock.advance(HOUR)

        ended = await store.admin.count_ended(NAMESPACE, HOUR)
        assert ended.runs == {RunStatus.COMPLETED: 1}
