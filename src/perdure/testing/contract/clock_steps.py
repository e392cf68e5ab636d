"""A clock that is set back: nothing that the store itself timed lasts longer than it can."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import RunId, WorkerId
from perdure.model.job import Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed, Requeued, Retried
from perdure.model.run import RunStatus
from perdure.store.contract import LIVE_KEPT, SUBSCRIBER_LEASE, Store
from perdure.testing.contract.builders import (
    CHILD,
    COMPLETED,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    SECOND,
    WORKER,
    child_wait,
    claim,
    claim_ids,
    claim_new,
    claim_one,
    close_limit,
    commit,
    cooling_run,
    due_keys,
    failure,
    insert,
    insert_many,
    job_record,
    new_child,
    new_job,
    new_run,
    read_job,
    read_schedule,
    run_record,
    save_schedule,
    settle,
    signal,
    status_of,
    timer,
    worker_info,
)


class TestMaintenanceBoundTimes:
    async def test_a_dead_workers_job_is_taken_over_within_its_lease(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: a store clock set back stops takeover."""
        await store.maintenance.register_worker(worker_info())
        held = await claim_new(store)
        clock.advance(-HOUR)

        poll = await store.maintenance.poll(NAMESPACE)
        assert poll.last_seen_at == poll.now + HOUR
        assert await store.maintenance.bound_times(NAMESPACE, MINUTE) == 1

        assert await store.maintenance.take_over_expired(NAMESPACE, 10) == []
        clock.advance(LEASE)
        [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10)
        assert (taken.id, taken.worker) == (held.id, WORKER)

    async def test_a_live_worker_keeps_its_jobs(self, store: Store, clock: ManualClock) -> None:
        """Finding 36: a live holder is not robbed."""
        await store.maintenance.register_worker(worker_info())
        held = await claim_new(store)
        for _ in range(3):
            clock.advance(-HOUR)
            assert await store.maintenance.bound_times(NAMESPACE, LEASE) == 1
            clock.advance(LEASE - SECOND)
            await store.jobs.renew(WORKER, [held], LEASE)

        assert await store.maintenance.bound_times(NAMESPACE, LEASE) == 0
        assert await store.maintenance.take_over_expired(NAMESPACE, 10) == []
        assert await settle(store, held, Completed(output=b"1")) is Status.COMPLETED

    async def test_bounds_each_lease_by_that_of_its_worker(
        self, store: Store, clock: ManualClock
    ) -> None:
        brief, patient, unknown = WORKER, OTHER_WORKER, WorkerId("worker-3")
        await store.maintenance.register_worker(worker_info(id=brief, lease=LEASE))
        await store.maintenance.register_worker(worker_info(id=patient, lease=2 * HOUR))
        held = [
            await claim_new(store, worker=brief, lease=LEASE),
            await claim_new(store, worker=patient, lease=2 * HOUR),
            await claim_new(store, worker=unknown, lease=5 * MINUTE),
        ]
        clock.advance(-10 * MINUTE)

        assert await store.maintenance.bound_times(NAMESPACE, MINUTE) == 3

        ends = [(await read_job(store, each.id)).lease_until for each in held]
        assert ends == [clock() + LEASE, clock() + 2 * HOUR, clock() + MINUTE]

    async def test_leaves_leases_that_can_be_and_other_namespaces_alone(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.maintenance.register_worker(worker_info())
        elsewhere = await claim_new(store, namespace=OTHER_NAMESPACE, lease=HOUR)
        held = await claim_new(store)
        clock.advance(SECOND)
        before = await job_record(store, held.id), await job_record(store, elsewhere.id)

        assert await store.maintenance.bound_times(NAMESPACE, LEASE) == 0

        after = await job_record(store, held.id), await job_record(store, elsewhere.id)
        assert after == before

    async def test_a_subscriber_that_is_gone_is_forgotten_within_its_lease(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: workers published for it until the clock was where it had been."""
        await store.live.subscribe(NAMESPACE, "gone", b"", SUBSCRIBER_LEASE)
        await store.live.subscribe(NAMESPACE, "live", b"", SUBSCRIBER_LEASE)
        await store.live.subscribe(OTHER_NAMESPACE, "other", b"", SUBSCRIBER_LEASE)
        clock.advance(-HOUR)
        await store.maintenance.bound_times(NAMESPACE, LEASE)

        clock.advance(SUBSCRIBER_LEASE - SECOND)
        assert set(await store.live.subscribers(NAMESPACE)) == {"gone", "live"}
        await store.live.subscribe(NAMESPACE, "live", b"", SUBSCRIBER_LEASE)
        clock.advance(SECOND)

        assert list(await store.live.subscribers(NAMESPACE)) == ["live"]
        assert list(await store.live.subscribers(OTHER_NAMESPACE)) == ["other"]

    async def test_live_events_are_removed_when_they_are_old(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: a thousand of them kept all later ones from being removed."""
        await store.live.subscribe(NAMESPACE, "ann", b"", HOUR)
        await store.live.publish(NAMESPACE, [b"early"] * 1_000)
        clock.advance(-HOUR)
        await store.maintenance.bound_times(NAMESPACE, LEASE)
        await store.live.subscribe(NAMESPACE, "ann", b"", HOUR)
        clock.advance(LIVE_KEPT + SECOND)

        await store.live.publish(NAMESPACE, [b"late"])
        await store.live.publish(NAMESPACE, [b"later"])

        found = await store.live.read(NAMESPACE, 0, 2_000)
        assert {event for _, event in found} <= {b"early", b"late", b"later"}
        assert [event for _, event in found][-2:] == [b"late", b"later"]
        assert len(found) <= 3

    async def test_live_events_of_other_namespaces_keep_their_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        for namespace in (NAMESPACE, OTHER_NAMESPACE):
            await store.live.subscribe(namespace, "ann", b"", HOUR)
            await store.live.publish(namespace, [b"early"])
        clock.advance(-HOUR)
        await store.maintenance.bound_times(NAMESPACE, LEASE)
        await store.live.subscribe(NAMESPACE, "ann", b"", HOUR)
        clock.advance(LIVE_KEPT + SECOND)

        await store.live.publish(NAMESPACE, [b"late"])

        kept = {
            namespace: [event for _, event in await store.live.read(namespace, 0, 10)]
            for namespace in (NAMESPACE, OTHER_NAMESPACE)
        }
        assert kept == {NAMESPACE: [b"late"], OTHER_NAMESPACE: [b"early"]}

    async def test_a_worker_was_seen_no_later_than_now(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.maintenance.register_worker(worker_info())
        await store.maintenance.register_worker(
            worker_info(id=OTHER_WORKER, namespace=OTHER_NAMESPACE)
        )
        seen_at = clock()
        clock.advance(-HOUR)

        await store.maintenance.bound_times(NAMESPACE, LEASE)

        seen = {each.info.id: each.seen_at for each in await store.queries.workers(None)}
        assert seen == {WORKER: clock(), OTHER_WORKER: seen_at}
        assert (await store.maintenance.poll(NAMESPACE)).last_seen_at == clock()
        clock.advance(MINUTE)
        assert await store.maintenance.prune_workers(NAMESPACE, MINUTE) == 1

    async def test_a_heartbeat_does_not_hide_that_the_clock_was_set_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: what no lease or limit shows is noticed, too."""
        await store.maintenance.register_worker(worker_info())
        clock.advance(-HOUR)
        await store.maintenance.register_worker(worker_info(concurrency=5))

        poll = await store.maintenance.poll(NAMESPACE)
        assert poll.last_seen_at == poll.now + HOUR
        await store.maintenance.bound_times(NAMESPACE, LEASE)
        clock.advance(SECOND)
        await store.maintenance.register_worker(worker_info())
        assert (await store.maintenance.poll(NAMESPACE)).last_seen_at == clock()

    async def test_a_parent_continues_after_its_child_ended(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.runs.submit(new_run(jobs=(), waits=(child_wait(),), children=(new_child(),)))
        await commit(store, run=CHILD, status=COMPLETED)
        clock.advance(-HOUR)
        assert await due_keys(store) == []

        await store.maintenance.bound_times(NAMESPACE, LEASE)

        assert await due_keys(store) == ["ship"]

    async def test_limits_without_claims_are_bounded_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        rule = LimitRule(key="mailer", spacing=MINUTE)
        await insert(store)
        await claim(store, rules=(rule,))
        clock.advance(-HOUR)

        await store.maintenance.bound_times(NAMESPACE, LEASE)

        [use] = await store.queries.limit_usage(NAMESPACE, [rule])
        assert use.usage.last_start_at == clock()
        clock.advance(MINUTE)
        assert await store.maintenance.prune_limits(NAMESPACE, timedelta(0), 10) == 1

    async def test_times_that_callers_set_stay(self, store: Store, clock: ManualClock) -> None:
        later = await insert(store, delay=MINUTE)
        retried = await claim_new(store)
        expiring = await insert(store, deadline=MINUTE)
        await settle(store, retried, Retried(failure=failure(), delay=MINUTE))
        run = RunId("patient")
        waits = (timer(delay=MINUTE), signal(delay=MINUTE))
        await store.runs.submit(new_run(id=run, jobs=(), waits=waits))
        schedule = await save_schedule(store)
        clock.advance(-HOUR)

        async def everything() -> list[object]:
            records = [await job_record(store, id) for id in (later, expiring, retried.id)]
            return [
                *records,
                await run_record(store, run),
                await read_schedule(store, schedule.name),
            ]

        before = await everything()
        await store.maintenance.bound_times(NAMESPACE, LEASE)

        assert await everything() == before


class TestClockSetBack:
    """Comparisons that hold without ``bound_times``."""

    @pytest.mark.parametrize(
        "rule",
        [
            LimitRule(key="mailer", starts_max=2, window=MINUTE),
            LimitRule(key="mailer", spacing=MINUTE),
        ],
        ids=["rate", "spacing"],
    )
    async def test_a_limit_opens_within_its_own_window(
        self, store: Store, clock: ManualClock, rule: LimitRule
    ) -> None:
        """Finding 36: a store clock set back closes rate and spacing limits."""
        count = rule.starts_max or 1
        await insert_many(store, 10)
        clock.advance(30 * SECOND)
        assert len(await claim_ids(store, rules=(rule,))) == count
        clock.advance(-HOUR)

        closed = await claim(store, rules=(rule,))
        assert (closed.jobs, closed.opens_at) == ([], clock() + MINUTE)
        clock.advance(MINUTE - SECOND)
        assert await claim_ids(store, rules=(rule,)) == []
        clock.advance(SECOND)
        assert len(await claim_ids(store, rules=(rule,))) == count

    async def test_a_window_forgets_starts_of_which_the_last_was_taken_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        rule = LimitRule(key="mailer", starts_max=2, window=MINUTE)
        await insert_many(store, 6)
        await claim_one(store, rules=(rule,))
        clock.advance(SECOND)
        last = await claim_one(store, rules=(rule,))
        clock.advance(SECOND)
        assert not await store.jobs.move_start(last, timedelta(0))
        clock.advance(-HOUR)

        assert len(await claim_ids(store, rules=(rule,))) == 1
        clock.advance(MINUTE)
        assert len(await claim_ids(store, rules=(rule,))) == 2

    async def test_a_closed_limit_opens_after_the_time_it_was_closed_for(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: a store clock set back keeps a closed limit closed."""
        rule = LimitRule(key="mailer", live_max=5)
        await insert(store)
        await close_limit(store, NAMESPACE, "mailer", clock() + MINUTE)
        await close_limit(store, NAMESPACE, "mailer", clock() + SECOND)  # changes nothing
        clock.advance(-HOUR)

        closed = await claim(store, rules=(rule,))
        assert (closed.jobs, closed.opens_at) == ([], clock() + MINUTE)
        clock.advance(MINUTE)
        assert len(await claim_ids(store, rules=(rule,))) == 1

    async def test_limits_of_concurrency_count_what_is_live(
        self, store: Store, clock: ManualClock
    ) -> None:
        rule = LimitRule(key="mailer", live_max=1)
        await store.maintenance.register_worker(worker_info())
        await insert_many(store, 2)
        assert len(await claim_ids(store, rules=(rule,))) == 1
        clock.advance(-HOUR)
        await store.maintenance.bound_times(NAMESPACE, LEASE)

        assert await claim_ids(store, rules=(rule,), worker=OTHER_WORKER) == []
        clock.advance(LEASE)
        assert len(await claim_ids(store, rules=(rule,), worker=OTHER_WORKER)) == 1

    async def test_another_worker_may_lead(self, store: Store, clock: ManualClock) -> None:
        """Finding 36: a store clock set back keeps the maintenance lease of a dead leader."""
        acquire = store.maintenance.acquire_lease
        assert await acquire("maintenance", WORKER, LEASE)
        clock.advance(-HOUR)

        assert await acquire("maintenance", OTHER_WORKER, LEASE)
        assert not await acquire("maintenance", WORKER, LEASE)

    async def test_the_worker_that_failed_a_job_may_retry_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: a store clock set back keeps a job from a lone worker."""
        held = await claim_new(store)
        await settle(store, held, Retried(failure=failure(), hold_off=10 * SECOND))
        assert await claim_ids(store) == []
        clock.advance(-HOUR)

        again = await claim_one(store)
        assert again.id == held.id
        await settle(store, again, Requeued())
        rule = LimitRule(key="mailer", live_max=5)
        assert await claim_ids(store, rules=(rule,)) == [held.id]
        other = new_job(partition=PARTITION)
        await store.jobs.insert([other])
        assert await claim_ids(store, PARTITION, rules=()) == [other.id]

    async def test_a_cooldown_counts_no_run_of_the_future(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: a store clock set back skips all runs of a flow with a cooldown."""
        before = await store.runs.submit(cooling_run(jobs=()))
        await commit(store, run=before.run.id, status=COMPLETED)
        clock.advance(-10 * HOUR)

        started = await store.runs.submit(cooling_run())
        clock.advance(HOUR / 2)
        skipped = await store.runs.submit(cooling_run())
        clock.advance(HOUR / 2)
        last = await store.runs.submit(cooling_run())

        statuses = [each.run.status for each in (started, skipped, last)]
        assert statuses == [RunStatus.RUNNING, RunStatus.SKIPPED, RunStatus.RUNNING]

    async def test_a_job_that_waits_is_claimed(self, store: Store, clock: ManualClock) -> None:
        waiting = await insert(store)
        clock.advance(-HOUR)

        assert await status_of(store, waiting) is Status.WAITING
        assert await claim_ids(store) == [waiting]
