"""Limits: claims under rules of concurrency, rate and spacing, closed limits, usage, pruning."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from perdure.clock import ManualClock
from perdure.model.job import Claim, Claimed, Status
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
    Settlement,
)
from perdure.model.partition import Partition
from perdure.store.admission import room_under
from perdure.store.contract import PartitionClaim, Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    WORKER,
    claim,
    claim_ids,
    close_limit,
    failure,
    insert,
    insert_many,
    settle,
    status_of,
)

# Claims under rules


TWO_LIVE = (LimitRule(key="mailer", live_max=2),)
THREE_A_MINUTE = (LimitRule(key="mailer", starts_max=3, window=MINUTE),)
SPACED = (LimitRule(key="mailer", spacing=10 * SECOND),)
OTHER_PARTITION = Partition(queue="default", task="send")

OUTCOMES: list[Outcome] = [
    Completed(output=b"1"),
    Retried(failure=failure(), delay=HOUR),
    Failed(failure=failure()),
    DeadLettered(failure=failure()),
    Cancelled(),
    Requeued(),
    Parked(),
]


def partition_under(partition: Partition, *rules: LimitRule) -> PartitionClaim:
    return PartitionClaim(partition=partition.text, queue=partition.queue, rules=rules)


async def start(store: Store, count: int, rules: tuple[LimitRule, ...]) -> list[Claim]:
    """Claim with so many jobs waiting that only the rules hold anything back."""
    await insert_many(store, count)
    return [job.claim for job in (await claim(store, rules=rules)).jobs]


class TestClaimJobsUnderConcurrency:
    async def test_starts_no_more_than_may_be_live(self, store: Store) -> None:
        ids = await insert_many(store, 5)

        assert await claim_ids(store, rules=TWO_LIVE) == ids[:2]
        assert await claim_ids(store, rules=TWO_LIVE) == []
        assert await claim_ids(store, rules=TWO_LIVE, worker=OTHER_WORKER) == []

    async def test_does_not_say_when_it_opens_if_that_is_unknown(self, store: Store) -> None:
        await start(store, 5, TWO_LIVE)

        assert (await claim(store, rules=TWO_LIVE)).opens_at is None

    @pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
    async def test_has_room_again_once_a_job_is_settled(
        self, store: Store, outcome: Outcome
    ) -> None:
        [first, _] = await start(store, 5, TWO_LIVE)

        await settle(store, first, outcome)

        assert len(await claim_ids(store, rules=TWO_LIVE)) == 1

    async def test_has_room_again_once_a_lease_expired_without_a_takeover(
        self, store: Store, clock: ManualClock
    ) -> None:
        [kept, _] = await start(store, 5, TWO_LIVE)
        clock.advance(LEASE - SECOND)
        await store.jobs.renew(WORKER, [kept], LEASE)
        clock.advance(SECOND)

        assert len(await claim_ids(store, rules=TWO_LIVE, worker=OTHER_WORKER)) == 1

    async def test_has_room_again_once_a_job_is_disabled(self, store: Store) -> None:
        [first, _] = await start(store, 5, TWO_LIVE)

        await store.admin.change_jobs(Transition.DISABLE, None, [first.id])

        assert len(await claim_ids(store, rules=TWO_LIVE)) == 1

    async def test_counts_a_job_that_is_asked_to_stop_until_it_has_stopped(
        self, store: Store
    ) -> None:
        [first, _] = await start(store, 5, TWO_LIVE)

        await store.admin.change_jobs(Transition.ABORT, None, [first.id])
        assert await claim_ids(store, rules=TWO_LIVE) == []

        await settle(store, first, Cancelled())
        assert len(await claim_ids(store, rules=TWO_LIVE)) == 1

    async def test_counts_no_job_that_was_claimed_without_the_rule(self, store: Store) -> None:
        await insert_many(store, 5)
        await claim(store, limit=3)

        assert len(await claim_ids(store, rules=TWO_LIVE)) == 2


class TestClaimJobsUnderARate:
    async def test_starts_no_more_than_the_rate_in_any_window(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_many(store, 20)
        started = []
        for _ in range(25):
            started.append((clock(), len(await claim_ids(store, rules=THREE_A_MINUTE, limit=2))))
            clock.advance(7 * SECOND)

        for at, _ in started:
            in_window = sum(count for when, count in started if at <= when < at + MINUTE)
            assert in_window <= 3
        assert sum(count for _, count in started) >= 8, "and it does not hold back for ever"

    async def test_slides_with_each_start_rather_than_in_steps(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_many(store, 9)
        counts = []
        for gap in (0, 30, 20, 10, 30, 10):  # at 0, 30, 50, 60, 90 and 100 seconds
            clock.advance(gap * SECOND)
            counts.append(len(await claim_ids(store, rules=THREE_A_MINUTE, limit=1)))

        assert counts == [1, 1, 1, 1, 1, 0]

    async def test_says_when_the_first_start_leaves_the_window(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_many(store, 9)
        began_at = clock()
        await claim(store, rules=THREE_A_MINUTE, limit=1)
        clock.advance(20 * SECOND)
        await claim(store, rules=THREE_A_MINUTE)

        limited = await claim(store, rules=THREE_A_MINUTE)

        assert (limited.jobs, limited.opens_at) == ([], began_at + MINUTE)
        clock.advance(40 * SECOND)
        assert len(await claim_ids(store, rules=THREE_A_MINUTE)) == 1

    async def test_counts_starts_however_they_ended(self, store: Store) -> None:
        for started in await start(store, 9, THREE_A_MINUTE):
            await settle(store, started, Requeued())

        assert await claim_ids(store, rules=THREE_A_MINUTE) == []


class TestClaimJobsUnderSpacing:
    async def test_starts_one_and_the_next_after_the_interval(
        self, store: Store, clock: ManualClock
    ) -> None:
        ids = await insert_many(store, 3)

        assert await claim_ids(store, rules=SPACED) == ids[:1]
        limited = await claim(store, rules=SPACED)
        assert (limited.jobs, limited.opens_at) == ([], clock() + 10 * SECOND)
        clock.advance(10 * SECOND)
        assert await claim_ids(store, rules=SPACED) == ids[1:2]

    async def test_does_not_make_up_for_time_without_starts(
        self, store: Store, clock: ManualClock
    ) -> None:
        await start(store, 3, SPACED)
        clock.advance(HOUR)

        assert len(await claim_ids(store, rules=SPACED)) == 1
        assert await claim_ids(store, rules=SPACED) == []


class TestJobsMoveStart:
    async def test_counts_a_start_again_from_now_on(self, store: Store, clock: ManualClock) -> None:
        """Finding 26: a body that starts late counts from when it starts, not from its claim."""
        [late, *_] = await start(store, 9, THREE_A_MINUTE)
        clock.advance(30 * SECOND)
        moved_at = clock()

        assert await store.jobs.move_start(late, MINUTE) is True

        assert await claim_ids(store, rules=THREE_A_MINUTE) == []
        clock.advance(30 * SECOND)
        assert len(await claim_ids(store, rules=THREE_A_MINUTE)) == 2
        limited = await claim(store, rules=THREE_A_MINUTE)
        assert (limited.jobs, limited.opens_at) == ([], moved_at + MINUTE)

    async def test_moves_the_spacing_too(self, store: Store, clock: ManualClock) -> None:
        """Finding 26: the next start keeps its distance from the late one."""
        [late] = await start(store, 3, SPACED)
        clock.advance(9 * SECOND)

        assert await store.jobs.move_start(late, 10 * SECOND) is True

        clock.advance(9 * SECOND)
        assert await claim_ids(store, rules=SPACED) == []
        clock.advance(SECOND)
        assert len(await claim_ids(store, rules=SPACED)) == 1

    @pytest.mark.parametrize("rules", [THREE_A_MINUTE, SPACED], ids=["rate", "spacing"])
    async def test_uncounts_what_is_too_late_to_be_moved(
        self, store: Store, clock: ManualClock, rules: tuple[LimitRule, ...]
    ) -> None:
        """Finding 26: a job that never started uses up nothing, once."""
        started = await start(store, 9, rules)
        clock.advance(5 * SECOND)
        assert await claim_ids(store, rules=rules) == []

        assert await store.jobs.move_start(started[0], 5 * SECOND) is False
        assert await store.jobs.move_start(started[0], HOUR) is False

        assert len(await claim_ids(store, rules=rules)) == 1
        assert await claim_ids(store, rules=rules) == []

    async def test_keeps_the_spacing_from_others_of_the_same_claim(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 26: only a start that no other job shares is forgotten."""
        [late, *_] = await start(store, 5, THREE_A_MINUTE)

        assert await store.jobs.move_start(late, 0 * SECOND) is False

        assert await claim_ids(store, rules=SPACED) == []

    async def test_moves_all_of_a_claim_that_are_late_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 26: concurrent moves count each start once."""
        started = await start(store, 9, THREE_A_MINUTE)
        clock.advance(30 * SECOND)

        moved = await asyncio.gather(*(store.jobs.move_start(each, MINUTE) for each in started))

        assert moved == [True] * 3
        [use] = await store.queries.limit_usage(NAMESPACE, THREE_A_MINUTE)
        assert (use.usage.starts, use.usage.oldest_start_at) == (3, clock())

    async def test_frees_a_place_among_the_live_ones(self, store: Store) -> None:
        """Finding 26: a job that will not start does not block others until it is requeued."""
        [first, _] = await start(store, 5, TWO_LIVE)

        assert await store.jobs.move_start(first, 0 * SECOND) is False

        assert len(await claim_ids(store, rules=TWO_LIVE)) == 1

    async def test_changes_nothing_under_a_stale_claim(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 26: the fence holds here too (I3)."""
        [late, *_] = await start(store, 3, THREE_A_MINUTE)
        stale = Claim(id=late.id, epoch=late.epoch - 1)
        clock.advance(SECOND)

        assert await store.jobs.move_start(stale, MINUTE) is False
        assert await store.jobs.move_start(stale, 0 * SECOND) is False

        [use] = await store.queries.limit_usage(NAMESPACE, THREE_A_MINUTE)
        assert (use.usage.starts, use.usage.oldest_start_at) == (3, clock() - SECOND)

    async def test_does_nothing_for_a_job_under_no_limit(self, store: Store) -> None:
        """Finding 26: there is no start to move."""
        await insert(store)
        [free] = (await claim(store)).jobs

        assert await store.jobs.move_start(free.claim, MINUTE) is False


