"""Wake-ups: which hint each write is followed by, and who hears it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from perdure.clock import ManualClock
from perdure.model.hint import Hint, HintType
from perdure.model.job import Claim, Progress, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed, Failed, Requeued, Retried
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    HOUR,
    MINUTE,
    NAMESPACE,
    PARTITION,
    WORKER,
    claim_one,
    failure,
    insert,
    put_in,
    settle,
)
from tests.conformance.ears import Ear

READY, SCHEDULED = HintType.READY, HintType.SCHEDULED
CHANGED, ABORTING = HintType.CHANGED, HintType.ABORTING


Act = Callable[[Store, ManualClock, Claim], Awaitable[object]]


class Case(Value):
    before: Status
    act: Act
    hints: tuple[HintType, ...]


async def _promote(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(MINUTE)
    return await store.maintenance.promote_due(NAMESPACE, 10)


async def _take_over(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(MINUTE)
    return await store.maintenance.take_over_expired(NAMESPACE, 10, 3)


async def _expire(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(HOUR)
    return await store.maintenance.expire_deadlines(NAMESPACE, 10)


RETRIED = Retried(failure=failure())
RETRIED_LATER = Retried(failure=failure(), delay=MINUTE)
CASES: dict[str, Case] = {
    "completed": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: settle(store, claim, Completed(output=b"1")),
        hints=(CHANGED,),
    ),
    "failed": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: settle(store, claim, Failed(failure=failure())),
        hints=(CHANGED,),
    ),
    "retried": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: settle(store, claim, RETRIED),
        hints=(CHANGED, READY),
    ),
    "retried later": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: settle(store, claim, RETRIED_LATER),
        hints=(CHANGED, SCHEDULED),
    ),
    "given back": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: settle(store, claim, Requeued()),
        hints=(READY,),
    ),
    "progress saved": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: store.jobs.save_progress([(claim, Progress(percent=5))]),
        hints=(CHANGED,),
    ),
    "unknown given back": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: store.jobs.requeue_unknown(WORKER, []),
        hints=(READY,),
    ),
    "waiting aborted": Case(
        before=Status.WAITING,
        act=lambda store, clock, claim: store.admin.change_jobs(
            Transition.ABORT, NAMESPACE, [claim.id]
        ),
        hints=(CHANGED,),
    ),
    "active aborted": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: store.admin.change_jobs(
            Transition.ABORT, NAMESPACE, [claim.id]
        ),
        hints=(CHANGED, ABORTING),
    ),
    "group aborted": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: store.admin.change_jobs(
            Transition.ABORT, NAMESPACE, group="run-1"
        ),
        hints=(CHANGED, ABORTING),
    ),
    "active disabled": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: store.admin.change_jobs(
            Transition.DISABLE, NAMESPACE, [claim.id]
        ),
        hints=(CHANGED, ABORTING),
    ),
    "active replaced": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: insert(store, fingerprint="once", on_conflict="replace"),
        hints=(CHANGED, ABORTING),
    ),
    "enabled": Case(
        before=Status.DISABLED,
        act=lambda store, clock, claim: store.admin.change_jobs(
            Transition.ENABLE, NAMESPACE, [claim.id]
        ),
        hints=(CHANGED, READY),
    ),
    "tried again": Case(
        before=Status.DEAD,
        act=lambda store, clock, claim: store.admin.change_jobs(
            Transition.RETRY, NAMESPACE, [claim.id]
        ),
        hints=(CHANGED, READY),
    ),
    "resumed": Case(
        before=Status.PAUSED,
        act=lambda store, clock, claim: store.admin.change_jobs(
            Transition.RESUME, NAMESPACE, [claim.id]
        ),
        hints=(CHANGED, READY),
    ),
    "promoted": Case(before=Status.SCHEDULED, act=_promote, hints=(READY,)),
    "taken over": Case(before=Status.ACTIVE, act=_take_over, hints=(CHANGED, READY)),
    "expired": Case(before=Status.WAITING, act=_expire, hints=(CHANGED,)),
}


class TestSubscribe:
    async def test_tells_of_a_job_inserted_and_of_its_partition(
        self, store: Store, target: Store
    ) -> None:
        here, there = Ear(store), Ear(target)

        await insert(store)

        await here.hears(READY, PARTITION.text)
        await there.hears(READY, PARTITION.text)

    async def test_tells_of_a_job_scheduled(self, store: Store, target: Store) -> None:
        here, there = Ear(store), Ear(target)

        await insert(store, delay=MINUTE)

        await here.hears(SCHEDULED, "")
        await there.hears(SCHEDULED, "")

    @pytest.mark.parametrize("name", CASES)
    async def test_tells_every_handle_that_a_job_was(
        self, store: Store, target: Store, clock: ManualClock, name: str
    ) -> None:
        case = CASES[name]
        claim = await put_in(store, case.before, fingerprint="once", group="run-1", deadline=HOUR)
        ears = [Ear(handle) for handle in (store, target) for _ in case.hints]

        await case.act(store, clock, claim)

        for ear, found_type in zip(ears, case.hints * 2, strict=True):
            await ear.hears(found_type, PARTITION.text if found_type is READY else claim.id)

    async def test_tells_of_a_queue_resumed(self, store: Store, target: Store) -> None:
        await insert(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)
        ear = Ear(target)

        await store.admin.resume_queue(NAMESPACE, PARTITION.queue)

        await ear.hears(READY, PARTITION.text)

    async def test_tells_every_partition_that_a_limit_has_room_again(
        self, store: Store, target: Store
    ) -> None:
        await insert(store)
        held = await claim_one(store, rules=(LimitRule(key="mailer", live_max=1),))
        ear = Ear(target)

        await settle(store, held, Completed(output=b"1"))

        await ear.hears(READY, "another partition under the same limit")

    async def test_tells_nothing_any_more_once_stopped(self, store: Store) -> None:
        stopped, listening = Ear(store), Ear(store)
        stopped.stop()
        stopped.stop()

        await insert(store)

        await listening.hears(READY, PARTITION.text)
        assert stopped.is_silent

    async def test_is_not_broken_by_a_listener_that_fails(self, store: Store) -> None:
        def fail(hint: Hint) -> None:
            raise RuntimeError("not my day")

        store.subscribe(fail)
        ear = Ear(store)

        await insert(store)

        await ear.hears(READY, PARTITION.text)

    async def test_tells_the_last_news_of_a_handle_that_is_closed_at_once(
        self, store: Store
    ) -> None:
        ear = Ear(store)
        other = store.clone()
        await other.open()

        await insert(other)
        await other.close()

        await ear.hears(READY, PARTITION.text)

    async def test_calls_the_listener_on_the_event_loop_it_subscribed_from(
        self, store: Store
    ) -> None:
        listening = threading.Event()
        called_on: list[int] = []

        async def listen() -> None:
            handle = store.clone()
            await handle.open()
            heard = asyncio.Event()

            def note(hint: Hint) -> None:
                called_on.append(threading.get_ident())
                heard.set()

            handle.subscribe(note)
            listening.set()
            async with asyncio.timeout(5):
                await heard.wait()
            await handle.close()

        thread = threading.Thread(target=lambda: asyncio.run(listen()))
        thread.start()
        await asyncio.to_thread(listening.wait)
        await insert(store)
        await asyncio.to_thread(thread.join)

        assert set(called_on) == {thread.ident}
