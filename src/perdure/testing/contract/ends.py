"""Ends of jobs and runs, for followers of events."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.model.client_event import EndedJob, EndFilter
from perdure.model.ids import RunId
from perdure.model.job import FINISHED, Status
from perdure.model.outcome import Completed
from perdure.model.partition import Partition
from perdure.model.run import ENDED, Run, RunStatus
from perdure.model.times import EARLIEST
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    CHILD,
    HOUR,
    NAMESPACE,
    OTHER_NAMESPACE,
    PARTITION,
    RUN,
    SECOND,
    child_wait,
    claim_new,
    commit_next,
    insert,
    insert_in_status,
    new_child,
    settle,
    submit,
)

MAIL = Partition(queue="mail", task="send")
BULK = Partition(queue="bulk", task="send")


async def filtered(store: Store, **changes: Any) -> EndFilter:
    """A filter that selects everything up to now."""
    fields: dict[str, Any] = {
        "namespace": NAMESPACE,
        "after": (EARLIEST, ""),
        "until": await store.now() + SECOND,
    }
    return EndFilter(**fields | changes)


async def ended_jobs(store: Store, limit: int = 100, **changes: Any) -> list[EndedJob]:
    wanted = await filtered(store, **{"statuses": tuple(sorted(FINISHED))} | changes)
    return await store.queries.ended_jobs(wanted, limit)


async def ended_runs(store: Store, limit: int = 100, **changes: Any) -> list[Run]:
    wanted = await filtered(store, **{"statuses": tuple(sorted(ENDED))} | changes)
    return await store.queries.ended_runs(wanted, limit)


class TestQueriesEndedJobs:
    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_shows_a_job_from_its_end_on(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        await insert(store, partition=BULK)
        assert await ended_jobs(store) == []
        clock.advance(SECOND)
        ended = await insert_in_status(store, status, partition=MAIL)

        assert await ended_jobs(store) == [
            EndedJob(id=ended.id, status=status, at=clock(), queue="mail", task="send", attempt=1)
        ]

    async def test_pages_by_time_of_end_and_id_over_statuses_and_queues(
        self, store: Store, clock: ManualClock
    ) -> None:
        ended = []
        for _ in range(3):
            for status, partition in product(FINISHED, (BULK, MAIL, PARTITION)):
                id = (await insert_in_status(store, status, partition=partition)).id
                ended.append((clock(), id))
            clock.advance(SECOND)

        found, after = [], (EARLIEST, "")
        while page := await ended_jobs(store, limit=5, after=after):
            found += [(each.at, each.id) for each in page]
            after = found[-1]

        assert found == sorted(ended)

    async def test_shows_hidden_ones_too(self, store: Store) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Completed(output=b"1"), is_hidden=True)

        assert [each.id for each in await ended_jobs(store)] == [claimed.id]

    async def test_shows_those_of_the_filter_alone(self, store: Store, clock: ManualClock) -> None:
        began_at = clock()
        mail = (await insert_in_status(store, Status.COMPLETED, partition=MAIL)).id
        bulk = (await insert_in_status(store, Status.FAILED, partition=BULK)).id
        read = Partition(queue="mail", task="read")
        other = (await insert_in_status(store, Status.DEAD, partition=read)).id
        theirs = await claim_new(
            store, partition=Partition(queue="mail", task="theirs"), namespace=OTHER_NAMESPACE
        )
        await settle(store, theirs, Completed(output=b"1"))

        async def ids(**changes: Any) -> set[str]:
            return {each.id for each in await ended_jobs(store, **changes)}

        assert await ids() == {mail, bulk, other}
        assert await ids(queue="mail") == {mail, other}
        assert await ids(task="send") == {mail, bulk}
        assert await ids(queue="mail", task="send") == {mail}
        assert await ids(queue="none") == set()
        assert await ids(statuses=("completed",)) == {mail}
        assert await ids(statuses=("dead", "failed")) == {bulk, other}
        assert await ids(until=began_at) == set()

    async def test_forgets_a_job_that_is_no_longer_ended(self, store: Store) -> None:
        ended = await insert_in_status(store, Status.FAILED)
        await store.admin.change_jobs(Transition.RETRY, None, [ended.id])

        assert await ended_jobs(store) == []


class TestQueriesEndedRuns:
    @pytest.mark.parametrize("status", sorted(ENDED))
    async def test_shows_a_run_from_its_end_on(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store)
        assert await ended_runs(store) == []
        clock.advance(SECOND)
        await commit_next(store, status=status)

        [run] = await ended_runs(store)
        assert (run.id, run.status, run.finished_at) == (RUN, status, clock())

    async def test_pages_by_time_of_end_and_id_with_child_runs(
        self, store: Store, clock: ManualClock
    ) -> None:
        children = tuple(
            new_child(id=RunId(f"{CHILD}-{number}"), status=RunStatus.COMPLETED)
            for number in range(3)
        )
        waits = tuple(child_wait(f"ship[{each.id}]", each.id) for each in children)
        await submit(store, waits=waits, children=children)
        other = await submit(store, id=RunId("a-run"), status=RunStatus.FAILED)
        clock.advance(SECOND)
        await commit_next(store, status=RunStatus.COMPLETED)

        found: list[RunId] = []
        after = (EARLIEST, "")
        while page := await ended_runs(store, limit=2, after=after):
            found += [run.id for run in page]
            last = page[-1]
            assert last.finished_at is not None
            after = (last.finished_at, last.id)

        assert found == [*sorted([*(each.id for each in children), other.id]), RUN]

    async def test_shows_those_of_the_filter_alone(self, store: Store, clock: ManualClock) -> None:
        began_at = clock()
        await submit(store, children=(new_child(status=RunStatus.FAILED),), waits=(child_wait(),))
        await commit_next(store, status=RunStatus.COMPLETED)
        await submit(store, namespace=OTHER_NAMESPACE, status=RunStatus.COMPLETED)

        async def ids(**changes: Any) -> set[str]:
            return {run.id for run in await ended_runs(store, **changes)}

        assert await ids() == {RUN, CHILD}
        assert await ids(flow="shipping") == {CHILD}
        assert await ids(statuses=("completed",)) == {RUN}
        assert await ids(until=began_at) == set()


class TestQueriesPrunedUntil:
    async def test_returns_the_latest_end_that_was_pruned_of_each_type(
        self, store: Store, clock: ManualClock
    ) -> None:
        ends = {}
        for status in (Status.COMPLETED, Status.COMPLETED, Status.FAILED, Status.DEAD):
            await insert_in_status(store, status)
            ends[f"job.{status}"] = clock()
            clock.advance(SECOND)
        del ends["job.dead"]
        keep = {Status.COMPLETED: HOUR, Status.FAILED: HOUR}
        assert await store.queries.pruned_until(NAMESPACE) == {}
        clock.advance(HOUR)

        for _ in range(4):
            await store.maintenance.prune_jobs(NAMESPACE, keep, 1)

        assert await store.queries.pruned_until(NAMESPACE) == ends
        assert await store.queries.pruned_until(OTHER_NAMESPACE) == {}

    async def test_does_not_go_back(self, store: Store, clock: ManualClock) -> None:
        ended_at = clock()
        await insert_in_status(store, Status.COMPLETED)
        clock.advance(HOUR)
        await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: SECOND}, 10)
        clock.advance(-2 * HOUR)
        await insert_in_status(store, Status.COMPLETED)
        clock.advance(HOUR)
        await store.maintenance.prune_jobs(NAMESPACE, {Status.COMPLETED: SECOND}, 10)

        assert await store.queries.pruned_until(NAMESPACE) == {"job.completed": ended_at}

    async def test_knows_child_runs_that_ended_after_their_parent(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, children=(new_child(),), waits=(child_wait(),))
        await commit_next(store, status=RunStatus.COMPLETED)
        parent_ended_at = clock()
        clock.advance(SECOND)
        await commit_next(store, run=CHILD, status=RunStatus.CANCELLED)
        child_ended_at = clock()
        clock.advance(HOUR)

        await store.maintenance.prune_runs(NAMESPACE, {RunStatus.COMPLETED: HOUR}, 10)

        assert await store.queries.pruned_until(NAMESPACE) == {
            "run.completed": parent_ended_at,
            "run.cancelled": child_ended_at,
        }
