"""Claiming jobs: order, fairness after a failure, and concurrent claims."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claim, ClaimedJob, Inserted, JobFilter, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed, Requeued, Retried
from perdure.model.partition import Partition
from perdure.store.contract import PartitionClaim, Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
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
    claim_new,
    claim_one,
    failure,
    insert,
    insert_in_status,
    insert_many,
    job_record,
    new_job,
    read_job,
    settle,
)
from perdure.testing.contract.handles import THREADS, run_concurrently

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

        job = await read_job(store, id)
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
        assert (await read_job(store, id)).epoch == 3

    async def test_raises_the_epoch_also_where_several_partitions_are_asked_for(
        self, store: Store
    ) -> None:
        await insert(store)
        epochs = []

        for _ in range(3):
            [job] = (await claim(store, PARTITION, OTHER_PARTITION)).jobs
            epochs.append(job.claim.epoch)
            await settle(store, job.claim, Retried(failure=failure()))

        assert epochs == [1, 2, 3]

    async def test_hands_a_job_to_one_worker_at_a_time(self, store: Store) -> None:
        id = await insert(store)

        assert await claim_ids(store) == [id]
        assert await claim_ids(store) == []
        assert await claim_ids(store, worker=OTHER_WORKER) == []

    async def test_does_not_take_over_a_job_whose_lease_ran_out(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        clock.advance(2 * LEASE)

        assert await claim_ids(store, worker=OTHER_WORKER) == []
        assert (await read_job(store, claimed.id)).epoch == claimed.epoch

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
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        assert await claim_ids(store) == []
        assert await job_record(store, there.id) == before

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

    async def test_distinguishes_ranks_a_microsecond_apart(
        self, store: Store, clock: ManualClock
    ) -> None:
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

    async def test_follows_the_aging_formula_exactly(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Lowest ``priority - waited / aging`` first, for every mix of priorities and ages.

        All jobs share one aging interval here, as all jobs of a queue do.
        """
        aging = 400 * SECOND
        for seed in range(15):
            random = Random(seed)
            new = [
                new_job(
                    priority=random.randint(1, 5),
                    aging=aging,
                    run_at=clock() - random.randint(0, 20_000) * SECOND / 7,
                )
                for _ in range(random.randint(2, 12))
            ]
            await store.jobs.insert(new)
            expected = sorted(
                new,
                key=lambda job: (job.priority * aging + (job.run_at or clock()) - clock(), job.id),
            )

            assert await claim_ids(store) == [job.id for job in expected], f"seed {seed}"


class TestClaimJobsAfterAFailure:
    async def test_leaves_a_job_alone_that_this_worker_failed_until_its_hold_off_ends(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Retried(failure=failure(), hold_off=10 * SECOND))

        assert await claim_ids(store, worker=WORKER) == []
        clock.advance(9 * SECOND)
        assert await claim_ids(store, worker=WORKER) == []
        clock.advance(SECOND)
        assert await claim_ids(store, worker=WORKER) == [claimed.id]

    async def test_gives_it_to_another_worker_at_once(self, store: Store) -> None:
        claimed = await claim_new(store, worker=WORKER)
        await settle(store, claimed, Retried(failure=failure(), hold_off=10 * SECOND))

        assert await claim_ids(store, worker=OTHER_WORKER) == [claimed.id]

    async def test_starts_the_hold_off_when_the_job_is_ready_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        retried = Retried(failure=failure(), delay=MINUTE, hold_off=10 * SECOND)
        await settle(store, claimed, retried)
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 100)

        clock.advance(9 * SECOND)
        assert await claim_ids(store, worker=WORKER) == []
        clock.advance(SECOND)
        assert await claim_ids(store, worker=WORKER) == [claimed.id]

    async def test_holds_off_no_worker_that_gave_a_job_back(self, store: Store) -> None:
        claimed = await claim_new(store, worker=WORKER)
        await settle(store, claimed, Requeued())

        assert await claim_ids(store, worker=WORKER) == [claimed.id]

    async def test_takes_what_lies_behind_a_job_held_off(self, store: Store) -> None:
        claimed = await claim_new(store, priority=1)
        await settle(store, claimed, Retried(failure=failure(), hold_off=10 * SECOND))
        behind = await insert(store, priority=5)

        assert await claim_ids(store, limit=1) == [behind]

    async def test_holds_off_the_last_worker_that_failed_it_only(self, store: Store) -> None:
        retried = Retried(failure=failure(), hold_off=10 * SECOND)
        await settle(store, await claim_new(store, worker=WORKER), retried)
        await settle(store, await claim_one(store, worker=OTHER_WORKER), retried)

        assert await claim_ids(store, worker=OTHER_WORKER) == []
        assert len(await claim_ids(store, worker=WORKER)) == 1