class TestClaimJobsUnderAClosedLimit:
    async def test_starts_nothing_before_it_opens(self, store: Store, clock: ManualClock) -> None:
        await insert(store)
        until = clock() + MINUTE
        await close_limit(store, NAMESPACE, "mailer", until)

        limited = await claim(store, rules=TWO_LIVE)

        assert (limited.jobs, limited.opens_at) == ([], until)
        clock.advance(MINUTE)
        assert len(await claim_ids(store, rules=TWO_LIVE)) == 1


class TestClaimJobsUnderSeveralRules:
    async def test_gives_each_job_a_place_under_all_its_keys(
        self, store: Store, clock: ManualClock
    ) -> None:
        rules = (
            LimitRule(key="mailer", live_max=4),
            LimitRule(key="smtp", starts_max=3, window=MINUTE),
        )
        [first, second, _] = await start(store, 9, rules)
        clock.advance(MINUTE)
        await settle(store, first, Completed(output=b"1"))
        await settle(store, second, Completed(output=b"1"))

        # One is live, so three places are left under the one, and all three under the other.
        assert len(await claim_ids(store, rules=rules)) == 3
        assert await claim_ids(store, rules=rules) == []

    async def test_combines_everything_that_governs_one_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        rule = LimitRule(key="mailer", live_max=2, starts_max=3, window=MINUTE, spacing=10 * SECOND)
        await insert_many(store, 9)
        counts = []
        for _ in range(4):
            counts.append(len(await claim_ids(store, rules=(rule,))))
            clock.advance(10 * SECOND)

        assert counts == [1, 1, 0, 1], "two live until the first lease ends after 30 seconds"

    async def test_holds_rates_in_different_windows_under_one_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        rules = (
            LimitRule(key="mailer", live_max=9, starts_max=2, window=10 * SECOND),
            LimitRule(key="mailer", starts_max=5, window=MINUTE),
        )
        await insert_many(store, 20)
        counts = []
        for _ in range(8):  # at 0, 10, 20 ... 70 seconds
            counts.append(len(await claim_ids(store, rules=rules)))
            clock.advance(10 * SECOND)

        assert counts == [2, 2, 1, 0, 0, 0, 2, 2]

    async def test_holds_the_tighter_rule_where_partitions_differ_about_a_key(
        self, store: Store
    ) -> None:
        await insert_many(store, 5)
        await insert_many(store, 5, partition=OTHER_PARTITION)
        partitions = [
            partition_under(PARTITION, LimitRule(key="mailer", live_max=3)),
            partition_under(OTHER_PARTITION, LimitRule(key="mailer", live_max=2)),
        ]

        assert len(await claim_ids(store, partitions=partitions)) <= 3
        assert len(await claim_ids(store, partitions=list(reversed(partitions)))) <= 3
        assert await claim_ids(store, partitions=partitions[1:]) == []

    async def test_shares_one_key_among_partitions_in_the_order_of_the_queue(
        self, store: Store
    ) -> None:
        late = await insert(store, priority=4)
        first = await insert(store, partition=OTHER_PARTITION, priority=1)
        second = await insert(store, priority=2)

        assert await claim_ids(store, PARTITION, OTHER_PARTITION, rules=TWO_LIVE) == [first, second]
        assert late not in await claim_ids(store, PARTITION, OTHER_PARTITION, rules=TWO_LIVE)

    async def test_is_not_held_up_by_a_partition_without_room(self, store: Store) -> None:
        await start(store, 5, TWO_LIVE)
        free = await insert_many(store, 2, partition=OTHER_PARTITION, priority=5)
        partitions = [partition_under(PARTITION, *TWO_LIVE), partition_under(OTHER_PARTITION)]

        assert await claim_ids(store, partitions=partitions, limit=2) == free

    async def test_leaves_partitions_without_rules_unlimited(self, store: Store) -> None:
        limited = await insert_many(store, 3)
        free = await insert_many(store, 3, partition=OTHER_PARTITION)
        partitions = [partition_under(PARTITION, *TWO_LIVE), partition_under(OTHER_PARTITION)]

        assert set(await claim_ids(store, partitions=partitions)) == {*limited[:2], *free}

    async def test_counts_each_namespace_by_itself(self, store: Store) -> None:
        await start(store, 3, TWO_LIVE)
        await insert_many(store, 3, namespace="team-b")

        assert len(await claim_ids(store, namespace="team-b", rules=TWO_LIVE)) == 2

    async def test_counts_each_key_by_itself(self, store: Store) -> None:
        await start(store, 5, TWO_LIVE)

        assert len(await claim_ids(store, rules=(LimitRule(key="other", live_max=2),))) == 2

    async def test_keeps_starts_in_a_long_window_while_others_start_in_a_short_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        one_an_hour = (LimitRule(key="other", starts_max=1, window=HOUR),)
        opens_at = clock() + HOUR
        assert len(await start(store, 5, one_an_hour)) == 1
        clock.advance(2 * MINUTE)

        assert len(await claim_ids(store, rules=THREE_A_MINUTE)) == 3

        limited = await claim(store, rules=one_an_hour)
        assert (limited.jobs, limited.opens_at) == ([], opens_at)

    async def test_uses_up_nothing_when_nothing_was_started(
        self, store: Store, clock: ManualClock
    ) -> None:
        rules = (LimitRule(key="mailer", starts_max=1, window=MINUTE, spacing=MINUTE),)
        assert await claim_ids(store, rules=rules) == []

        assert len(await start(store, 1, rules)) == 1

    async def test_respects_pauses_and_hold_offs_as_well(self, store: Store) -> None:
        [first, second] = await start(store, 2, TWO_LIVE)
        for claimed in (first, second):
            await settle(store, claimed, Retried(failure=failure(), hold_off=MINUTE))

        assert await claim_ids(store, rules=TWO_LIVE, worker=WORKER) == []
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)
        assert await claim_ids(store, rules=TWO_LIVE, worker=OTHER_WORKER) == []
        await store.admin.resume_queue(NAMESPACE, PARTITION.queue)
        assert len(await claim_ids(store, rules=TWO_LIVE, worker=OTHER_WORKER)) == 2


