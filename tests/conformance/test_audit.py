"""What only the verifier reads: columns as they are stored, and rows that belong to nothing."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg
import pytest

from perdure.clock import ManualClock
from perdure.model.ids import JobId, RunId
from perdure.model.job import Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed
from perdure.store.contract import AuditStore, Store
from perdure.store.contract.audit import AuditedJob, AuditedLimit, Orphan
from perdure.store.memory.store import MemoryStore
from tests.conformance import run_builders as runs
from tests.conformance import schedule_builders as schedules
from tests.conformance.builders import (
    MINUTE,
    NAMESPACE,
    PARTITION,
    claim_one,
    hold,
    insert,
    insert_many,
    read,
    settle,
)
from tests.conformance.run_builders import OTHER_NAMESPACE, RUN, go_on, node_job, submit, timer

UNKNOWN = JobId("nobody")


@pytest.fixture
def audit(store: Store) -> AuditStore:
    assert store.audit is not None
    return store.audit


async def hide_one(store: Store, **changes: Any) -> JobId:
    """A job that completed, and of which nothing is to be kept but for whoever waits for it."""
    held = await hold(store, **changes)
    await settle(store, held, Completed(output=b"1"), is_hidden=True)
    return held.id


class TestAuditJobs:
    async def test_gives_columns_as_they_are_stored(
        self, store: Store, audit: AuditStore, clock: ManualClock
    ) -> None:
        id = await insert(store, input=b"[[1], {}]", priority=0)

        assert await audit.jobs([id]) == {
            id: AuditedJob(
                status="waiting",
                epoch=0,
                queue=PARTITION.queue,
                task=PARTITION.task,
                partition=PARTITION.text,
                rank=clock().timestamp(),
                limit_keys=(),
                policy=None,
                input=b"[[1], {}]",
            )
        }

    async def test_gives_large_inputs_too(self, store: Store, audit: AuditStore) -> None:
        large = b'"%b"' % (b"x" * 100_000)
        id = await insert(store, input=large)

        assert (await audit.jobs([id]))[id].input == large

    async def test_has_the_limits_that_a_held_job_counts_under(
        self, store: Store, audit: AuditStore
    ) -> None:
        id = await insert(store)
        await claim_one(store, rules=(LimitRule(key="printer", live_max=1),))

        found = (await audit.jobs([id]))[id]
        assert (found.status, found.epoch, found.limit_keys) == ("active", 1, ("printer",))

    async def test_leaves_the_input_out_once_a_job_is_finished(
        self, store: Store, audit: AuditStore
    ) -> None:
        held = await hold(store)
        await settle(store, held, Completed(output=b"1"))

        found = (await audit.jobs([held.id]))[held.id]
        assert (found.status, found.input) == ("completed", None)

    async def test_leaves_out_those_that_do_not_exist(
        self, store: Store, audit: AuditStore
    ) -> None:
        id = await insert(store)

        assert (await audit.jobs([UNKNOWN, id])).keys() == {id}
        assert await audit.jobs([]) == {}


class TestAuditJobsOfRun:
    async def test_gives_those_of_the_run_alone(self, store: Store, audit: AuditStore) -> None:
        job = node_job("pack")
        await submit(store, jobs=(job,))
        await submit(store, namespace=OTHER_NAMESPACE, id=RunId("other"))
        await insert(store, namespace=runs.NAMESPACE)

        found = await audit.jobs_of_run(runs.NAMESPACE, RUN)
        assert found.keys() == {job.id}
        assert (found[job.id].partition, found[job.id].input) == (job.partition.text, job.input)
        assert await audit.jobs_of_run(OTHER_NAMESPACE, RUN) == {}


class TestAuditJobBefore:
    async def test_follows_the_list_newest_first(self, store: Store, audit: AuditStore) -> None:
        first, second = await insert_many(store, 2)

        assert await audit.job_before(None, None) == second
        assert await audit.job_before(None, second) == first
        assert await audit.job_before(None, first) is None

    async def test_stays_in_a_namespace(self, store: Store, audit: AuditStore) -> None:
        mine = await insert(store)
        await insert(store, namespace=OTHER_NAMESPACE)

        assert await audit.job_before(NAMESPACE, None) == mine
        assert await audit.job_before("nobody's", None) is None

    async def test_passes_over_hidden_jobs(self, store: Store, audit: AuditStore) -> None:
        await hide_one(store)

        assert await audit.job_before(None, None) is None


class TestAuditHiddenJobs:
    async def test_lists_what_other_lists_leave_out_newest_first(
        self, store: Store, audit: AuditStore
    ) -> None:
        hidden = [await hide_one(store) for _ in range(3)]
        await insert(store)

        found = await audit.hidden_jobs(None, None, 10)
        assert [job.id for job in found] == hidden[::-1]
        assert {job.status for job in found} == {Status.COMPLETED}
        older = await audit.hidden_jobs(None, hidden[2], 1)
        assert [job.id for job in older] == [hidden[1]]

    async def test_stays_in_a_namespace(self, store: Store, audit: AuditStore) -> None:
        mine = await hide_one(store)
        await hide_one(store, namespace=OTHER_NAMESPACE)

        assert [job.id for job in await audit.hidden_jobs(NAMESPACE, None, 10)] == [mine]


class TestAuditSuspendedWaits:
    async def test_are_those_of_a_run_in_a_pause(self, store: Store, audit: AuditStore) -> None:
        await submit(store, waits=(timer("delay", delay=MINUTE),))
        assert await audit.suspended_waits(runs.NAMESPACE, RUN) == frozenset()

        await go_on(store, suspend=True, status=runs.PAUSED)

        assert await audit.suspended_waits(runs.NAMESPACE, RUN) == {"delay"}
        assert await audit.suspended_waits(OTHER_NAMESPACE, RUN) == frozenset()


class TestAuditSharedFingerprints:
    async def test_there_are_none_where_the_store_guards_them(
        self, store: Store, audit: AuditStore
    ) -> None:
        first = await insert(store, fingerprint="same")
        await settle(store, await claim_one(store), Completed(output=b"1"))
        await insert(store, fingerprint="same")
        await insert(store, fingerprint="same")
        await insert(store, fingerprint="same", namespace=OTHER_NAMESPACE)

        assert (await read(store, first)).status is Status.COMPLETED
        assert await audit.shared_fingerprints(None) == []


class TestAuditLimits:
    async def test_gives_what_is_remembered_of_each(
        self, store: Store, audit: AuditStore, clock: ManualClock
    ) -> None:
        await insert(store)
        rule = LimitRule(key="stream", starts_max=5, window=MINUTE, spacing=MINUTE)
        await claim_one(store, rules=(rule,))

        wanted = AuditedLimit(
            namespace=NAMESPACE,
            key="stream",
            closed_until=None,
            last_start_at=clock(),
            latest_start_at=clock(),
        )
        assert await audit.limits(None) == [wanted]
        assert await audit.limits(NAMESPACE) == [wanted]
        assert await audit.limits(OTHER_NAMESPACE) == []


class TestAuditScheduleTimes:
    async def test_gives_when_workers_look_at_each(self, store: Store, audit: AuditStore) -> None:
        saved = await schedules.save(store)
        await schedules.save(store, namespace=OTHER_NAMESPACE)
        place = (saved.namespace, saved.name)

        assert (await audit.schedule_times(None))[place] == saved.state.due_at
        assert (await audit.schedule_times(saved.namespace)).keys() == {place}


class TestAuditOrphans:
    async def test_there_are_none_while_runs_and_jobs_exist(
        self, store: Store, audit: AuditStore
    ) -> None:
        await submit(store, jobs=(node_job("pack"),), waits=(timer("delay", delay=MINUTE),))
        await hide_one(store)

        assert await audit.orphans() == []

    async def test_are_rows_whose_run_is_gone(
        self, store: Store, audit: AuditStore, store_url: str
    ) -> None:
        await submit(store, waits=(timer("delay", delay=MINUTE),))

        await lose_run(store, store_url)

        found = await audit.orphans()
        assert {orphan.table for orphan in found} == {"events", "waits"}
        assert Orphan(table="waits", owner=RUN) in found


async def lose_run(store: Store, url: str) -> None:
    """Remove the row of a run behind the store's back."""
    if isinstance(store, MemoryStore):
        records = store._session.state.records
        records.put_run((runs.NAMESPACE, RUN), None)
    elif url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("DELETE FROM perdure_runs WHERE id = ?", (RUN,))
        connection.close()
    else:
        parts = urlsplit(url)
        [schema] = parse_qs(parts.query)["schema"]
        lent = await asyncpg.connect(urlunsplit(parts._replace(query="")))
        await lent.execute(f'DELETE FROM "{schema}".runs WHERE id = $1', RUN)
        await lent.close()