# Many claimers at once, each on its own thread, event loop and handle


LOOKS_MAX = 2000
"""A claimer gives up after so many looks, should another have failed with jobs in hand."""


class TestConcurrentClaims:
    async def test_hand_each_job_out_once(self, store: Store) -> None:
        ids = await insert_many(store, 240)

        async def drain(handle: Store, number: int) -> list[JobId]:
            mine: list[JobId] = []
            while got := await claim_ids(handle, worker=WorkerId(f"worker-{number}"), limit=7):
                mine += got
            return mine

        taken = Counter(id for mine in await run_concurrently(store, drain) for id in mine)

        assert taken == Counter(ids)
        assert (await store.queries.list_jobs(JobFilter(status=Status.WAITING), 1)) == []

    async def test_hand_each_job_out_once_while_it_is_being_settled(self, store: Store) -> None:
        ids = await insert_many(store, 120)

        async def work(handle: Store, number: int) -> list[JobId]:
            done: list[JobId] = []
            while jobs := (await claim(handle, worker=WorkerId(f"worker-{number}"), limit=5)).jobs:
                for job in jobs:
                    assert await settle(handle, job.claim, Completed(output=b"1"))
                    done.append(job.claim.id)
            return done

        done = Counter(id for mine in await run_concurrently(store, work) for id in mine)

        assert done == Counter(ids)
        assert await store.queries.count_jobs(JobFilter(status=Status.COMPLETED)) == len(ids)

    async def test_never_exceed_a_concurrency_limit(self, store: Store) -> None:
        await insert_many(store, 60)
        rules = (LimitRule(key="mailer", live_max=3),)

        async def grab(handle: Store, number: int) -> int:
            return len(await claim_ids(handle, worker=WorkerId(f"worker-{number}"), rules=rules))

        assert sum(await run_concurrently(store, grab)) == 3

    async def test_never_exceed_a_concurrency_limit_while_jobs_come_and_go(
        self, store: Store
    ) -> None:
        await insert_many(store, 60)
        rules = (LimitRule(key="mailer", live_max=2),)
        seen_live: list[int] = []

        async def work(handle: Store, number: int) -> int:
            done = 0
            for _ in range(LOOKS_MAX):
                if not await handle.queries.count_jobs(JobFilter(status=Status.WAITING)):
                    break
                got = await claim(handle, worker=WorkerId(f"w-{number}"), rules=rules, limit=2)
                seen_live.append(await handle.queries.count_jobs(JobFilter(status=Status.ACTIVE)))
                for job in got.jobs:
                    await settle(handle, job.claim, Completed(output=b"1"))
                done += len(got.jobs)
            return done

        assert sum(await run_concurrently(store, work)) == 60
        assert max(seen_live) <= 2

    async def test_never_exceed_a_rate(self, store: Store) -> None:
        await insert_many(store, 60)
        rules = (LimitRule(key="mailer", starts_max=5, window=MINUTE),)

        async def grab(handle: Store, number: int) -> int:
            counts = [len(await claim_ids(handle, rules=rules, limit=2)) for _ in range(5)]
            return sum(counts)

        assert sum(await run_concurrently(store, grab)) == 5

    async def test_never_start_two_within_a_spacing(self, store: Store) -> None:
        await insert_many(store, 20)
        rules = (LimitRule(key="mailer", spacing=MINUTE),)

        async def grab(handle: Store, number: int) -> int:
            return len(await claim_ids(handle, rules=rules))

        assert sum(await run_concurrently(store, grab)) == 1

    async def test_do_not_block_each_other_for_ever_when_they_name_keys_in_another_order(
        self, store: Store
    ) -> None:
        partitions = [Partition(queue="mail", task=f"task-{number}") for number in range(4)]
        for partition in partitions:
            await insert_many(store, 10, partition=partition)

        async def grab(handle: Store, number: int) -> int:
            turned = partitions[number:] + partitions[:number]
            wanted = [
                PartitionClaim(
                    partition=partition.text,
                    queue=partition.queue,
                    rules=(
                        LimitRule(key=partition.task, live_max=5),
                        LimitRule(key=turned[0].task + "-own", live_max=100),
                    ),
                )
                for partition in turned
            ]
            counts = [len(await claim_ids(handle, partitions=wanted, limit=3)) for _ in range(8)]
            return sum(counts)

        assert sum(await run_concurrently(store, grab)) == 4 * 5


