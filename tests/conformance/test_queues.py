"""Pausing and resuming queues, and closing limits."""

from __future__ import annotations

from perdure.clock import ManualClock
from perdure.model.hint import HintType
from perdure.model.job import QueueInfo, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed
from perdure.store.contract import Store
from tests.conformance.builders import (
    HOUR,
    MINUTE,
    NAMESPACE,
    PARTITION,
    claim,
    claim_ids,
    close_limit,
    hold,
    insert,
    settle,
)
from tests.conformance.ears import Ear

RULES = (LimitRule(key="mailer", live_max=5),)


class TestAdminPauseQueue:
    async def test_lets_no_job_of_the_queue_be_claimed(self, store: Store) -> None:
        await insert(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")
        await insert(store)

        assert await claim_ids(store) == []
        assert await claim_ids(store, rules=RULES) == []

    async def test_tells_workers_to_look(self, store: Store, target: Store) -> None:
        ears = [Ear(handle) for handle in (store, target)]

        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")

        for ear in ears:
            await ear.hears(HintType.DUE)

    async def test_lets_held_jobs_finish(self, store: Store) -> None:
        held = await hold(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)

        assert await settle(store, held, Completed(output=b"1")) is Status.COMPLETED

    async def test_keeps_the_first_when_paused_twice(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")
        clock.advance(MINUTE)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ben")

        [paused] = await store.admin.paused_queues(NAMESPACE)

        assert (paused.paused_at, paused.paused_by) == (since, "ann")


class TestAdminResumeQueue:
    async def test_ends_a_pause(self, store: Store) -> None:
        id = await insert(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)

        await store.admin.resume_queue(NAMESPACE, PARTITION.queue)

        assert await claim_ids(store) == [id]
        assert await store.admin.paused_queues(None) == []

    async def test_does_nothing_when_there_is_no_pause(self, store: Store) -> None:
        await store.admin.resume_queue(NAMESPACE, PARTITION.queue)

        assert await store.admin.paused_queues(None) == []

    async def test_lets_the_queue_be_paused_anew(self, store: Store, clock: ManualClock) -> None:
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")
        await store.admin.resume_queue(NAMESPACE, PARTITION.queue)
        clock.advance(MINUTE)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ben")

        [paused] = await store.admin.paused_queues(NAMESPACE)

        assert (paused.paused_at, paused.paused_by) == (clock(), "ben")


class TestAdminPausedQueues:
    async def test_shows_what_is_paused_by_whom_and_since_when(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        await store.admin.pause_queue("team-b", "gpu", None)
        clock.advance(MINUTE)
        await store.admin.pause_queue(NAMESPACE, "mail", "ann")
        mine = QueueInfo(
            namespace=NAMESPACE, queue="mail", paused_at=since + MINUTE, paused_by="ann"
        )
        theirs = QueueInfo(namespace="team-b", queue="gpu", paused_at=since, paused_by=None)

        assert await store.admin.paused_queues(NAMESPACE) == [mine]
        assert await store.admin.paused_queues("team-b") == [theirs]
        assert await store.admin.paused_queues(None) == [mine, theirs]


class TestAClosedLimit:
    async def test_lets_nothing_start_before_it_opens(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store)
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)
        clock.advance(HOUR - MINUTE)

        assert await claim_ids(store, rules=RULES) == []
        clock.advance(MINUTE)
        assert await claim_ids(store, rules=RULES) == [id]

    async def test_changes_nothing_when_the_time_is_earlier(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)
        await close_limit(store, NAMESPACE, "mailer", clock() + MINUTE)

        assert (await claim(store, rules=RULES)).opens_at == clock() + HOUR

    async def test_moves_the_time_when_it_is_later(self, store: Store, clock: ManualClock) -> None:
        await insert(store)
        await close_limit(store, NAMESPACE, "mailer", clock() + MINUTE)
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)

        assert (await claim(store, rules=RULES)).opens_at == clock() + HOUR

    async def test_stops_only_what_is_governed_by_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        await close_limit(store, NAMESPACE, "other", clock() + HOUR)
        await close_limit(store, "team-b", "mailer", clock() + HOUR)

        assert len(await claim_ids(store, rules=RULES)) == 1
