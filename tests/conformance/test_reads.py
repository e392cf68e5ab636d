"""What can be seen of jobs: one, many, counts and depth."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId
from perdure.model.job import JobFilter, Progress, QueueDepth, Status
from perdure.model.outcome import Completed, Failed, Retried
from perdure.model.partition import Partition
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    MINUTE,
    NAMESPACE,
    PARTITION,
    WORKER,
    claim_one,
    failure,
    hold,
    insert,
    insert_many,
    put_in,
    read,
    settle,
)


class TestQueriesGetJob:
    async def test_shows_a_job_with_its_values(self, store: Store) -> None:
        held = await hold(store, input=b'"in"')
        await settle(store, held, Completed(output=b'"out"'))

        job = await store.queries.get_job(NAMESPACE, held.id)

        assert job is not None
        assert (job.input, job.output) == (b'"in"', b'"out"')

    async def test_shows_nothing_where_nothing_is(self, store: Store) -> None:
        assert await store.queries.get_job(NAMESPACE, JobId("gone")) is None

    async def test_shows_the_whole_life_of_a_job(self, store: Store, clock: ManualClock) -> None:
        created_at = clock()
        id = await insert(store)
        clock.advance(MINUTE)
        await settle(store, await claim_one(store), Retried(failure=failure()))
        clock.advance(MINUTE)
        held = await claim_one(store)
        started_at = clock()
        clock.advance(MINUTE)
        await settle(store, held, Failed(failure=failure()), progress=Progress(percent=12))

        job = await read(store, id)

        assert (job.created_at, job.started_at) == (created_at, started_at)
        assert (job.finished_at, job.ready_at) == (clock(), created_at + MINUTE)
        assert (job.attempt, job.epoch, job.progress.percent) == (2, 2, 12)
        assert job.worker == WORKER


class TestQueriesListJobs:
    async def test_shows_the_newest_first_up_to_the_limit(self, store: Store) -> None:
        ids = await insert_many(store, 5)

        page = await store.queries.list_jobs(JobFilter(), 3)

        assert [job.id for job in page] == [ids[4], ids[3], ids[2]]

    async def test_goes_on_before_the_last_job_of_a_page(self, store: Store) -> None:
        ids = await insert_many(store, 5)

        page = await store.queries.list_jobs(JobFilter(before=ids[2]), 10)

        assert [job.id for job in page] == [ids[1], ids[0]]

    async def test_shows_jobs_without_their_values(self, store: Store) -> None:
        held = await hold(store)
        await settle(store, held, Completed(output=b"1"))
        with_values = await read(store, held.id)

        [job] = await store.queries.list_jobs(JobFilter(), 10)

        assert (job.input, job.output) == (None, None)
        assert (job.id, job.status, job.progress, job.finished_at) == (
            with_values.id,
            with_values.status,
            with_values.progress,
            with_values.finished_at,
        )

    @pytest.mark.parametrize("status", sorted(Status))
    async def test_filters_by_status(self, store: Store, status: Status) -> None:
        # One that waits would be claimed on the way of the others, so it comes last.
        there = {
            each: (await put_in(store, each)).id
            for each in sorted(Status, key=lambda status: status is Status.WAITING)
        }

        jobs = await store.queries.list_jobs(JobFilter(status=status), 20)

        assert [job.id for job in jobs] == [there[status]]

    @pytest.mark.parametrize("count", [5, 250])
    @pytest.mark.parametrize("status", [Status.WAITING, Status.SCHEDULED, Status.CANCELLED])
    async def test_shows_the_newest_of_a_status_first_however_many_have_it(
        self, store: Store, status: Status, count: int
    ) -> None:
        ids = await insert_many(
            store, count, delay=MINUTE if status is Status.SCHEDULED else 0 * MINUTE
        )
        if status is Status.CANCELLED:
            await store.admin.change_jobs(Transition.ABORT, None, ids)

        page = await store.queries.list_jobs(JobFilter(status=status), 3)

        assert [job.id for job in page] == ids[:-4:-1]

    async def test_filters_by_everything_at_once(self, store: Store) -> None:
        partition = Partition(queue="gpu", task="embed", tags=("a100",))
        wanted = await insert(store, namespace="team-b", partition=partition, group="run-1")
        await insert(store, partition=partition, group="run-1")
        await insert(
            store, namespace="team-b", partition=Partition(queue="x", task="embed"), group="run-1"
        )
        await insert(
            store, namespace="team-b", partition=Partition(queue="gpu", task="x"), group="run-1"
        )
        await insert(store, namespace="team-b", partition=partition, group="run-2")
        await insert(store, namespace="team-b", partition=partition, group="run-1", delay=MINUTE)
        filter = JobFilter(
            namespace="team-b", status=Status.WAITING, queue="gpu", task="embed", group="run-1"
        )

        assert [job.id for job in await store.queries.list_jobs(filter, 10)] == [wanted]
        assert await store.queries.count_jobs(filter) == 1


class TestQueriesCountJobs:
    async def test_counts_what_the_filter_is_about(self, store: Store) -> None:
        ids = await insert_many(store, 3, group="run-1")
        await insert(store, namespace="team-b", group="run-1")
        await store.admin.change_jobs(Transition.ABORT, None, ids[:1])

        assert await store.queries.count_jobs(JobFilter()) == 4
        assert await store.queries.count_jobs(JobFilter(namespace=NAMESPACE)) == 3
        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 3
        assert await store.queries.count_jobs(JobFilter(group="run-1", namespace=NAMESPACE)) == 3
        assert await store.queries.count_jobs(JobFilter(queue=PARTITION.queue, task="other")) == 0
        assert await store.queries.count_jobs(JobFilter(before=ids[2])) == 2


class TestAdminQueueStats:
    async def test_counts_jobs_by_queue_and_status(self, store: Store) -> None:
        gpu = Partition(queue="gpu", task="embed")
        await put_in(store, Status.COMPLETED)
        await insert_many(store, 3)
        await insert_many(store, 2, partition=gpu, delay=MINUTE)
        await insert(store, namespace="team-b", partition=gpu)

        mine = [
            QueueDepth(namespace=NAMESPACE, queue="gpu", status=Status.SCHEDULED, count=2),
            QueueDepth(namespace=NAMESPACE, queue="mail", status=Status.COMPLETED, count=1),
            QueueDepth(namespace=NAMESPACE, queue="mail", status=Status.WAITING, count=3),
        ]
        theirs = QueueDepth(namespace="team-b", queue="gpu", status=Status.WAITING, count=1)
        assert await store.admin.queue_stats(NAMESPACE) == mine
        assert await store.admin.queue_stats(None) == [*mine, theirs]
        assert await store.admin.queue_stats("nobody") == []


class TestQueriesFindResult:
    async def test_gives_the_output_of_a_completed_job_with_this_very_input(
        self, store: Store
    ) -> None:
        held = await hold(store, input=b'"a"', input_hash=77)
        await settle(store, held, Completed(output=b'"A"'))

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 77, b'"a"') == b'"A"'

    async def test_gives_the_one_completed_last(self, store: Store, clock: ManualClock) -> None:
        first, second = await hold(store), await hold(store)
        await settle(store, second, Completed(output=b"old"))
        clock.advance(MINUTE)
        await settle(store, first, Completed(output=b"new"))

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 1, b"{}") == b"new"

    async def test_gives_nothing_for_another_input_with_the_same_hash(self, store: Store) -> None:
        held = await hold(store, input=b'"a"', input_hash=77)
        await settle(store, held, Completed(output=b'"A"'))

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 77, b'"b"') is None

    async def test_gives_nothing_of_another_task_or_namespace(self, store: Store) -> None:
        held = await hold(store)
        await settle(store, held, Completed(output=b"1"))

        assert await store.queries.find_result(NAMESPACE, "other", 1, b"{}") is None
        assert await store.queries.find_result("team-b", PARTITION.task, 1, b"{}") is None

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.COMPLETED}))
    async def test_gives_nothing_of_a_job_that_is_not_completed(
        self, store: Store, status: Status
    ) -> None:
        await put_in(store, status)

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 1, b"{}") is None
