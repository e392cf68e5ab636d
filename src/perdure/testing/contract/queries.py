"""Reading jobs and explaining where a run or job is."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.ids import JobId, RunId
from perdure.model.job import JobFilter, JobState, Progress, QueueDepth, Status
from perdure.model.outcome import Cancelled, Completed, DeadLettered, Failed, Retried
from perdure.model.partition import Partition
from perdure.store.contract import Store
from perdure.store.failures import lease_expired
from perdure.store.lifecycle import Transition
from perdure.testing.contract.builders import (
    CHILD,
    LEASE,
    MINUTE,
    NAMESPACE,
    OTHER_NAMESPACE,
    OTHER_WORKER,
    PARTITION,
    PAUSED,
    RUN,
    SECOND,
    SUSPECTED,
    WAITING,
    WORKER,
    child_wait,
    claim_new,
    claim_node,
    claim_one,
    commit,
    event,
    failure,
    finishes,
    insert,
    insert_in_status,
    insert_many,
    load,
    new_child,
    node_job,
    read_job,
    read_run,
    settle,
    signal,
    submit,
    worker_info,
)

# Jobs: one, many, counts and queue stats


class TestQueriesGetJob:
    async def test_shows_a_job_with_its_values(self, store: Store) -> None:
        claimed = await claim_new(store, input=b'"in"')
        await settle(store, claimed, Completed(output=b'"out"'))

        job = await store.queries.get_job(NAMESPACE, claimed.id)

        assert job is not None
        assert (job.input, job.output) == (b'"in"', b'"out"')

    async def test_shows_nothing_where_nothing_is(self, store: Store) -> None:
        assert await store.queries.get_job(NAMESPACE, JobId("gone")) is None

    async def test_shows_the_whole_life_of_a_job(self, store: Store, clock: ManualClock) -> None:
        created_at = clock()
        id = await insert(store)
        clock.advance(MINUTE)
        await settle(store, await claim_one(store), Retried(failure=failure()))
        clock.advance(MINUTE)
        claimed = await claim_one(store)
        started_at = clock()
        clock.advance(MINUTE)
        await settle(store, claimed, Failed(failure=failure()), progress=Progress(percent=12))

        job = await read_job(store, id)

        assert (job.created_at, job.started_at) == (created_at, started_at)
        assert (job.finished_at, job.ready_at) == (clock(), created_at + MINUTE)
        assert (job.attempt, job.epoch, job.progress.percent) == (2, 2, 12)
        assert job.worker == WORKER


class TestQueriesListJobs:
    async def test_shows_the_newest_first_up_to_the_limit(self, store: Store) -> None:
        ids = await insert_many(store, 5)

        page = await store.queries.list_jobs(JobFilter(), 3)

        assert [job.id for job in page] == [ids[4], ids[3], ids[2]]

    async def test_continues_before_the_last_job_of_a_page(self, store: Store) -> None:
        ids = await insert_many(store, 5)

        page = await store.queries.list_jobs(JobFilter(before=ids[2]), 10)

        assert [job.id for job in page] == [ids[1], ids[0]]

    async def test_shows_jobs_without_their_values(self, store: Store) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Completed(output=b"1"))
        with_values = await read_job(store, claimed.id)

        [job] = await store.queries.list_jobs(JobFilter(), 10)

        assert (job.input, job.output) == (None, None)
        assert (job.id, job.status, job.progress, job.finished_at) == (
            with_values.id,
            with_values.status,
            with_values.progress,
            with_values.finished_at,
        )

    @pytest.mark.parametrize("status", sorted(Status))
    async def test_filters_by_status(self, store: Store, status: Status) -> None:
        # One that waits would be claimed on the way of the others, so it comes last.
        there = {
            each: (await insert_in_status(store, each)).id
            for each in sorted(Status, key=lambda status: status is Status.WAITING)
        }

        jobs = await store.queries.list_jobs(JobFilter(status=status), 20)

        assert [job.id for job in jobs] == [there[status]]

    @pytest.mark.parametrize("count", [5, 250])
    @pytest.mark.parametrize("status", [Status.WAITING, Status.SCHEDULED, Status.CANCELLED])
    async def test_shows_the_newest_of_a_status_first_however_many_have_it(
        self, store: Store, status: Status, count: int
    ) -> None:
        ids = await insert_many(
            store, count, delay=MINUTE if status is Status.SCHEDULED else 0 * MINUTE
        )
        if status is Status.CANCELLED:
            await store.admin.change_jobs(Transition.ABORT, None, ids)

        page = await store.queries.list_jobs(JobFilter(status=status), 3)

        assert [job.id for job in page] == ids[:-4:-1]

    async def test_filters_by_everything_at_once(self, store: Store) -> None:
        partition = Partition(queue="gpu", task="embed", tags=("a100",))
        wanted = await insert(store, namespace="team-b", partition=partition, group="run-1")
        await insert(store, partition=partition, group="run-1")
        await insert(
            store, namespace="team-b", partition=Partition(queue="x", task="embed"), group="run-1"
        )
        await insert(
            store, namespace="team-b", partition=Partition(queue="gpu", task="x"), group="run-1"
        )
        await insert(store, namespace="team-b", partition=partition, group="run-2")
        await insert(store, namespace="team-b", partition=partition, group="run-1", delay=MINUTE)
        filter = JobFilter(
            namespace="team-b", status=Status.WAITING, queue="gpu", task="embed", group="run-1"
        )

        assert [job.id for job in await store.queries.list_jobs(filter, 10)] == [wanted]
        assert await store.queries.count_jobs(filter) == 1


class TestQueriesPeek:
    async def test_shows_waiting_jobs_in_the_order_of_claims(self, store: Store) -> None:
        other = Partition(queue="mail", task="bounce")
        last = await insert(store, priority=5)
        second = await insert(store, partition=other, priority=3)
        first = await insert(store, priority=2)
        await insert(store, delay=MINUTE, priority=1)
        await insert(store, partition=Partition(queue="mail", task="third"), priority=1)
        await insert(store, namespace=OTHER_NAMESPACE, priority=1)
        texts = [PARTITION.text, other.text]

        found = await store.queries.peek(NAMESPACE, texts, 10)

        assert [job.id for job in found] == [first, second, last]
        assert [job.status for job in found] == [Status.WAITING] * 3
        assert [job.id for job in await store.queries.peek(NAMESPACE, texts, 2)] == [first, second]
        assert await store.queries.peek(NAMESPACE, [], 2) == []


class TestQueriesCountJobs:
    async def test_counts_what_the_filter_is_about(self, store: Store) -> None:
        ids = await insert_many(store, 3, group="run-1")
        await insert(store, namespace="team-b", group="run-1")
        await store.admin.change_jobs(Transition.ABORT, None, ids[:1])

        assert await store.queries.count_jobs(JobFilter()) == 4
        assert await store.queries.count_jobs(JobFilter(namespace=NAMESPACE)) == 3
        assert await store.queries.count_jobs(JobFilter(status=Status.WAITING)) == 3
        assert await store.queries.count_jobs(JobFilter(group="run-1", namespace=NAMESPACE)) == 3
        assert await store.queries.count_jobs(JobFilter(queue=PARTITION.queue, task="other")) == 0
        assert await store.queries.count_jobs(JobFilter(before=ids[2])) == 2


class TestAdminQueueStats:
    async def test_counts_jobs_by_queue_and_status(self, store: Store) -> None:
        gpu = Partition(queue="gpu", task="embed")
        await insert_in_status(store, Status.COMPLETED)
        await insert_many(store, 3)
        await insert_many(store, 2, partition=gpu, delay=MINUTE)
        await insert(store, namespace="team-b", partition=gpu)

        mine = [
            QueueDepth(namespace=NAMESPACE, queue="gpu", status=Status.SCHEDULED, count=2),
            QueueDepth(namespace=NAMESPACE, queue="mail", status=Status.COMPLETED, count=1),
            QueueDepth(namespace=NAMESPACE, queue="mail", status=Status.WAITING, count=3),
        ]
        theirs = QueueDepth(namespace="team-b", queue="gpu", status=Status.WAITING, count=1)
        assert await store.admin.queue_stats(NAMESPACE) == mine
        assert await store.admin.queue_stats(None) == [*mine, theirs]
        assert await store.admin.queue_stats("unknown") == []

    @pytest.mark.parametrize("status", sorted(Status))
    async def test_counts_up_to_a_bound_and_reports_that_there_are_more(
        self, store: Store, status: Status
    ) -> None:
        """Finding 21: counting read every job of every queue."""
        busy = [Partition(queue="mail", task=task) for task in ("send", 'q"t', "z")]
        for partition in (*busy, *busy, Partition(queue="gpu", task="embed")):
            await insert_in_status(store, status, partition=partition)
        await insert_in_status(store, status, partition=busy[0], namespace="team-b")

        def depth(queue: str, count: int, *, more: bool = False) -> QueueDepth:
            return QueueDepth(
                namespace=NAMESPACE, queue=queue, status=status, count=count, has_more=more
            )

        few, all = depth("gpu", 1), depth("mail", 6)
        assert await store.admin.queue_stats(NAMESPACE, 6) == [few, all]
        assert await store.admin.queue_stats(NAMESPACE, 5) == [few, depth("mail", 5, more=True)]
        assert await store.admin.queue_stats(None, 1) == [
            few,
            depth("mail", 1, more=True),
            replace(depth("mail", 1), namespace="team-b"),
        ]

    async def test_distinguishes_queues_by_their_whole_name(self, store: Store) -> None:
        names = ["a", 'a"', 'a",', "a\\", "aa", "é", "a#", "[", "~1.0"]
        for name in names:
            await insert_many(store, 2, partition=Partition(queue=name, task="t", keys=("k",)))

        found = await store.admin.queue_stats(NAMESPACE)

        assert [(each.queue, each.count) for each in found] == [(name, 2) for name in sorted(names)]


class TestQueriesFindResult:
    async def test_gives_the_output_of_a_completed_job_with_this_very_input(
        self, store: Store
    ) -> None:
        claimed = await claim_new(store, input=b'"a"', input_hash=77)
        await settle(store, claimed, Completed(output=b'"A"'))

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 77, b'"a"') == b'"A"'

    async def test_gives_the_one_completed_last(self, store: Store, clock: ManualClock) -> None:
        first, second = await claim_new(store), await claim_new(store)
        await settle(store, second, Completed(output=b"old"))
        clock.advance(MINUTE)
        await settle(store, first, Completed(output=b"new"))

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 1, b"{}") == b"new"

    async def test_gives_nothing_for_another_input_with_the_same_hash(self, store: Store) -> None:
        claimed = await claim_new(store, input=b'"a"', input_hash=77)
        await settle(store, claimed, Completed(output=b'"A"'))

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 77, b'"b"') is None

    async def test_gives_nothing_of_another_task_or_namespace(self, store: Store) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Completed(output=b"1"))

        assert await store.queries.find_result(NAMESPACE, "other", 1, b"{}") is None
        assert await store.queries.find_result("team-b", PARTITION.task, 1, b"{}") is None

    @pytest.mark.parametrize("status", sorted(set(Status) - {Status.COMPLETED}))
    async def test_gives_nothing_of_a_job_that_is_not_completed(
        self, store: Store, status: Status
    ) -> None:
        await insert_in_status(store, status)

        assert await store.queries.find_result(NAMESPACE, PARTITION.task, 1, b"{}") is None


# States for waiters, and the history of failures


class TestQueriesJobStates:
    async def test_returns_status_progress_and_outcome(self, store: Store) -> None:
        claimed = await claim_new(store)
        progress = Progress(percent=50, message="half")
        await settle(store, claimed, Completed(output=b"1"), progress=progress)
        waiting = await insert(store)

        states = await store.queries.job_states([claimed.id, waiting, JobId("gone")])

        assert states == {
            claimed.id: JobState(
                id=claimed.id,
                status=Status.COMPLETED,
                attempt=1,
                progress=Progress(percent=100, message="half"),
                output=b"1",
            ),
            waiting: JobState(
                id=waiting, status=Status.WAITING, attempt=0, progress=Progress(percent=0)
            ),
        }
        assert await store.queries.job_states([]) == {}

    @pytest.mark.parametrize("outcome_type", [Failed, DeadLettered])
    async def test_returns_the_last_failure_of_an_unsuccessful_job(
        self, store: Store, clock: ManualClock, outcome_type: type[Failed] | type[DeadLettered]
    ) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Retried(failure=failure("an earlier one")))
        clock.advance(SECOND)
        again = await claim_one(store)
        await settle(store, again, outcome_type(failure=failure("the last one")))

        state = (await store.queries.job_states([claimed.id]))[claimed.id]

        assert state.failure == failure("the last one")

    async def test_returns_why_a_job_was_cancelled_if_its_body_gave_a_reason(
        self, store: Store
    ) -> None:
        claimed = await claim_new(store)
        await store.admin.change_jobs(Transition.ABORT, NAMESPACE, [claimed.id])
        await settle(store, claimed, Cancelled(failure=failure("cleaned up")))

        state = (await store.queries.job_states([claimed.id]))[claimed.id]

        assert (state.status, state.failure) == (Status.CANCELLED, failure("cleaned up"))

    @pytest.mark.parametrize("status", sorted(Status))
    async def test_reports_no_failure_while_a_job_may_still_succeed(
        self, store: Store, status: Status
    ) -> None:
        there = await insert_in_status(store, status)

        state = (await store.queries.job_states([there.id]))[there.id]

        assert (state.failure is not None) == (status in {Status.FAILED, Status.DEAD})

    async def test_reports_no_failure_of_a_job_that_is_retried(self, store: Store) -> None:
        claimed = await claim_new(store)
        await settle(store, claimed, Retried(failure=failure()))

        assert (await store.queries.job_states([claimed.id]))[claimed.id].failure is None


class TestQueriesFailedAttempts:
    async def test_shows_each_failure_with_its_attempt_worker_and_time_oldest_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        began_at = clock()
        first = await claim_new(store, worker=WORKER)
        clock.advance(SECOND)
        await settle(store, first, Retried(failure=failure("one")))
        await claim_one(store, worker=OTHER_WORKER)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)
        third = await claim_one(store, worker=WORKER, suspicion=SUSPECTED)
        clock.advance(SECOND)
        await settle(store, third, DeadLettered(failure=failure("three")))

        history = await store.queries.failed_attempts(first.id)

        assert [(each.attempt, each.worker, each.at) for each in history] == [
            (1, WORKER, began_at + SECOND),
            (2, OTHER_WORKER, began_at + SECOND + LEASE),
            (3, WORKER, began_at + SECOND + LEASE + SECOND),
        ]
        assert [each.failure for each in history] == [
            failure("one"),
            lease_expired(OTHER_WORKER),
            failure("three"),
        ]

    async def test_is_empty_for_a_job_that_never_failed_or_is_not_there(self, store: Store) -> None:
        completed = await insert_in_status(store, Status.COMPLETED)

        assert await store.queries.failed_attempts(completed.id) == []
        assert await store.queries.failed_attempts(JobId("gone")) == []


# One consistent read for explain


class TestQueriesExplainFacts:
    async def test_has_everything_around_a_run(self, store: Store, clock: ManualClock) -> None:
        await submit(
            store,
            events=(event("a", "input"), event("b")),
            jobs=(node_job("pack"),),
            waits=(signal("ask"), child_wait()),
            children=(new_child(),),
        )
        await store.maintenance.register_worker(worker_info(namespace=NAMESPACE))
        await store.admin.pause_queue(NAMESPACE, "packing", "ann")
        clock.advance(MINUTE)

        facts = await store.queries.explain_facts(NAMESPACE, run=RUN)

        assert facts.now == clock()
        assert facts.loaded == await load(store, number=None)
        assert list(facts.jobs) == await store.queries.run_jobs(NAMESPACE, RUN)
        assert [job.node.key for job in facts.jobs if job.node] == ["pack"]
        assert list(facts.waits) == await store.queries.run_waits(NAMESPACE, RUN)
        assert {wait.key for wait in facts.waits} == {"ask", "ship"}
        assert facts.children == {CHILD: (await read_run(store, CHILD)).status}
        assert list(facts.workers) == await store.queries.workers(NAMESPACE)
        assert [each.queue for each in facts.paused_queues] == ["packing"]
        assert [(each.number, each.value) for each in facts.events] == [(2, None), (1, None)]

    async def test_has_the_last_failure_of_what_waits_for_another_attempt(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await insert(store)
        for text in ("first", "second"):
            claimed = await claim_one(store)
            await settle(store, claimed, Retried(failure=failure(text), delay=SECOND))
            clock.advance(SECOND)
            await store.maintenance.promote_due(NAMESPACE, 10)
        claimed = await claim_one(store)
        await settle(store, claimed, Retried(failure=failure("third"), delay=MINUTE))

        facts = await store.queries.explain_facts((await of(store, job)), job=job)

        assert {id: each.failure.message for id, each in facts.failures.items()} == {job: "third"}

    async def test_of_a_job_is_about_that_job_alone(self, store: Store) -> None:
        job, other = await insert_many(store, 2)
        namespace = await of(store, job)

        facts = await store.queries.explain_facts(namespace, job=job)

        assert [each.id for each in facts.jobs] == [job]
        assert other not in facts.failures
        assert (facts.loaded, facts.waits, facts.events, facts.children) == (None, (), (), {})

    async def test_of_nothing_says_so(self, store: Store) -> None:
        await submit(store)

        of_other = await store.queries.explain_facts(OTHER_NAMESPACE, run=RUN)
        unknown = await store.queries.explain_facts(NAMESPACE, run=RunId("unknown"))
        job = await store.queries.explain_facts(NAMESPACE, job=JobId("unknown"))

        for facts in (of_other, unknown, job):
            assert (facts.loaded, facts.jobs, facts.waits, facts.events) == (None, (), (), ())

    async def test_is_of_one_moment_however_much_is_written(self, store: Store) -> None:
        """Where the log says that a job has ended, the job is gone; never one without the other."""
        await submit(store, jobs=(node_job("pack"),))
        expected = 1

        async def write() -> None:
            nonlocal expected
            for _ in range(30):
                claimed = await claim_node(store)
                status = WAITING if expected % 2 else PAUSED
                result = await commit(
                    store,
                    expected,
                    status=status,
                    settlements=(finishes(claimed),),
                    jobs=(node_job(f"pack{expected}"),),
                )
                assert result.state == "done"
                expected += 1

        async def read() -> None:
            for _ in range(60):
                facts = await store.queries.explain_facts(NAMESPACE, run=RUN)
                assert facts.loaded is not None
                number = facts.loaded.run.number
                assert facts.events[0].number == number
                [job] = facts.jobs
                assert job.node is not None
                assert job.node.key == ("pack" if number == 1 else f"pack{number - 1}")
                await asyncio.sleep(0)

        await asyncio.gather(write(), read(), read())


class TestQueriesGetJobs:
    async def test_gives_those_that_are_there(self, store: Store) -> None:
        first, second = await insert_many(store, 2)
        namespace = await of(store, first)

        found = await store.queries.get_jobs(namespace, [second, JobId("unknown"), first])

        assert {job.id for job in found} == {first, second}
        assert all(job.input is None for job in found)
        assert await store.queries.get_jobs(OTHER_NAMESPACE, [first]) == []
        assert await store.queries.get_jobs(namespace, []) == []


async def of(store: Store, id: JobId) -> str:
    job = await store.queries.get_job(None, id)
    assert job is not None
    return job.namespace
