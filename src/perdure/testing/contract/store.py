"""The store as a whole: opening, closing, handles, time, namespaces, the caller's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.clock import ManualClock, system_clock
from perdure.errors import InvalidInput, InvalidStoreUrl
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, JobFilter, Status, StatusChange
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed, Retried
from perdure.model.run import RunFilter
from perdure.model.times import LATEST
from perdure.store.contract import CONTRACT_NUMBER, Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract import Harness
from perdure.testing.contract.builders import (
    HOUR,
    MINUTE,
    NAMESPACE,
    PARTITION,
    SECOND,
    WORKER,
    claim,
    claim_ids,
    claim_new,
    close_limit,
    failure,
    insert,
    insert_in_status,
    job_record,
    new_job,
    new_run,
    read_job,
    settle,
    worker_info,
)
from perdure.testing.contract.handles import THREADS, run_concurrently


class TestUrl:
    async def test_names_the_place_of_the_store(self, store: Store, harness: Harness) -> None:
        scheme, _, _ = harness.url.partition("://")

        assert store.url.startswith(f"{scheme}://")

    async def test_is_the_same_for_a_clone(self, store: Store) -> None:
        assert store.clone().url == store.url


class TestCapabilities:
    async def test_are_those_that_the_harness_declares(
        self, store: Store, harness: Harness
    ) -> None:
        assert (store.audit is not None) is ("audit" in harness.capabilities)
        assert (store.transfer is not None) is ("transfer" in harness.capabilities)


class TestContractNumber:
    async def test_is_that_of_this_contract(self, store: Store) -> None:
        assert store.contract_number == CONTRACT_NUMBER


class TestOpen:
    async def test_creates_an_empty_store(self, store: Store) -> None:
        assert await store.queries.count_jobs(JobFilter()) == 0
        assert await store.admin.paused_queues(None) == []
        assert await store.queries.workers(None) == []

    async def test_finds_what_is_there(self, store: Store, harness: Harness) -> None:
        id = await insert(store)

        again = harness.store()
        await again.open()

        assert (await read_job(again, id)).id == id
        await again.close()

    async def test_works_for_several_at_the_same_moment_on_an_empty_store(
        self, harness: Harness, clock: ManualClock
    ) -> None:
        unopened = harness.store(clock)

        async def enqueue(handle: Store, number: int) -> None:
            await insert(handle)

        await run_concurrently(unopened, enqueue)

        await unopened.open()
        assert await unopened.queries.count_jobs(JobFilter()) == THREADS
        await unopened.close()


class TestRequire:
    async def test_accepts_what_was_opened_unless_no_other_process_sees_it(
        self, store: Store, harness: Harness
    ) -> None:
        with suppress(InvalidStoreUrl):
            await harness.store().require()


class TestClose:
    async def test_leaves_other_handles_open(self, store: Store) -> None:
        other = store.clone()
        await other.open()
        await other.close()

        await insert(store)

    async def test_may_be_called_twice_and_without_opening(self, store: Store) -> None:
        other = store.clone()
        await other.close()
        await other.open()
        await other.close()
        await other.close()


class TestClone:
    async def test_is_another_handle_on_the_same_place(self, store: Store, second: Store) -> None:
        id = await insert(store)

        assert await second.queries.get_job(None, id) == await store.queries.get_job(None, id)

    async def test_has_the_same_clock(
        self, store: Store, second: Store, clock: ManualClock
    ) -> None:
        clock.advance(MINUTE)

        assert await second.now() == await store.now() == clock()

    async def test_serves_another_thread(self, store: Store) -> None:
        async def enqueue(handle: Store, number: int) -> None:
            await insert(handle)

        await run_concurrently(store, enqueue)

        assert await store.queries.count_jobs(JobFilter()) == THREADS


class TestNow:
    async def test_is_what_the_given_clock_says(self, store: Store, clock: ManualClock) -> None:
        clock.advance(timedelta(microseconds=123_457))

        assert await store.now() == clock()
        assert (await read_job(store, await insert(store))).created_at == clock()

    async def test_is_the_real_time_without_one(self, harness: Harness) -> None:
        store = harness.store()
        await store.open()

        now = await store.now()
        created_at = (await read_job(store, await insert(store))).created_at

        assert now.tzinfo is not None
        assert abs(now - system_clock()) < MINUTE
        assert timedelta(0) <= created_at - now < MINUTE
        await store.close()


class TestInsertInTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput) as caught:
            await store.insert_in_transaction(object(), [new_job()])

        assert caught.value.code == "store.unusable_connection"
        assert await store.queries.count_jobs(JobFilter()) == 0


class TestInsertInBlockingTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput) as caught:
            store.insert_in_blocking_transaction(object(), [new_job()])

        assert caught.value.code == "store.unusable_connection"
        assert await store.queries.count_jobs(JobFilter()) == 0


class TestSubmitInTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput) as caught:
            await store.submit_in_transaction(object(), new_run(), [])

        assert caught.value.code == "store.unusable_connection"
        assert await store.queries.count_runs(RunFilter()) == 0


class TestSubmitInBlockingTransaction:
    async def test_refuses_a_connection_that_cannot_be_used(self, store: Store) -> None:
        with pytest.raises(InvalidInput) as caught:
            store.submit_in_blocking_transaction(object(), new_run(), [])

        assert caught.value.code == "store.unusable_connection"
        assert await store.queries.count_runs(RunFilter()) == 0


# Namespaces: each reads and writes only its own rows; an operator may read all


MINE, THEIRS = "team-a", "team-b"

Command = Callable[[Store, str | None, Sequence[JobId]], Awaitable[list[StatusChange]]]
COMMANDS: dict[str, tuple[Status, Command]] = {
    "abort": (
        Status.ACTIVE,
        lambda store, *arguments: store.admin.change_jobs(Transition.ABORT, *arguments),
    ),
    "disable": (
        Status.ACTIVE,
        lambda store, *arguments: store.admin.change_jobs(Transition.DISABLE, *arguments),
    ),
    "enable": (
        Status.DISABLED,
        lambda store, *arguments: store.admin.change_jobs(Transition.ENABLE, *arguments),
    ),
    "retry": (
        Status.DEAD,
        lambda store, *arguments: store.admin.change_jobs(Transition.RETRY, *arguments),
    ),
    "resume": (
        Status.PAUSED,
        lambda store, *arguments: store.admin.change_jobs(Transition.RESUME, *arguments),
    ),
}


class TestNamespaces:
    @pytest.mark.parametrize("name", COMMANDS)
    async def test_do_nothing_to_jobs_of_another(self, store: Store, name: str) -> None:
        status, act = COMMANDS[name]
        theirs = await insert_in_status(store, status, namespace=THEIRS)
        before = await job_record(store, theirs.id)

        assert await act(store, MINE, [theirs.id]) == []
        assert await job_record(store, theirs.id) == before

    @pytest.mark.parametrize("name", COMMANDS)
    async def test_are_all_within_reach_of_an_operator(self, store: Store, name: str) -> None:
        status, act = COMMANDS[name]
        ids = [
            (await insert_in_status(store, status, namespace=place)).id for place in (MINE, THEIRS)
        ]

        moved = await act(store, None, ids)

        assert {each.id for each in moved} == set(ids)
        assert all(each.before is status is not each.after for each in moved)

    async def test_show_only_their_own_jobs(self, store: Store) -> None:
        mine, theirs = await insert(store, namespace=MINE), await insert(store, namespace=THEIRS)

        async def listed(namespace: str | None) -> list[JobId]:
            jobs = await store.queries.list_jobs(JobFilter(namespace=namespace), 10)
            assert await store.queries.count_jobs(JobFilter(namespace=namespace)) == len(jobs)
            assert sum(each.count for each in await store.admin.queue_stats(namespace)) == len(jobs)
            return [job.id for job in jobs]

        assert await listed(MINE) == [mine]
        assert await listed(THEIRS) == [theirs]
        assert await listed(None) == [theirs, mine]
        assert await store.queries.get_job(MINE, theirs) is None
        assert await store.queries.get_job(THEIRS, theirs) is not None
        assert await store.queries.get_job(None, theirs) is not None

    async def test_poll_and_claim_only_their_own_partitions(self, store: Store) -> None:
        theirs = await insert(store, namespace=THEIRS)

        assert (await store.maintenance.poll(MINE)).partitions == ()
        assert (await store.maintenance.poll(THEIRS)).partitions == (PARTITION.text,)
        assert await claim_ids(store, namespace=MINE) == []
        assert await claim_ids(store, namespace=THEIRS) == [theirs]

    async def test_keep_house_only_at_home(self, store: Store, clock: ManualClock) -> None:
        theirs = [
            (await insert_in_status(store, Status.COMPLETED, namespace=THEIRS)).id,
            (await insert_in_status(store, Status.DEAD, namespace=THEIRS)).id,
            (await claim_new(store, namespace=THEIRS)).id,
            await insert(store, namespace=THEIRS, delay=MINUTE),
            await insert(store, namespace=THEIRS, deadline=MINUTE),
        ]
        await store.maintenance.register_worker(worker_info(namespace=THEIRS))
        clock.advance(HOUR)
        before = [await job_record(store, id) for id in theirs]

        async def keep_house(namespace: str) -> tuple[int, ...]:
            return (
                await store.maintenance.promote_due(namespace, 10),
                len(await store.maintenance.take_over_expired(namespace, 10)),
                len(await store.maintenance.expire_deadlines(namespace, 10)),
                await store.maintenance.prune_jobs(namespace, dict.fromkeys(FINISHED, MINUTE), 10),
                await store.maintenance.prune_workers(namespace, MINUTE),
            )

        assert await keep_house(MINE) == (0, 0, 0, 0, 0)
        assert [await job_record(store, id) for id in theirs] == before
        assert len(await store.queries.workers(THEIRS)) == 1
        assert await keep_house(THEIRS) == (1, 1, 1, 2, 1)

    async def test_pause_and_resume_only_their_own_queues(self, store: Store) -> None:
        mine, theirs = await insert(store, namespace=MINE), await insert(store, namespace=THEIRS)
        await store.admin.pause_queue(THEIRS, PARTITION.queue, None)
        await store.admin.resume_queue(MINE, PARTITION.queue)

        assert await claim_ids(store, namespace=MINE) == [mine]
        assert await claim_ids(store, namespace=THEIRS) == []
        await store.admin.resume_queue(THEIRS, PARTITION.queue)
        assert await claim_ids(store, namespace=THEIRS) == [theirs]

    async def test_abort_only_their_own_groups(self, store: Store) -> None:
        theirs = await insert(store, namespace=THEIRS, group="run-1")

        assert await store.admin.change_jobs(Transition.ABORT, MINE, group="run-1") == []
        assert [
            each.id
            for each in await store.admin.change_jobs(Transition.ABORT, THEIRS, group="run-1")
        ] == [theirs]

    async def test_know_only_their_own_fingerprints(self, store: Store) -> None:
        theirs = await insert(store, namespace=THEIRS, fingerprint="once")

        mine = await insert(store, namespace=MINE, fingerprint="once", on_conflict="replace")

        assert mine != theirs
        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 2

    async def test_find_only_their_own_results(self, store: Store) -> None:
        claimed = await claim_new(store, namespace=THEIRS)
        await settle(store, claimed, Completed(output=b"1"))

        assert await store.queries.find_result(MINE, PARTITION.task, 1, b"{}") is None
        assert await store.queries.find_result(THEIRS, PARTITION.task, 1, b"{}") == b"1"

    async def test_show_only_their_own_workers(self, store: Store) -> None:
        await store.maintenance.register_worker(worker_info(namespace=THEIRS))

        assert await store.queries.workers(MINE) == []
        assert (
            len(await store.queries.workers(THEIRS)) == len(await store.queries.workers(None)) == 1
        )


# Times out of range: refused with nothing written, or stored so that every backend can read them


END, BEGINNING = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
LONG, LONGEST = timedelta(days=9_999_999), timedelta.max

JOBS: list[dict[str, Any]] = [
    {"run_at": END},
    {"run_at": BEGINNING},
    {"delay": LONG},
    {"delay": LONGEST},
    {"delay": timedelta.min},
    {"deadline_at": END},
    {"deadline": LONG},
    {"deadline": LONGEST},
]
RETRIES: list[dict[str, Any]] = [
    {"delay": LONG},
    {"delay": LONGEST},
    {"until": END},
    {"until": BEGINNING},
    {"until": END, "hold_off": LONGEST},
    {"delay": SECOND, "hold_off": LONG},
    {"until": END, "closes_limit": "mailer"},
]


async def look_everywhere(store: Store) -> None:
    """Every read that meets the times of jobs, as every worker and operator makes them."""
    for namespace in (NAMESPACE, "another"):
        poll = await store.maintenance.poll(namespace)
        dues = (poll.next_due_at, poll.next_lease_end_at, poll.next_deadline_at)
        assert all(due is None or abs((due - poll.now).days) < 4_000_000 for due in dues)
    for job in await store.queries.list_jobs(JobFilter(), 100):
        again = await store.queries.get_job(None, job.id)
        assert again is not None
        assert again.ready_at == job.ready_at
        assert again.ready_at.utcoffset() == timedelta(0)


class TestFarTimes:
    @pytest.mark.parametrize("times", JOBS)
    async def test_of_a_new_job_are_refused_and_nothing_is_written(
        self, store: Store, times: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            await store.jobs.insert([new_job(), new_job(**times)])

        assert await store.queries.count_jobs(JobFilter()) == 0
        await look_everywhere(store)

    async def test_of_a_new_job_may_be_as_far_as_any_backend_can_store(self, store: Store) -> None:
        id = await insert(store, run_at=LATEST - HOUR, deadline_at=LATEST)

        await look_everywhere(store)
        assert (await read_job(store, id)).deadline_at == LATEST

    @pytest.mark.parametrize("times", RETRIES)
    async def test_of_a_retry_are_kept_where_they_can_be_read(
        self, store: Store, times: dict[str, Any]
    ) -> None:
        claimed = await claim_new(store)

        status = await settle(store, claimed, Retried(failure=failure(), **times))

        assert status in (Status.SCHEDULED, Status.WAITING)
        await look_everywhere(store)
        rules = (LimitRule(key="mailer", live_max=1),)
        opens_at = (await claim(store, rules=rules)).opens_at
        assert opens_at == (LATEST if "closes_limit" in times else None)

    async def test_of_a_lease_are_kept_where_they_can_be_read(self, store: Store) -> None:
        first = await claim_new(store, lease=LONG)
        await claim_new(store, lease=LONGEST)
        await insert(store)
        await claim(store, rules=(LimitRule(key="mailer", live_max=9),), lease=LONGEST)
        await store.jobs.renew(WORKER, [first], LONGEST)
        assert await store.maintenance.acquire_lease("keeping house", WORKER, LONGEST)

        await look_everywhere(store)
        assert await store.maintenance.take_over_expired(NAMESPACE, 10) == []

    async def test_of_a_limit_are_kept_where_they_can_be_read(self, store: Store) -> None:
        await close_limit(store, NAMESPACE, "mailer", END)
        await insert(store)

        claimed = await claim(store, PARTITION, rules=(LimitRule(key="mailer", live_max=1),))

        assert claimed.jobs == []
        assert claimed.opens_at == LATEST

    @pytest.mark.parametrize("span", [LONG, LONGEST])
    async def test_of_keeping_remove_nothing(self, store: Store, span: timedelta) -> None:
        await insert_in_status(store, Status.COMPLETED)
        await insert_in_status(store, Status.FAILED)
        await store.maintenance.register_worker(worker_info())

        keep = {Status.COMPLETED: span, Status.FAILED: span}
        assert await store.maintenance.prune_jobs(NAMESPACE, keep, 10) == 0
        assert await store.maintenance.prune_workers(NAMESPACE, span) == 0
