"""Workers as the record shows them."""

from __future__ import annotations

from perdure.clock import ManualClock
from perdure.model.ids import WorkerId
from perdure.model.job import Status
from perdure.model.outcome import Completed
from perdure.model.worker import WorkerState
from perdure.store.contract import Store
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


class TestWorkers:
    async def test_shows_each_worker_with_what_it_holds(
        self, store: Store, clock: ManualClock
    ) -> None:
        info = worker_info(tags=("gpu",))
        await store.register_worker(info)
        first, second = await hold(store), await hold(store)
        done = await hold(store)
        await settle(store, done, Completed(output=b"1"))
        await hold(store, worker=OTHER_WORKER)
        await store.abort_jobs(NAMESPACE, [second.id])

        [state] = await store.workers(NAMESPACE)

        assert state == WorkerState(
            info=info,
            started_at=clock(),
            seen_at=clock(),
            running=(first.id, second.id),
        )

    async def test_shows_those_of_one_namespace_or_of_all(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.register_worker(worker_info())
        clock.advance(SECOND)
        await store.register_worker(worker_info(id=OTHER_WORKER, namespace="team-b"))

        async def seen(namespace: str | None) -> list[WorkerId]:
            return [state.info.id for state in await store.workers(namespace)]

        assert await seen(NAMESPACE) == [WORKER]
        assert await seen("team-b") == [OTHER_WORKER]
        assert await seen(None) == [WORKER, OTHER_WORKER]
        assert await seen("nobody") == []


class TestRegisterWorker:
    async def test_says_that_a_worker_is_still_there(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        await store.register_worker(worker_info())
        clock.advance(MINUTE)
        await store.register_worker(worker_info(concurrency=4))

        [state] = await store.workers(NAMESPACE)

        assert (state.started_at, state.seen_at) == (since, clock())
        assert state.info.concurrency == 4


class TestRemoveWorker:
    async def test_removes_this_worker_and_no_other(self, store: Store) -> None:
        await store.register_worker(worker_info())
        await store.register_worker(worker_info(id=OTHER_WORKER))

        await store.remove_worker(WORKER)

        assert [state.info.id for state in await store.workers(None)] == [OTHER_WORKER]

    async def test_leaves_the_jobs_it_holds_to_their_leases(self, store: Store) -> None:
        await store.register_worker(worker_info())
        held = await hold(store)

        await store.remove_worker(WORKER)

        assert await status_of(store, held.id) is Status.ACTIVE

    async def test_does_nothing_for_a_worker_that_is_not_there(self, store: Store) -> None:
        await store.remove_worker(WORKER)


class TestPruneWorkers:
    async def test_drops_workers_not_seen_for_that_long(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.register_worker(worker_info())
        await store.register_worker(worker_info(id=OTHER_WORKER))
        clock.advance(HOUR)
        await store.register_worker(worker_info())
        clock.advance(MINUTE)

        assert await store.prune_workers(NAMESPACE, HOUR) == 1

        assert [state.info.id for state in await store.workers(None)] == [WORKER]
        assert await store.prune_workers(NAMESPACE, HOUR) == 0

    async def test_leaves_a_worker_that_need_not_have_been_seen(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        slow = worker_info(lease=30 * MINUTE)
        await store.register_worker(slow)
        clock.advance(HOUR - SECOND)

        assert await store.prune_workers(NAMESPACE, 5 * MINUTE) == 0
        await store.register_worker(slow)
        assert [state.started_at for state in await store.workers(NAMESPACE)] == [since]
        clock.advance(HOUR)
        assert await store.prune_workers(NAMESPACE, 5 * MINUTE) == 1
