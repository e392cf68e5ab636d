"""Workers as the record shows them."""

from __future__ import annotations

from perdure.clock import ManualClock
from perdure.model.ids import WorkerId
from perdure.model.job import Status
from perdure.model.outcome import Completed
from perdure.model.worker import WorkerState
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    HOUR,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    SECOND,
    WORKER,
    hold,
    settle,
    status_of,
    worker_info,
)


class TestQueriesWorkers:
    async def test_shows_each_worker_with_what_it_holds(
        self, store: Store, clock: ManualClock
    ) -> None:
        info = worker_info(tags=("gpu",))
        await store.maintenance.register_worker(info)
        first, second = await hold(store), await hold(store)
        done = await hold(store)
        await settle(store, done, Completed(output=b"1"))
        await hold(store, worker=OTHER_WORKER)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [second.id])

        [state] = await store.queries.workers(NAMESPACE)

        assert state == WorkerState(
            info=info,
            started_at=clock(),
            seen_at=clock(),
            running=(first.id, second.id),
        )

    async def test_shows_those_of_one_namespace_or_of_all(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.maintenance.register_worker(worker_info())
        clock.advance(SECOND)
        await store.maintenance.register_worker(worker_info(id=OTHER_WORKER, namespace="team-b"))

        async def seen(namespace: str | None) -> list[WorkerId]:
            return [state.info.id for state in await store.queries.workers(namespace)]

        assert await seen(NAMESPACE) == [WORKER]
        assert await seen("team-b") == [OTHER_WORKER]
        assert await seen(None) == [WORKER, OTHER_WORKER]
        assert await seen("nobody") == []


class TestMaintenanceRegisterWorker:
    async def test_says_that_a_worker_is_still_there(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        await store.maintenance.register_worker(worker_info())
        clock.advance(MINUTE)
        await store.maintenance.register_worker(worker_info(concurrency=4))

        [state] = await store.queries.workers(NAMESPACE)

        assert (state.started_at, state.seen_at) == (since, clock())
        assert state.info.concurrency == 4


class TestMaintenanceRemoveWorker:
    async def test_removes_this_worker_and_no_other(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info())
        await store.maintenance.register_worker(worker_info(id=OTHER_WORKER))

        await store.maintenance.remove_worker(WORKER)

        assert [state.info.id for state in await store.queries.workers(None)] == [OTHER_WORKER]

    async def test_leaves_the_jobs_it_holds_to_their_leases(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info())
        held = await hold(store)

        await store.maintenance.remove_worker(WORKER)

        assert await status_of(store, held.id) is Status.ACTIVE

    async def test_does_nothing_for_a_worker_that_is_not_there(self, store: Store) -> None:
        await store.maintenance.remove_worker(WORKER)


class TestMaintenancePruneWorkers:
    async def test_drops_workers_not_seen_for_that_long(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.maintenance.register_worker(worker_info())
        await store.maintenance.register_worker(worker_info(id=OTHER_WORKER))
        clock.advance(HOUR)
        await store.maintenance.register_worker(worker_info())
        clock.advance(MINUTE)

        assert await store.maintenance.prune_workers(NAMESPACE, HOUR) == 1

        assert [state.info.id for state in await store.queries.workers(None)] == [WORKER]
        assert await store.maintenance.prune_workers(NAMESPACE, HOUR) == 0

    async def test_leaves_a_worker_that_need_not_have_been_seen(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        slow = worker_info(lease=30 * MINUTE)
        await store.maintenance.register_worker(slow)
        clock.advance(HOUR - SECOND)

        assert await store.maintenance.prune_workers(NAMESPACE, 5 * MINUTE) == 0
        await store.maintenance.register_worker(slow)
        assert [state.started_at for state in await store.queries.workers(NAMESPACE)] == [since]
        clock.advance(HOUR)
        assert await store.maintenance.prune_workers(NAMESPACE, 5 * MINUTE) == 1
