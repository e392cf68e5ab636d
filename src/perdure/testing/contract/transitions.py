"""The job transition table: each operation in each status, legal and illegal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from perdure.clock import ManualClock
from perdure.model.job import FINISHED, Claim, JobFilter, Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
)
from perdure.store.contract import Store
from perdure.store.lifecycle import TRANSITIONS, Transition
from perdure.testing.contract.builders import (
    HOUR,
    NAMESPACE,
    claim,
    failure,
    insert,
    insert_in_status,
    job_record,
    settle,
    status_of,
)

Move = Callable[[Store, ManualClock, Claim], Awaitable[object]]


def _settling(outcome: Outcome) -> Move:
    return lambda store, clock, claim: settle(store, claim, outcome)


async def _promote(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(2 * HOUR)
    return await store.maintenance.promote_due(NAMESPACE, 10)


async def _take_over(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(2 * HOUR)
    return await store.maintenance.take_over_expired(NAMESPACE, 10)


async def _expire(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(2 * HOUR)
    return await store.maintenance.expire_deadlines(NAMESPACE, 10)


async def _enable_later(store: Store, clock: ManualClock, claim: Claim) -> object:
    clock.advance(2 * HOUR)
    return await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [claim.id])


# Every operation, in every way that can lead to another status.
MOVES: dict[str, tuple[Transition, Move]] = {
    "promote": (Transition.PROMOTE, _promote),
    "claim": (Transition.CLAIM, lambda store, clock, _: claim(store)),
    "complete": (Transition.COMPLETE, _settling(Completed(output=b"1"))),
    "retry at once": (Transition.RETRY_LATER, _settling(Retried(failure=failure()))),
    "retry later": (Transition.RETRY_LATER, _settling(Retried(failure=failure(), delay=HOUR))),
    "fail": (Transition.FAIL, _settling(Failed(failure=failure()))),
    "dead-letter": (Transition.DEAD_LETTER, _settling(DeadLettered(failure=failure()))),
    "cancel": (Transition.CANCEL, _settling(Cancelled())),
    "requeue": (Transition.REQUEUE, _settling(Requeued())),
    "requeue later": (Transition.REQUEUE, _settling(Requeued(delay=HOUR))),
    "release": (Transition.PARK, _settling(Parked())),
    "resume": (
        Transition.RESUME,
        lambda store, clock, claim: store.admin.change_jobs(
            Transition.RESUME, NAMESPACE, [claim.id]
        ),
    ),
    "take over": (Transition.TAKE_OVER, _take_over),
    "expire": (Transition.EXPIRE, _expire),
    "abort": (
        Transition.ABORT,
        lambda store, clock, claim: store.admin.change_jobs(
            Transition.ABORT, NAMESPACE, [claim.id]
        ),
    ),
    "abort its group": (
        Transition.ABORT,
        lambda store, clock, claim: store.admin.change_jobs(
            Transition.ABORT, NAMESPACE, group="run-1"
        ),
    ),
    "disable": (
        Transition.DISABLE,
        lambda store, clock, claim: store.admin.change_jobs(
            Transition.DISABLE, NAMESPACE, [claim.id]
        ),
    ),
    "enable": (
        Transition.ENABLE,
        lambda store, clock, claim: store.admin.change_jobs(
            Transition.ENABLE, NAMESPACE, [claim.id]
        ),
    ),
    "enable later": (Transition.ENABLE, _enable_later),
    "retry": (
        Transition.RETRY,
        lambda store, clock, claim: store.admin.change_jobs(
            Transition.RETRY, NAMESPACE, [claim.id]
        ),
    ),
    "replace": (
        Transition.REPLACE,
        lambda store, clock, claim: insert(store, fingerprint="once", on_conflict="replace"),
    ),
}


@pytest.mark.parametrize("name", MOVES)
async def test_follows_the_table_in_every_status(
    store: Store, clock: ManualClock, name: str
) -> None:
    operation, act = MOVES[name]
    for before in sorted(Status):
        there = await _put_in(store, before)
        record = await job_record(store, there.id)

        await act(store, clock, there)

        legal = TRANSITIONS[operation].get(before)
        if legal is None:
            assert await job_record(store, there.id) == record, f"it changed a {before} job"
        else:
            after = await status_of(store, there.id)
            assert after in legal, f"it made a {before} job {after}"
        await _end_all(store, clock)


async def test_every_way_through_the_table_is_taken(store: Store, clock: ManualClock) -> None:
    taken: set[tuple[Transition, Status, Status]] = set()
    for operation, act in MOVES.values():
        for before in TRANSITIONS[operation]:
            there = await _put_in(store, before)
            await act(store, clock, there)
            taken.add((operation, before, await status_of(store, there.id)))
            await _end_all(store, clock)

    assert taken == {
        (operation, before, after)
        for operation, ways in TRANSITIONS.items()
        for before, afters in ways.items()
        for after in afters
        if operation is not Transition.ACCEPT  # never seen: an outcome follows in its transaction
    }


async def _put_in(store: Store, status: Status) -> Claim:
    # Where the status allows it, the job's time lies ahead: there are two ways to enable it.
    delay = HOUR if status in (Status.SCHEDULED, Status.DISABLED) else 0 * HOUR
    return await insert_in_status(
        store, status, fingerprint="once", group="run-1", deadline=2 * HOUR, delay=delay
    )


async def _end_all(store: Store, clock: ManualClock) -> None:
    """Leave nothing in the queue that the next operation could take instead."""
    for job in await store.queries.list_jobs(JobFilter(), 100):
        await store.admin.change_jobs(Transition.ABORT, None, [job.id])
    clock.advance(2 * HOUR)
    await store.maintenance.take_over_expired(NAMESPACE, 100)
    clock.advance(HOUR)
    await store.maintenance.prune_jobs(NAMESPACE, dict.fromkeys(FINISHED, 0 * HOUR), 100)
    assert await store.queries.count_jobs(JobFilter()) == 0
