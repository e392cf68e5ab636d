"""Pausing a run: its jobs and waits are held, and come back in their place."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.job import Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Parked
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, MINUTE, SECOND, read, settle
from tests.conformance.run_builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    NAMESPACE,
    PAUSED,
    RUN,
    child_wait,
    claim_node,
    claim_nodes,
    commit,
    due_keys,
    ends,
    go_on,
    held_node,
    is_suspended,
    jobs_by_key,
    new_child,
    node_job,
    node_partition,
    submit,
    timer,
    waits_by_key,
)


class TestHoldingARun:
    async def test_parks_its_jobs_as_paused(self, store: Store) -> None:
        await submit(store, jobs=(node_job("now"), node_job("later", delay=MINUTE)))
        before = await jobs_by_key(store)

        await go_on(store, suspend=True, status=PAUSED)

        assert await jobs_by_key(store) == {
            key: replace(job, status=Status.PAUSED) for key, job in before.items()
        }
        assert await claim_nodes(store) == []

    async def test_takes_held_jobs_from_their_holders_with_their_attempt_back(
        self, store: Store
    ) -> None:
        held = await held_node(store)
        before = await read(store, held.id)

        await go_on(store, suspend=True, status=PAUSED)

        assert await read(store, held.id) == replace(
            before,
            status=Status.PAUSED,
            attempt=0,
            epoch=held.epoch + 1,
            worker=None,
            lease_until=None,
        )
        assert not await is_suspended(store, held)
        assert (await commit(store, 2, settlements=(ends(held),))).stale == (held,)

    async def test_makes_room_under_limits(self, store: Store) -> None:
        rules = (LimitRule(key="scale", live_max=1),)
        await submit(store, jobs=(node_job(),))
        await claim_node(store, rules=rules)
        other = RunId("other")
        await submit(store, id=other, jobs=(node_job(run=other),))

        await go_on(store, suspend=True, status=PAUSED)

        [claimed] = await claim_nodes(store, rules=rules)
        assert claimed.node is not None
        assert claimed.node.run == other

    async def test_keeps_its_jobs_from_being_promoted(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job(delay=SECOND),))
        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        assert await store.maintenance.promote_due(NAMESPACE, 10) == 0
        assert (await store.maintenance.poll(NAMESPACE)).next_due_at is None

    async def test_keeps_its_waits_from_becoming_due(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(timer(delay=MINUTE), timer("due", delay=SECOND)))
        before = await waits_by_key(store)
        clock.advance(SECOND)
        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(HOUR)

        assert await due_keys(store) == []
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at is None
        assert await waits_by_key(store) == before

    async def test_keeps_the_end_of_a_child_for_later(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        await go_on(store, suspend=True, status=PAUSED)
        await go_on(store, run=CHILD, status=COMPLETED)
        ended_at = clock()
        clock.advance(SECOND)

        assert await due_keys(store) == []
        await go_on(store, suspend=False)
        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)
        assert (wait.key, wait.due_at) == ("ship", ended_at)

    async def test_leaves_other_runs_alone(self, store: Store, clock: ManualClock) -> None:
        other = RunId("other")
        await submit(store, jobs=(node_job(),), waits=(timer(delay=SECOND),))
        await submit(
            store, id=other, jobs=(node_job(run=other),), waits=(timer("theirs", delay=SECOND),)
        )

        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(SECOND)

        [claimed] = await claim_nodes(store)
        assert claimed.node is not None
        assert claimed.node.run == other
        assert await due_keys(store) == ["theirs"]

    async def test_changes_nothing_more_when_done_twice(self, store: Store) -> None:
        await held_node(store)
        await go_on(store, suspend=True, status=PAUSED)
        before = await jobs_by_key(store)

        await go_on(store, suspend=True, status=PAUSED)

        assert await jobs_by_key(store) == before

    async def test_lasts_over_other_commits(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer(delay=SECOND),))
        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await go_on(store, status=PAUSED)

        assert await claim_nodes(store) == []
        assert await due_keys(store) == []


class TestLettingARunGoOn:
    async def test_puts_jobs_back_in_their_place(self, store: Store, clock: ManualClock) -> None:
        other = RunId("other")
        await submit(store, jobs=(node_job("first"), node_job("second")))
        clock.advance(SECOND)
        await submit(store, id=other, jobs=(node_job("third", run=other),))
        held = await claim_node(store)
        before = await jobs_by_key(store)
        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await go_on(store, suspend=False)

        after = await jobs_by_key(store)
        assert after["second"] == before["second"]
        assert (after["first"].status, after["first"].ready_at) == (
            Status.WAITING,
            before["first"].ready_at,
        )
        again = await claim_nodes(store)
        assert [job.node.key for job in again if job.node] == ["first", "second", "third"]
        assert (again[0].attempt, again[0].claim.id) == (1, held.id)
        assert again[0].claim.epoch > held.epoch

    async def test_schedules_jobs_whose_time_lies_ahead(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job("soon", delay=MINUTE), node_job("late", delay=HOUR)))
        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await go_on(store, suspend=False)

        assert {key: job.status for key, job in (await jobs_by_key(store)).items()} == {
            "soon": Status.WAITING,
            "late": Status.SCHEDULED,
        }

    async def test_lets_waits_become_due_again(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer(delay=MINUTE), timer("late", delay=HOUR)))
        before = await waits_by_key(store)
        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(2 * MINUTE)

        await go_on(store, suspend=False)

        assert await due_keys(store) == ["delay"]
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == before["delay"].due_at
        assert await waits_by_key(store) == before

    async def test_takes_back_jobs_that_a_worker_released(self, store: Store) -> None:
        """Nobody else could: an operator acts on the run."""
        held = await held_node(store)
        assert await settle(store, held, Parked()) is Status.PAUSED

        await go_on(store, suspend=False)

        assert (await read(store, held.id)).status is Status.WAITING

    async def test_changes_nothing_where_nothing_is_held(self, store: Store) -> None:
        await submit(
            store,
            jobs=(
                node_job("a"),
                node_job("b", delay=HOUR),
                node_job("c", partition=node_partition("c")),
            ),
            waits=(timer(delay=HOUR),),
        )
        held = await claim_node(store, node_partition("c"))
        before = await jobs_by_key(store), await waits_by_key(store)

        await go_on(store, suspend=False)

        assert (await jobs_by_key(store), await waits_by_key(store)) == before
        assert await is_suspended(store, held)


class TestCancellingAHeldRun:
    async def test_takes_everything_away_and_lets_its_children_be_looked_after(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store,
            jobs=(node_job(),),
            waits=(timer(delay=SECOND), child_wait()),
            children=(new_child(),),
        )
        await go_on(store, suspend=True, status=PAUSED)
        clock.advance(MINUTE)

        await go_on(store, cancel_all=True, status=CANCELLED)

        assert await store.queries.run_jobs(NAMESPACE, RUN) == []
        assert await due_keys(store) == ["ship"]

    async def test_holds_nothing_that_is_started_afterwards(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer(delay=SECOND),))
        await go_on(store, suspend=True, status=PAUSED)

        await go_on(store, cancel_all=True, jobs=(node_job("undo:pack"),))
        await go_on(store, waits=(timer("again", delay=SECOND),))
        clock.advance(SECOND)

        assert len(await claim_nodes(store)) == 1
        assert await due_keys(store) == ["again"]
