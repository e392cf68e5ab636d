"""Results that a task stores while it runs."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.errors import ClaimLost
from perdure.model.job import FINISHED
from perdure.model.outcome import Completed, Requeued
from perdure.model.run import StoredStep
from perdure.store.contract import Store
from tests.conformance import builders
from tests.conformance.builders import LEASE, MINUTE, hold, settle
from tests.conformance.run_builders import (
    COMPLETED,
    NAMESPACE,
    claim_node,
    continues,
    ends,
    go_on,
    held_node,
    node_job,
)
from tests.conformance.threads import at_once

OWNER = "order-42:pack:0"


def stored(name: str = "weigh", value: bytes = b"17") -> StoredStep:
    return StoredStep(name=name, value=value)


async def steps_of(store: Store, owner: str = OWNER) -> dict[str, bytes]:
    steps = await store.runs.load_steps(owner)
    assert len({step.name for step in steps}) == len(steps)
    return {step.name: step.value for step in steps}


class TestRunsSaveStep:
    async def test_keeps_a_result_under_its_name(self, store: Store) -> None:
        held = await held_node(store)

        await store.runs.save_step(held, OWNER, stored("weigh", b"17"))
        await store.runs.save_step(held, OWNER, stored("label", b'"x"'))
        await store.runs.save_step(held, "order-42:pack:1", stored("weigh", b"18"))

        assert await steps_of(store) == {"weigh": b"17", "label": b'"x"'}
        assert await steps_of(store, "order-42:pack:1") == {"weigh": b"18"}

    async def test_keeps_the_order_in_which_they_were_saved(self, store: Store) -> None:
        held = await held_node(store)
        names = ["weigh", "label", "zip", "ask"]
        for name in names:
            await store.runs.save_step(held, OWNER, stored(name))

        assert [step.name for step in await store.runs.load_steps(OWNER)] == names

    async def test_lets_the_first_one_stay(self, store: Store) -> None:
        held = await held_node(store)
        await store.runs.save_step(held, OWNER, stored(value=b"first"))

        await store.runs.save_step(held, OWNER, stored(value=b"second"))

        assert await steps_of(store) == {"weigh": b"first"}

    async def test_refuses_a_claim_that_is_not_current(
        self, store: Store, clock: ManualClock
    ) -> None:
        stale = await held_node(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10, 3)

        with pytest.raises(ClaimLost) as raised:
            await store.runs.save_step(stale, OWNER, stored())

        assert (raised.value.job_id, raised.value.epoch) == (stale.id, stale.epoch)
        await claim_node(store)
        with pytest.raises(ClaimLost):
            await store.runs.save_step(stale, OWNER, stored())
        assert await steps_of(store) == {}

    async def test_refuses_a_claim_on_a_job_that_is_over(self, store: Store) -> None:
        node, plain = await held_node(store), await hold(store)
        await go_on(store, settlements=(ends(node),))
        await settle(store, plain, Completed(output=b"1"))

        for claim in (node, plain):
            with pytest.raises(ClaimLost):
                await store.runs.save_step(claim, OWNER, stored())

        assert await steps_of(store) == {}

    async def test_keeps_one_of_those_that_come_at_once(self, store: Store) -> None:
        held = await held_node(store)

        async def work(handle: Store, number: int) -> None:
            await handle.runs.save_step(held, OWNER, stored(value=f"{number}".encode()))

        await at_once(store, work)

        [step] = await store.runs.load_steps(OWNER)
        assert step.value in [b"0", b"1", b"2", b"3"]


class TestRunsLoadSteps:
    async def test_finds_none_of_another_owner(self, store: Store) -> None:
        held = await held_node(store)
        await store.runs.save_step(held, OWNER, stored())

        assert await store.runs.load_steps("order-42:pack") == []

    async def test_finds_them_when_the_job_is_run_again(self, store: Store) -> None:
        held = await held_node(store)
        await store.runs.save_step(held, OWNER, stored())
        await settle(store, held, Requeued())
        await claim_node(store)

        assert await steps_of(store) == {"weigh": b"17"}

    async def test_finds_them_while_their_run_is_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A run that is retried finds what its failed node had done."""
        held = await held_node(store)
        await store.runs.save_step(held, OWNER, stored())
        await go_on(store, settlements=(continues(held, node_job("next")),))
        await store.runs.save_step(held, "order-42:next", stored())
        await go_on(store, settlements=(ends(held),), status=COMPLETED)

        assert await steps_of(store) == await steps_of(store, "order-42:next") == {"weigh": b"17"}
        clock.advance(MINUTE)
        await store.maintenance.prune_runs(NAMESPACE, {COMPLETED: MINUTE}, 10)
        assert await steps_of(store) == await steps_of(store, "order-42:next") == {}

    async def test_finds_those_of_a_plain_job_while_that_is_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await hold(store)
        await store.runs.save_step(held, held.id, stored())
        await settle(store, held, Completed(output=b"1"))

        assert await steps_of(store, held.id) == {"weigh": b"17"}
        clock.advance(MINUTE)
        await store.maintenance.prune_jobs(builders.NAMESPACE, dict.fromkeys(FINISHED, MINUTE), 10)
        assert await steps_of(store, held.id) == {}