class TestConcurrentWrites:
    async def test_insert_one_job_for_one_fingerprint(self, store: Store) -> None:
        async def enqueue(handle: Store, number: int) -> list[Inserted]:
            return [
                inserted
                for _ in range(5)
                for inserted in await handle.jobs.insert([new_job(fingerprint="once")])
            ]

        answers = [inserted for mine in await run_concurrently(store, enqueue) for inserted in mine]

        assert len({inserted.id for inserted in answers}) == 1
        assert sum(inserted.is_new for inserted in answers) == 1

    async def test_leave_one_live_job_when_all_replace(self, store: Store) -> None:
        async def enqueue(handle: Store, number: int) -> None:
            for _ in range(5):
                await insert(handle, fingerprint="once", on_conflict="replace")

        await run_concurrently(store, enqueue)

        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 1
        assert await store.queries.count_jobs(JobFilter(status=Status.CANCELLED)) == THREADS * 5 - 1

    async def test_let_one_settlement_of_a_claim_count(self, store: Store) -> None:
        await insert(store)
        claimed = await claim_one(store)

        async def complete(handle: Store, number: int) -> Status | None:
            return await settle(handle, claimed, Completed(output=str(number).encode()))

        answers = await run_concurrently(store, complete)

        assert sorted(answers, key=str) == [None] * (THREADS - 1) + [Status.COMPLETED]
        result = (await store.queries.job_states([claimed.id]))[claimed.id].output
        assert result == str(answers.index(Status.COMPLETED)).encode()

    async def test_either_abort_or_complete_a_job(self, store: Store) -> None:
        claimed = [(await claim(store, limit=1)).jobs for _ in await insert_many(store, 20)]
        claims = [job.claim for jobs in claimed for job in jobs]

        async def race(handle: Store, number: int) -> None:
            for each in claims:
                if number % 2:
                    await handle.admin.change_jobs(Transition.ABORT, NAMESPACE, [each.id])
                else:
                    await settle(handle, each, Completed(output=b"1"))

        await run_concurrently(store, race)

        ended = Counter(job.status for job in await store.queries.list_jobs(JobFilter(), 100))
        assert set(ended) <= {Status.COMPLETED, Status.CANCELLED}
        assert ended.total() == len(claims)

    async def test_acquire_a_maintenance_lease_alone(self, store: Store) -> None:
        async def lead(handle: Store, number: int) -> bool:
            return await handle.maintenance.acquire_lease(
                "maintenance", WorkerId(f"worker-{number}"), MINUTE
            )

        assert sum(await run_concurrently(store, lead)) == 1

    async def test_take_a_lost_job_over_once(self, store: Store, clock: ManualClock) -> None:
        ids = await insert_many(store, 60)
        await claim(store, PARTITION, worker=WORKER)
        clock.advance(MINUTE)

        async def rescue(handle: Store, number: int) -> list[JobId]:
            mine: list[JobId] = []
            while taken := await handle.maintenance.take_over_expired(NAMESPACE, 7):
                mine += [each.id for each in taken]
            return mine

        rescued = Counter(id for mine in await run_concurrently(store, rescue) for id in mine)

        assert rescued == Counter(ids)
