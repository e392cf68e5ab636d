"""What explains where a run or a job is: one consistent read."""

from __future__ import annotations

import asyncio

from perdure.clock import ManualClock
from perdure.model.ids import JobId, RunId
from perdure.model.outcome import Retried
from perdure.store.contract import Store
from tests.conformance.builders import (
    MINUTE,
    SECOND,
    claim_one,
    failure,
    insert,
    insert_many,
    settle,
    worker_info,
)
from tests.conformance.run_builders import (
    CHILD,
    NAMESPACE,
    OTHER_NAMESPACE,
    PAUSED,
    RUN,
    WAITING,
    child_wait,
    claim_node,
    commit,
    ends,
    event,
    load,
    new_child,
    node_job,
    read_run,
    signal,
    submit,
)


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
            held = await claim_one(store)
            await settle(store, held, Retried(failure=failure(text), delay=SECOND))
            clock.advance(SECOND)
            await store.maintenance.promote_due("default", 10)
        held = await claim_one(store)
        await settle(store, held, Retried(failure=failure("third"), delay=MINUTE))

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
        unknown = await store.queries.explain_facts(NAMESPACE, run=RunId("nobody"))
        job = await store.queries.explain_facts(NAMESPACE, job=JobId("nobody"))

        for facts in (of_other, unknown, job):
            assert (facts.loaded, facts.jobs, facts.waits, facts.events) == (None, (), (), ())

    async def test_is_of_one_moment_however_much_is_written(self, store: Store) -> None:
        """Where the log says that a job has ended, the job is gone; never one without the other."""
        await submit(store, jobs=(node_job("pack"),))
        expected = 1

        async def write() -> None:
            nonlocal expected
            for _ in range(30):
                held = await claim_node(store)
                status = WAITING if expected % 2 else PAUSED
                result = await commit(
                    store,
                    expected,
                    status=status,
                    settlements=(ends(held),),
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

        found = await store.queries.get_jobs(namespace, [second, JobId("nobody"), first])

        assert {job.id for job in found} == {first, second}
        assert all(job.input is None for job in found)
        assert await store.queries.get_jobs(OTHER_NAMESPACE, [first]) == []
        assert await store.queries.get_jobs(namespace, []) == []


async def of(store: Store, id: JobId) -> str:
    job = await store.queries.get_job(None, id)
    assert job is not None
    return job.namespace
