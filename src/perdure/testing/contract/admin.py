"""Commands of an operator on jobs and queues, and statistics of the store."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.errors import FingerprintTaken
from perdure.model.facts import ORPHANS_MAX, EndedCounts, FlowRuns, OrphanedRun, RunStats
from perdure.model.hint import HintType
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, JobFilter, Progress, QueueInfo, Status, StatusChange
from perdure.model.limit import LimitRule
from perdure.model.outcome import Completed, DeadLettered, Parked, Retried
from perdure.model.partition import UNSUSPECTED, Partition
from perdure.model.run import ENDED, RunStatus
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    COMPLETED,
    FAILED,
    FLOW,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_NAMESPACE,
    PARTITION,
    PAUSED,
    RUN,
    RUNNING,
    SECOND,
    SUSPECTED,
    VERSION,
    WAITING,
    approval,
    child_wait,
    claim,
    claim_ids,
    claim_new,
    claim_one,
    close_limit,
    commit,
    commit_next,
    failure,
    insert,
    insert_in_status,
    insert_many,
    job_record,
    new_child,
    node_job,
    read_job,
    settle,
    signal,
    status_of,
    submit,
    worker_info,
)
from perdure.testing.contract.handles import Listener

# Aborting jobs, one by one and by group


UNCLAIMED = [Status.WAITING, Status.SCHEDULED, Status.PAUSED, Status.DISABLED]


class TestAdminChangeJobs:
    @pytest.mark.parametrize("status", UNCLAIMED)
    async def test_cancels_an_unclaimed_job_at_once(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await insert_in_status(store, status)
        clock.advance(SECOND)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=Status.CANCELLED)]
        job = await read_job(store, there.id)
        assert (job.status, job.finished_at) == (Status.CANCELLED, clock())
        assert await claim_ids(store) == []

    async def test_makes_an_active_job_aborting_and_leaves_it_to_its_worker(
        self, store: Store
    ) -> None:
        claimed = await claim_new(store)
        lease_until = (await read_job(store, claimed.id)).lease_until

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        assert moved == [StatusChange(id=claimed.id, before=Status.ACTIVE, after=Status.ABORTING)]
        job = await read_job(store, claimed.id)
        assert (job.status, job.finished_at) == (Status.ABORTING, None)
        assert (job.epoch, job.lease_until) == (claimed.epoch, lease_until)

    async def test_does_not_let_a_job_that_ignores_it_overwrite_the_outcome(
        self, store: Store
    ) -> None:
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        assert await settle(store, claimed, Completed(output=b"1")) is Status.CANCELLED

        assert (await read_job(store, claimed.id)).output is None

    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_leaves_a_finished_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await job_record(store, there.id) == before

    async def test_changes_nothing_when_asked_twice(self, store: Store) -> None:
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])
        before = await job_record(store, claimed.id)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        assert moved == [StatusChange(id=claimed.id, before=Status.ABORTING, after=Status.ABORTING)]
        assert await job_record(store, claimed.id) == before

    async def test_leaves_jobs_that_are_not_found_out_of_the_answer(self, store: Store) -> None:
        id = await insert(store)

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [JobId("gone"), id])

        assert [each.id for each in moved] == [id]
        assert await store.admin.change_jobs(Transition.ABORT, NAMESPACE, []) == []

    async def test_stops_many_at_once(self, store: Store) -> None:
        ids = await insert_many(store, 50)

        moved = await store.admin.change_jobs(Transition.ABORT, None, ids)

        assert {each.id for each in moved} == set(ids)
        assert {each.after for each in moved} == {Status.CANCELLED}


class TestAbortingAGroup:
    async def test_stops_every_unfinished_job_of_the_group_and_of_no_other(
        self, store: Store
    ) -> None:
        unclaimed = [
            await insert_in_status(store, status, group="run-1") for status in UNCLAIMED[1:]
        ]
        claimed = await claim_new(store, group="run-1")
        waiting = await insert(store, group="run-1")
        others = [
            await insert(store, group="run-2"),
            await insert(store),
            await insert(store, group="run-1", namespace="team-b"),
        ]

        moved = await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="run-1")

        assert {each.id: each.after for each in moved} == {
            **{each.id: Status.CANCELLED for each in unclaimed},
            claimed.id: Status.ABORTING,
            waiting: Status.CANCELLED,
        }
        for other in others:
            assert await status_of(store, other) is Status.WAITING

    @pytest.mark.parametrize("status", sorted(FINISHED))
    async def test_leaves_its_finished_jobs(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status, group="run-1")
        before = await job_record(store, there.id)

        assert await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="run-1") == []
        assert await job_record(store, there.id) == before

    async def test_answers_nothing_for_a_group_without_jobs(self, store: Store) -> None:
        await insert(store)

        assert await store.admin.change_jobs(Transition.ABORT, NAMESPACE, group="unknown") == []

    @pytest.mark.parametrize(
        "operation,status,after",
        [
            (Transition.DISABLE, Status.WAITING, Status.DISABLED),
            (Transition.ENABLE, Status.DISABLED, Status.WAITING),
            (Transition.RESUME, Status.PAUSED, Status.WAITING),
            (Transition.RETRY, Status.WAITING, Status.WAITING),
        ],
    )
    async def test_any_other_operation_takes_a_group_as_well(
        self, store: Store, operation: Transition, status: Status, after: Status
    ) -> None:
        there = await insert_in_status(store, status, group="run-1")
        other = await insert_in_status(store, status, group="run-2")

        changes = await store.admin.change_jobs(operation, NAMESPACE, group="run-1")

        assert changes == [StatusChange(id=there.id, before=status, after=after)]
        assert await status_of(store, other.id) is status


# Disabling and enabling jobs


KEPT_FROM_RUNNING = [Status.WAITING, Status.SCHEDULED, Status.PAUSED, Status.ACTIVE]


class TestDisabling:
    @pytest.mark.parametrize("status", KEPT_FROM_RUNNING)
    async def test_keeps_a_job_from_running(
        self, store: Store, clock: ManualClock, status: Status
    ) -> None:
        there = await insert_in_status(store, status)

        moved = await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=Status.DISABLED)]
        job = await read_job(store, there.id)
        assert (job.status, job.finished_at, job.lease_until) == (Status.DISABLED, None, None)
        clock.advance(HOUR)
        await store.maintenance.promote_due(NAMESPACE, 10)
        assert await claim_ids(store) == []

    async def test_takes_an_active_job_from_its_worker(self, store: Store) -> None:
        claimed = await claim_new(store)

        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [claimed.id])

        assert (await store.jobs.check([claimed])).lost == {claimed.id}
        assert await settle(store, claimed, Completed(output=b"late")) is None
        job = await read_job(store, claimed.id)
        assert (job.status, job.worker, job.output) == (Status.DISABLED, None, None)
        assert job.epoch > claimed.epoch

    @pytest.mark.parametrize("status", sorted(set(Status) - set(KEPT_FROM_RUNNING)))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        moved = await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await job_record(store, there.id) == before

    async def test_leaves_jobs_that_are_not_found_out_of_the_answer(self, store: Store) -> None:
        assert await store.admin.change_jobs(Transition.DISABLE, None, [JobId("gone")]) == []


class TestEnabling:
    async def test_makes_a_disabled_job_waiting_with_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await insert(store)
        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [first])
        clock.advance(MINUTE)
        second = await insert(store)

        moved = await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [first])

        assert moved == [StatusChange(id=first, before=Status.DISABLED, after=Status.WAITING)]
        assert await claim_ids(store) == [first, second]

    async def test_schedules_it_if_its_time_lies_ahead(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store, delay=MINUTE)
        await store.admin.change_jobs(Transition.DISABLE, NAMESPACE, [id])

        [moved] = await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [id])

        assert moved.after is Status.SCHEDULED
        clock.advance(MINUTE)
        await store.maintenance.promote_due(NAMESPACE, 10)
        assert await claim_ids(store) == [id]

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.DISABLED}))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        moved = await store.admin.change_jobs(Transition.ENABLE, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await job_record(store, there.id) == before


# Retrying finished jobs, and resuming parked ones


RETRIABLE = [Status.FAILED, Status.DEAD, Status.CANCELLED]


class TestRetrying:
    @pytest.mark.parametrize("status", RETRIABLE)
    async def test_restarts_the_job(self, store: Store, clock: ManualClock, status: Status) -> None:
        ended = await insert_in_status(store, status)
        clock.advance(HOUR)

        moved = await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert moved == [StatusChange(id=ended.id, before=status, after=Status.WAITING)]
        job = await read_job(store, ended.id)
        assert (job.finished_at, job.worker, job.ready_at) == (None, None, clock())
        again = await claim_one(store)
        assert await settle(store, again, Completed(output=b"2")) is Status.COMPLETED
        assert (await store.queries.job_states([ended.id]))[ended.id].failure is None

    async def test_counts_failures_snoozes_and_crashes_from_zero(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store)
        await settle(store, await claim_one(store), Retried(failure=failure()))
        await settle(store, await claim_one(store), Retried(failure=failure(), is_snoozed=True))
        await claim_one(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        last = await claim_one(store, suspicion=SUSPECTED)
        await settle(store, last, DeadLettered(failure=failure()))

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [id])

        [job] = (await claim(store)).jobs
        assert (job.failures, job.snoozes, (await read_job(store, id)).crashes) == (0, 0, 0)
        assert job.suspicion == UNSUSPECTED
        assert job.claim.epoch > last.epoch, "old claims stay stale"

    async def test_forgets_the_deadline(self, store: Store, clock: ManualClock) -> None:
        id = await insert(store, deadline=MINUTE)
        clock.advance(HOUR)
        await store.maintenance.expire_deadlines(NAMESPACE, 10)

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [id])

        assert (await read_job(store, id)).deadline_at is None
        assert len(await store.maintenance.expire_deadlines(NAMESPACE, 10)) == 0
        assert await claim_ids(store) == [id]

    async def test_keeps_the_history_of_failures(self, store: Store) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, DeadLettered(failure=failure("first life")))
        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [claimed.id])
        await settle(store, await claim_one(store), DeadLettered(failure=failure("second life")))

        history = await store.queries.failed_attempts(claimed.id)

        assert [each.failure.message for each in history] == ["first life", "second life"]

    async def test_resets_its_progress(self, store: Store) -> None:
        claimed = await claim_new(store)
        await store.jobs.save_progress([(claimed, Progress(percent=80, message="nearly"))])
        await settle(store, claimed, DeadLettered(failure=failure()))

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [claimed.id])

        assert (await read_job(store, claimed.id)).progress == Progress(percent=0)

    async def test_restarts_its_waiting_time(self, store: Store, clock: ManualClock) -> None:
        ended = await insert_in_status(store, Status.DEAD)
        clock.advance(MINUTE)
        waiting = await insert(store)
        clock.advance(MINUTE)

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert await claim_ids(store) == [waiting, ended.id]

    async def test_does_not_hold_off_the_worker_that_failed_it(self, store: Store) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Retried(failure=failure(), hold_off=HOUR))
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])

        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [claimed.id])

        assert await claim_ids(store) == [claimed.id]

    async def test_raises_when_a_live_job_has_its_fingerprint_and_retries_none(
        self, store: Store
    ) -> None:
        other = await insert_in_status(store, Status.DEAD)
        ended = await insert_in_status(store, Status.DEAD, fingerprint="once")
        rival = await insert(store, fingerprint="once")

        with pytest.raises(FingerprintTaken) as caught:
            await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [other.id, ended.id])

        assert (caught.value.fingerprint, caught.value.job_id) == ("once", rival)
        assert await status_of(store, ended.id) is Status.DEAD
        assert await status_of(store, other.id) is Status.DEAD

    async def test_does_not_mind_a_live_job_of_another_queue_with_its_fingerprint(
        self, store: Store
    ) -> None:
        ended = await insert_in_status(store, Status.DEAD, fingerprint="once")
        await insert(store, fingerprint="once", partition=Partition(queue="other", task="send"))

        [moved] = await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert moved.after is Status.WAITING

    async def test_makes_its_fingerprint_taken_again(self, store: Store) -> None:
        ended = await insert_in_status(store, Status.DEAD, fingerprint="once")
        await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [ended.id])

        assert await insert(store, fingerprint="once") == ended.id

    async def test_raises_when_two_of_them_have_one_fingerprint(self, store: Store) -> None:
        first = await insert_in_status(store, Status.DEAD, fingerprint="once")
        second = await insert_in_status(store, Status.FAILED, fingerprint="once")

        with pytest.raises(FingerprintTaken) as caught:
            await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [first.id, second.id])

        assert caught.value.job_id == first.id
        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 0

    @pytest.mark.parametrize("status", sorted(set(Status) - set(RETRIABLE)))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status, fingerprint="once")
        before = await job_record(store, there.id)

        moved = await store.admin.change_jobs(Transition.RETRY, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await job_record(store, there.id) == before


class TestResuming:
    async def test_puts_a_released_job_back_with_its_rank(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Parked())
        clock.advance(MINUTE)
        behind = await insert(store)

        moved = await store.admin.change_jobs(Transition.RESUME, NAMESPACE, [claimed.id])

        assert moved == [StatusChange(id=claimed.id, before=Status.PAUSED, after=Status.WAITING)]
        assert await claim_ids(store) == [claimed.id, behind]

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.PAUSED}))
    async def test_leaves_any_other_job_and_says_so(self, store: Store, status: Status) -> None:
        there = await insert_in_status(store, status)
        before = await job_record(store, there.id)

        moved = await store.admin.change_jobs(Transition.RESUME, NAMESPACE, [there.id])

        assert moved == [StatusChange(id=there.id, before=status, after=status)]
        assert await job_record(store, there.id) == before


# Pausing and resuming queues, and closing limits


RULES = (LimitRule(key="mailer", live_max=5),)


class TestAdminPauseQueue:
    async def test_lets_no_job_of_the_queue_be_claimed(self, store: Store) -> None:
        await insert(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")
        await insert(store)

        assert await claim_ids(store) == []
        assert await claim_ids(store, rules=RULES) == []

    async def test_wakes_workers(self, store: Store, second: Store) -> None:
        listeners = [Listener(handle) for handle in (store, second)]

        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")

        for listener in listeners:
            await listener.receives(HintType.DUE)

    async def test_lets_claimed_jobs_finish(self, store: Store) -> None:
        claimed = await claim_new(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)

        assert await settle(store, claimed, Completed(output=b"1")) is Status.COMPLETED

    async def test_keeps_the_first_when_paused_twice(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        assert await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")
        clock.advance(MINUTE)
        assert not await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ben")

        [paused] = await store.admin.paused_queues(NAMESPACE)

        assert (paused.paused_at, paused.paused_by) == (since, "ann")


class TestAdminResumeQueue:
    async def test_ends_a_pause(self, store: Store) -> None:
        id = await insert(store)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, None)

        assert await store.admin.resume_queue(NAMESPACE, PARTITION.queue)

        assert await claim_ids(store) == [id]
        assert await store.admin.paused_queues(None) == []

    async def test_does_nothing_when_there_is_no_pause(self, store: Store) -> None:
        assert not await store.admin.resume_queue(NAMESPACE, PARTITION.queue)

        assert await store.admin.paused_queues(None) == []

    async def test_lets_the_queue_be_paused_again(self, store: Store, clock: ManualClock) -> None:
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ann")
        await store.admin.resume_queue(NAMESPACE, PARTITION.queue)
        clock.advance(MINUTE)
        await store.admin.pause_queue(NAMESPACE, PARTITION.queue, "ben")

        [paused] = await store.admin.paused_queues(NAMESPACE)

        assert (paused.paused_at, paused.paused_by) == (clock(), "ben")


class TestAdminPausedQueues:
    async def test_shows_what_is_paused_since_when_and_by_which_user(
        self, store: Store, clock: ManualClock
    ) -> None:
        since = clock()
        await store.admin.pause_queue("team-b", "gpu", None)
        clock.advance(MINUTE)
        await store.admin.pause_queue(NAMESPACE, "mail", "ann")
        mine = QueueInfo(
            namespace=NAMESPACE, queue="mail", paused_at=since + MINUTE, paused_by="ann"
        )
        theirs = QueueInfo(namespace="team-b", queue="gpu", paused_at=since, paused_by=None)

        assert await store.admin.paused_queues(NAMESPACE) == [mine]
        assert await store.admin.paused_queues("team-b") == [theirs]
        assert await store.admin.paused_queues(None) == [mine, theirs]


class TestAClosedLimit:
    async def test_lets_nothing_start_before_it_opens(
        self, store: Store, clock: ManualClock
    ) -> None:
        id = await insert(store)
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)
        clock.advance(HOUR - MINUTE)

        assert await claim_ids(store, rules=RULES) == []
        clock.advance(MINUTE)
        assert await claim_ids(store, rules=RULES) == [id]

    async def test_changes_nothing_when_the_time_is_earlier(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)
        await close_limit(store, NAMESPACE, "mailer", clock() + MINUTE)

        assert (await claim(store, rules=RULES)).opens_at == clock() + HOUR

    async def test_moves_the_time_when_it_is_later(self, store: Store, clock: ManualClock) -> None:
        await insert(store)
        await close_limit(store, NAMESPACE, "mailer", clock() + MINUTE)
        await close_limit(store, NAMESPACE, "mailer", clock() + HOUR)

        assert (await claim(store, rules=RULES)).opens_at == clock() + HOUR

    async def test_stops_only_what_is_governed_by_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await insert(store)
        await close_limit(store, NAMESPACE, "other", clock() + HOUR)
        await close_limit(store, "team-b", "mailer", clock() + HOUR)

        assert len(await claim_ids(store, rules=RULES)) == 1


# Storage, flows and ended work in numbers


class TestAdminInspectStorage:
    async def test_finds_nothing_wrong_with_a_new_store(self, store: Store) -> None:
        found = await store.admin.inspect_storage()

        assert (found.damages, found.missing_indexes, found.invalid_indexes) == ((), {}, {})
        assert found.orphaned_runs == ()
        assert found.schema_version is None or found.schema_version >= 4

    async def test_names_runs_that_have_no_job_and_no_wait(self, store: Store) -> None:
        await submit(store)
        await submit(store, id=RunId("waits"), status=WAITING, waits=(signal(),))
        await submit(store, id=RunId("works"), jobs=(node_job(run=RunId("works")),))
        await submit(store, id=RunId("paused"), status=PAUSED)
        await submit(store, id=RunId("over"), status=COMPLETED)
        await submit(store, namespace=OTHER_NAMESPACE)

        assert set((await store.admin.inspect_storage()).orphaned_runs) == {
            OrphanedRun(run=RUN, namespace=NAMESPACE),
            OrphanedRun(run=RUN, namespace=OTHER_NAMESPACE),
        }

    async def test_returns_when_anything_was_last_recorded(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 36: a clock that was set back since is noticed."""
        assert (await store.admin.inspect_storage()).newest_at is None
        await insert(store, delay=HOUR)
        assert (await store.admin.inspect_storage()).newest_at == clock()
        clock.advance(SECOND)
        claimed = await claim_new(store)
        assert (await store.admin.inspect_storage()).newest_at == clock()
        clock.advance(SECOND)
        await settle(store, claimed, Completed(output=b"1"))
        assert (await store.admin.inspect_storage()).newest_at == clock()
        clock.advance(SECOND)
        await submit(store)
        clock.advance(SECOND)
        await commit(store, status=COMPLETED)
        assert (await store.admin.inspect_storage()).newest_at == clock()
        clock.advance(SECOND)
        await store.maintenance.register_worker(worker_info())
        newest_at = clock()
        clock.advance(-HOUR)

        assert (await store.admin.inspect_storage()).newest_at == newest_at

    async def test_names_no_more_than_so_many_of_them(self, store: Store) -> None:
        for number in range(ORPHANS_MAX + 1):
            await submit(store, id=RunId(f"run-{number:03}"))

        assert len((await store.admin.inspect_storage()).orphaned_runs) == ORPHANS_MAX


