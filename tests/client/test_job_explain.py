"""Asking why a job is where it is, of a run or not, on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    Action,
    AsyncClient,
    AsyncJobHandle,
    Concurrency,
    Explanation,
    Finding,
    Flow,
    JobNotFound,
    Rate,
    RunNotFound,
    Severity,
    Spacing,
    task,
)
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob, Status
from perdure.model.limit import Limit, info_of
from perdure.model.partition import Partition
from perdure.model.worker import TaskLimits
from perdure.operations.insight.explain import START_WORKER
from perdure.store.admission import START_MARGIN, governing_rules
from perdure.store.contract import Store
from perdure.testing.contract.builders import claim, close_limit, worker_info
from tests.client.flows import add, asking, keep, ordering
from tests.client.harness import MINUTE, CountedStore, job_that_is, worker_at
from tests.support.refusal import refused
from tests.worker.harness import until

HOUR = timedelta(hours=1)


def only(explanation: Explanation) -> Finding:
    [finding] = explanation.findings
    return finding


async def register(store: Store, **fields: Any) -> None:
    """A live worker that has the tasks of these tests."""
    known = {"namespace": "default", "tasks": ("add", "call_api"), "lease": MINUTE}
    info = worker_info(**{"id": PLAYED, "flows": (), "concurrency": 10, **known, **fields})
    await store.maintenance.register_worker(info)


PLAYED = WorkerId("played-worker")


class TestAJob:
    async def test_is_never_taken_for_a_run(self, client):
        job = await client.enqueue(add, 1)
        assert await client.jobs.explain(job.id) == await job.explain()
        with refused("run.not_found", RunNotFound, run_id=job.id):
            await client.runs.explain(job.id)

    async def test_has_no_worker_with_its_task(self, client, store, clock):
        await register(store, tasks=("other",))
        job = await client.enqueue(add, 1)
        assert only(await job.explain()) == Finding(
            code="explain.no_task",
            args={"task": "add", "queue": "default", "since": clock()},
            actions=(START_WORKER,),
        )

    async def test_says_when_the_worker_that_can_take_it_was_last_seen(self, client, store, clock):
        """Finding 23: it may have been killed since."""
        await register(store)
        job = await client.enqueue(add, 1)
        seen_at = clock()
        clock.advance(timedelta(seconds=20))

        finding = only(await job.explain())
        assert (finding.code, finding.args["seen"]) == ("explain.queued", timedelta(seconds=20))
        assert list(finding.args["seen_at"].values()) == [seen_at]

    async def test_is_suspected_of_crashing_its_worker(self, client, store, worker, clock):
        """Finding 35: a suspect waits until a worker has few other jobs."""
        job = await client.enqueue(add, 1)
        await worker.claim()
        clock.advance(HOUR)
        await store.maintenance.take_over_expired("default", 10)
        await register(store)
        clock.advance(timedelta(seconds=20))

        finding = only(await job.explain())
        assert finding.code == "explain.suspected"
        assert (finding.args["crashes"], finding.args["alone"], finding.args["others"]) == (1, 0, 5)
        # Finding 23: a live worker may have been killed since.
        assert (finding.args["workers"], finding.args["seen"]) == (1, timedelta(seconds=20))

    async def test_lost_its_worker(self, client, worker, store, clock):
        job = await client.enqueue(add, 1)
        await worker.claim()
        clock.advance(HOUR)
        alone = only(await job.explain())
        await register(store)

        found = only(await job.explain())

        assert (alone.code, alone.actions) == ("explain.abandoned", (START_WORKER,))
        assert (found.code, found.actions) == ("explain.lease_expired", ())
        assert found.args["lease_until"] < clock()

    async def test_has_its_time_ahead(self, client, store, clock):
        job = await client.enqueue(add.options(delay="1h"), 1)
        due = clock() + HOUR

        assert only(await job.explain()) == Finding(
            code="explain.scheduled",
            severity=Severity.WARNING,
            args={"task": "add", "at": due, "unserved": "add"},
            actions=(START_WORKER,),
        )
        await register(store)
        assert only(await job.explain()) == Finding(
            code="explain.scheduled", severity=Severity.OK, args={"task": "add", "at": due}
        )

    @pytest.mark.parametrize(
        "status, code, operation",
        [
            (Status.ACTIVE, "explain.running", None),
            (Status.ABORTING, "explain.stopping", None),
            (Status.DISABLED, "explain.disabled", "jobs.enable"),
            (Status.PAUSED, "explain.job_paused", "jobs.resume"),
            (Status.FAILED, "explain.job_failed", "jobs.retry"),
            (Status.DEAD, "explain.dead_letter", "jobs.retry"),
            (Status.CANCELLED, "explain.job_cancelled", "jobs.retry"),
        ],
    )
    async def test_is_in_a_status(self, client, worker, clock, status, code, operation):
        job = await job_that_is(status, client, worker)

        explanation = await job.explain()

        assert explanation.headline == explanation.findings
        assert (explanation.status, only(explanation).code) == (status, code)
        assert only(explanation).actions == (
            (Action(operation, {"id": job.id}),) if operation else ()
        )
        if status in {Status.FAILED, Status.DEAD}:
            found = only(explanation).args
            assert (found["at"], found["error"]) == (clock(), "ValueError")
            assert found["reason"] == "no money"

    async def test_is_completed(self, client, worker):
        job = await job_that_is(Status.COMPLETED, client, worker)
        explanation = await job.explain()
        [headline] = explanation.headline
        assert headline.code == "explain.job_status"
        assert headline.args == {"job": job.id, "status": Status.COMPLETED}
        assert explanation.findings == ()

    async def test_is_not_there(self, client):
        with pytest.raises(JobNotFound):
            await client.jobs.handle("nobody").explain()
        with pytest.raises(RunNotFound):
            await client.runs.explain("nobody")


class TestAJobOfARun:
    async def test_explains_its_part_of_the_run(self, client, worker):
        await client.submit(ordering, 3, id="order-3")
        claimed = await worker.claim()
        explanation = await client.jobs.explain(claimed.claim.id)
        assert (explanation.run, explanation.job, explanation.status) == (
            "order-3",
            claimed.claim.id,
            Status.ACTIVE,
        )
        assert explanation.headline == explanation.findings
        assert only(explanation).code == "explain.running"


class TestLimits:
    """Jobs that limits hold back: which, until when, and who holds what they allow."""

    async def test_a_full_one_is_reported_with_its_holders(self, client, store, clock):
        holder, job = await held_back(client, store, Concurrency(1, key="api"))

        explanation = await job.explain()

        assert explanation.headline == explanation.findings
        assert only(explanation) == Finding(
            code="explain.limit_full",
            severity=Severity.WARNING,
            args={
                "limit": "api",
                "running": 1,
                "most": 1,
                "holders": (holder.id,),
                "holder": holder.id,
                "holder_worker": "played-worker",
                "held_since": clock(),
                "more": None,
                "since": clock(),
            },
            actions=(Action("jobs.explain", {"id": holder.id}),),
        )

    async def test_take_two_more_reads(self, client, store):
        _, job = await held_back(client, store, Concurrency(1, key="api"))

        counted = CountedStore(store)
        async with AsyncClient(counted.as_store()) as ours:
            await ours.jobs.explain(job.id)

        assert counted.calls == {
            "queries.explain_facts": 1,
            "queries.limit_usage": 1,
            "queries.get_jobs": 1,
        }

    async def test_an_exhausted_one_reports_when_it_opens(self, client, store, clock):
        _, job = await held_back(client, store, Rate(1, per="1m", key="api"))

        finding = only(await job.explain())

        assert finding.code == "explain.limit_used_up"
        assert finding.args == {
            "limit": "api",
            "starts": 1,
            "window": MINUTE + START_MARGIN,
            "opens_at": clock() + MINUTE + START_MARGIN,
            "since": clock(),
        }

    async def test_one_that_spaces_starts_reports_when_the_next_is(self, client, store, clock):
        _, job = await held_back(client, store, Spacing("1m", key="api"))

        finding = only(await job.explain())

        assert finding.code == "explain.limit_spacing"
        assert finding.args == {
            "limit": "api",
            "spacing": MINUTE + START_MARGIN,
            "opens_at": clock() + MINUTE + START_MARGIN,
            "since": clock(),
        }

    async def test_a_closed_one_reports_until_when(self, client, store, clock):
        await register(store, task_limits=_of_task([Concurrency(1, key="api")]))
        job = await client.enqueue(call_api, 1)
        await close_limit(store, "default", "api", clock() + HOUR)
        finding = only(await job.explain())
        assert finding.code == "explain.limit_closed"
        assert finding.args == {"limit": "api", "until": clock() + HOUR, "since": clock()}

    async def test_one_worker_without_the_limit_is_enough(self, client, store):
        _, job = await held_back(client, store, Concurrency(1, key="api"))
        await register(store, id=WorkerId("free"))
        assert only(await job.explain()).code == "explain.queued"

    async def test_of_a_run_are_reported_with_the_run_that_holds_them(self, client, store):
        flow = Flow("calling").then(call_api).build()
        of_flow = _of_task([Concurrency(1, key="api")], flow=flow.graph.text)
        await register(store, flows=(flow.graph.text,), task_limits=of_flow)
        await client.submit(flow, 1, id="one")
        [holder] = await _claim(store, Concurrency(1, key="api"), flow=flow.graph.text)
        await client.submit(flow, 2, id="two")

        explanation = await client.runs.explain("two")

        assert explanation.headline == explanation.findings
        assert (only(explanation).code, only(explanation).about) == (
            "explain.limit_full",
            "call_api",
        )
        assert only(explanation).args["holder"] == holder.claim.id
        assert only(explanation).args["holder_node"] == "call_api"
        assert only(explanation).args["holder_run"] == "one"


@pytest.mark.every_store
class TestWorkers:
    async def test_are_silent_once_their_lease_has_passed(self, client, store, clock):
        """Finding 19: a killed worker is listed for minutes; each says when it was last seen."""
        await register(store)
        clock.advance(MINUTE)
        [alive] = await client.workers.list()
        clock.advance(MINUTE)
        [killed] = await client.workers.list()

        assert (alive.status, alive.silent_for) == ("live", MINUTE)
        assert (killed.status, killed.silent_for) == ("silent", 2 * MINUTE)


class TestWorkersReport:
    async def test_which_limits_they_keep(self, client, store):
        """A real one, whose word explaining goes by."""
        flow = Flow("calling").then(keep).then(limited).build()

        async def is_registered() -> bool:
            return bool(await client.workers.list())

        async with worker_at(store, [flow, asking]):
            await until(is_registered)
            [worker] = await client.workers.list()

        assert worker.info.task_limits == (
            TaskLimits(
                task="limited", flow=flow.graph.text, limits=(info_of(Concurrency(3, key="api")),)
            ),
        )


@task
def call_api(number: int) -> int:
    return number


@task(limits=[Concurrency(3, key="api")])
def limited(value: Any) -> Any:
    return value


def _of_task(limits: Sequence[Limit], flow: str = "") -> tuple[TaskLimits, ...]:
    return (TaskLimits(task="call_api", limits=tuple(map(info_of, limits)), flow=flow),)


async def _claim(store: Store, *limits: Limit, flow: str = "") -> list[ClaimedJob]:
    """As a worker claims that keeps to these limits."""
    partition = Partition(queue="default", task="call_api", flow=flow)
    rules = governing_rules(partition, limits, ())
    claimed = await claim(
        store, partition, rules=rules, namespace="default", worker=PLAYED, lease=HOUR
    )
    return claimed.jobs


async def held_back(
    client: AsyncClient, store: Store, limit: Limit
) -> tuple[AsyncJobHandle[int], AsyncJobHandle[int]]:
    """A job that a worker has claimed under a limit of one, and one that waits for it."""
    await register(store, task_limits=_of_task([limit]))
    holder, job = await client.enqueue(call_api, 1), await client.enqueue(call_api, 2)
    await _claim(store, limit)
    return holder, job
