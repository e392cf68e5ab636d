"""Forgetting limit keys that have no effect any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.model.job import Claimed
from perdure.model.limit import LimitRule
from perdure.store.contract import Store
from tests.conformance.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    SECOND,
    claim,
    claim_ids,
    close_limit,
    insert_many,
)

DAY = 24 * HOUR


class TestMaintenancePruneLimits:
    @pytest.mark.parametrize(
        "rule",
        [
            LimitRule(key="mailer", starts_max=1, window=48 * HOUR),
            LimitRule(key="mailer", spacing=48 * HOUR),
        ],
        ids=["window", "spacing"],
    )
    async def test_forgets_a_key_when_no_start_counts_any_more(
        self, store: Store, clock: ManualClock, rule: LimitRule
    ) -> None:
        await insert_many(store, 3)
        assert await started(store, rule) == 1
        clock.advance(48 * HOUR - SECOND)
        assert await store.maintenance.prune_limits(NAMESPACE, 0 * SECOND, 10) == 0
        assert await started(store, rule) == 0
        clock.advance(SECOND)
        assert await store.maintenance.prune_limits(NAMESPACE, DAY, 10) == 0
        clock.advance(DAY)

        assert await store.maintenance.prune_limits(NAMESPACE, DAY, 10) == 1
        assert await store.maintenance.prune_limits(NAMESPACE, DAY, 10) == 0
        assert await started(store, rule) == 1

    async def test_keeps_a_key_as_long_as_the_longest_of_its_windows(
        self, store: Store, clock: ManualClock
    ) -> None:
        long = LimitRule(key="mailer", starts_max=1, window=HOUR)
        await insert_many(store, 3)
        assert await started(store, long) == 1
        clock.advance(SECOND)
        assert await started(store, LimitRule(key="mailer", spacing=SECOND)) == 1
        clock.advance(MINUTE)

        assert await store.maintenance.prune_limits(NAMESPACE, 0 * SECOND, 10) == 0
        assert await started(store, long) == 0

    async def test_keeps_a_key_closed(self, store: Store, clock: ManualClock) -> None:
        rule = LimitRule(key="mailer", live_max=5)
        await insert_many(store, 1)
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)
        clock.advance(HOUR - SECOND)
        assert await store.maintenance.prune_limits(NAMESPACE, 0 * SECOND, 10) == 0
        assert await started(store, rule) == 0
        clock.advance(2 * SECOND)

        assert await store.maintenance.prune_limits(NAMESPACE, 0 * SECOND, 10) == 1
        assert await started(store, rule) == 1

    async def test_does_not_forget_what_runs_under_a_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        rule = LimitRule(key="mailer", live_max=1)
        await insert_many(store, 2)
        assert await started(store, rule, lease=DAY) == 1
        clock.advance(HOUR)
        await store.maintenance.prune_limits(NAMESPACE, MINUTE, 10)

        assert await started(store, rule) == 0

    async def test_takes_no_more_than_the_limit_of_its_namespace(
        self, store: Store, clock: ManualClock
    ) -> None:
        for number in range(3):
            await close_limit(store, NAMESPACE, f"key-{number}", clock() + MINUTE)
        await close_limit(store, "team-b", "key-0", clock() + MINUTE)
        clock.advance(HOUR)

        counts = [await store.maintenance.prune_limits(NAMESPACE, MINUTE, 2) for _ in range(3)]

        assert counts == [2, 1, 0]
        assert await store.maintenance.prune_limits("team-b", MINUTE, 2) == 1

    async def test_lets_no_more_start_than_the_rule_while_others_claim(
        self, store: Store, clock: ManualClock
    ) -> None:
        rules = tuple(
            LimitRule(key=f"key-{number}", live_max=10, starts_max=10, window=HOUR)
            for number in range(3)
        )
        await insert_many(store, 40)

        async def claim_some() -> list[Claimed]:
            return [await claim(store, rules=rules, limit=1) for _ in range(8)]

        async def prune_often() -> None:
            for _ in range(20):
                await store.maintenance.prune_limits(NAMESPACE, 0 * SECOND, 10)

        answers = await asyncio.gather(
            *(claim_some() for _ in range(4)), prune_often(), prune_often()
        )

        assert sum(len(each.jobs) for some in answers if some for each in some) == 10
        assert await claim_ids(store, rules=rules) == []


async def started(store: Store, *rules: LimitRule, **changes: Any) -> int:
    claimed = await claim(store, rules=rules, limit=5, lease=changes.get("lease", LEASE))
    return len(claimed.jobs)
