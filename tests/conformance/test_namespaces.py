"""Namespaces: each sees and touches only its own rows, and an operator looks across all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, JobFilter, Status, StatusChange
from perdure.model.outcome import Completed
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    HOUR,
    MINUTE,
    PARTITION,
    claim_ids,
    hold,
    insert,
    put_in,
    record_of,
    settle,
    worker_info,
)

MINE, THEIRS = "team-a", "team-b"

Act = Callable[[Store, str | None, Sequence[JobId]], Awaitable[list[StatusChange]]]
ACTS: dict[str, tuple[Status, Act]] = {
    "abort": (
        Status.ACTIVE,
        lambda store, *arguments: store.admin.change_jobs(Transition.ABORT, *arguments),
    ),
    "disable": (
        Status.ACTIVE,
        lambda store, *arguments: store.admin.change_jobs(Transition.DISABLE, *arguments),
    ),
    "enable": (
        Status.DISABLED,
        lambda store, *arguments: store.admin.change_jobs(Transition.ENABLE, *arguments),
    ),
    "retry": (
        Status.DEAD,
        lambda store, *arguments: store.admin.change_jobs(Transition.RETRY, *arguments),
    ),
    "resume": (
        Status.PAUSED,
        lambda store, *arguments: store.admin.change_jobs(Transition.RESUME, *arguments),
    ),
}


class TestNamespaces:
    @pytest.mark.parametrize("name", ACTS)
    async def test_do_nothing_to_jobs_of_another(self, store: Store, name: str) -> None:
        status, act = ACTS[name]
        theirs = await put_in(store, status, namespace=THEIRS)
        before = await record_of(store, theirs.id)

        assert await act(store, MINE, [theirs.id]) == []
        assert await record_of(store, theirs.id) == before

    @pytest.mark.parametrize("name", ACTS)
    async def test_are_all_within_reach_of_an_operator(self, store: Store, name: str) -> None:
        status, act = ACTS[name]
        ids = [(await put_in(store, status, namespace=place)).id for place in (MINE, THEIRS)]

        moved = await act(store, None, ids)

        assert {each.id for each in moved} == set(ids)
        assert all(each.before is status is not each.after for each in moved)

    async def test_show_only_their_own_jobs(self, store: Store) -> None:
        mine, theirs = await insert(store, namespace=MINE), await insert(store, namespace=THEIRS)

        async def listed(namespace: str | None) -> list[JobId]:
            jobs = await store.queries.list_jobs(JobFilter(namespace=namespace), 10)
            assert await store.queries.count_jobs(JobFilter(namespace=namespace)) == len(jobs)
            assert sum(each.count for each in await store.admin.queue_stats(namespace)) == len(jobs)
            return [job.id for job in jobs]

        assert await listed(MINE) == [mine]
        assert await listed(THEIRS) == [theirs]
        assert await listed(None) == [theirs, mine]
        assert await store.queries.get_job(MINE, theirs) is None
        assert await store.queries.get_job(THEIRS, theirs) is not None
        assert await store.queries.get_job(None, theirs) is not None

    async def test_survey_and_claim_only_their_own_partitions(self, store: Store) -> None:
        theirs = await insert(store, namespace=THEIRS)

        assert (await store.maintenance.poll(MINE)).partitions == ()
        assert (await store.maintenance.poll(THEIRS)).partitions == (PARTITION.text,)
        assert await claim_ids(store, namespace=MINE) == []
        assert await claim_ids(store, namespace=THEIRS) == [theirs]

    async def test_keep_house_only_at_home(self, store: Store, clock: ManualClock) -> None:
        theirs = [
            (await put_in(store, Status.COMPLETED, namespace=THEIRS)).id,
            (await put_in(store, Status.DEAD, namespace=THEIRS)).id,
            (await hold(store, namespace=THEIRS)).id,
            await insert(store, namespace=THEIRS, delay=MINUTE),
            await insert(store, namespace=THEIRS, deadline=MINUTE),
        ]
        await store.maintenance.register_worker(worker_info(namespace=THEIRS))
        clock.advance(HOUR)
        before = [await record_of(store, id) for id in theirs]

        async def keep_house(namespace: str) -> tuple[int, ...]:
            return (
                await store.maintenance.promote_due(namespace, 10),
                len(await store.maintenance.take_over_expired(namespace, 10, 1)),
                len(await store.maintenance.expire_deadlines(namespace, 10)),
                await store.maintenance.prune_jobs(namespace, dict.fromkeys(FINISHED, MINUTE), 10),
                await store.maintenance.prune_workers(namespace, MINUTE),
            )

        assert await keep_house(MINE) == (0, 0, 0, 0, 0)
        assert [await record_of(store, id) for id in theirs] == before
        assert len(await store.queries.workers(THEIRS)) == 1
        assert await keep_house(THEIRS) == (1, 1, 1, 2, 1)

    async def test_pause_and_resume_only_their_own_queues(self, store: Store) -> None:
        mine, theirs = await insert(store, namespace=MINE), await insert(store, namespace=THEIRS)
        await store.admin.pause_queue(THEIRS, PARTITION.queue, None)
        await store.admin.resume_queue(MINE, PARTITION.queue)

        assert await claim_ids(store, namespace=MINE) == [mine]
        assert await claim_ids(store, namespace=THEIRS) == []
        await store.admin.resume_queue(THEIRS, PARTITION.queue)
        assert await claim_ids(store, namespace=THEIRS) == [theirs]

    async def test_abort_only_their_own_groups(self, store: Store) -> None:
        theirs = await insert(store, namespace=THEIRS, group="run-1")

        assert await store.admin.change_jobs(Transition.ABORT, MINE, group="run-1") == []
        assert [
            each.id
            for each in await store.admin.change_jobs(Transition.ABORT, THEIRS, group="run-1")
        ] == [theirs]

    async def test_know_only_their_own_fingerprints(self, store: Store) -> None:
        theirs = await insert(store, namespace=THEIRS, fingerprint="once")

        mine = await insert(store, namespace=MINE, fingerprint="once", on_conflict="replace")

        assert mine != theirs
        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 2

    async def test_find_only_their_own_results(self, store: Store) -> None:
        held = await hold(store, namespace=THEIRS)
        await settle(store, held, Completed(output=b"1"))

        assert await store.queries.find_result(MINE, PARTITION.task, 1, b"{}") is None
        assert await store.queries.find_result(THEIRS, PARTITION.task, 1, b"{}") == b"1"

    async def test_show_only_their_own_workers(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info(namespace=THEIRS))

        assert await store.queries.workers(MINE) == []
        assert (
            len(await store.queries.workers(THEIRS)) == len(await store.queries.workers(None)) == 1
        )
