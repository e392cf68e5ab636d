"""Many claimers at once, each on a thread, an event loop and a handle of its own."""

from __future__ import annotations

from collections import Counter

from perdure.clock import ManualClock
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Inserted, JobFilter, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed
from perdure.model.partition import Partition
from perdure.store.contract import PartitionClaim, Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    MINUTE,
    NAMESPACE,
    PARTITION,
    WORKER,
    claim,
    claim_ids,
    claim_one,
    insert,
    insert_many,
    new_job,
    settle,
)
from tests.conformance.threads import THREADS, at_once

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

        taken = Counter(id for mine in await at_once(store, drain) for id in mine)

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

        done = Counter(id for mine in await at_once(store, work) for id in mine)

        assert done == Counter(ids)
        assert await store.queries.count_jobs(JobFilter(status=Status.COMPLETED)) == len(ids)

    async def test_never_exceed_a_concurrency_limit(self, store: Store) -> None:
        await insert_many(store, 60)
        rules = (LimitRule(key="mailer", live_max=3),)

        async def grab(handle: Store, number: int) -> int:
            return len(await claim_ids(handle, worker=WorkerId(f"worker-{number}"), rules=rules))

        assert sum(await at_once(store, grab)) == 3

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

        assert sum(await at_once(store, work)) == 60
        assert max(seen_live) <= 2

    async def test_never_exceed_a_rate(self, store: Store) -> None:
        await insert_many(store, 60)
        rules = (LimitRule(key="mailer", starts_max=5, window=MINUTE),)

        async def grab(handle: Store, number: int) -> int:
            counts = [len(await claim_ids(handle, rules=rules, limit=2)) for _ in range(5)]
            return sum(counts)

        assert sum(await at_once(store, grab)) == 5

    async def test_never_start_two_within_a_spacing(self, store: Store) -> None:
        await insert_many(store, 20)
        rules = (LimitRule(key="mailer", spacing=MINUTE),)

        async def grab(handle: Store, number: int) -> int:
            return len(await claim_ids(handle, rules=rules))

        assert sum(await at_once(store, grab)) == 1

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

        assert sum(await at_once(store, grab)) == 4 * 5


class TestConcurrentWrites:
    async def test_insert_one_job_for_one_fingerprint(self, store: Store) -> None:
        async def enqueue(handle: Store, number: int) -> list[Inserted]:
            return [
                inserted
                for _ in range(5)
                for inserted in await handle.jobs.insert([new_job(fingerprint="once")])
            ]

        answers = [inserted for mine in await at_once(store, enqueue) for inserted in mine]

        assert len({inserted.id for inserted in answers}) == 1
        assert sum(inserted.is_new for inserted in answers) == 1

    async def test_leave_one_live_job_when_all_replace(self, store: Store) -> None:
        async def enqueue(handle: Store, number: int) -> None:
            for _ in range(5):
                await insert(handle, fingerprint="once", on_conflict="replace")

        await at_once(store, enqueue)

        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 1
        assert await store.queries.count_jobs(JobFilter(status=Status.CANCELLED)) == THREADS * 5 - 1

    async def test_let_one_settlement_of_a_claim_count(self, store: Store) -> None:
        await insert(store)
        held = await claim_one(store)

        async def complete(handle: Store, number: int) -> Status | None:
            return await settle(handle, held, Completed(output=str(number).encode()))

        answers = await at_once(store, complete)

        assert sorted(answers, key=str) == [None] * (THREADS - 1) + [Status.COMPLETED]
        result = (await store.queries.job_states([held.id]))[held.id].output
        assert result == str(answers.index(Status.COMPLETED)).encode()

    async def test_either_abort_or_complete_a_job(self, store: Store) -> None:
        held = [(await claim(store, limit=1)).jobs for _ in await insert_many(store, 20)]
        claims = [job.claim for jobs in held for job in jobs]

        async def race(handle: Store, number: int) -> None:
            for each in claims:
                if number % 2:
                    await handle.admin.change_jobs(Transition.ABORT, NAMESPACE, [each.id])
                else:
                    await settle(handle, each, Completed(output=b"1"))

        await at_once(store, race)

        ended = Counter(job.status for job in await store.queries.list_jobs(JobFilter(), 100))
        assert set(ended) <= {Status.COMPLETED, Status.CANCELLED}
        assert ended.total() == len(claims)

    async def test_lead_a_duty_alone(self, store: Store) -> None:
        async def lead(handle: Store, number: int) -> bool:
            return await handle.maintenance.acquire_lease(
                "housekeeping", WorkerId(f"worker-{number}"), MINUTE
            )

        assert sum(await at_once(store, lead)) == 1

    async def test_take_a_lost_job_over_once(self, store: Store, clock: ManualClock) -> None:
        ids = await insert_many(store, 60)
        await claim(store, PARTITION, worker=WORKER)
        clock.advance(MINUTE)

        async def rescue(handle: Store, number: int) -> list[JobId]:
            mine: list[JobId] = []
            while taken := await handle.maintenance.take_over_expired(NAMESPACE, 7, 3):
                mine += [each.id for each in taken]
            return mine

        rescued = Counter(id for mine in await at_once(store, rescue) for id in mine)

        assert rescued == Counter(ids)
