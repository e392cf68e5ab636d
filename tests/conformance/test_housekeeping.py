"""What any worker may do: survey, lead, promote, expire."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.clock import ManualClock
from perdure.model.job import Expired, Status
from perdure.model.partition import Partition
from perdure.model.worker import PollResult
from perdure.store.contract import POLL_PARTITIONS_MAX, Store
from perdure.store.failures import deadline_expired
from tests.conformance.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    WORKER,
    claim_ids,
    hold,
    insert,
    insert_many,
    new_job,
    put_in,
    read,
    record_of,
    status_of,
)


class TestMaintenancePoll:
    async def test_names_the_partitions_with_waiting_jobs_in_text_order(self, store: Store) -> None:
        partitions = [
            Partition(queue=queue, task=task, tags=tags)
            for queue in ("b", "Z", "a", "é", "\N{PILE OF POO}", "\uffee")
            for task in ("send", "Send")
            for tags in ((), ("gpu",))
        ]
        for partition in partitions:
            await insert_many(store, 2, partition=partition)
        await insert(store, partition=Partition(queue="theirs", task="send"), namespace="team-b")
        await put_in(store, Status.SCHEDULED, partition=Partition(queue="later", task="send"))
        await put_in(store, Status.COMPLETED, partition=Partition(queue="done", task="send"))

        poll = await store.maintenance.poll(NAMESPACE)

        assert poll.partitions == tuple(sorted(partition.text for partition in partitions))

    async def test_names_the_paused_queues_of_this_namespace(self, store: Store) -> None:
        for namespace, queue in ((NAMESPACE, "mail"), (NAMESPACE, "bulk"), ("team-b", "theirs")):
            await store.admin.pause_queue(namespace, queue, "ann")
        await store.admin.pause_queue(NAMESPACE, "gone", "ann")
        await store.admin.resume_queue(NAMESPACE, "gone")

        assert (await store.maintenance.poll(NAMESPACE)).paused == ("bulk", "mail")

    async def test_names_no_partition_once_its_last_job_is_taken(self, store: Store) -> None:
        await insert_many(store, 2)

        await claim_ids(store, limit=1)
        assert (await store.maintenance.poll(NAMESPACE)).partitions == (PARTITION.text,)
        await claim_ids(store, limit=1)
        assert (await store.maintenance.poll(NAMESPACE)).partitions == ()

    async def test_goes_on_after_the_last_partition_of_the_survey_before(
        self, store: Store
    ) -> None:
        partitions = [
            Partition(queue="mail", task=f"task-{number}") for number in range(POLL_PARTITIONS_MAX)
        ]
        partitions += [Partition(queue="zzz", task="a"), Partition(queue="zzz", task="b")]
        await store.jobs.insert([new_job(partition=partition) for partition in partitions])
        texts = sorted(partition.text for partition in partitions)

        first = await store.maintenance.poll(NAMESPACE)
        second = await store.maintenance.poll(NAMESPACE, first.partitions[-1])

        assert list(first.partitions) == texts[:POLL_PARTITIONS_MAX]
        assert list(second.partitions) == texts[POLL_PARTITIONS_MAX:]
        assert (await store.maintenance.poll(NAMESPACE, texts[-1])).partitions == ()

    async def test_tells_what_is_due_next_in_its_namespace(
        self, store: Store, clock: ManualClock
    ) -> None:
        began_at = clock()
        for namespace, later in (("team-a", 0), ("team-b", 1), ("team-c", -1)):
            await insert(store, namespace=namespace, delay=(2 + later) * MINUTE)
            await hold(store, namespace=namespace, lease=(3 + later) * MINUTE)
            await insert(store, namespace=namespace, deadline=(4 + later) * MINUTE)
        clock.advance(SECOND)

        assert (await store.maintenance.poll("team-d")).next_due_at is None
        assert await store.maintenance.poll("team-a") == PollResult(
            now=clock(),
            partitions=(PARTITION.text,),
            next_due_at=began_at + 2 * MINUTE,
            next_lease_end_at=began_at + 3 * MINUTE,
            next_deadline_at=began_at + 4 * MINUTE,
        )

    async def test_tells_nothing_due_when_nothing_is(
        self, store: Store, clock: ManualClock
    ) -> None:
        await hold(store, deadline=MINUTE)
        for status in (Status.DISABLED, Status.COMPLETED, Status.CANCELLED):
            await put_in(store, status, deadline=MINUTE)

        poll = await store.maintenance.poll(NAMESPACE)

        assert (poll.next_due_at, poll.next_deadline_at) == (None, None)
        assert poll.next_lease_end_at == clock() + LEASE


class TestMaintenanceAcquireLease:
    async def test_lets_one_worker_at_a_time_lead(self, store: Store) -> None:
        assert await store.maintenance.acquire_lease("housekeeping", WORKER, LEASE)
        assert not await store.maintenance.acquire_lease("housekeeping", OTHER_WORKER, LEASE)

    async def test_lets_the_leader_keep_it(self, store: Store, clock: ManualClock) -> None:
        for _ in range(4):
            assert await store.maintenance.acquire_lease("housekeeping", WORKER, LEASE)
            clock.advance(LEASE - SECOND)

        assert not await store.maintenance.acquire_lease("housekeeping", OTHER_WORKER, LEASE)

    async def test_lets_another_take_it_once_its_lease_ran_out(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.maintenance.acquire_lease("housekeeping", WORKER, LEASE)
        clock.advance(LEASE)

        assert await store.maintenance.acquire_lease("housekeeping", OTHER_WORKER, LEASE)
        assert not await store.maintenance.acquire_lease("housekeeping", WORKER, LEASE)

    async def test_keeps_duties_apart(self, store: Store) -> None:
        assert await store.maintenance.acquire_lease("housekeeping", WORKER, LEASE)
        assert await store.maintenance.acquire_lease("schedules", OTHER_WORKER, LEASE)

    async def test_gives_it_up_with_a_lease_of_nothing(self, store: Store) -> None:
        await store.maintenance.acquire_lease("housekeeping", WORKER, LEASE)
        await store.maintenance.acquire_lease("housekeeping", WORKER, timedelta(0))

        assert await store.maintenance.acquire_lease("housekeeping", OTHER_WORKER, LEASE)


class TestMaintenancePromoteDue:
    async def test_makes_scheduled_jobs_waiting_when_their_time_has_come(
        self, store: Store, clock: ManualClock
    ) -> None:
        due = await insert(store, delay=MINUTE)
        later = await insert(store, delay=2 * MINUTE)
        assert await store.maintenance.promote_due(NAMESPACE, 10) == 0
        clock.advance(MINUTE)

        assert await store.maintenance.promote_due(NAMESPACE, 10) == 1

        assert await claim_ids(store) == [due]
        assert await status_of(store, later) is Status.SCHEDULED

    async def test_takes_the_earliest_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        third, first, second = [
            await insert(store, delay=minutes * MINUTE) for minutes in (3, 1, 2)
        ]
        clock.advance(HOUR)

        assert await store.maintenance.promote_due(NAMESPACE, 2) == 2
        assert set(await claim_ids(store)) == {first, second}
        assert await store.maintenance.promote_due(NAMESPACE, 2) == 1
        assert await claim_ids(store) == [third]


class TestMaintenanceExpireDeadlines:
    @pytest.mark.parametrize("status", [Status.WAITING, Status.SCHEDULED, Status.PAUSED])
    async def test_fails_an_unheld_job_whose_deadline_has_passed(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await put_in(store, status, deadline=HOUR)
        clock.advance(HOUR)

        [expired] = await store.maintenance.expire_deadlines(NAMESPACE, 10)

        job, state, history = await record_of(store, there.id)
        assert job is not None
        assert state is not None
        assert (job.status, job.finished_at) == (Status.FAILED, clock())
        assert state.failure == deadline_expired(clock())
        assert state.failure.code == "job.deadline_expired"
        assert [each.failure for each in history] == [state.failure]
        assert expired == Expired(
            id=there.id,
            namespace=NAMESPACE,
            partition=PARTITION,
            attempt=job.attempt,
            failure=state.failure,
        )

    async def test_leaves_a_job_whose_deadline_lies_ahead(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store, deadline=HOUR)
        clock.advance(HOUR - SECOND)

        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 10)) == 0
        assert await status_of(store, id) is Status.WAITING

    @pytest.mark.parametrize(
        "status", sorted(set(Status) - {Status.WAITING, Status.SCHEDULED, Status.PAUSED})
    )
    async def test_leaves_any_other_job(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await put_in(store, status, deadline=HOUR)
        before = await record_of(store, there.id)
        clock.advance(2 * HOUR)

        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 10)) == 0
        assert await record_of(store, there.id) == before

    async def test_takes_no_more_than_the_limit(self, store: Store, clock: ManualClock) -> None:
        await insert_many(store, 2, deadline=MINUTE)
        last = await insert(store, deadline=2 * MINUTE)
        clock.advance(HOUR)

        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 2)) == 2
        assert await status_of(store, last) is Status.WAITING
        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 2)) == 1
        assert (await read(store, last)).status is Status.FAILED
