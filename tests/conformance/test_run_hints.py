"""Wake-ups about runs: which hint each write is followed by."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.hint import HintType
from perdure.model.limit import LimitRule
from perdure.model.outcome import Retried
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, MINUTE, failure
from tests.conformance.ears import Ear
from tests.conformance.run_builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    NODE_PARTITION,
    PAUSED,
    RUN,
    approval,
    child_wait,
    claim_node,
    ends,
    go_on,
    held_node,
    new_child,
    node_job,
    node_partition,
    repeats,
    submit,
    timer,
)

READY, SCHEDULED, ABORTING = HintType.READY, HintType.SCHEDULED, HintType.ABORTING
ABOUT_RUN, DUE = HintType.RUN, HintType.DUE


class TestHintsAboutRuns:
    async def test_tell_of_a_run_that_begins_and_of_its_partitions_and_times(
        self, store: Store, target: Store
    ) -> None:
        ears = [Ear(handle) for handle in (store, target) for _ in range(4)]

        child = new_child(jobs=(node_job(run=CHILD, partition=node_partition("print")),))
        await submit(store, jobs=(node_job(),), waits=(timer(delay=HOUR),), children=(child,))

        for here in (ears[:4], ears[4:]):
            await here[0].hears(ABOUT_RUN, RUN)
            await here[1].hears(READY, NODE_PARTITION.text)
            await here[2].hears(READY, node_partition("print").text)
            await here[3].hears(DUE)

    async def test_tell_of_a_step(self, store: Store, target: Store) -> None:
        await submit(store)
        here, there = Ear(store), Ear(target)

        await go_on(store)

        await here.hears(ABOUT_RUN, RUN)
        await there.hears(ABOUT_RUN, RUN)

    async def test_tell_of_jobs_and_waits_that_a_step_starts(
        self, store: Store, target: Store
    ) -> None:
        await submit(store)
        partitions, times, dues = Ear(target), Ear(target), Ear(target)

        await go_on(
            store,
            jobs=(node_job("now"), node_job("later", delay=HOUR)),
            waits=(timer(delay=MINUTE),),
        )

        await partitions.hears(READY, NODE_PARTITION.text)
        await times.hears(SCHEDULED)
        await dues.hears(DUE)

    @pytest.mark.parametrize("is_open", [False, True])
    async def test_tell_of_a_wait_that_gets_a_time_to_be_due_at(
        self, store: Store, target: Store, clock: ManualClock, is_open: bool
    ) -> None:
        await submit(store, waits=(approval(),) if is_open else ())
        ear = Ear(target)

        await go_on(store, waits=(approval(due_at=clock() + HOUR),))

        await ear.hears(DUE)

    async def test_tell_of_a_job_that_goes_back_to_the_queue(
        self, store: Store, target: Store
    ) -> None:
        held = await held_node(store)
        ear = Ear(target)

        await go_on(store, settlements=(repeats(held, Retried(failure=failure())),))

        await ear.hears(READY, NODE_PARTITION.text)

    async def test_tell_holders_of_jobs_that_a_step_takes_away(
        self, store: Store, target: Store
    ) -> None:
        held = await held_node(store)
        ear = Ear(target)

        await go_on(store, cancel_all=True, status=CANCELLED)

        await ear.hears(ABORTING, held.id)

    async def test_tell_holders_of_jobs_that_are_dropped(self, store: Store, target: Store) -> None:
        held = await held_node(store)
        ear = Ear(target)

        await go_on(store, cancel_keys=("pack",))

        await ear.hears(ABORTING, held.id)

    async def test_tell_holders_of_jobs_that_are_parked(self, store: Store, target: Store) -> None:
        held = await held_node(store)
        ear = Ear(target)

        await go_on(store, suspend=True, status=PAUSED)

        await ear.hears(ABORTING, held.id)

    async def test_tell_holders_of_jobs_of_a_run_that_is_replaced(
        self, store: Store, target: Store
    ) -> None:
        held = await held_node(store)
        ear = Ear(target)

        await submit(store, on_existing="replace")

        await ear.hears(ABORTING, held.id)

    async def test_tell_of_jobs_and_waits_that_are_let_go_on(
        self, store: Store, target: Store
    ) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer(delay=HOUR),))
        await go_on(store, suspend=True, status=PAUSED)
        partitions, dues = Ear(target), Ear(target)

        await go_on(store, suspend=False)

        await partitions.hears(READY, NODE_PARTITION.text)
        await dues.hears(DUE)

    async def test_tell_of_partitions_that_a_new_version_moves_jobs_to(
        self, store: Store, target: Store
    ) -> None:
        await submit(store, jobs=(node_job(),))
        ear = Ear(target)

        await go_on(store, version="v2")

        await ear.hears(READY, node_partition(version="v2").text)

    async def test_tell_of_a_parent_that_can_go_on(self, store: Store, target: Store) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        ear = Ear(target)

        await go_on(store, run=CHILD, status=COMPLETED)

        await ear.hears(DUE)

    async def test_tell_of_a_child_that_is_given_up(
        self, store: Store, target: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        ear = Ear(target)

        await go_on(store, cancel_all=True, status=CANCELLED)

        await ear.hears(DUE)

    async def test_tell_every_partition_that_a_limit_has_room_again(
        self, store: Store, target: Store
    ) -> None:
        await submit(store, jobs=(node_job(),))
        held = await claim_node(store, rules=(LimitRule(key="scale", live_max=1),))
        ear = Ear(target)

        await go_on(store, settlements=(ends(held),))

        await ear.hears(READY, "another partition under the same limit")
