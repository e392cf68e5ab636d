"""Jobs of runs: claimed and taken over as any other, but acted upon through their run alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from perdure.clock import ManualClock
from perdure.errors import JobBelongsToRun
from perdure.model.ids import JobId, RunId
from perdure.model.job import ClaimedJob, JobFilter, NodeRef, Status
from perdure.model.outcome import Parked, Requeued
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from tests.conformance.builders import (
    LEASE,
    MINUTE,
    SECOND,
    WORKER,
    hold,
    insert,
    read,
    record_of,
    settle,
)
from tests.conformance.run_builders import (
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    RUN,
    claim_node,
    claim_nodes,
    held_node,
    is_suspended,
    node_job,
    node_partition,
    submit,
)

MAX_CRASHES = 3

Act = Callable[[Store, list[JobId]], Awaitable[object]]
ACTS: dict[str, Act] = {
    "abort": lambda store, ids: store.admin.change_jobs(Transition.ABORT, None, ids),
    "abort here": lambda store, ids: store.admin.change_jobs(Transition.ABORT, NAMESPACE, ids),
    "disable": lambda store, ids: store.admin.change_jobs(Transition.DISABLE, None, ids),
    "enable": lambda store, ids: store.admin.change_jobs(Transition.ENABLE, None, ids),
    "retry": lambda store, ids: store.admin.change_jobs(Transition.RETRY, None, ids),
    "resume": lambda store, ids: store.admin.change_jobs(Transition.RESUME, None, ids),
}


class TestClaimingAJobOfARun:
    async def test_tells_everything_of_it(self, store: Store, clock: ManualClock) -> None:
        job = node_job("pack#2[7]", priority=2, max_attempts=5, policy=b"p", group="g")
        await submit(store, jobs=(job,))
        created_at = clock()
        clock.advance(SECOND)

        [claimed] = await claim_nodes(store)

        assert claimed == ClaimedJob(
            claim=claimed.claim,
            namespace=NAMESPACE,
            partition=NODE_PARTITION,
            input=job.input,
            attempt=1,
            failures=0,
            snoozes=0,
            max_attempts=5,
            policy=b"p",
            group="g",
            deadline_at=None,
            created_at=created_at,
            priority=2,
            crashes=0,
            node=NodeRef(run=RUN, key="pack#2[7]"),
        )

    async def test_is_left_to_workers_that_have_its_version(self, store: Store) -> None:
        await submit(store, jobs=(node_job(),))

        assert await claim_nodes(store, node_partition(version="v2")) == []
        assert await claim_nodes(store, node_partition(flow="")) == []
        assert len(await claim_nodes(store, node_partition())) == 1

    async def test_comes_in_one_order_with_others_by_urgency(self, store: Store) -> None:
        partition = node_partition(flow="")
        await submit(store, jobs=(node_job(priority=3),))
        plain = await insert(store, namespace=NAMESPACE, partition=partition, priority=4)
        urgent = await insert(store, namespace=NAMESPACE, partition=partition, priority=2)

        claimed = await claim_nodes(store, NODE_PARTITION, partition)

        assert [job.claim.id for job in claimed][::2] == [urgent, plain]
        assert [job.node for job in claimed] == [None, NodeRef(run=RUN, key="pack"), None]
        assert [job.priority for job in claimed] == [2, 3, 4]

    async def test_is_undone_by_giving_it_back(self, store: Store) -> None:
        held = await held_node(store)

        assert await settle(store, held, Requeued()) is Status.WAITING

        [again] = await claim_nodes(store)
        assert (again.claim.id, again.attempt) == (held.id, 1)
        assert again.node == NodeRef(run=RUN, key="pack")

    async def test_is_undone_if_nobody_knows_of_it(self, store: Store) -> None:
        held = await held_node(store)

        assert await store.jobs.requeue_unknown(WORKER, []) == 1

        assert not await is_suspended(store, held)
        assert len(await claim_nodes(store)) == 1

    async def test_tells_the_deaths_of_a_plain_job_too(
        self, store: Store, clock: ManualClock
    ) -> None:
        await hold(store, namespace=NAMESPACE, partition=node_partition(flow=""), priority=5)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)

        [again] = await claim_nodes(store, node_partition(flow=""))

        assert (again.crashes, again.priority, again.node) == (1, 5, None)


class TestInsertingAJobOfARun:
    async def test_keeps_what_it_executes(self, store: Store) -> None:
        job = node_job("check:poll#3")

        await store.jobs.insert([job])

        assert (await read(store, job.id)).node == NodeRef(run=RUN, key="check:poll#3")
        [listed] = await store.queries.list_jobs(JobFilter(), 10)
        assert listed.node == job.node


class TestTakingOverAJobOfARun:
    async def test_never_buries_it_and_counts_its_deaths(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job(),))
        afters, crashes = [], []
        for _ in range(MAX_CRASHES + 2):
            [job] = await claim_nodes(store)
            crashes.append(job.crashes)
            clock.advance(LEASE)
            [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)
            afters.append(taken.after)

        assert set(afters) == {Status.WAITING}
        assert crashes == [0, 1, 2, 3, 4]
        [job_left] = await store.queries.run_jobs(NAMESPACE, RUN)
        assert (job_left.status, job_left.crashes) == (Status.WAITING, MAX_CRASHES + 2)

    async def test_does_not_spare_plain_jobs_beside_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await held_node(store)
        plain = await hold(store, namespace=NAMESPACE)
        clock.advance(MINUTE)

        taken = await store.maintenance.take_over_expired(NAMESPACE, 10, 1)

        assert {each.id: each.after for each in taken} == {
            held.id: Status.WAITING,
            plain.id: Status.DEAD,
        }

    async def test_makes_the_old_claim_stale(self, store: Store, clock: ManualClock) -> None:
        held = await held_node(store)
        clock.advance(LEASE)

        await store.maintenance.take_over_expired(NAMESPACE, 10, MAX_CRASHES)

        assert not await is_suspended(store, held)
        again = await claim_node(store)
        assert (again.id, again.epoch > held.epoch) == (held.id, True)


class TestTheDeadlineOfAJobOfARun:
    async def test_is_left_to_its_run(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(deadline=MINUTE),))
        assert (await store.maintenance.poll(NAMESPACE)).next_deadline_at is None
        clock.advance(MINUTE)

        assert list(await store.maintenance.expire_deadlines(NAMESPACE, 10)) == []

        [job] = await store.queries.run_jobs(NAMESPACE, RUN)
        assert job.status is Status.WAITING


class TestActingOnAJobOfARun:
    @pytest.mark.parametrize("name", ACTS)
    @pytest.mark.parametrize("status", [Status.WAITING, Status.ACTIVE, Status.PAUSED])
    async def test_is_refused_and_nothing_is_written(
        self, store: Store, name: str, status: Status
    ) -> None:
        plain = await insert(store, namespace=NAMESPACE)
        held = await held_node(store)
        if status is Status.PAUSED:
            await settle(store, held, Parked())
        elif status is Status.WAITING:
            await settle(store, held, Requeued())
        before = await record_of(store, held.id), await record_of(store, plain)

        with pytest.raises(JobBelongsToRun) as raised:
            await ACTS[name](store, [plain, held.id])

        assert (raised.value.job_id, raised.value.run_id) == (held.id, RUN)
        assert (await record_of(store, held.id), await record_of(store, plain)) == before

    async def test_is_refused_for_its_group_too(self, store: Store) -> None:
        await submit(store, jobs=(node_job(group="batch"),))
        plain = await insert(store, namespace=NAMESPACE, group="batch")

        with pytest.raises(JobBelongsToRun):
            await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="batch")

        assert (await read(store, plain)).status is Status.WAITING

    async def test_finds_none_in_another_namespace(self, store: Store) -> None:
        held = await held_node(store)

        assert await store.admin.change_jobs(Transition.ABORT, OTHER_NAMESPACE, [held.id]) == []
        assert await is_suspended(store, held)

    async def test_does_not_concern_jobs_of_no_run(self, store: Store) -> None:
        await submit(store, id=RunId("beside"), jobs=(node_job(run=RunId("beside")),))
        plain = await insert(store, namespace=NAMESPACE)

        [moved] = await store.admin.change_jobs(Transition.ABORT, None, [plain])

        assert moved.after is Status.CANCELLED