class TestAdminFlowStats:
    async def test_counts_runs_of_every_stored_version(
        self, store: Store, clock: ManualClock
    ) -> None:
        for namespace, version in (
            (NAMESPACE, VERSION),
            (NAMESPACE, "v2"),
            (OTHER_NAMESPACE, "v1"),
        ):
            await store.runs.save_definition(namespace, FLOW, version, b"{}")
        await submit(store)
        clock.advance(MINUTE)
        await submit(store, id=RunId("second"))
        await submit(store, id=RunId("over"), status=COMPLETED)

        counted = FlowRuns(
            namespace=NAMESPACE,
            flow=FLOW,
            version=VERSION,
            live=2,
            ended=1,
            last_submitted_at=clock(),
        )
        unused = FlowRuns(
            namespace=NAMESPACE, flow=FLOW, version="v2", live=0, ended=0, last_submitted_at=None
        )
        assert await store.admin.flow_stats(NAMESPACE) == [counted, unused]
        assert [each.namespace for each in await store.admin.flow_stats(None)] == [
            NAMESPACE,
            NAMESPACE,
            OTHER_NAMESPACE,
        ]


class TestAdminRunStats:
    async def test_counts_runs_by_status_without_children(self, store: Store) -> None:
        assert await store.admin.run_stats(None) == []
        await submit(store, waits=(child_wait(),), children=(new_child(status=RUNNING),))
        for number, status in enumerate((WAITING, WAITING, FAILED, FAILED, FAILED, COMPLETED)):
            await submit(store, id=RunId(f"r{number}"), status=status, waits=(signal(),))
        await submit(store, namespace=OTHER_NAMESPACE, status=FAILED)

        mine = {
            RunStatus.RUNNING: 1,
            RunStatus.WAITING: 2,
            RunStatus.FAILED: 3,
            RunStatus.COMPLETED: 1,
        }
        [ours, theirs] = await store.admin.run_stats(None)
        assert (ours.namespace, ours.counts, ours.more) == (NAMESPACE, mine, ())
        assert theirs == RunStats(namespace=OTHER_NAMESPACE, counts={RunStatus.FAILED: 1})
        assert await store.admin.run_stats(OTHER_NAMESPACE) == [theirs]
        assert await store.admin.run_stats("unknown") == []

    async def test_counts_runs_that_wait_for_people_once(self, store: Store) -> None:
        await submit(store, status=WAITING, waits=(approval("a"), approval("b")))
        await submit(store, id=RunId("second"), status=WAITING, waits=(approval(),))
        await submit(store, id=RunId("signal"), status=WAITING, waits=(signal(),))

        [stats] = await store.admin.run_stats(NAMESPACE)

        assert stats.waiting_for_people == 2

    async def test_counts_orphaned_runs_and_children(self, store: Store) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(status=RUNNING),))
        await submit(store, id=RunId("alone"))
        await submit(store, id=RunId("works"), jobs=(node_job(run=RunId("works")),))
        await submit(store, id=RunId("paused"), status=PAUSED)
        await submit(store, id=RunId("over"), status=COMPLETED)

        [stats] = await store.admin.run_stats(NAMESPACE)

        orphaned = (await store.admin.inspect_storage()).orphaned_runs
        assert stats.orphaned == len(orphaned) == 2

    async def test_is_exact_up_to_so_many_and_says_where_there_are_more(self, store: Store) -> None:
        for number in range(3):
            await submit(store, id=RunId(f"failed {number}"), status=FAILED)
            await submit(store, id=RunId(f"waits {number}"), status=WAITING, waits=(signal(),))
        three = {RunStatus.FAILED: 3, RunStatus.WAITING: 3}

        assert await store.admin.run_stats(NAMESPACE, 3) == [
            RunStats(namespace=NAMESPACE, counts=three)
        ]
        [stats] = await store.admin.run_stats(NAMESPACE, 2)
        assert stats.counts == dict.fromkeys(three, 2)
        # An unfinished run that was not read may have any status.
        assert set(stats.more) == {RunStatus.FAILED, *set(RunStatus) - ENDED}


