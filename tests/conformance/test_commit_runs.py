"""The one way in which runs go on: its fences, and what a step writes on the run itself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.errors import InvalidInput
from perdure.model.event import StoredEvent
from perdure.model.ids import JobId, RunId
from perdure.model.job import Claim, Status
from perdure.model.run import CommitResult, RunStatus, Snapshot
from perdure.store.admission import rank_of
from perdure.store.contract import Store
from tests.conformance.builders import AGING, LEASE, MINUTE, SECOND, WORKER, status_of
from tests.conformance.run_builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    CONFLICT,
    DONE,
    FAILED,
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    RUN,
    RUNNING,
    STALE,
    VERSION,
    WAITING,
    child_wait,
    claim_node,
    claim_nodes,
    commit,
    continues,
    ends,
    event,
    go_on,
    held_node,
    is_suspended,
    jobs_by_key,
    load,
    new_child,
    node_job,
    node_partition,
    read_run,
    record_of_run,
    step,
    submit,
    timer,
)


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
        await go_on(store, status=FAILED)
        ended_at = clock()
        clock.advance(MINUTE)

        await go_on(store, status=status, events=(), close_waits=("ship",))

        run = await read_run(store)
        assert (run.number, run.finished_at, run.updated_at) == (2, ended_at, clock())
        assert await store.queries.run_waits(NAMESPACE, RUN) == []

    @pytest.mark.parametrize("status", [FAILED, COMPLETED])
    async def test_gives_a_run_that_is_retried_and_ends_in_one_commit_its_new_time(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store)
        await go_on(store, status=FAILED)
        clock.advance(MINUTE)

        await go_on(store, status=status)

        assert (await read_run(store)).finished_at == clock()

    async def test_lets_a_run_that_is_retried_no_longer_be_ended(self, store: Store) -> None:
        await submit(store)
        await go_on(store, status=FAILED)

        await go_on(store, status=RUNNING)

        run = await read_run(store)
        assert (run.status, run.finished_at) == (RUNNING, None)

    async def test_answers_in_the_order_of_the_commits(self, store: Store) -> None:
        await submit(store, id=RunId("a"))
        await submit(store, id=RunId("b"))

        answer = await store.runs.commit(
            [
                step(1, run=RunId("b")),
                step(9, run=RunId("a")),
                step(1, run=RunId("nobody")),
                step(1, run=RunId("a"), settlements=(ends(Claim(id=JobId("gone"), epoch=1)),)),
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
        before = await record_of_run(store, RUN, OTHER_NAMESPACE)
        await submit(store, jobs=(node_job(),))

        await go_on(store, cancel_all=True, suspend=True, version="v2", status=CANCELLED)

        assert await record_of_run(store, RUN, OTHER_NAMESPACE) == before

    async def test_writes_nothing_at_all_of_what_it_cannot_keep(self, store: Store) -> None:
        held = await held_node(store)
        await submit(store, id=RunId("other"), waits=(timer(delay=MINUTE),))
        before = await record_of_run(store), await record_of_run(store, RunId("other"))
        too_late = node_job("late", delay=timedelta.max)

        with pytest.raises(InvalidInput):
            await store.runs.commit(
                [
                    step(run=RunId("other"), close_waits=("delay",)),
                    step(settlements=(ends(held),), jobs=(node_job("n"), too_late)),
                ]
            )

        after = await record_of_run(store), await record_of_run(store, RunId("other"))
        assert after == before
        assert await is_suspended(store, held)

    async def test_writes_steps_of_many_runs_at_once(self, store: Store) -> None:
        ids = [RunId(f"run-{number:03}") for number in range(120)]
        for id in ids:
            await submit(store, id=id, jobs=(node_job(run=id),))
        held = {job.node.run: job.claim for job in await claim_nodes(store, limit=200) if job.node}

        answer = await store.runs.commit(
            [
                step(run=id, settlements=(continues(held[id], node_job("next", run=id)),))
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
        held = await held_node(store)
        await commit(store, 1, waits=(timer(delay=MINUTE),))
        before = await record_of_run(store)

        result = await commit(
            store,
            expected,
            status=FAILED,
            settlements=(ends(held),),
            jobs=(node_job("next"),),
            waits=(timer("other"),),
            close_waits=("delay",),
            children=(new_child(),),
            version="v2",
            summary=b"lost",
            snapshot=Snapshot(number=1, data=b"lost"),
        )

        assert result == CommitResult(state=CONFLICT)
        assert await record_of_run(store) == before
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
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)
        before = await record_of_run(store)

        result = await commit(
            store,
            1,
            settlements=(ends(weigh), ends(pack)),
            jobs=(node_job("next"),),
            cancel_all=True,
            status=FAILED,
        )

        assert result == CommitResult(state=STALE, stale=(pack,))
        assert await record_of_run(store) == before
        assert await is_suspended(store, weigh)

    async def test_refuse_a_claim_on_a_job_that_is_gone(self, store: Store) -> None:
        held = await held_node(store)
        await go_on(store, settlements=(ends(held),))

        result = await commit(store, 2, settlements=(continues(held, node_job("next")),))

        assert result == CommitResult(state=STALE, stale=(held,))
        assert await store.queries.run_jobs(NAMESPACE, RUN) == []

    async def test_speak_of_a_conflict_before_they_look_at_claims(self, store: Store) -> None:
        await submit(store)

        result = await commit(store, 5, settlements=(ends(Claim(id=JobId("gone"), epoch=1)),))

        assert result == CommitResult(state=CONFLICT)

    async def test_do_not_stop_the_other_commits(self, store: Store) -> None:
        others = [RunId("first"), RunId("last")]
        for id in (RUN, *others):
            await submit(store, id=id, jobs=(node_job(run=id),))
        held = {job.node.run: job.claim for job in await claim_nodes(store) if job.node}

        answer = await store.runs.commit(
            [
                step(run=others[0], settlements=(ends(held[others[0]]),)),
                step(4, settlements=(ends(held[RUN]),)),
                step(run=others[1], settlements=(ends(held[others[1]]),)),
            ]
        )

        assert [each.state for each in answer.results] == [DONE, CONFLICT, DONE]
        assert [await store.queries.run_jobs(NAMESPACE, id) for id in others] == [[], []]
        assert await is_suspended(store, held[RUN])


class TestACommitRepeatedAfterALostAnswer:
    async def test_is_done_and_counts_once(self, store: Store) -> None:
        held = await held_node(store)
        once = step(
            1,
            settlements=(continues(held, node_job("next")),),
            jobs=(node_job("beside"),),
            waits=(timer(delay=MINUTE),),
            children=(new_child(),),
        )
        await store.runs.commit([once])
        before = await record_of_run(store)

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert await record_of_run(store) == before

    async def test_is_done_though_its_job_is_gone(self, store: Store) -> None:
        held = await held_node(store)
        once = step(1, settlements=(ends(held),))
        await store.runs.commit([once])

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert (await read_run(store)).number == 2

    async def test_is_done_though_another_commit_came_in_between(self, store: Store) -> None:
        """Told of a conflict, its worker would take the job that went on for one that is over."""
        held = await held_node(store)
        once = step(1, settlements=(continues(held, node_job("next")),))
        await store.runs.commit([once])
        await go_on(store, events=(event("signal"),))
        before = await record_of_run(store)

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert await record_of_run(store) == before

    async def test_is_done_and_counts_once_without_events_too(self, store: Store) -> None:
        await submit(store, waits=(child_wait(),))
        once = step(1, events=(), close_waits=("ship",), jobs=(node_job(),))
        await store.runs.commit([once])
        await claim_node(store)
        before = await record_of_run(store)

        answer = await store.runs.commit([once])

        assert answer.results == [CommitResult(state=DONE)]
        assert await record_of_run(store) == before

    async def test_is_told_from_another_that_wrote_the_same(self, store: Store) -> None:
        await submit(store)
        await commit(store, 1)

        assert await commit(store, 1) == CommitResult(state=CONFLICT)


class TestSnapshotsInACommit:
    async def test_replace_the_one_that_is_kept(self, store: Store) -> None:
        await submit(store)
        await go_on(store, snapshot=Snapshot(number=1, data=b"one"))
        await go_on(store, snapshot=Snapshot(number=3, data=b"three"))
        await go_on(store)

        loaded = await load(store, number=None)

        assert loaded.snapshot == Snapshot(number=3, data=b"three")
        assert [each.number for each in loaded.events] == [4]


class TestANewVersion:
    async def test_goes_into_the_run_and_the_partitions_of_its_jobs(self, store: Store) -> None:
        held = await held_node(store)
        elsewhere = node_partition("weigh_item", tags=("scale",))
        await go_on(
            store,
            jobs=(
                node_job("pack[1]"),
                node_job("weigh", partition=elsewhere, delay=MINUTE),
            ),
        )
        before = await jobs_by_key(store)

        await go_on(store, version="v2")

        assert (await read_run(store)).version == "v2"
        assert await claim_nodes(store, NODE_PARTITION) == []
        [waiting] = await claim_nodes(store, node_partition(version="v2"))
        assert (waiting.claim.id, waiting.partition) == (
            before["pack[1]"].id,
            node_partition(version="v2"),
        )
        assert await is_suspended(store, held)

    async def test_goes_into_partitions_of_jobs_that_are_scheduled_or_held(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await held_node(store)
        elsewhere = node_partition("weigh_item", tags=("scale",), keys=("scale-1",))
        later = node_job("weigh", partition=elsewhere, delay=MINUTE)
        await go_on(store, jobs=(later,))

        await go_on(store, version="v2")
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 10)
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)

        moved = [node_partition(version="v2"), replace(elsewhere, flow="orders@v2")]
        taken = {job.claim.id: job.partition for job in await claim_nodes(store, *moved)}
        assert taken == {held.id: moved[0], later.id: moved[1]}

    async def test_is_not_taken_from_a_commit_that_has_none(self, store: Store) -> None:
        await submit(store)

        await go_on(store)

        assert (await read_run(store)).version == VERSION

    async def test_leaves_jobs_of_other_runs_alone(self, store: Store) -> None:
        await submit(store)
        await submit(store, id=RunId("other"), jobs=(node_job(run=RunId("other")),))

        await go_on(store, version="v2")

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
        held = await held_node(store)

        answer = await store.runs.commit(
            [
                step(
                    settlements=(continues(held, node_job("n")),), jobs=(node_job("m", priority=2),)
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

    async def test_is_told_with_a_conflict_too(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(),))

        answer = await store.runs.commit([step(7)], [NODE_PARTITION.text])

        assert answer.most_urgent_rank == pytest.approx(rank_of(clock(), 4, AGING), abs=1e-3)
        [job] = await store.queries.run_jobs(NAMESPACE, RUN)
        assert await status_of(store, job.id) is Status.WAITING