# Usage, for explaining why a job waits


TWO_AT_ONCE = LimitRule(key="mailer", live_max=2)
RATE = LimitRule(key="sender", starts_max=3, window=MINUTE)
SPACED_CALLS = LimitRule(key="caller", spacing=10 * SECOND)
LATER = 5 * SECOND


class TestQueriesLimitUsage:
    async def test_names_the_jobs_that_count_as_live_the_longest_claimed_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        first, second, third = await insert_many(store, 3)
        assert await claim_ids(store, rules=(TWO_AT_ONCE,), limit=1) == [first]
        clock.advance(LATER)
        assert await claim_ids(store, rules=(TWO_AT_ONCE,)) == [second]

        [use] = await store.queries.limit_usage(NAMESPACE, [TWO_AT_ONCE])

        assert use.held_by == (first, second)
        assert use.usage.live == 2
        assert room_under(TWO_AT_ONCE, use.usage, clock()).count == 0
        assert third not in use.held_by

    async def test_does_not_count_what_a_dead_worker_claimed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_many(store, 2)
        await claim(store, rules=(TWO_AT_ONCE,))
        clock.advance(LEASE + SECOND)

        [use] = await store.queries.limit_usage(NAMESPACE, [TWO_AT_ONCE])

        assert (use.held_by, use.usage.live) == ((), 0)

    async def test_answers_each_rule_in_order_as_a_claim_would_find_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert_many(store, 5)
        began = clock()
        await claim(store, rules=(RATE, SPACED_CALLS), limit=1)
        clock.advance(LATER)

        unused, rate, spaced = await store.queries.limit_usage(
            NAMESPACE, [TWO_AT_ONCE, RATE, SPACED_CALLS]
        )

        assert unused.usage == LimitUsage()
        assert (rate.usage.starts, rate.usage.oldest_start_at) == (1, began)
        assert spaced.usage.last_start_at == began
        assert room_under(SPACED_CALLS, spaced.usage, clock()).opens_at == began + 10 * SECOND

    async def test_publishes_nothing_of_a_batch_that_raised(self, store: Store) -> None:
        """Finding 32: the memory store kept limit changes of a batch that raised later."""
        await insert_many(store, 2)
        closing, broken = (job.claim for job in (await claim(store)).jobs)
        retried = Retried(failure=failure(), delay=HOUR, closes_limit="mailer")
        batch = [
            Settlement(claim=closing, outcome=retried),
            Settlement(claim=broken, outcome=cast("Any", "not an outcome")),
        ]

        with pytest.raises((AssertionError, AttributeError, TypeError)):
            await store.jobs.settle(batch)

        [use] = await store.queries.limit_usage(NAMESPACE, [TWO_AT_ONCE])
        assert use.usage == LimitUsage()
        assert await status_of(store, closing.id) is Status.ACTIVE

    async def test_returns_until_when_a_limit_is_closed(
        self, store: Store, clock: ManualClock
    ) -> None:
        until = clock() + MINUTE
        await close_limit(store, NAMESPACE, "mailer", until)

        [use] = await store.queries.limit_usage(NAMESPACE, [TWO_AT_ONCE])

        assert use.usage.closed_until == until

    async def test_names_no_more_claims_than_can_be_read(self, store: Store) -> None:
        many = LimitRule(key="mailer", live_max=100)
        await insert_many(store, HOLDERS_MAX + 2)
        await claim(store, rules=(many,))

        [use] = await store.queries.limit_usage(NAMESPACE, [many])

        assert len(use.held_by) == HOLDERS_MAX
        assert use.usage.live == HOLDERS_MAX + 2

    async def test_looks_into_one_namespace_only(self, store: Store) -> None:
        await insert_many(store, 2)
        await claim(store, rules=(TWO_AT_ONCE,))

        [use] = await store.queries.limit_usage("elsewhere", [TWO_AT_ONCE])

        assert (use.held_by, use.usage) == ((), LimitUsage())


# Pruning limit keys without effect


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