class TestAdminCountEnded:
    async def test_counts_what_pruning_would_remove(self, store: Store, clock: ManualClock) -> None:
        await insert_in_status(store, Status.COMPLETED, namespace=NAMESPACE)
        await insert_in_status(store, Status.DEAD, namespace=NAMESPACE)
        await insert_in_status(store, Status.DISABLED, namespace=NAMESPACE)
        await submit(store, status=FAILED)
        clock.advance(HOUR)
        await insert_in_status(store, Status.DISABLED, namespace=NAMESPACE)
        await insert_in_status(store, Status.COMPLETED, namespace=NAMESPACE)
        await insert_in_status(store, Status.COMPLETED, namespace=OTHER_NAMESPACE)
        await insert_in_status(store, Status.WAITING, namespace=NAMESPACE)
        await submit(store, id=RunId("just now"), status=COMPLETED)

        ended = await store.admin.count_ended(NAMESPACE, HOUR)

        jobs = {Status.COMPLETED: 1, Status.DEAD: 1, Status.DISABLED: 1}
        assert ended == EndedCounts(jobs=jobs, runs={RunStatus.FAILED: 1})
        assert await store.maintenance.prune_jobs(NAMESPACE, dict.fromkeys(jobs, HOUR), 10) == 3
        assert await store.maintenance.prune_runs(NAMESPACE, {RunStatus.FAILED: HOUR}, 10) == 1
        assert await store.admin.count_ended(NAMESPACE, HOUR) == EndedCounts(jobs={}, runs={})

    async def test_leaves_out_children_which_go_with_their_parent(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(status=COMPLETED),))
        await commit_next(store, status=COMPLETED)
        clock.advance(HOUR)

        ended = await store.admin.count_ended(NAMESPACE, HOUR)
        assert ended.runs == {RunStatus.COMPLETED: 1}
