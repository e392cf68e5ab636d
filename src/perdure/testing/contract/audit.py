"""What only the verifier reads: columns as stored, and rows without an owner."""

from __future__ import annotations

from typing import Any

from perdure.clock import ManualClock
from perdure.model.ids import JobId, RunId
from perdure.model.job import Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed
from perdure.store.contract import AuditStore, Store
from perdure.store.contract.audit import AuditedJob, AuditedLimit, Orphan
from perdure.testing.contract import Harness
from perdure.testing.contract.builders import (
    MINUTE,
    NAMESPACE,
    OTHER_NAMESPACE,
    PARTITION,
    PAUSED,
    RUN,
    claim_new,
    claim_node,
    claim_one,
    commit_next,
    continues,
    insert,
    insert_many,
    node_job,
    read_job,
    save_schedule,
    settle,
    submit,
    timer,
)

UNKNOWN = JobId("unknown")


async def hide_one(store: Store, **changes: Any) -> JobId:
    """A completed job that is kept only for callers that wait for its result."""
    claimed = await claim_new(store, **changes)
    await settle(store, claimed, Completed(output=b"1"), is_hidden=True)
    return claimed.id


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
                incarnation=None,
                policy=None,
                input=b"[[1], {}]",
            )
        }

    async def test_gives_large_inputs_too(self, store: Store, audit: AuditStore) -> None:
        large = b'"%b"' % (b"x" * 100_000)
        id = await insert(store, input=large)

        assert (await audit.jobs([id]))[id].input == large

    async def test_has_the_limits_that_a_claimed_job_counts_under(
        self, store: Store, audit: AuditStore
    ) -> None:
        id = await insert(store)
        await claim_one(store, rules=(LimitRule(key="printer", live_max=1),))

        found = (await audit.jobs([id]))[id]
        assert (found.status, found.epoch, found.limit_keys) == ("active", 1, ("printer",))

    async def test_has_the_incarnation_of_the_last_claim(
        self, store: Store, audit: AuditStore
    ) -> None:
        id = await insert(store)
        await claim_one(store, incarnation=7)

        assert (await audit.jobs([id]))[id].incarnation == 7

    async def test_has_the_incarnation_of_the_claim_that_continues_in_place(
        self, store: Store, audit: AuditStore
    ) -> None:
        await submit(store, jobs=(node_job("pack"),))
        claimed = await claim_node(store, incarnation=7)
        await commit_next(store, settlements=(continues(claimed, node_job("next")),))

        assert (await audit.jobs([claimed.id]))[claimed.id].incarnation == 7

    async def test_leaves_the_input_out_once_a_job_is_finished(
        self, store: Store, audit: AuditStore
    ) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Completed(output=b"1"))

        found = (await audit.jobs([claimed.id]))[claimed.id]
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
        await insert(store, namespace=NAMESPACE)

        found = await audit.jobs_of_run(NAMESPACE, RUN)
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
        assert await audit.suspended_waits(NAMESPACE, RUN) == frozenset()

        await commit_next(store, suspend=True, status=PAUSED)

        assert await audit.suspended_waits(NAMESPACE, RUN) == {"delay"}
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

        assert (await read_job(store, first)).status is Status.COMPLETED
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
        saved = await save_schedule(store)
        await save_schedule(store, namespace=OTHER_NAMESPACE)
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
        self, store: Store, audit: AuditStore, harness: Harness
    ) -> None:
        await submit(store, waits=(timer("delay", delay=MINUTE),))

        await harness.delete_run(store, NAMESPACE, RUN)

        found = await audit.orphans()
        assert {orphan.table for orphan in found} == {"events", "waits"}
        assert Orphan(table="waits", owner=RUN) in found
