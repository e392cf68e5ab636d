"""What is in use under limits, for whoever asks why a job waits."""

from __future__ import annotations

from perdure.clock import ManualClock
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage
from perdure.store.admission import room_under
from perdure.store.contract import Store
from tests.conformance.builders import (
    LEASE,
    MINUTE,
    NAMESPACE,
    SECOND,
    claim,
    claim_ids,
    close_limit,
    insert_many,
)

LIVE = LimitRule(key="mailer", live_max=2)
RATE = LimitRule(key="sender", starts_max=3, window=MINUTE)
SPACED = LimitRule(key="caller", spacing=10 * SECOND)
LATER = 5 * SECOND


class TestQueriesLimitUsage:
    async def test_names_the_jobs_that_count_as_live_the_longest_held_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        first, second, third = await insert_many(store, 3)
        assert await claim_ids(store, rules=(LIVE,), limit=1) == [first]
        clock.advance(LATER)
        assert await claim_ids(store, rules=(LIVE,)) == [second]

        [use] = await store.queries.limit_usage(NAMESPACE, [LIVE])

        assert use.held_by == (first, second)
        assert use.usage.live == 2
        assert room_under(LIVE, use.usage, clock()).count == 0
        assert third not in use.held_by

    async def test_does_not_count_what_a_dead_worker_held(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_many(store, 2)
        await claim(store, rules=(LIVE,))
        clock.advance(LEASE + SECOND)

        [use] = await store.queries.limit_usage(NAMESPACE, [LIVE])

        assert (use.held_by, use.usage.live) == ((), 0)

    async def test_answers_each_rule_in_order_as_a_claim_would_find_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_many(store, 5)
        began = clock()
        await claim(store, rules=(RATE, SPACED), limit=1)
        clock.advance(LATER)

        unused, rate, spaced = await store.queries.limit_usage(NAMESPACE, [LIVE, RATE, SPACED])

        assert unused.usage == LimitUsage()
        assert (rate.usage.starts, rate.usage.oldest_start_at) == (1, began)
        assert spaced.usage.last_start_at == began
        assert room_under(SPACED, spaced.usage, clock()).opens_at == began + 10 * SECOND

    async def test_tells_until_when_a_limit_is_closed(
        self, store: Store, clock: ManualClock
    ) -> None:
        until = clock() + MINUTE
        await close_limit(store, NAMESPACE, "mailer", until)

        [use] = await store.queries.limit_usage(NAMESPACE, [LIVE])

        assert use.usage.closed_until == until

    async def test_names_no_more_holders_than_can_be_read(self, store: Store) -> None:
        many = LimitRule(key="mailer", live_max=100)
        await insert_many(store, HOLDERS_MAX + 2)
        await claim(store, rules=(many,))

        [use] = await store.queries.limit_usage(NAMESPACE, [many])

        assert len(use.held_by) == HOLDERS_MAX
        assert use.usage.live == HOLDERS_MAX + 2

    async def test_looks_into_one_namespace_only(self, store: Store) -> None:
        await insert_many(store, 2)
        await claim(store, rules=(LIVE,))

        [use] = await store.queries.limit_usage("elsewhere", [LIVE])

        assert (use.held_by, use.usage) == ((), LimitUsage())
