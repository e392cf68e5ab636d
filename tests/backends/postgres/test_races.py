"""What happens when two get hold of the same job, forced rather than hoped for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.model.hint import Hint, HintType
from perdure.model.job import Status
from perdure.model.outcome import Completed, Failed
from perdure.model.partition import Partition
from perdure.store.lifecycle import Transition
from tests.backends.postgres.waiting import row_held, until_somebody_waits
from tests.conformance.builders import (
    OTHER_WORKER,
    PARTITION,
    claim_ids,
    failure,
    hold,
    insert,
    insert_many,
    new_job,
    put_in,
    settle,
    status_of,
)

OTHER_PARTITION = Partition(queue="mail", task="receive")


MOVES = {
    Status.WAITING: "lease_until = NULL, worker = NULL, finished_at = NULL",
    Status.ACTIVE: "lease_until = now() + interval '1 minute', worker = 'other',"
    " finished_at = NULL, epoch = epoch + 1, attempt = attempt + 1",
    Status.ABORTING: "finished_at = NULL",
    Status.PAUSED: "lease_until = NULL, worker = NULL, finished_at = NULL",
    Status.DISABLED: "lease_until = NULL, worker = NULL, finished_at = NULL, epoch = epoch + 1",
    Status.COMPLETED: "lease_until = NULL, finished_at = now(), output = '1'",
    Status.FAILED: "lease_until = NULL, finished_at = now()",
    Status.CANCELLED: "lease_until = NULL, finished_at = now(), epoch = epoch + 1",
}
S = Status

# What somebody else does just now, and what becomes of an act that has to wait for it.
RACES = [
    ("abort", S.WAITING, S.ACTIVE, S.ABORTING),
    ("abort", S.ACTIVE, S.WAITING, S.CANCELLED),
    ("abort", S.ACTIVE, S.COMPLETED, S.COMPLETED),
    ("abort", S.FAILED, S.WAITING, S.CANCELLED),
    ("disable", S.WAITING, S.ACTIVE, S.DISABLED),
    ("disable", S.ACTIVE, S.COMPLETED, S.COMPLETED),
    ("disable", S.ACTIVE, S.ABORTING, S.ABORTING),
    ("disable", S.CANCELLED, S.WAITING, S.DISABLED),
    ("enable", S.ACTIVE, S.DISABLED, S.WAITING),
    ("enable", S.DISABLED, S.CANCELLED, S.CANCELLED),
    ("retry", S.ACTIVE, S.FAILED, S.WAITING),
    ("retry", S.WAITING, S.CANCELLED, S.WAITING),
    ("retry", S.FAILED, S.WAITING, S.WAITING),
    ("resume", S.ACTIVE, S.PAUSED, S.WAITING),
    ("resume", S.PAUSED, S.CANCELLED, S.CANCELLED),
]


class TestOperators:
    @pytest.mark.parametrize("act,before,meanwhile,after", RACES)
    async def test_act_on_what_the_row_has_become(
        self,
        store,
        admin,
        schema,
        act,
        before,
        meanwhile,
        after,
    ):
        id = (await put_in(store, before)).id

        async with admin.transaction():
            await move(admin, schema, id, meanwhile)
            acting = asyncio.create_task(store.admin.change_jobs(Transition(act), None, [id]))
            await until_somebody_waits(admin, schema)
        [moved] = await acting

        assert (moved.before, moved.after) == (meanwhile, after)
        assert await status_of(store, id) is after


class TestHolders:
    @pytest.mark.parametrize(
        "meanwhile,after",
        [
            (S.ABORTING, S.CANCELLED),
            (S.DISABLED, None),
            (S.CANCELLED, None),
        ],
    )
    @pytest.mark.parametrize("outcome", [Completed(output=b"1"), Failed(failure=failure())])
    async def test_settle_what_the_row_has_become(
        self,
        store,
        admin,
        schema,
        meanwhile,
        after,
        outcome,
    ):
        held = await hold(store)

        async with admin.transaction():
            await move(admin, schema, held.id, meanwhile)
            settling = asyncio.create_task(settle(store, held, outcome))
            await until_somebody_waits(admin, schema)

        assert await settling is after
        assert await status_of(store, held.id) is (after or meanwhile)


class TestClaims:
    async def test_pass_by_a_job_that_somebody_has_in_hand(self, store, admin, schema):
        first, second = await insert_many(store, 2)

        async with row_held(admin, schema, first):
            assert await claim_ids(store) == [second]

        assert await claim_ids(store) == [first]

    async def test_from_several_partitions_look_behind_what_others_have_in_hand(
        self, store, admin, schema
    ):
        first = await insert(store)
        await insert(store, partition=OTHER_PARTITION)
        await insert(store, partition=OTHER_PARTITION)
        second = await insert(store)

        # Both fronts are taken, so everything within the bound of a claim of one is.
        async with admin.transaction():
            await admin.execute(f"SELECT FROM {schema}.jobs WHERE id <> $1 FOR UPDATE", second)
            taken = await claim_ids(store, PARTITION, OTHER_PARTITION, limit=1, worker=OTHER_WORKER)

        assert taken == [second]
        assert await claim_ids(store, limit=1) == [first]

    async def test_from_many_partitions_keep_the_order_of_the_queue(self, store):
        partitions = [Partition(queue="mail", task=f"task-{number}") for number in range(20)]
        dense = await insert_many(store, 30, partition=partitions[7], priority=1)
        for partition in partitions:
            await insert_many(store, 3, partition=partition, priority=5)

        assert await claim_ids(store, *partitions, limit=20) == dense[:20]
        assert await claim_ids(store, *partitions, limit=10) == dense[20:]

    async def test_tell_others_to_look_again_when_they_locked_more_than_they_took(self, store):
        heard: asyncio.Queue[Hint] = asyncio.Queue()
        await insert_many(store, 20, priority=1)
        await insert_many(store, 20, priority=5, partition=OTHER_PARTITION)
        store.subscribe(heard.put_nowait)

        assert len(await claim_ids(store, PARTITION, OTHER_PARTITION, limit=10)) == 10

        partitions = frozenset({PARTITION.text, OTHER_PARTITION.text})
        async with asyncio.timeout(5):
            while await heard.get() != Hint(type=HintType.READY, names=partitions):
                pass

    async def test_from_many_partitions_lock_little_more_than_they_take(self, store, admin, schema):
        partitions = [Partition(queue="mail", task=f"task-{number}") for number in range(20)]
        for _ in range(10):
            await store.jobs.insert([new_job(partition=partition) for partition in partitions])

        await claim_ids(store, *partitions, limit=20)

        # xmax tells who locked or changed a row last.
        touched = await admin.fetchval(
            f"SELECT count(*) FROM {schema}.jobs WHERE status = 'waiting' AND xmax <> '0'"
        )
        assert touched <= 20


class TestFingerprints:
    async def test_wait_for_an_insert_that_is_under_way_elsewhere(
        self, store, target, admin, schema
    ):
        theirs = new_job(fingerprint="once")

        async with admin.transaction():
            await store.insert_in_transaction(admin, [theirs])
            inserting = asyncio.create_task(target.jobs.insert([new_job(fingerprint="once")]))
            await until_somebody_waits(admin, schema)
        [inserted] = await inserting

        assert (inserted.id, inserted.is_new) == (theirs.id, False)


async def move(admin: Any, schema: str, id: str, status: Status) -> None:
    """What another process would do, within a transaction that the test ends."""
    await admin.execute(
        f"UPDATE {schema}.jobs SET status = $1, {MOVES[status]} WHERE id = $2", status.value, id
    )
