"""Maintenance: polling, named leases, due and expired jobs, workers, retention of jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.errors import UnknownFlow
from perdure.model.graph import Call, Definition, FlowNode, Graph, TaskNode
from perdure.model.ids import RunId, WorkerId
from perdure.model.job import FINISHED, Expired, JobFilter, Status
from perdure.model.outcome import Completed
from perdure.model.partition import Partition, with_worker
from perdure.model.run import OnExisting, RunStatus
from perdure.model.schedule import FlowCall, ScheduleCommit
from perdure.model.worker import PollResult, TaskCounts, WorkerState
from perdure.store.contract import DEFINITION_FRESH, POLL_PARTITIONS_MAX, PartitionClaim, Store
from perdure.store.failures import deadline_expired
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    CHILD,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    RUN,
    SECOND,
    WORKER,
    claim,
    claim_ids,
    claim_new,
    claim_new_node,
    claim_nodes,
    claim_one,
    commit_next,
    finishes,
    insert,
    insert_in_status,
    insert_many,
    job_record,
    jobs_by_key,
    new_job,
    new_schedule,
    node_job,
    read_job,
    read_run,
    settle,
    status_of,
    submit,
    worker_info,
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
        await insert_in_status(
            store, Status.SCHEDULED, partition=Partition(queue="later", task="send")
        )
        await insert_in_status(
            store, Status.COMPLETED, partition=Partition(queue="done", task="send")
        )

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

    async def test_continues_after_the_last_partition_of_the_poll_before(
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

    async def test_returns_what_is_due_next_in_its_namespace(
        self, store: Store, clock: ManualClock
    ) -> None:
        began_at = clock()
        for namespace, later in (("team-a", 0), ("team-b", 1), ("team-c", -1)):
            await insert(store, namespace=namespace, delay=(2 + later) * MINUTE)
            await claim_new(store, namespace=namespace, lease=(3 + later) * MINUTE)
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

    async def test_reports_nothing_due_when_nothing_is(
        self, store: Store, clock: ManualClock
    ) -> None:
        await claim_new(store, deadline=MINUTE)
        for status in (Status.DISABLED, Status.COMPLETED, Status.CANCELLED):
            await insert_in_status(store, status, deadline=MINUTE)

        poll = await store.maintenance.poll(NAMESPACE)

        assert (poll.next_due_at, poll.next_deadline_at) == (None, None)
        assert poll.next_lease_end_at == clock() + LEASE


class TestMaintenanceReleaseSticky:
    @pytest.mark.parametrize("how", ["time", "removed", "silent", "clock set back"])
    async def test_lets_any_worker_claim_jobs_that_waited_for_one(
        self, store: Store, clock: ManualClock, how: str
    ) -> None:
        await store.maintenance.register_worker(worker_info(lease=HOUR))
        done = await claim_new_node(store)
        jobs = (node_job("next"), node_job("other"))
        await commit_next(
            store, settlements=(finishes(done),), jobs=jobs, worker=WORKER, sticky=MINUTE
        )
        other = worker_info(namespace=OTHER_NAMESPACE, id=OTHER_WORKER)
        await store.maintenance.register_worker(other)
        assert await store.maintenance.release_sticky(NAMESPACE, 10) == 0

        match how:
            case "time":
                clock.advance(MINUTE)
            case "removed":
                await store.maintenance.remove_worker(WORKER)
            case "silent":
                await store.maintenance.register_worker(worker_info(lease=SECOND))
                clock.advance(2 * SECOND)
            case "clock set back":
                clock.advance(-HOUR)
                await store.maintenance.bound_times(NAMESPACE, LEASE)

        assert await store.maintenance.release_sticky(OTHER_NAMESPACE, 10) == 0
        assert await store.maintenance.release_sticky(NAMESPACE, 1) == 1
        assert await store.maintenance.release_sticky(NAMESPACE, 10) == 1
        found = (await jobs_by_key(store)).values()
        assert {(job.sticky_worker, job.sticky_until) for job in found} == {(None, None)}
        assert (await store.maintenance.poll(NAMESPACE)).next_sticky_at is None
        assert len(await claim_nodes(store)) == 2

    @pytest.mark.parametrize("gone", [WORKER, OTHER_WORKER])
    async def test_leaves_the_jobs_of_live_workers(
        self, store: Store, clock: ManualClock, gone: WorkerId
    ) -> None:
        for worker in (WORKER, OTHER_WORKER):
            await store.maintenance.register_worker(worker_info(id=worker))
            await stick(store, worker)
        await store.maintenance.remove_worker(gone)
        clock.advance(SECOND)
        await store.maintenance.bound_times(NAMESPACE, LEASE)

        assert await store.maintenance.release_sticky(NAMESPACE, 10) == 1
        [released] = await claim_nodes(store)
        assert released.node is not None
        assert released.node.run == RunId(gone)

    async def test_counts_late_jobs_and_orphans_toward_one_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        for worker, sticky in ((WORKER, SECOND), (OTHER_WORKER, HOUR)):
            await store.maintenance.register_worker(worker_info(id=worker))
            await stick(store, worker, sticky=sticky)
        await store.maintenance.remove_worker(OTHER_WORKER)
        clock.advance(SECOND)

        assert await store.maintenance.release_sticky(NAMESPACE, 1) == 1
        assert await store.maintenance.release_sticky(NAMESPACE, 10) == 1

    @pytest.mark.parametrize("how", ["removed", "clock set back"])
    async def test_leaves_other_namespaces_alone(
        self, store: Store, clock: ManualClock, how: str
    ) -> None:
        await store.maintenance.register_worker(worker_info(lease=HOUR))
        for namespace in (NAMESPACE, OTHER_NAMESPACE):
            await stick(store, WORKER, namespace=namespace)
        if how == "removed":
            await store.maintenance.remove_worker(WORKER)
        else:
            clock.advance(-MINUTE)
            await store.maintenance.bound_times(NAMESPACE, LEASE)

        assert await store.maintenance.release_sticky(NAMESPACE, 10) == 1
        if how == "removed":
            assert await store.maintenance.release_sticky(OTHER_NAMESPACE, 10) == 1
        else:
            assert await store.maintenance.release_sticky(OTHER_NAMESPACE, 10) == 0

    @pytest.mark.parametrize("how", ["time", "removed"])
    async def test_leaves_claimed_jobs_alone(
        self, store: Store, clock: ManualClock, how: str
    ) -> None:
        await store.maintenance.register_worker(worker_info(lease=HOUR))
        for run in (RUN, CHILD):
            await stick(store, WORKER, run=run)
        key = with_worker(NODE_PARTITION.text, WORKER)
        wanted = PartitionClaim(partition=key, queue=NODE_PARTITION.queue)
        [claimed] = (await claim(store, partitions=[wanted], limit=1)).jobs
        if how == "time":
            clock.advance(MINUTE)
        else:
            await store.maintenance.remove_worker(WORKER)

        assert await store.maintenance.release_sticky(NAMESPACE, 10) == 1
        [waiting] = await claim_nodes(store)
        assert waiting.claim.id != claimed.claim.id


async def stick(
    store: Store,
    worker: WorkerId,
    *,
    run: RunId | None = None,
    namespace: str = NAMESPACE,
    sticky: timedelta = MINUTE,
) -> None:
    """A run, named after a worker unless it has an id, with a job that waits for it."""
    run = run or RunId(worker)
    await submit(store, id=run, namespace=namespace)
    await commit_next(
        store,
        run=run,
        namespace=namespace,
        jobs=(node_job("next", run, namespace=namespace),),
        worker=worker,
        sticky=sticky,
    )


class TestMaintenanceAcquireLease:
    async def test_lets_one_worker_at_a_time_lead(self, store: Store) -> None:
        assert await store.maintenance.acquire_lease("maintenance", WORKER, LEASE)
        assert not await store.maintenance.acquire_lease("maintenance", OTHER_WORKER, LEASE)

    async def test_lets_the_leader_keep_it(self, store: Store, clock: ManualClock) -> None:
        for _ in range(4):
            assert await store.maintenance.acquire_lease("maintenance", WORKER, LEASE)
            clock.advance(LEASE - SECOND)

        assert not await store.maintenance.acquire_lease("maintenance", OTHER_WORKER, LEASE)

    async def test_lets_another_take_it_once_its_lease_ran_out(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.maintenance.acquire_lease("maintenance", WORKER, LEASE)
        clock.advance(LEASE)

        assert await store.maintenance.acquire_lease("maintenance", OTHER_WORKER, LEASE)
        assert not await store.maintenance.acquire_lease("maintenance", WORKER, LEASE)

    async def test_distinguishes_leases_by_name(self, store: Store) -> None:
        assert await store.maintenance.acquire_lease("maintenance", WORKER, LEASE)
        assert await store.maintenance.acquire_lease("schedules", OTHER_WORKER, LEASE)

    async def test_gives_it_up_with_a_lease_of_nothing(self, store: Store) -> None:
        await store.maintenance.acquire_lease("maintenance", WORKER, LEASE)
        await store.maintenance.acquire_lease("maintenance", WORKER, timedelta(0))

        assert await store.maintenance.acquire_lease("maintenance", OTHER_WORKER, LEASE)


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
    async def test_fails_an_unclaimed_job_whose_deadline_has_passed(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await insert_in_status(store, status, deadline=HOUR)
        clock.advance(HOUR)

        [expired] = await store.maintenance.expire_deadlines(NAMESPACE, 10)

        job, state, history = await job_record(store, there.id)
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
        there = await insert_in_status(store, status, deadline=HOUR)
        before = await job_record(store, there.id)
        clock.advance(2 * HOUR)

        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 10)) == 0
        assert await job_record(store, there.id) == before

    async def test_takes_no_more_than_the_limit(self, store: Store, clock: ManualClock) -> None:
        await insert_many(store, 2, deadline=MINUTE)
        last = await insert(store, deadline=2 * MINUTE)
        clock.advance(HOUR)

        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 2)) == 2
        assert await status_of(store, last) is Status.WAITING
        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 2)) == 1
        assert (await read_job(store, last)).status is Status.FAILED


# Workers


class TestQueriesWorkers:
    async def test_shows_each_worker_with_its_claims(
        self, store: Store, clock: ManualClock
    ) -> None:
        info = worker_info(tags=("gpu",))
        await store.maintenance.register_worker(info)
        first, second = await claim_new(store), await claim_new(store)
        done = await claim_new(store)
        await settle(store, done, Completed(output=b"1"))
        await claim_new(store, worker=OTHER_WORKER)
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
        assert await seen("unknown") == []


def sent(count: int, queue: str = "a") -> TaskCounts:
    return TaskCounts(task="send", queue=queue, counts={"completed": count})


async def sent_in(store: Store) -> int:
    return sum(
        each.counts["completed"] for each in (await store.queries.work_counts(NAMESPACE))[NAMESPACE]
    )


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

    async def test_replaces_the_former_incarnation_at_a_start(
        self, store: Store, clock: ManualClock
    ) -> None:
        former, latter = worker_info(incarnation=1), worker_info(incarnation=2)
        assert await store.maintenance.register_worker(former, starts=True)
        clock.advance(MINUTE)
        assert await store.maintenance.register_worker(latter, starts=True)
        started_at = clock()
        clock.advance(MINUTE)

        assert not await store.maintenance.register_worker(former)
        [state] = await store.queries.workers(NAMESPACE)
        assert state == WorkerState(
            info=latter, started_at=started_at, seen_at=started_at, running=()
        )
        assert await store.maintenance.register_worker(latter)

    async def test_writes_a_row_that_is_gone_again(self, store: Store) -> None:
        info = worker_info(incarnation=1)

        assert await store.maintenance.register_worker(info)
        assert [state.info for state in await store.queries.workers(NAMESPACE)] == [info]

    async def test_counts_what_a_process_counted_since_its_row_was_written_first(
        self, store: Store
    ) -> None:
        """A worker that runs again, or whose row was pruned, has counted some of it before."""
        await store.maintenance.register_worker(worker_info(), [sent(2)], starts=True)
        for _ in range(2):
            await store.maintenance.register_worker(worker_info(), [sent(5), sent(1, "b")])

        counted = [sent(3), sent(1, "b")]
        assert await store.queries.work_counts(NAMESPACE) == {NAMESPACE: counted}
        await store.maintenance.remove_worker(WORKER)
        await store.maintenance.register_worker(worker_info(), [sent(6), sent(1, "b")])
        assert await store.queries.work_counts(NAMESPACE) == {NAMESPACE: counted}
        await store.maintenance.register_worker(worker_info(), [sent(9), sent(1, "b")])
        assert await sent_in(store) == 7

    async def test_keeps_what_a_former_process_counted_under_this_id(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info(), starts=True)
        await store.maintenance.register_worker(worker_info(), [sent(5)])
        for _ in range(2):  # the answer to the first may have been lost
            await store.maintenance.register_worker(worker_info(), starts=True)
        await store.maintenance.register_worker(worker_info(), [sent(2)])

        assert await sent_in(store) == 7

    async def test_counts_nothing_twice_when_a_process_registers_again(self, store: Store) -> None:
        """Its sign-off failed, so its row is still there."""
        await store.maintenance.register_worker(worker_info(), starts=True)
        await store.maintenance.register_worker(worker_info(), [sent(5)])
        await store.maintenance.register_worker(worker_info(), [sent(5)], starts=True)
        await store.maintenance.register_worker(worker_info(), [sent(7)])

        assert await sent_in(store) == 7


class TestQueriesWorkCounts:
    async def test_adds_up_all_workers_live_and_gone_by_namespace(self, store: Store) -> None:
        def counts(completed: int, **others: int) -> list[TaskCounts]:
            every = {"completed": completed, **others}
            return [TaskCounts(task="send", queue="mail", counts=every)]

        assert await store.queries.work_counts(None) == {}
        for id, namespace in ((WORKER, NAMESPACE), (OTHER_WORKER, NAMESPACE), ("third", "team-b")):
            info = worker_info(id=WorkerId(id), namespace=namespace)
            await store.maintenance.register_worker(info, starts=True)
            await store.maintenance.register_worker(info, counts(2, failed=1))
        await store.maintenance.remove_worker(WORKER)

        both = {NAMESPACE: counts(4, failed=2), "team-b": counts(2, failed=1)}
        assert await store.queries.work_counts(None) == both
        assert await store.queries.work_counts("team-b") == {"team-b": both["team-b"]}
        assert await store.queries.work_counts("unknown") == {}


class TestMaintenanceRemoveWorker:
    async def test_keeps_what_it_counted_once(self, store: Store) -> None:
        for id in (WORKER, OTHER_WORKER):
            await store.maintenance.register_worker(worker_info(id=id), starts=True)
            await store.maintenance.register_worker(worker_info(id=id), [sent(2), sent(1, "b")])
            for _ in range(2):
                await store.maintenance.remove_worker(id)

        counted = [sent(4), sent(2, "b")]
        assert await store.queries.work_counts(None) == {NAMESPACE: counted}

    async def test_removes_this_worker_and_no_other(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info())
        await store.maintenance.register_worker(worker_info(id=OTHER_WORKER))

        await store.maintenance.remove_worker(WORKER)

        assert [state.info.id for state in await store.queries.workers(None)] == [OTHER_WORKER]

    async def test_leaves_the_jobs_it_holds_to_their_leases(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info())
        claimed = await claim_new(store)

        await store.maintenance.remove_worker(WORKER)

        assert await status_of(store, claimed.id) is Status.ACTIVE

    async def test_leaves_an_incarnation_that_has_replaced_it(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info(incarnation=2))

        await store.maintenance.remove_worker(WORKER, 1)

        assert len(await store.queries.workers(None)) == 1
        await store.maintenance.remove_worker(WORKER, 2)
        assert await store.queries.workers(None) == []

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

    async def test_keeps_what_they_counted(self, store: Store, clock: ManualClock) -> None:
        for id, count in ((WORKER, 2), (OTHER_WORKER, 3)):
            await store.maintenance.register_worker(worker_info(id=id))
            await store.maintenance.register_worker(worker_info(id=id), [sent(count)])
        clock.advance(HOUR)

        assert await sent_in(store) == 5
        assert await store.maintenance.prune_workers(NAMESPACE, HOUR) == 2
        assert await sent_in(store) == 5

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


# Pruning finished jobs


NOTHING_KEPT = dict.fromkeys(FINISHED, timedelta(0))
PRUNABLE = FINISHED | {Status.DISABLED}


class TestMaintenancePruneJobs:
    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_removes_a_job_that_finished_longer_ago_than_its_status_is_kept(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        ended = await insert_in_status(store, status)
        keep = dict.fromkeys(FINISHED, 9 * HOUR) | {status: HOUR}
        clock.advance(HOUR - SECOND)
        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 0
        clock.advance(2 * SECOND)

        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 1
        assert await job_record(store, ended.id) == (None, None, [])

    async def test_counts_from_when_the_job_finished_and_from_no_other_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        clock.advance(HOUR)
        claimed = await claim_one(store, lease=9 * HOUR)
        clock.advance(HOUR)
        await settle(store, claimed, Completed(output=b"1"))
        clock.advance(MINUTE)

        assert (
            await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: 2 * MINUTE}, 10) == 0
        )
        clock.advance(2 * MINUTE)
        assert (
            await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: 2 * MINUTE}, 10) == 1
        )

    async def test_keeps_for_ever_what_is_not_named(self, store: Store, clock: ManualClock) -> None:
        ended = await insert_in_status(store, Status.DEAD)
        clock.advance(10_000 * HOUR)

        assert (
            await store.maintenance.prune_jobs(
                NAMESPACE, {Status.COMPLETED: HOUR, Status.FAILED: HOUR}, 10
            )
            == 0
        )
        assert await store.maintenance.prune_jobs(NAMESPACE, {}, 10) == 0
        assert (await job_record(store, ended.id))[0] is not None

    @pytest.mark.parametrize("status", sorted(set(Status) - FINISHED))
    async def test_leaves_jobs_that_are_not_finished(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)
        clock.advance(HOUR)

        assert await store.maintenance.prune_jobs(NAMESPACE, NOTHING_KEPT, 10) == 0
        assert await job_record(store, there.id) == before

    async def test_removes_a_job_that_was_disabled_longer_ago_than_disabled_ones_are_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        ran = await claim_new(store)
        old, again, enabled = [await insert(store) for _ in range(3)]
        await insert_in_status(store, Status.DISABLED, namespace=OTHER_NAMESPACE)
        clock.advance(9 * HOUR)  # when it was created and started does not count
        there = [old, again, enabled, ran.id]
        await store.admin.change_jobs(Transition.DISABLE, None, there)
        keep = {Status.DISABLED: HOUR}
        clock.advance(HOUR - SECOND)
        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 0
        for operation in (Transition.ENABLE, Transition.DISABLE):
            await store.admin.change_jobs(operation, NAMESPACE, [again])
        await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [enabled])
        clock.advance(2 * SECOND)

        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 2
        assert await job_record(store, old) == (None, None, [])
        assert await job_record(store, ran.id) == (None, None, [])
        assert await status_of(store, again) is Status.DISABLED
        assert await status_of(store, enabled) is Status.WAITING
        clock.advance(HOUR)
        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 1

    async def test_takes_no_more_than_the_limit(self, store: Store, clock: ManualClock) -> None:
        for status in sorted(PRUNABLE):
            await insert_in_status(store, status)
            await insert_in_status(store, status)
        clock.advance(HOUR)

        removed = []
        keep = dict.fromkeys(PRUNABLE, timedelta(0))
        while count := await store.maintenance.prune_jobs(NAMESPACE, keep, 3):
            removed.append(count)

        assert max(removed) <= 3
        assert sum(removed) == 10
        assert await store.queries.count_jobs(JobFilter()) == 0

    async def test_lets_the_same_job_be_inserted_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store, fingerprint="once", group="run-1")
        await settle(store, claimed, Completed(output=b"1"))
        clock.advance(HOUR)
        await store.maintenance.prune_jobs(NAMESPACE, NOTHING_KEPT, 10)

        assert await insert(store, id=claimed.id, fingerprint="once") == claimed.id
        assert (await claim_one(store)).epoch == 1


# Definitions of flows


class TestMaintenancePruneDefinitions:
    """Finding 21: stored definitions that no run uses were never pruned."""

    async def test_removes_one_that_nothing_uses_once_it_is_old(
        self, store: Store, clock: ManualClock
    ) -> None:
        unused = await save(store, graph("unused"))
        theirs = await save(store, graph("unused"), namespace="team-b")
        clock.advance(WEEK - SECOND)
        assert await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10) == 0
        clock.advance(SECOND)
        assert await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10) == 1

        assert not await is_saved(store, unused)
        assert await is_saved(store, theirs, namespace="team-b")
        await save(store, unused)
        assert await is_saved(store, unused)

    async def test_saving_it_again_makes_it_young(self, store: Store, clock: ManualClock) -> None:
        saved = await save(store, graph("unused"))
        clock.advance(WEEK)
        await save(store, saved)

        assert await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10) == 0
        assert await is_saved(store, saved)

    @pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.COMPLETED])
    async def test_keeps_that_of_a_run_until_the_run_is_removed(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        used, other = await save(store, graph("orders")), await save(store, graph("orders", "v2"))
        await submit(store, flow=used.name, version=used.version, status=status)
        clock.advance(WEEK)
        assert await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10) == 2

        assert await is_saved(store, used)
        assert not await is_saved(store, other)

        if status is RunStatus.COMPLETED:
            clock.advance(WEEK)
            await store.maintenance.prune_runs(NAMESPACE, {status: HOUR}, 10)
            await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10)
            assert not await is_saved(store, used)

    async def test_keeps_those_of_schedules_and_of_child_flows(
        self, store: Store, clock: ManualClock
    ) -> None:
        child = await save(store, graph("child"))
        parent = await save(store, graph("parent", child=child))
        nightly = await save(store, graph("nightly", child=parent))
        new = new_schedule()
        call = FlowCall(flow=nightly.name, version=nightly.version, input=b"1", aging_ms=1)
        new = replace(new, definition=replace(new.definition, call=call))
        await store.schedules.commit(ScheduleCommit(schedule=new, expected=None))

        clock.advance(WEEK)
        assert await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10) == 3
        assert [await is_saved(store, each) for each in (child, parent, nightly)] == [True] * 3

        await store.schedules.delete(NAMESPACE, new.name)
        for _ in range(3):  # a child is kept while its parent is stored
            clock.advance(WEEK)
            await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10)
        assert [await is_saved(store, each) for each in (child, parent, nightly)] == [False] * 3

    async def test_keeps_that_a_run_was_migrated_from(
        self, store: Store, clock: ManualClock
    ) -> None:
        before, after = await save(store, graph("orders")), await save(store, graph("orders", "v2"))
        await submit(store, flow=before.name, version=before.version)
        await commit_next(store, version=after.version)
        clock.advance(WEEK)
        await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10)

        assert await is_saved(store, before)
        assert await is_saved(store, after)

    async def test_looks_at_no_more_than_the_limit_and_at_each_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        used = await save(store, graph("used"))
        await submit(store, flow=used.name, version=used.version)
        for number in range(4):
            await save(store, graph(f"unused-{number}"))
        clock.advance(WEEK)

        looked = [await store.maintenance.prune_definitions(NAMESPACE, WEEK, 2) for _ in range(4)]

        assert looked == [2, 2, 1, 0]
        assert [each.flow for each in await store.admin.flow_stats(NAMESPACE)] == ["used"]


class TestRunsSubmitOfADefinition:
    """Finding 21: a client that has saved a definition does not know that it was pruned."""

    @pytest.mark.parametrize("on_existing", ["fail", "use_existing", "replace"])
    async def test_is_refused_if_it_was_pruned_and_nothing_is_written(
        self, store: Store, clock: ManualClock, on_existing: OnExisting
    ) -> None:
        flow = await save(store, graph("orders"))
        run = {"flow": flow.name, "version": flow.version, "needs_definition": True}
        clock.advance(WEEK)
        await store.maintenance.prune_definitions(NAMESPACE, WEEK, 10)

        with pytest.raises(UnknownFlow):
            await submit(store, on_existing=on_existing, **run)
        assert await store.queries.get_runs([(NAMESPACE, RUN)]) == [None]

        await save(store, flow)
        await submit(store, on_existing=on_existing, **run)
        if on_existing == "replace":
            clock.advance(2 * DEFINITION_FRESH)
            with pytest.raises(UnknownFlow):
                await submit(store, on_existing=on_existing, **run)
            assert (await read_run(store)).flow == flow.name  # still there

    async def test_is_refused_if_it_could_be_pruned_meanwhile(
        self, store: Store, clock: ManualClock
    ) -> None:
        flow = await save(store, graph("orders"))
        run = {"flow": flow.name, "version": flow.version, "needs_definition": True}
        clock.advance(DEFINITION_FRESH - SECOND)
        await submit(store, id=RunId("first"), **run)
        clock.advance(SECOND)
        with pytest.raises(UnknownFlow):
            await submit(store, id=RunId("second"), **run)
        await save(store, flow)
        await submit(store, id=RunId("second"), **run)


WEEK = timedelta(days=7)


def graph(name: str, id: str = "v1", child: Graph | None = None) -> Graph:
    nodes = () if child is None else (FlowNode(id="child", body=child.ref),)
    call = Call(task=id, queue="default", priority=3)
    return Graph(Definition(name=name, nodes=(TaskNode(id="first", call=call), *nodes)))


async def save(store: Store, graph: Graph, namespace: str = NAMESPACE) -> Graph:
    await store.runs.save_definition(namespace, graph.name, graph.version, graph.data)
    return graph


async def is_saved(store: Store, graph: Graph, namespace: str = NAMESPACE) -> bool:
    found = await store.runs.get_definition(namespace, graph.name, graph.version)
    return found == graph.data
