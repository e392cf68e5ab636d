"""What a commit does to the held jobs that it settles, and the jobs that it inserts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.errors import InvalidInput
from perdure.model.ids import RunId
from perdure.model.job import Claim, Job, NodeRef, Progress, Status
from perdure.model.limit import LimitRule
from perdure.model.outcome import Requeued, Retried
from perdure.model.run import CommitResult
from perdure.store.contract import Store
from tests.conformance.builders import (
    HOUR,
    LEASE,
    MINUTE,
    OTHER_WORKER,
    SECOND,
    WORKER,
    claim,
    failure,
    read,
    record_of,
    settle,
)
from tests.conformance.run_builders import (
    DONE,
    NAMESPACE,
    NODE_PARTITION,
    RUN,
    claim_node,
    claim_nodes,
    commit,
    continues,
    ends,
    go_on,
    held_node,
    is_suspended,
    jobs_by_key,
    node_job,
    node_partition,
    read_run,
    repeats,
    step,
    submit,
)

FAR = datetime.max.replace(tzinfo=UTC)
LONG = timedelta.max


class TestAJobThatEnds:
    async def test_leaves_the_queue(self, store: Store) -> None:
        held = await held_node(store)

        result = await commit(store, settlements=(ends(held),))

        assert result == CommitResult(state=DONE)
        assert await record_of(store, held.id) == (None, None, [])
        assert await store.queries.run_jobs(NAMESPACE, RUN) == []
        assert not await is_suspended(store, held)

    async def test_leaves_no_history_behind(self, store: Store) -> None:
        held = await held_node(store)
        await go_on(store, settlements=(repeats(held, Retried(failure=failure())),))
        held = await claim_node(store)

        await go_on(store, settlements=(ends(held),))

        assert await store.queries.failed_attempts(held.id) == []

    async def test_makes_room_under_its_limits(self, store: Store) -> None:
        rules = (LimitRule(key="scale", live_max=1),)
        await submit(store, jobs=(node_job("pack[0]"), node_job("pack[1]")))
        held = await claim_node(store, rules=rules)
        assert await claim_nodes(store, rules=rules) == []

        await go_on(store, settlements=(ends(held),))

        assert len(await claim_nodes(store, rules=rules)) == 1

    async def test_may_end_with_others_of_its_run(self, store: Store) -> None:
        await submit(store, jobs=tuple(node_job(f"pack[{item}]") for item in range(5)))
        jobs = await claim_nodes(store)

        await go_on(store, settlements=tuple(ends(job.claim) for job in jobs[:4]))

        assert [job.id for job in await store.queries.run_jobs(NAMESPACE, RUN)] == [
            jobs[4].claim.id
        ]


class TestAJobThatContinues:
    async def test_takes_all_of_the_new_job_but_its_id(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await held_node(store)
        leased_until = (await read(store, held.id)).lease_until
        clock.advance(SECOND)
        partition = node_partition("send_parcel", tags=("truck",))
        new = node_job(
            "send#2", partition=partition, priority=1, input=b'[["parcel"],{}]', policy=b"p"
        )

        await go_on(store, settlements=(continues(held, new),))

        assert await read(store, held.id) == Job(
            id=held.id,
            namespace=NAMESPACE,
            queue="packing",
            task="send_parcel",
            tags=("truck",),
            status=Status.ACTIVE,
            priority=1,
            group=None,
            fingerprint=None,
            attempt=1,
            failures=0,
            crashes=0,
            max_attempts=None,
            worker=WORKER,
            epoch=held.epoch,
            progress=Progress(percent=0),
            created_at=clock(),
            ready_at=clock(),
            deadline_at=None,
            started_at=clock(),
            finished_at=None,
            lease_until=leased_until,
            input=b'[["parcel"],{}]',
            node=NodeRef(run=RUN, key="send#2"),
        )
        assert await store.queries.get_job(None, new.id) is None

    async def test_stays_with_its_holder_under_the_same_claim(self, store: Store) -> None:
        held = await held_node(store)

        await go_on(store, settlements=(continues(held, node_job("next")),))

        assert await is_suspended(store, held)
        assert await claim_nodes(store) == []
        await go_on(store, settlements=(ends(held),))
        assert await store.queries.run_jobs(NAMESPACE, RUN) == []

    async def test_is_as_if_just_started(self, store: Store, clock: ManualClock) -> None:
        await submit(store, jobs=(node_job(max_attempts=3),))
        for _ in range(2):
            await claim_node(store)
            clock.advance(LEASE)
            await store.maintenance.take_over_expired(NAMESPACE, 10, 9)
        held = await claim_node(store)
        await go_on(
            store,
            settlements=(repeats(held, Retried(failure=failure(), is_snoozed=True)),),
        )
        held = await claim_node(store)
        await store.jobs.save_progress([(held, Progress(percent=40, message="half"))])
        await go_on(store, settlements=(repeats(held, Retried(failure=failure())),))
        held = await claim_node(store)
        before = await read(store, held.id)
        assert (before.attempt, before.failures, before.crashes) == (5, 1, 2)

        await go_on(store, settlements=(continues(held, node_job("next")),))

        after = await read(store, held.id)
        assert (after.attempt, after.failures, after.crashes) == (1, 0, 0)
        assert (after.max_attempts, after.progress) == (None, Progress(percent=0))
        assert await store.queries.failed_attempts(held.id) == []
        await settle(store, held, Requeued())
        [again] = await claim_nodes(store)
        assert (again.attempt, again.failures, again.snoozes, again.crashes) == (1, 0, 0, 0)

    async def test_goes_back_to_the_queue_as_what_it_became(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await held_node(store)
        clock.advance(MINUTE)
        partition = node_partition("send_parcel")
        new = node_job("send", partition=partition, priority=2, policy=b"p", input=b'[["x"],{}]')
        await submit(store, id=RunId("other"), jobs=(node_job(partition=partition, priority=2),))
        clock.advance(SECOND)
        await go_on(store, settlements=(continues(held, new),))

        await settle(store, held, Requeued())

        [first, second] = await claim_nodes(store, partition)
        assert second.claim.id == held.id, "its rank is that of a job which came now"
        assert (second.partition, second.node, second.priority) == (partition, new.node, 2)
        assert (second.input, second.policy) == (new.input, b"p")
        assert (second.attempt, second.claim.epoch) == (1, held.epoch + 1)
        assert first.claim.id != held.id

    async def test_keeps_its_lease(self, store: Store, clock: ManualClock) -> None:
        held = await held_node(store)
        clock.advance(LEASE - SECOND)
        await go_on(store, settlements=(continues(held, node_job("next")),))
        clock.advance(SECOND)

        [taken] = await store.maintenance.take_over_expired(NAMESPACE, 10, 3)

        assert (taken.id, taken.partition, taken.attempt) == (held.id, NODE_PARTITION, 1)

    async def test_frees_the_limits_that_it_counted_under(self, store: Store) -> None:
        """Only a claim counts a job under limits, so it goes on to partitions without any."""
        rules = (LimitRule(key="scale", live_max=1),)
        await submit(store, jobs=(node_job("pack[0]"), node_job("pack[1]")))
        held = await claim_node(store, rules=rules)

        await go_on(
            store, settlements=(continues(held, node_job("n", partition=node_partition("free"))),)
        )

        assert len(await claim_nodes(store, rules=rules)) == 1

    async def test_is_no_longer_held_off_from_the_worker_that_failed_it(self, store: Store) -> None:
        held = await held_node(store)
        retried = Retried(failure=failure(), hold_off=HOUR)
        await go_on(store, settlements=(repeats(held, retried),))
        held = await claim_node(store, worker=OTHER_WORKER)
        await go_on(store, settlements=(continues(held, node_job("next")),))

        await settle(store, held, Requeued())

        assert len(await claim_nodes(store, worker=WORKER)) == 1

    async def test_is_found_under_its_new_key_alone(self, store: Store) -> None:
        held = await held_node(store)
        await go_on(store, settlements=(continues(held, node_job("next")),))

        await go_on(store, cancel_keys=("pack",))
        assert await is_suspended(store, held)
        await go_on(store, cancel_keys=("next",))
        assert not await is_suspended(store, held)


class TestAJobThatRepeats:
    async def test_goes_back_to_the_queue_with_its_failure(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await held_node(store)
        clock.advance(SECOND)

        await go_on(store, settlements=(repeats(held, Retried(failure=failure("jammed"))),))

        job = await read(store, held.id)
        assert (job.status, job.attempt, job.failures) == (Status.WAITING, 1, 1)
        assert (job.worker, job.lease_until, job.ready_at) == (None, None, clock())
        [failed] = await store.queries.failed_attempts(held.id)
        assert (failed.attempt, failed.worker, failed.at) == (1, WORKER, clock())
        assert failed.failure == failure("jammed")
        assert not await is_suspended(store, held)
        [again] = await claim_nodes(store)
        assert (again.attempt, again.failures, again.node) == (2, 1, NodeRef(run=RUN, key="pack"))

    async def test_waits_out_its_delay(self, store: Store, clock: ManualClock) -> None:
        held = await held_node(store)

        await go_on(store, settlements=(repeats(held, Retried(failure=failure(), delay=MINUTE)),))

        job = await read(store, held.id)
        assert (job.status, job.ready_at) == (Status.SCHEDULED, clock() + MINUTE)
        clock.advance(MINUTE)
        assert await store.maintenance.promote_due(NAMESPACE, 10) == 1
        assert len(await claim_nodes(store)) == 1

    async def test_counts_a_postponement_and_closes_the_limit_it_names(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await held_node(store)
        retried = Retried(
            failure=failure("429"), delay=MINUTE, is_snoozed=True, closes_limit="smtp"
        )

        await go_on(store, settlements=(repeats(held, retried),), jobs=(node_job("beside"),))

        claimed = await claim(
            store,
            NODE_PARTITION,
            namespace=NAMESPACE,
            rules=(LimitRule(key="smtp", live_max=9),),
        )
        assert (claimed.jobs, claimed.opens_at) == ([], clock() + MINUTE)
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 10)
        again = {job.claim.id: job for job in await claim_nodes(store)}[held.id]
        assert (again.failures, again.snoozes) == (0, 1)

    async def test_is_left_to_other_workers_for_a_while(self, store: Store) -> None:
        held = await held_node(store)
        retried = Retried(failure=failure(), hold_off=MINUTE)

        await go_on(store, settlements=(repeats(held, retried),))

        assert await claim_nodes(store, worker=WORKER) == []
        assert len(await claim_nodes(store, worker=OTHER_WORKER)) == 1


class TestNewJobsOfACommit:
    async def test_are_inserted_beside_what_it_settles(
        self, store: Store, clock: ManualClock
    ) -> None:
        held = await held_node(store)
        soon, later = node_job("a"), node_job("b", delay=HOUR)

        await go_on(store, settlements=(ends(held),), jobs=(soon, later))

        jobs = await jobs_by_key(store)
        assert {key: (job.id, job.status, job.epoch) for key, job in jobs.items()} == {
            "a": (soon.id, Status.WAITING, 0),
            "b": (later.id, Status.SCHEDULED, 0),
        }
        assert jobs["b"].ready_at == clock() + HOUR
        assert await claim_node(store) == Claim(id=soon.id, epoch=1)

    async def test_are_inserted_by_the_thousand(self, store: Store) -> None:
        await submit(store)

        await go_on(store, jobs=tuple(node_job(f"pack[{item}]") for item in range(2000)))

        assert len(await store.queries.run_jobs(NAMESPACE, RUN)) == 2000
        assert len(await claim_nodes(store, limit=1500)) == 1500


class TestATimeOutOfReach:
    @pytest.mark.parametrize("change", [{"deadline_at": FAR}, {"run_at": FAR}, {"delay": LONG}])
    async def test_of_a_job_that_continues_is_refused(
        self, store: Store, change: dict[str, Any]
    ) -> None:
        held = await held_node(store)
        before = await record_of(store, held.id)

        with pytest.raises(InvalidInput):
            await go_on(store, settlements=(continues(held, node_job("next", **change)),))

        assert await record_of(store, held.id) == before
        assert (await read_run(store)).number == 1

    async def test_keeps_all_of_its_batch_from_being_written(
        self, store: Store, clock: ManualClock
    ) -> None:
        other, rules = RunId("other"), (LimitRule(key="scale", live_max=5),)
        held = await held_node(store)
        await submit(store, id=other)
        retried = Retried(failure=failure(), delay=HOUR, closes_limit="scale")
        good = step(1, settlements=(repeats(held, retried),))
        bad = step(1, run=other, jobs=(node_job("next", run=other, delay=LONG),))

        with pytest.raises(InvalidInput):
            await store.runs.commit([good, bad])

        assert await is_suspended(store, held)
        assert [(await read_run(store, id)).number for id in (RUN, other)] == [1, 1]
        [usage] = await store.queries.limit_usage(NAMESPACE, rules)
        assert usage.usage.closed_until is None
