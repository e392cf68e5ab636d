"""Committing runs: fences, repeated commits, children, concurrent commits."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.event import Parent, StoredEvent
from perdure.model.ids import RUN_START, RUN_TIMEOUT, JobId, RunId, WorkerId
from perdure.model.job import Claim, ClaimedJob, JobFilter, Status
from perdure.model.outcome import Requeued, Retried
from perdure.model.partition import Partition, with_worker
from perdure.model.run import CommitResult, CommitState, Priorities, RunStatus, Snapshot
from perdure.model.settings import RunSettings
from perdure.store.admission import rank_of
from perdure.store.contract import PartitionClaim, Store
from perdure.testing.contract.builders import (
    AGING,
    CANCELLED,
    CHILD,
    COMPLETED,
    CONFLICT,
    DONE,
    FAILED,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    OTHER_WORKER,
    PAUSED,
    QUEUED,
    RUN,
    RUNNING,
    SECOND,
    STALE,
    SUSPECTED,
    VERSION,
    WAITING,
    WORKER,
    child_wait,
    claim,
    claim_new_node,
    claim_node,
    claim_nodes,
    commit,
    commit_next,
    continues,
    due_keys,
    event,
    failure,
    finishes,
    is_still_claimed,
    jobs_by_key,
    load,
    new_child,
    node_job,
    node_partition,
    read_run,
    renew,
    retries,
    run_record,
    settle,
    status_of,
    step,
    submit,
    timer,
    waits_by_key,
    worker_info,
)
from perdure.testing.contract.handles import THREADS, run_concurrently


class TestRunsCommit:
    async def test_numbers_events_on_from_the_expected_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        clock.advance(SECOND)

        result = await commit(store, 1, events=(event("one", "1"), event("two")))
        await commit(store, 3, events=(event("three", "3"),))

        assert result == CommitResult(state=DONE)
        assert (await load(store, number=1)).events == [
            StoredEvent(number=2, at=clock(), data=b'{"type":"one"}', value=b'"1"'),
            StoredEvent(number=3, at=clock(), data=b'{"type":"two"}', value=None),
            StoredEvent(number=4, at=clock(), data=b'{"type":"three"}', value=b'"3"'),
        ]
        assert (await read_run(store)).number == 4

    async def test_gives_the_run_its_status_and_summary(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = await submit(store)
        clock.advance(MINUTE)

        await commit(store, 1, status=WAITING, summary=b'{"reason":"weather"}')

        assert await read_run(store) == replace(
            run, number=2, status=WAITING, summary=b'{"reason":"weather"}', updated_at=clock()
        )

    @pytest.mark.parametrize("after", [SECOND, timedelta(0)])
    async def test_is_a_conflict_if_the_run_was_replaced_under_the_same_id_and_number(
        self, store: Store, clock: ManualClock, after: timedelta
    ) -> None:
        former = await submit(store)
        clock.advance(after)
        later = await submit(store, on_existing="replace")
        assert later.number == former.number

        assert (await commit(store, created_at=former.created_at)).state is CONFLICT
        assert await read_run(store) == later
        assert (await commit(store, created_at=later.created_at)).state is DONE

    async def test_leaves_the_summary_unless_there_is_a_new_one(self, store: Store) -> None:
        run = await submit(store)

        await commit(store)

        assert (await read_run(store)).summary == run.summary

    @pytest.mark.parametrize("status", [COMPLETED, FAILED, CANCELLED])
    async def test_gives_an_ended_run_its_time(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store)
        clock.advance(SECOND)

        await commit(store, status=status)

        run = await read_run(store)
        assert (run.status, run.finished_at, run.updated_at) == (status, clock(), clock())

    @pytest.mark.parametrize("status", [FAILED, CANCELLED])
    async def test_leaves_an_ended_run_the_time_at_which_it_ended(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store, waits=(child_wait(),))
        await commit_next(store, status=FAILED)
        ended_at = clock()
        clock.advance(MINUTE)

        await commit_next(store, status=status, events=(), close_waits=("ship",))

        run = await read_run(store)
        assert (run.number, run.finished_at, run.updated_at) == (2, ended_at, clock())
        assert await store.queries.run_waits(NAMESPACE, RUN) == []

    @pytest.mark.parametrize("status", [FAILED, COMPLETED])
    async def test_gives_a_run_that_is_retried_and_ends_in_one_commit_its_new_time(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store)
        await commit_next(store, status=FAILED)
        clock.advance(MINUTE)

        await commit_next(store, status=status)

        assert (await read_run(store)).finished_at == clock()

    async def test_lets_a_run_that_is_retried_no_longer_be_ended(self, store: Store) -> None:
        await submit(store)
        await commit_next(store, status=FAILED)

        await commit_next(store, status=RUNNING)

        run = await read_run(store)
        assert (run.status, run.finished_at) == (RUNNING, None)

    async def test_answers_in_the_order_of_the_commits(self, store: Store) -> None:
        await submit(store, id=RunId("a"))
        await submit(store, id=RunId("b"))

        answer = await store.runs.commit(
            [
                step(1, run=RunId("b")),
                step(9, run=RunId("a")),
                step(1, run=RunId("unknown")),
                step(1, run=RunId("a"), settlements=(finishes(Claim(id=JobId("gone"), epoch=1)),)),
            ]
        )

        assert [each.state for each in answer.results] == [DONE, CONFLICT, CONFLICT, STALE]

    async def test_answers_with_the_stores_time(self, store: Store, clock: ManualClock) -> None:
        await submit(store)
        clock.advance(MINUTE)

        assert (await store.runs.commit([step()])).now == clock()

    async def test_does_nothing_when_there_is_nothing_to_commit(self, store: Store) -> None:
        assert (await store.runs.commit([])).results == []

    async def test_keeps_a_commit_from_runs_of_that_id_elsewhere(self, store: Store) -> None:
        job = node_job(namespace=OTHER_NAMESPACE)
        await submit(store, namespace=OTHER_NAMESPACE, jobs=(job,), waits=(timer(),))
        before = await run_record(store, RUN, OTHER_NAMESPACE)
        await submit(store, jobs=(node_job(),))

        await commit_next(store, cancel_all=True, suspend=True, version="v2", status=CANCELLED)

        assert await run_record(store, RUN, OTHER_NAMESPACE) == before

    async def test_writes_nothing_of_a_step_that_it_cannot_keep(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        before = await run_record(store)
        too_late = node_job("late", delay=timedelta.max)

        result = await commit(
            store, settlements=(finishes(claimed),), jobs=(node_job("n"), too_late)
        )

        assert result.state is CommitState.REFUSED
        assert await run_record(store) == before
        assert await is_still_claimed(store, claimed)

    async def test_writes_steps_of_many_runs_at_once(self, store: Store) -> None:
        ids = [RunId(f"run-{number:03}") for number in range(120)]
        for id in ids:
            await submit(store, id=id, jobs=(node_job(run=id),))
        claimed = {
            job.node.run: job.claim for job in await claim_nodes(store, limit=200) if job.node
        }

        answer = await store.runs.commit(
            [
                step(run=id, settlements=(continues(claimed[id], node_job("next", run=id)),))
                for id in ids
            ]
        )

        assert {each.state for each in answer.results} == {DONE}
        for id in ids:
            assert (await read_run(store, id)).number == 2
            assert list(await jobs_by_key(store, id)) == ["next"]


class TestFencesOfACommit:
    @pytest.mark.parametrize("expected", [0, 1, 3, 9])
    async def test_refuse_one_that_was_decided_upon_another_event(
        self, store: Store, expected: int
    ) -> None:
        claimed = await claim_new_node(store)
        await commit(store, 1, waits=(timer(delay=MINUTE),))
        before = await run_record(store)

        result = await commit(
            store,
            expected,
            status=FAILED,
            settlements=(finishes(claimed),),
            jobs=(node_job("next"),),
            waits=(timer("other"),),
            close_waits=("delay",),
            children=(new_child(),),
            version="v2",
            summary=b"lost",
            snapshot=Snapshot(number=1, data=b"lost"),
        )

        assert result == CommitResult(state=CONFLICT)
        assert await run_record(store) == before
        assert (await store.queries.get_runs([(NAMESPACE, CHILD)]))[0] is None

    async def test_refuse_one_of_a_run_that_is_not_there(self, store: Store) -> None:
        result = await commit(store, 0, jobs=(node_job(),), waits=(timer(delay=-SECOND),))

        assert result == CommitResult(state=CONFLICT)
        assert await store.queries.run_jobs(NAMESPACE, RUN) == []
        assert await store.maintenance.due_waits(NAMESPACE, 10) == []

    async def test_refuse_one_with_a_claim_that_is_not_current_and_name_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job("pack"), node_job("weigh")))
        [pack, weigh] = [job.claim for job in await claim_nodes(store)]
        clock.advance(LEASE - SECOND)
        await store.jobs.renew(WORKER, [weigh], LEASE)
        clock.advance(SECOND)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        before = await run_record(store)

        result = await commit(
            store,
            1,
            settlements=(finishes(weigh), finishes(pack)),
            jobs=(node_job("next"),),
            cancel_all=True,
            status=FAILED,
        )

        assert result == CommitResult(state=STALE, stale=(pack,))
        assert await run_record(store) == before
        assert await is_still_claimed(store, weigh)

    async def test_refuse_a_claim_on_a_job_that_another_worker_has_claimed_since(
        self, store: Store, clock: ManualClock
    ) -> None:
        lost = await claim_new_node(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        current = await claim_node(store, worker=OTHER_WORKER, suspicion=SUSPECTED)
        before = await run_record(store)

        result = await commit(store, 1, settlements=(finishes(lost),))

        assert current.id == lost.id
        assert result == CommitResult(state=STALE, stale=(lost,))
        assert await run_record(store) == before
        assert await is_still_claimed(store, current)

    async def test_refuse_a_claim_on_a_job_that_is_gone(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        await commit_next(store, settlements=(finishes(claimed),))

        result = await commit(store, 2, settlements=(continues(claimed, node_job("next")),))

        assert result == CommitResult(state=STALE, stale=(claimed,))
        assert await store.queries.run_jobs(NAMESPACE, RUN) == []

    async def test_speak_of_a_conflict_before_they_look_at_claims(self, store: Store) -> None:
        await submit(store)

        result = await commit(store, 5, settlements=(finishes(Claim(id=JobId("gone"), epoch=1)),))

        assert result == CommitResult(state=CONFLICT)

    async def test_do_not_stop_the_other_commits(self, store: Store) -> None:
        others = [RunId("first"), RunId("last")]
        for id in (RUN, *others):
            await submit(store, id=id, jobs=(node_job(run=id),))
        claimed = {job.node.run: job.claim for job in await claim_nodes(store) if job.node}

        answer = await store.runs.commit(
            [
                step(run=others[0], settlements=(finishes(claimed[others[0]]),)),
                step(4, settlements=(finishes(claimed[RUN]),)),
                step(run=others[1], settlements=(finishes(claimed[others[1]]),)),
            ]
        )

        assert [each.state for each in answer.results] == [DONE, CONFLICT, DONE]
        assert [await store.queries.run_jobs(NAMESPACE, id) for id in others] == [[], []]
        assert await is_still_claimed(store, claimed[RUN])


class TestACommitRepeatedAfterALostAnswer:
    async def test_is_done_and_counts_once(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        once = step(
            1,
            settlements=(continues(claimed, node_job("next")),),
            jobs=(node_job("beside"),),
            waits=(timer(delay=MINUTE),),
            children=(new_child(),),
        )
        await store.runs.commit([once])
        before = await run_record(store)

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert await run_record(store) == before

    async def test_is_done_though_its_job_is_gone(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        once = step(1, settlements=(finishes(claimed),))
        await store.runs.commit([once])

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert (await read_run(store)).number == 2

    async def test_is_done_though_another_commit_came_in_between(self, store: Store) -> None:
        """On a conflict, its worker would take the continued job for a finished one."""
        claimed = await claim_new_node(store)
        once = step(1, settlements=(continues(claimed, node_job("next")),))
        await store.runs.commit([once])
        await commit_next(store, events=(event("signal"),))
        before = await run_record(store)

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert await run_record(store) == before

    async def test_is_done_and_counts_once_without_events_too(self, store: Store) -> None:
        await submit(store, waits=(child_wait(),))
        once = step(1, events=(), close_waits=("ship",), jobs=(node_job(),))
        await store.runs.commit([once])
        await claim_node(store)
        before = await run_record(store)

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert await run_record(store) == before

    async def test_is_distinct_from_another_that_wrote_the_same(self, store: Store) -> None:
        await submit(store)
        await commit(store, 1)

        assert await commit(store, 1) == CommitResult(state=CONFLICT)


class TestSnapshotsInACommit:
    async def test_replace_the_one_that_is_kept(self, store: Store) -> None:
        await submit(store)
        await commit_next(store, snapshot=Snapshot(number=1, data=b"one"))
        await commit_next(store, snapshot=Snapshot(number=3, data=b"three"))
        await commit_next(store)

        loaded = await load(store, number=None)

        assert loaded.snapshot == Snapshot(number=3, data=b"three")
        assert [each.number for each in loaded.events] == [4]


class TestANewVersion:
    async def test_goes_into_the_run_and_the_partitions_of_its_jobs(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        elsewhere = node_partition("weigh_item", tags=("scale",))
        await commit_next(
            store,
            jobs=(
                node_job("pack[1]"),
                node_job("weigh", partition=elsewhere, delay=MINUTE),
            ),
        )
        before = await jobs_by_key(store)

        await commit_next(store, version="v2")

        assert (await read_run(store)).version == "v2"
        assert await claim_nodes(store, NODE_PARTITION) == []
        [waiting] = await claim_nodes(store, node_partition(version="v2"))
        assert (waiting.claim.id, waiting.partition) == (
            before["pack[1]"].id,
            node_partition(version="v2"),
        )
        assert await is_still_claimed(store, claimed)

    async def test_goes_into_partitions_of_jobs_that_are_scheduled_or_claimed(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new_node(store)
        elsewhere = node_partition("weigh_item", tags=("scale",), keys=("scale-1",))
        later = node_job("weigh", partition=elsewhere, delay=MINUTE)
        await commit_next(store, jobs=(later,))

        await commit_next(store, version="v2")
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 10)
        await store.maintenance.take_over_expired(NAMESPACE, 10)

        moved = [node_partition(version="v2"), replace(elsewhere, flow="orders@v2")]
        jobs = [
            *await claim_nodes(store, moved[1]),
            *await claim_nodes(store, moved[0], suspicion=SUSPECTED),
        ]
        taken = {job.claim.id: job.partition for job in jobs}
        assert taken == {claimed.id: moved[0], later.id: moved[1]}

    async def test_removes_suspicions(self, store: Store, clock: ManualClock) -> None:
        """The new version may have been made because the old one crashed."""
        claimed = await claim_new_node(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)

        await commit_next(store, version="v2")

        assert (await claim_node(store, node_partition(version="v2"))).id == claimed.id

    async def test_is_not_taken_from_a_commit_that_has_none(self, store: Store) -> None:
        await submit(store)

        await commit_next(store)

        assert (await read_run(store)).version == VERSION

    async def test_leaves_jobs_of_other_runs_alone(self, store: Store) -> None:
        await submit(store)
        await submit(store, id=RunId("other"), jobs=(node_job(run=RunId("other")),))

        await commit_next(store, version="v2")

        assert len(await claim_nodes(store, NODE_PARTITION)) == 1


class TestTheMostUrgentRank:
    async def test_is_the_lowest_that_waits_in_the_partitions(
        self, store: Store, clock: ManualClock
    ) -> None:
        urgent, other = node_partition("alarm"), node_partition("other")
        await submit(
            store,
            jobs=(
                node_job("a", priority=3),
                node_job("b", priority=2, partition=urgent),
                node_job("c", priority=5, partition=urgent),
                node_job("d", priority=1, partition=other),
            ),
        )

        answer = await store.runs.commit([step()], [NODE_PARTITION.text, urgent.text])

        assert answer.most_urgent_rank == pytest.approx(rank_of(clock(), 2, AGING), abs=1e-3)

    async def test_is_as_of_this_write(self, store: Store, clock: ManualClock) -> None:
        claimed = await claim_new_node(store)

        answer = await store.runs.commit(
            [
                step(
                    settlements=(continues(claimed, node_job("n")),),
                    jobs=(node_job("m", priority=2),),
                )
            ],
            [NODE_PARTITION.text],
        )

        assert answer.most_urgent_rank == pytest.approx(rank_of(clock(), 2, AGING), abs=1e-3)

    async def test_is_none_where_nothing_waits(self, store: Store) -> None:
        await submit(
            store,
            jobs=(
                node_job("later", delay=MINUTE),
                node_job("elsewhere", partition=node_partition("other")),
                node_job("theirs", namespace=OTHER_NAMESPACE),
            ),
        )

        assert (await store.runs.commit([step()], [NODE_PARTITION.text])).most_urgent_rank is None
        assert (await store.runs.commit([step(2)])).most_urgent_rank is None

    async def test_comes_with_a_conflict_too(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(),))

        answer = await store.runs.commit([step(7)], [NODE_PARTITION.text])

        assert answer.most_urgent_rank == pytest.approx(rank_of(clock(), 4, AGING), abs=1e-3)
        [job] = await store.queries.run_jobs(NAMESPACE, RUN)
        assert await status_of(store, job.id) is Status.WAITING


# Children: runs that a run starts and waits for


async def parent_with_child(store: Store) -> None:
    await submit(store)
    await commit_next(store, waits=(child_wait(), timer(delay=HOUR)), children=(new_child(),))


class TestChildrenOfACommit:
    async def test_are_inserted_with_all_that_is_theirs(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        clock.advance(SECOND)
        below = RunId("below")
        child = new_child(
            jobs=(node_job("print", run=CHILD),),
            waits=(timer("truck", delay=MINUTE), child_wait("label", below)),
            children=(new_child(id=below, parent=Parent(run=CHILD, key="label")),),
        )

        await commit_next(store, waits=(child_wait(),), children=(child,))

        run = await read_run(store, CHILD)
        assert (run.flow, run.version, run.status, run.number) == ("shipping", "v7", RUNNING, 1)
        assert (run.parent, run.created_at) == (Parent(run=RUN, key="ship"), clock())
        [first] = (await load(store, CHILD)).events
        assert (first.number, first.at, first.value) == (1, clock(), b'"parcel"')
        assert list(await jobs_by_key(store, CHILD)) == ["print"]
        assert (await waits_by_key(store, CHILD))["truck"].due_at == clock() + MINUTE
        assert (await read_run(store, below)).parent == Parent(run=CHILD, key="label")

    async def test_are_inserted_by_the_hundred(self, store: Store) -> None:
        await submit(store)
        children = tuple(
            new_child(
                id=RunId(f"child-{item}"),
                parent=Parent(run=RUN, key=f"ship[{item}]"),
                jobs=(node_job("print", run=RunId(f"child-{item}")),),
            )
            for item in range(300)
        )
        waits = tuple(child_wait(f"ship[{item}]", RunId(f"child-{item}")) for item in range(300))

        await commit_next(store, children=children, waits=waits)

        assert len(await store.queries.run_waits(NAMESPACE, RUN)) == 300
        assert list(await jobs_by_key(store, RunId("child-299"))) == ["print"]

    async def test_leave_a_run_alone_that_has_their_id_already(self, store: Store) -> None:
        await submit(store, id=CHILD, jobs=(node_job("theirs", run=CHILD),))
        before = await run_record(store, CHILD)
        await submit(store)

        child = new_child(jobs=(node_job("print", run=CHILD),), waits=(timer(),))
        await commit_next(store, waits=(child_wait(),), children=(child,))

        assert await run_record(store, CHILD) == before
        assert (await read_run(store)).number == 2

    async def test_may_be_over_at_once(self, store: Store, clock: ManualClock) -> None:
        await submit(store)
        child = new_child(status=FAILED, events=(event("submitted"), event("failed")))

        await commit_next(store, waits=(child_wait(), timer(delay=HOUR)), children=(child,))

        assert (await read_run(store, CHILD)).finished_at == clock()
        assert await due_keys(store) == ["ship"]


class TestTheEndOfAChild:
    @pytest.mark.parametrize("status", [COMPLETED, FAILED, CANCELLED])
    async def test_makes_the_wait_of_its_parent_due_at_once(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await parent_with_child(store)
        clock.advance(SECOND)

        await commit_next(store, run=CHILD, status=status)

        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)
        assert (wait.run, wait.key, wait.name, wait.due_at) == (RUN, "ship", CHILD, clock())
        assert (await read_run(store)).number == 2, "the parent decides for itself"

    async def test_is_not_made_by_a_step_that_does_not_end_it(self, store: Store) -> None:
        await parent_with_child(store)

        await commit_next(store, run=CHILD, status=WAITING)

        assert await due_keys(store) == []

    async def test_does_nothing_to_a_wait_for_another_run(self, store: Store) -> None:
        """An older child of the same key, which a retry left behind."""
        await parent_with_child(store)
        await commit_next(store, close_waits=("ship",), waits=(child_wait("ship", RunId("newer")),))

        await commit_next(store, run=CHILD, status=CANCELLED)

        assert await due_keys(store) == []
        assert (await waits_by_key(store))["ship"].due_at is None

    async def test_at_once_does_nothing_to_a_wait_for_another_run(self, store: Store) -> None:
        await submit(
            store,
            waits=(child_wait("ship", RunId("newer")),),
            children=(new_child(status=COMPLETED),),
        )

        assert await due_keys(store) == []

    async def test_does_nothing_to_a_wait_that_is_closed(self, store: Store) -> None:
        await parent_with_child(store)
        await commit_next(store, close_waits=("ship",))

        await commit_next(store, run=CHILD, status=COMPLETED)

        assert set(await waits_by_key(store)) == {"delay"}

    async def test_does_nothing_to_parents_of_that_id_elsewhere(self, store: Store) -> None:
        await submit(store, namespace=OTHER_NAMESPACE, waits=(child_wait(),))
        await parent_with_child(store)

        await commit_next(store, run=CHILD, status=COMPLETED)

        assert await due_keys(store, OTHER_NAMESPACE) == []

    async def test_leaves_a_time_alone_that_has_come_already(
        self, store: Store, clock: ManualClock
    ) -> None:
        await parent_with_child(store)
        await commit_next(store, cancel_all=True, status=FAILED)
        given_up_at = clock()
        clock.advance(MINUTE)

        await commit_next(store, run=CHILD, status=CANCELLED)

        assert (await waits_by_key(store))["ship"].due_at == given_up_at

    async def test_of_many_may_be_committed_at_once(self, store: Store) -> None:
        await submit(store)
        ids = [RunId(f"child-{item}") for item in range(20)]
        await commit_next(
            store,
            children=tuple(
                new_child(id=id, parent=Parent(run=RUN, key=f"ship[{item}]"))
                for item, id in enumerate(ids)
            ),
            waits=tuple(child_wait(f"ship[{item}]", id) for item, id in enumerate(ids)),
        )

        answer = await store.runs.commit([step(run=id, status=COMPLETED) for id in ids])

        assert {each.state for each in answer.results} == {DONE}
        assert set(await due_keys(store)) == {f"ship[{item}]" for item in range(20)}


# Many commits at once, each on its own thread, event loop and handle


class TestConcurrentCommits:
    async def test_of_one_expected_number_are_done_once(self, store: Store) -> None:
        await submit(store)

        async def work(handle: Store, number: int) -> CommitState:
            job = node_job(f"by-{number}")
            return (await commit(handle, 1, events=(event(f"by {number}"),), jobs=(job,))).state

        states = await run_concurrently(store, work)

        assert Counter(states) == {DONE: 1, CONFLICT: THREADS - 1}
        assert (await read_run(store)).number == 2
        assert len(await store.queries.run_jobs(NAMESPACE, RUN)) == 1

    async def test_of_one_claim_count_once(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        async def work(handle: Store, number: int) -> CommitState:
            return (await commit(handle, 1, settlements=(finishes(claimed),))).state

        states = await run_concurrently(store, work)

        assert Counter(states)[DONE] == 1
        assert (await read_run(store)).number == 2

    async def test_of_one_token_count_once(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        once = step(settlements=(continues(claimed, node_job("next")),), jobs=(node_job("more"),))

        async def work(handle: Store, number: int) -> CommitState:
            [result] = (await handle.runs.commit([once])).results
            return result.state

        states = await run_concurrently(store, work)

        assert Counter(states) == {DONE: THREADS}
        assert (await read_run(store)).number == 2
        assert len(await store.queries.run_jobs(NAMESPACE, RUN)) == 2

    async def test_lose_nothing_and_never_deadlock_in_any_order_of_runs(self, store: Store) -> None:
        ids = [RunId(f"run-{number}") for number in range(4)]
        for id in ids:
            await submit(store, id=id)

        async def work(handle: Store, number: int) -> int:
            random, done = Random(number), 0
            for _ in range(12):
                chosen = random.sample(ids, len(ids))
                known = await handle.queries.get_runs([(NAMESPACE, id) for id in chosen])
                answer = await handle.runs.commit(
                    [step(run.number, run=run.id) for run in known if run is not None]
                )
                done += sum(each.state is DONE for each in answer.results)
            return done

        done = await run_concurrently(store, work)

        assert sum(done) >= 12 * len(ids)
        numbers = [(await load(store, id)).events[-1].number for id in ids]
        assert sum(numbers) == sum(done) + len(ids)

    async def test_take_runs_through_their_steps_once_each(self, store: Store) -> None:
        steps, ids = 6, [RunId(f"run-{number}") for number in range(10)]
        for id in ids:
            await submit(store, id=id, jobs=(node_job("0", run=id),))

        async def work(handle: Store, number: int) -> int:
            committed = 0
            while jobs := await claim_nodes(handle, worker=WorkerId(f"w-{number}"), limit=3):
                for job in jobs:
                    assert job.node is not None
                    for at in range(steps):
                        following = node_job(str(at + 1), run=job.node.run)
                        is_last = at + 1 == steps
                        then = finishes(job.claim) if is_last else continues(job.claim, following)
                        result = await commit(handle, at + 1, run=job.node.run, settlements=(then,))
                        committed += result.state is DONE
            return committed

        assert sum(await run_concurrently(store, work)) == steps * len(ids)
        assert [(await read_run(store, id)).number for id in ids] == [steps + 1] * len(ids)

    async def test_of_children_and_their_parent_wait_for_each_other_and_no_longer(
        self, store: Store
    ) -> None:
        ids = [CHILD, *(RunId(f"child-{number}") for number in range(1, THREADS))]
        await submit(
            store,
            waits=tuple(child_wait(f"ship[{item}]", id) for item, id in enumerate(ids)),
            children=tuple(
                new_child(id=id, parent=Parent(run=RUN, key=f"ship[{item}]"))
                for item, id in enumerate(ids)
            ),
        )

        async def work(handle: Store, number: int) -> None:
            if number:
                await commit_next(handle, run=ids[number], status=COMPLETED)
            else:
                await commit_next(handle, cancel_all=True, status=FAILED)

        await run_concurrently(store, work)

        assert set(await due_keys(store)) == {f"ship[{item}]" for item in range(THREADS)}


class TestSettingsOfRuns:
    async def test_are_kept_with_the_run(self, store: Store, clock: ManualClock) -> None:
        settings = RunSettings(
            priority=2, queue="gpu", tags=("eu",), timeout_ms=5, max_attempts=4, sticky_ms=9
        )

        run = await submit(store, settings=settings, priority=2)

        assert (run.settings, run.priority) == (settings, 2)
        assert (run.start_at, run.started_at) == (None, clock())
        assert await read_run(store) == run

    async def test_of_a_child_are_its_own(self, store: Store, clock: ManualClock) -> None:
        settings = RunSettings(delay_ms=60_000)
        child = new_child(settings=settings, priority=5, status=QUEUED)
        await submit(store, waits=(child_wait(),), children=(child,))

        run = await read_run(store, CHILD)

        assert (run.settings, run.priority) == (settings, 5)
        assert (run.start_at, run.started_at) == (clock() + MINUTE, None)

    @pytest.mark.parametrize("is_delayed", [True, False])
    async def test_say_when_a_queued_run_starts(
        self, store: Store, clock: ManualClock, is_delayed: bool
    ) -> None:
        start_at = clock() + MINUTE
        settings = RunSettings(delay_ms=60_000) if is_delayed else RunSettings(run_at=start_at)
        waits = (timer(RUN_START, delay=MINUTE),)

        queued = await submit(store, status=QUEUED, settings=settings, waits=waits)
        clock.advance(MINUTE)
        due = await due_keys(store)
        await commit_next(store, is_started=True, close_waits=(RUN_START,), jobs=(node_job(),))

        assert (queued.status, queued.start_at, queued.started_at) == (QUEUED, start_at, None)
        assert due == [RUN_START]
        assert (await read_run(store)).started_at == clock()
        await commit_next(store, status=QUEUED, is_started=False)
        assert (await read_run(store)).started_at is None


STICKY = {"worker": WORKER, "sticky": MINUTE}


class TestStickyJobs:
    async def test_wait_for_the_worker_of_the_run(self, store: Store, clock: ManualClock) -> None:
        await store.maintenance.register_worker(worker_info())
        done = await claim_new_node(store)
        jobs = (node_job("next"), node_job("later", delay=HOUR))
        await commit_next(store, settlements=(finishes(done),), jobs=jobs, **STICKY)

        found = await jobs_by_key(store)
        assert {key: (job.sticky_worker, job.sticky_until) for key, job in found.items()} == {
            "next": (WORKER, clock() + MINUTE),
            "later": (WORKER, clock() + HOUR + MINUTE),
        }
        poll = await store.maintenance.poll(NAMESPACE)
        assert poll.partitions == (with_worker(NODE_PARTITION.text, WORKER),)
        assert poll.next_sticky_at == clock() + MINUTE
        assert Partition.parse(poll.partitions[0]) == NODE_PARTITION
        assert await claim_nodes(store) == []
        [job] = await claim_sticky(store)
        assert job.partition == NODE_PARTITION

    @pytest.mark.parametrize("after", ["another event", "a retry", "a node in place"])
    async def test_wait_for_the_last_worker(
        self, store: Store, clock: ManualClock, after: str
    ) -> None:
        await store.maintenance.register_worker(worker_info())
        done = await claim_new_node(store)
        following = node_job("next")
        match after:
            case "another event":  # by a client, as a signal
                await commit_next(store, settlements=(finishes(done),), **STICKY)
                await commit_next(store, jobs=(following,), sticky=MINUTE)
            case "a retry":
                again = retries(done, Retried(failure=failure()))
                await commit_next(store, settlements=(again,), **STICKY)
            case "a node in place":
                await commit_next(store, settlements=(continues(done, following),), **STICKY)
                await settle(store, done, Requeued())

        assert await claim_nodes(store) == []
        assert len(await claim_sticky(store)) == 1

    @pytest.mark.parametrize("state", ["unknown", "removed", "silent"])
    async def test_wait_for_no_worker_that_is_gone(
        self, store: Store, clock: ManualClock, state: str
    ) -> None:
        if state != "unknown":
            await store.maintenance.register_worker(worker_info())
        done = await claim_new_node(store, aging=AGING)
        await renew(store, done)
        if state == "removed":
            await store.maintenance.remove_worker(WORKER)
        if state == "silent":
            clock.advance(LEASE + SECOND)
        await commit_next(store, settlements=(finishes(done),), jobs=(node_job("next"),), **STICKY)

        assert len(await claim_nodes(store)) == 1
        assert (await store.maintenance.poll(NAMESPACE)).next_sticky_at is None

    async def test_do_not_wait_for_a_worker_that_they_may_have_crashed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.maintenance.register_worker(worker_info())
        done = await claim_new_node(store)
        await commit_next(store, settlements=(finishes(done),), jobs=(node_job("next"),), **STICKY)
        await claim_sticky(store)
        clock.advance(LEASE)
        await store.maintenance.register_worker(worker_info())
        await store.maintenance.take_over_expired(NAMESPACE, 10)

        [suspect] = (await claim(store, NODE_PARTITION, suspicion=SUSPECTED)).jobs
        again = retries(suspect.claim, Retried(failure=failure()))
        await commit_next(store, settlements=(again,), **STICKY)
        assert len((await claim(store, NODE_PARTITION, suspicion=SUSPECTED)).jobs) == 1

    async def test_are_counted_like_others(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info())
        done = await claim_new_node(store)
        await commit_next(store, settlements=(finishes(done),), jobs=(node_job("next"),), **STICKY)

        waiting = JobFilter(queue="packing", task="pack_item", status=Status.WAITING)
        assert await store.queries.count_jobs(waiting) == 1
        depths = await store.admin.queue_stats(NAMESPACE)
        assert [(each.queue, each.status, each.count) for each in depths] == [
            ("packing", Status.WAITING, 1)
        ]

    async def test_of_a_migrated_run_wait_for_workers_of_its_version(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info())
        done = await claim_new_node(store)
        await commit_next(store, settlements=(finishes(done),), jobs=(node_job("next"),), **STICKY)
        await commit_next(store, version="v2")
        assert len(await claim_nodes(store, node_partition(version="v2"))) == 1


async def claim_sticky(store: Store) -> list[ClaimedJob]:
    partition = with_worker(NODE_PARTITION.text, WORKER)
    wanted = PartitionClaim(partition=partition, queue=NODE_PARTITION.queue)
    return (await claim(store, partitions=[wanted])).jobs


class TestTheClockOfARun:
    async def test_is_not_stopped_by_a_pause(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer(RUN_TIMEOUT, delay=MINUTE), timer(delay=MINUTE)))

        await commit_next(store, status=PAUSED, suspend=True)
        clock.advance(MINUTE)

        assert await due_keys(store) == [RUN_TIMEOUT]

    async def test_stands_still_while_it_is_stopped(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer(RUN_TIMEOUT, delay=HOUR),))
        clock.advance(MINUTE)

        await commit_next(store, status=WAITING, stop_clock=True)
        stopped = (await waits_by_key(store))[RUN_TIMEOUT]
        clock.advance(24 * HOUR)
        await commit_next(store, stop_clock=False)
        continued = (await waits_by_key(store))[RUN_TIMEOUT]

        assert (stopped.due_at, stopped.remaining) == (None, HOUR - MINUTE)
        assert (continued.due_at, continued.remaining) == (clock() + HOUR - MINUTE, None)

    async def test_may_stand_still_from_the_start(self, store: Store, clock: ManualClock) -> None:
        wait = timer(RUN_TIMEOUT, delay=HOUR, is_stopped=True)
        await submit(store, status=WAITING, waits=(wait,))

        stopped = (await waits_by_key(store))[RUN_TIMEOUT]
        clock.advance(24 * HOUR)
        due = await due_keys(store)
        await commit_next(store, stop_clock=False)

        assert (stopped.due_at, stopped.remaining, due) == (None, HOUR, [])
        assert (await waits_by_key(store))[RUN_TIMEOUT].due_at == clock() + HOUR

    async def test_is_not_stopped_once_it_has_run_out(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(timer(RUN_TIMEOUT, delay=MINUTE),))
        clock.advance(MINUTE)

        await commit_next(store, status=WAITING, stop_clock=True)

        assert await due_keys(store) == [RUN_TIMEOUT]


class TestThePriorityOfARun:
    @pytest.mark.parametrize("margin", [SECOND, -SECOND])
    async def test_moves_its_jobs_as_if_they_had_always_had_it(
        self, store: Store, clock: ManualClock, margin: timedelta
    ) -> None:
        """One level less urgent than the other's job, they have waited for an aging interval."""
        other = RunId("another")
        jobs = (node_job("first", priority=5), node_job("second", priority=4))
        await submit(store, jobs=jobs, priority=4)
        clock.advance(AGING + margin)
        await submit(store, id=other, jobs=(node_job("third", other, priority=2),))
        changed = Priorities(run=2, jobs=(("first", 3), ("second", 1)), aging=AGING)

        await commit_next(store, priorities=changed)

        assert (await read_run(store)).priority == 2
        found = await jobs_by_key(store)
        assert {key: found[key].priority for key in found} == dict(changed.jobs)
        claimed = [job.node.key for job in await claim_nodes(store, limit=3) if job.node]
        rest = ["first", "third"] if margin > timedelta(0) else ["third", "first"]
        assert claimed == ["second", *rest]

    async def test_changes_for_jobs_that_do_not_wait_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        other = RunId("another")
        jobs = (node_job("later", delay=HOUR), node_job("active"))
        await submit(store, jobs=jobs)
        [active] = await claim_nodes(store)

        changed = Priorities(run=1, jobs=(("later", 1), ("active", 1)), aging=AGING)
        await commit_next(store, priorities=changed)

        assert {job.priority for job in (await jobs_by_key(store)).values()} == {1}
        assert await is_still_claimed(store, active.claim)
        clock.advance(HOUR - SECOND)
        await submit(store, id=other, jobs=(node_job("third", other, priority=2),))
        clock.advance(SECOND)
        await store.maintenance.promote_due(NAMESPACE, 10)
        claimed = [job.node.key for job in await claim_nodes(store, limit=2) if job.node]
        assert claimed == ["later", "third"]
