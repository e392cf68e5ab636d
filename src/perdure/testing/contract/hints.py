"""Hints: which ones follow each write, and which handles receive them."""

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
from perdure.model.partition import with_suspicion
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    HOUR,
    MINUTE,
    NAMESPACE,
    NODE_PARTITION,
    PARTITION,
    PAUSED,
    RUN,
    WORKER,
    approval,
    child_wait,
    claim_new_node,
    claim_node,
    claim_one,
    commit_next,
    failure,
    finishes,
    insert,
    insert_in_status,
    new_child,
    node_job,
    node_partition,
    read_job,
    retries,
    settle,
    submit,
    timer,
)
from perdure.testing.contract.handles import Listener

# About jobs


READY, SCHEDULED = HintType.READY, HintType.SCHEDULED
CHANGED, ABORTING = HintType.CHANGED, HintType.ABORTING


Write = Callable[[Store, ManualClock, Claim], Awaitable[object]]


class Case(Value):
    before: Status
    act: Write
    hints: tuple[HintType, ...]


async def _promote(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(MINUTE)
    return await store.maintenance.promote_due(NAMESPACE, 10)


async def _take_over(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(MINUTE)
    return await store.maintenance.take_over_expired(NAMESPACE, 10)


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
    "requeued": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: settle(store, claim, Requeued()),
        hints=(READY,),
    ),
    "progress saved": Case(
        before=Status.ACTIVE,
        act=lambda store, clock, claim: store.jobs.save_progress([(claim, Progress(percent=5))]),
        hints=(CHANGED,),
    ),
    "unknown requeued": Case(
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
    "retried by hand": Case(
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
        self, store: Store, second: Store
    ) -> None:
        here, there = Listener(store), Listener(second)

        await insert(store)

        await here.receives(READY, PARTITION.text)
        await there.receives(READY, PARTITION.text)

    async def test_announces_a_job_scheduled(self, store: Store, second: Store) -> None:
        here, there = Listener(store), Listener(second)

        await insert(store, delay=MINUTE)

        await here.receives(SCHEDULED, "")
        await there.receives(SCHEDULED, "")

    @pytest.mark.parametrize("name", CASES)
    async def test_notifies_every_handle_that_a_job_was(
        self, store: Store, second: Store, clock: ManualClock, name: str
    ) -> None:
        case = CASES[name]
        claim = await insert_in_status(
            store, case.before, fingerprint="once", group="run-1", deadline=HOUR
        )
        listeners = [Listener(handle) for handle in (store, second) for _ in case.hints]

        await case.act(store, clock, claim)

        partition = (await read_job(store, claim.id)).suspicion
        text = with_suspicion(PARTITION.text, partition)
        for listener, found_type in zip(listeners, case.hints * 2, strict=True):
            await listener.receives(found_type, text if found_type is READY else claim.id)

    async def test_announces_a_queue_resumed(self, store: Store, second: Store) -> None:
        await insert(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)
        listener = Listener(second)

        await store.admin.resume_queue(NAMESPACE, PARTITION.queue)

        await listener.receives(READY, PARTITION.text)

    async def test_notifies_every_partition_that_a_limit_has_room_again(
        self, store: Store, second: Store
    ) -> None:
        await insert(store)
        claimed = await claim_one(store, rules=(LimitRule(key="mailer", live_max=1),))
        listener = Listener(second)

        await settle(store, claimed, Completed(output=b"1"))

        await listener.receives(READY, "another partition under the same limit")

    async def test_publishes_nothing_once_stopped(self, store: Store) -> None:
        stopped, listening = Listener(store), Listener(store)
        stopped.stop()
        stopped.stop()

        await insert(store)

        await listening.receives(READY, PARTITION.text)
        assert stopped.is_silent

    async def test_is_not_broken_by_a_listener_that_fails(self, store: Store) -> None:
        def fail(hint: Hint) -> None:
            raise RuntimeError("not my day")

        store.subscribe(fail)
        listener = Listener(store)

        await insert(store)

        await listener.receives(READY, PARTITION.text)

    async def test_publishes_the_last_hint_of_a_handle_that_is_closed_at_once(
        self, store: Store
    ) -> None:
        listener = Listener(store)
        other = store.clone()
        await other.open()

        await insert(other)
        await other.close()

        await listener.receives(READY, PARTITION.text)

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


# About runs


READY, SCHEDULED, ABORTING = HintType.READY, HintType.SCHEDULED, HintType.ABORTING
ABOUT_RUN, DUE = HintType.RUN, HintType.DUE


class TestHintsAboutRuns:
    async def test_announce_a_run_that_starts_with_its_partitions_and_times(
        self, store: Store, second: Store
    ) -> None:
        listeners = [Listener(handle) for handle in (store, second) for _ in range(4)]

        child = new_child(jobs=(node_job(run=CHILD, partition=node_partition("print")),))
        await submit(store, jobs=(node_job(),), waits=(timer(delay=HOUR),), children=(child,))

        for here in (listeners[:4], listeners[4:]):
            await here[0].receives(ABOUT_RUN, RUN)
            await here[1].receives(READY, NODE_PARTITION.text)
            await here[2].receives(READY, node_partition("print").text)
            await here[3].receives(DUE)

    async def test_announce_a_step(self, store: Store, second: Store) -> None:
        await submit(store)
        here, there = Listener(store), Listener(second)

        await commit_next(store)

        await here.receives(ABOUT_RUN, RUN)
        await there.receives(ABOUT_RUN, RUN)

    async def test_tell_of_jobs_and_waits_that_a_step_starts(
        self, store: Store, second: Store
    ) -> None:
        await submit(store)
        partitions, times, dues = Listener(second), Listener(second), Listener(second)

        await commit_next(
            store,
            jobs=(node_job("now"), node_job("later", delay=HOUR)),
            waits=(timer(delay=MINUTE),),
        )

        await partitions.receives(READY, NODE_PARTITION.text)
        await times.receives(SCHEDULED)
        await dues.receives(DUE)

    @pytest.mark.parametrize("is_open", [False, True])
    async def test_announce_a_wait_that_gets_a_due_time(
        self, store: Store, second: Store, clock: ManualClock, is_open: bool
    ) -> None:
        await submit(store, waits=(approval(),) if is_open else ())
        listener = Listener(second)

        await commit_next(store, waits=(approval(due_at=clock() + HOUR),))

        await listener.receives(DUE)

    async def test_announce_a_job_that_is_requeued(self, store: Store, second: Store) -> None:
        claimed = await claim_new_node(store)
        listener = Listener(second)

        await commit_next(store, settlements=(retries(claimed, Retried(failure=failure())),))

        await listener.receives(READY, NODE_PARTITION.text)

    async def test_notify_workers_of_jobs_that_a_step_removes(
        self, store: Store, second: Store
    ) -> None:
        claimed = await claim_new_node(store)
        listener = Listener(second)

        await commit_next(store, cancel_all=True, status=CANCELLED)

        await listener.receives(ABORTING, claimed.id)

    async def test_notify_workers_of_jobs_that_are_canceled(
        self, store: Store, second: Store
    ) -> None:
        claimed = await claim_new_node(store)
        listener = Listener(second)

        await commit_next(store, cancel_keys=("pack",))

        await listener.receives(ABORTING, claimed.id)

    async def test_notify_workers_of_jobs_that_are_parked(
        self, store: Store, second: Store
    ) -> None:
        claimed = await claim_new_node(store)
        listener = Listener(second)

        await commit_next(store, suspend=True, status=PAUSED)

        await listener.receives(ABORTING, claimed.id)

    async def test_notify_workers_of_jobs_of_a_run_that_is_replaced(
        self, store: Store, second: Store
    ) -> None:
        claimed = await claim_new_node(store)
        listener = Listener(second)

        await submit(store, on_existing="replace")

        await listener.receives(ABORTING, claimed.id)

    async def test_report_resumed_jobs_and_waits(self, store: Store, second: Store) -> None:
        await submit(store, jobs=(node_job(),), waits=(timer(delay=HOUR),))
        await commit_next(store, suspend=True, status=PAUSED)
        partitions, dues = Listener(second), Listener(second)

        await commit_next(store, suspend=False)

        await partitions.receives(READY, NODE_PARTITION.text)
        await dues.receives(DUE)

    async def test_announce_partitions_that_a_new_version_moves_jobs_to(
        self, store: Store, second: Store
    ) -> None:
        await submit(store, jobs=(node_job(),))
        listener = Listener(second)

        await commit_next(store, version="v2")

        await listener.receives(READY, node_partition(version="v2").text)

    async def test_announce_a_parent_that_can_continue(self, store: Store, second: Store) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        listener = Listener(second)

        await commit_next(store, run=CHILD, status=COMPLETED)

        await listener.receives(DUE)

    async def test_announce_a_child_that_is_given_up(
        self, store: Store, second: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        listener = Listener(second)

        await commit_next(store, cancel_all=True, status=CANCELLED)

        await listener.receives(DUE)

    async def test_notify_every_partition_that_a_limit_has_room_again(
        self, store: Store, second: Store
    ) -> None:
        await submit(store, jobs=(node_job(),))
        claimed = await claim_node(store, rules=(LimitRule(key="scale", live_max=1),))
        listener = Listener(second)

        await commit_next(store, settlements=(finishes(claimed),))

        await listener.receives(READY, "another partition under the same limit")
