"""How waiting jobs become held ones."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perdure.clock import ManualClock
from perdure.model.job import Claim, ClaimedJob, Status
from perdure.model.outcome import Requeued, Retried
from perdure.model.partition import Partition
from perdure.store.contract import Store
from tests.conformance.builders import (
    AGING,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    WORKER,
    claim,
    claim_ids,
    claim_one,
    failure,
    hold,
    insert,
    insert_many,
    new_job,
    put_in,
    read,
    record_of,
    settle,
)

OTHER_PARTITION = Partition(queue="mail", task="bounce")


class TestJobsClaim:
    async def test_gives_a_worker_all_it_needs_to_run_a_job(
        self, store: Store, clock: ManualClock
    ) -> None:
        partition = Partition(queue="gpu", task="embed", tags=("a100",), keys=("user-7",))
        new = new_job(
            partition=partition,
            input=b'"hello"',
            max_attempts=4,
            policy=b'{"retries":2}',
            group="run-1",
            deadline=HOUR,
        )
        await store.jobs.insert([new])
        created_at = clock()
        clock.advance(SECOND)

        claimed = await claim(store, partition)

        assert claimed.now == clock()
        assert claimed.opens_at is None
        assert claimed.jobs == [
            ClaimedJob(
                claim=Claim(id=new.id, epoch=1),
                namespace=NAMESPACE,
                partition=partition,
                input=b'"hello"',
                attempt=1,
                failures=0,
                snoozes=0,
                max_attempts=4,
                policy=b'{"retries":2}',
                group="run-1",
                deadline_at=created_at + HOUR,
                created_at=created_at,
            )
        ]

    async def test_leases_the_job_to_the_worker(self, store: Store, clock: ManualClock) -> None:
        id = await insert(store)
        clock.advance(MINUTE)

        await claim(store, worker=OTHER_WORKER, lease=LEASE)

        job = await read(store, id)
        assert (job.status, job.worker) == (Status.ACTIVE, OTHER_WORKER)
        assert (job.started_at, job.lease_until) == (clock(), clock() + LEASE)

    async def test_raises_epoch_and_attempt_with_each_claim(self, store: Store) -> None:
        id = await insert(store)
        seen = []

        for _ in range(3):
            [job] = (await claim(store)).jobs
            seen.append((job.claim.epoch, job.attempt, job.failures))
            await settle(store, job.claim, Retried(failure=failure()))

        assert seen == [(1, 1, 0), (2, 2, 1), (3, 3, 2)]
        assert (await read(store, id)).epoch == 3

    async def test_hands_a_job_to_one_worker_at_a_time(self, store: Store) -> None:
        id = await insert(store)

        assert await claim_ids(store) == [id]
        assert await claim_ids(store) == []
        assert await claim_ids(store, worker=OTHER_WORKER) == []

    async def test_does_not_take_over_a_job_whose_lease_ran_out(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        clock.advance(2 * LEASE)

        assert await claim_ids(store, worker=OTHER_WORKER) == []
        assert (await read(store, held.id)).epoch == held.epoch

    async def test_takes_no_more_than_the_limit(self, store: Store) -> None:
        ids = await insert_many(store, 5)

        assert await claim_ids(store, limit=2) == ids[:2]
        assert await claim_ids(store, limit=2) == ids[2:4]
        assert await claim_ids(store, limit=2) == ids[4:]

    async def test_takes_nothing_when_asked_for_no_partitions(self, store: Store) -> None:
        await insert(store)

        claimed = await claim(store, partitions=[])

        assert claimed.jobs == []

    async def test_takes_nothing_of_another_partition(self, store: Store) -> None:
        other = await insert(store, partition=OTHER_PARTITION)
        for partition in (
            Partition(queue="other", task=PARTITION.task),
            Partition(queue=PARTITION.queue, task=PARTITION.task, tags=("gpu",)),
            Partition(queue=PARTITION.queue, task=PARTITION.task, keys=("user-7",)),
        ):
            await insert(store, partition=partition)

        assert await claim_ids(store, PARTITION) == []
        assert await claim_ids(store, PARTITION, OTHER_PARTITION) == [other]

    async def test_takes_nothing_of_another_namespace(self, store: Store) -> None:
        theirs = await insert(store, namespace="team-b")

        assert await claim_ids(store) == []
        assert await claim_ids(store, namespace="team-b") == [theirs]

    async def test_takes_nothing_of_a_paused_queue(self, store: Store) -> None:
        await insert(store)
        open_partition = Partition(queue="open", task="send")
        runnable = await insert(store, partition=open_partition)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)
        await store.admin.pause_queue("team-b", "open", None)

        assert await claim_ids(store, PARTITION, open_partition) == [runnable]

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.WAITING}))
    async def test_takes_nothing_that_is_not_waiting(self, store: Store, status: Status) -> None:
        there = await put_in(store, status)
        before = await record_of(store, there.id)

        assert await claim_ids(store) == []
        assert await record_of(store, there.id) == before

    async def test_is_not_starved_by_jobs_that_it_cannot_run(self, store: Store) -> None:
        await insert_many(store, 300, partition=OTHER_PARTITION, priority=1)
        mine = await insert(store, priority=5)

        assert await claim_ids(store, limit=1) == [mine]


class TestClaimJobsInOrder:
    async def test_takes_the_oldest_first_when_priorities_are_the_same(
        self, store: Store, clock: ManualClock
    ) -> None:
        ids = []
        for _ in range(4):
            ids.append(await insert(store))
            clock.advance(SECOND)

        assert await claim_ids(store) == ids

    async def test_takes_the_lowest_id_first_when_ranks_are_the_same(self, store: Store) -> None:
        jobs = [new_job() for _ in range(5)]
        await store.jobs.insert([jobs[3], jobs[0], jobs[4], jobs[2], jobs[1]])

        assert await claim_ids(store) == [job.id for job in jobs]

    async def test_takes_the_lowest_priority_number_first(self, store: Store) -> None:
        ids = {priority: await insert(store, priority=priority) for priority in (3, 5, 1, 4, 2)}

        assert await claim_ids(store) == [ids[priority] for priority in (1, 2, 3, 4, 5)]

    async def test_takes_the_most_urgent_of_a_partition_up_to_the_limit(self, store: Store) -> None:
        ids = {priority: await insert(store, priority=priority) for priority in (3, 5, 1, 4, 2)}

        assert await claim_ids(store, limit=2) == [ids[1], ids[2]]
        assert await claim_ids(store, limit=2) == [ids[3], ids[4]]

    async def test_lets_a_job_gain_one_priority_in_each_aging_interval(
        self, store: Store, clock: ManualClock
    ) -> None:
        patient = await insert(store, priority=3, aging=AGING)
        clock.advance(AGING - SECOND)
        just_more_urgent = await insert(store, priority=2, aging=AGING)
        clock.advance(2 * SECOND)
        just_too_late = await insert(store, priority=2, aging=AGING)

        assert await claim_ids(store) == [just_more_urgent, patient, just_too_late]

    async def test_tells_ranks_a_microsecond_apart(self, store: Store, clock: ManualClock) -> None:
        later, earlier = new_job(run_at=clock()), new_job(run_at=clock() - SECOND / 1_000_000)
        await store.jobs.insert([later, earlier])

        assert await claim_ids(store) == [earlier.id, later.id]

    async def test_orders_jobs_of_all_its_partitions_together(self, store: Store) -> None:
        partitions = [PARTITION, OTHER_PARTITION, Partition(queue="default", task="send")]
        jobs = [
            new_job(partition=partitions[number % 3], priority=1 + (number * 7) % 5)
            for number in range(30)
        ]
        await store.jobs.insert(jobs)
        by_rank = sorted(jobs, key=lambda job: (job.priority, job.id))

        assert await claim_ids(store, *partitions, limit=13) == [job.id for job in by_rank[:13]]
        assert await claim_ids(store, *partitions) == [job.id for job in by_rank[13:]]

    async def test_counts_waiting_from_the_time_a_delayed_job_is_ready(
        self, store: Store, clock: ManualClock
    ) -> None:
        delayed = await insert(store, delay=MINUTE)
        clock.advance(30 * SECOND)
        at_once = await insert(store)
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 100)

        assert await claim_ids(store) == [at_once, delayed]

    @settings(
        max_examples=15,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(
        jobs=st.lists(
            st.tuples(st.integers(1, 5), st.integers(0, 20_000)),
            min_size=2,
            max_size=12,
        )
    )
    async def test_follows_the_aging_formula_exactly(
        self, store: Store, clock: ManualClock, jobs: list[tuple[int, int]]
    ) -> None:
        """Lowest ``priority - waited / aging`` first, for every mix of priorities and ages.

        All jobs share one aging interval here, as all jobs of a queue do.
        """
        aging = 400 * SECOND
        new = [
            new_job(priority=priority, aging=aging, run_at=clock() - waited * SECOND / 7)
            for priority, waited in jobs
        ]
        await store.jobs.insert(new)
        expected = sorted(
            new, key=lambda job: (job.priority * aging + (job.run_at or clock()) - clock(), job.id)
        )

        assert await claim_ids(store) == [job.id for job in expected]


class TestClaimJobsAfterAFailure:
    async def test_leaves_a_job_alone_that_this_worker_failed_until_its_hold_off_ends(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        await settle(store, held, Retried(failure=failure(), hold_off=10 * SECOND))

        assert await claim_ids(store, worker=WORKER) == []
        clock.advance(9 * SECOND)
        assert await claim_ids(store, worker=WORKER) == []
        clock.advance(SECOND)
        assert await claim_ids(store, worker=WORKER) == [held.id]

    async def test_gives_it_to_another_worker_at_once(self, store: Store) -> None:
        held = await hold(store, worker=WORKER)
        await settle(store, held, Retried(failure=failure(), hold_off=10 * SECOND))

        assert await claim_ids(store, worker=OTHER_WORKER) == [held.id]

    async def test_begins_the_hold_off_when_the_job_is_ready_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        retried = Retried(failure=failure(), delay=MINUTE, hold_off=10 * SECOND)
        await settle(store, held, retried)
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 100)

        clock.advance(9 * SECOND)
        assert await claim_ids(store, worker=WORKER) == []
        clock.advance(SECOND)
        assert await claim_ids(store, worker=WORKER) == [held.id]

    async def test_holds_off_no_worker_that_gave_a_job_back(self, store: Store) -> None:
        held = await hold(store, worker=WORKER)
        await settle(store, held, Requeued())

        assert await claim_ids(store, worker=WORKER) == [held.id]

    async def test_takes_what_lies_behind_a_job_held_off(self, store: Store) -> None:
        held = await hold(store, priority=1)
        await settle(store, held, Retried(failure=failure(), hold_off=10 * SECOND))
        behind = await insert(store, priority=5)

        assert await claim_ids(store, limit=1) == [behind]

    async def test_holds_off_the_last_worker_that_failed_it_only(self, store: Store) -> None:
        retried = Retried(failure=failure(), hold_off=10 * SECOND)
        await settle(store, await hold(store, worker=WORKER), retried)
        await settle(store, await claim_one(store, worker=OTHER_WORKER), retried)

        assert await claim_ids(store, worker=OTHER_WORKER) == []
        assert len(await claim_ids(store, worker=WORKER)) == 1
