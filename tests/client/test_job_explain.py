"""Asking why a job is where it is, of a run or not, on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AsyncClient,
    Concurrency,
    Explanation,
    Finding,
    FindingKind,
    Flow,
    JobNotFound,
    Rate,
    RunNotFound,
    Spacing,
    task,
)
from perdure.clock import ManualClock
from perdure.model.ids import WorkerId
from perdure.model.job import ClaimedJob, Status
from perdure.model.lane import Lane
from perdure.model.limit import Limit, info_of
from perdure.model.outcome import Released, Retried
from perdure.model.worker import TaskLimits, WorkerInfo
from perdure.rules.failure import describe
from perdure.rules.limits import governing_rules
from perdure.store.contract import ClaimRequest, LaneRequest, Store
from tests.client.flows import asking, keep, ordering
from tests.client.played_worker import MINUTE, PlayedWorker
from tests.client.runs import worker_at
from tests.client.tasks import add, embed
from tests.worker.harness import until

HOUR = timedelta(hours=1)


def only(told: Explanation) -> Finding:
    [finding] = told.findings
    return finding


def ready(clock: ManualClock) -> str:
    """What is said of a job that became ready just now."""
    return f"; the job is ready since {clock().isoformat(sep=' ', timespec='seconds')}"


async def register(store: Store, **fields: Any) -> None:
    """A live worker that has the tasks of these tests."""
    known: dict[str, Any] = {
        "id": WorkerId("played-worker"),
        "namespace": "default",
        "host": "here",
        "pid": 1,
        "queues": ("default",),
        "tasks": ("add", "call_api"),
        "tags": None,
        "concurrency": 10,
        "lease": MINUTE,
    }
    await store.maintenance.register_worker(WorkerInfo(**(known | fields)))


class TestAJob:
    async def test_waits_for_a_worker(self, client: AsyncClient, clock: ManualClock) -> None:
        job = await client.enqueue(add, 1)

        told = await job.explain()

        assert (told.job, told.run, told.status) == (job.id, None, Status.WAITING)
        assert told.summary == f"It does not run: no worker is live{ready(clock)}."
        assert only(told).kind is FindingKind.NO_WORKER
        assert only(told).help == "start a worker with this task"

    async def test_is_found_by_its_id_where_a_run_could_be_meant(self, client: AsyncClient) -> None:
        job = await client.enqueue(add, 1)

        assert await client.explain(job.id) == await job.explain()

    async def test_has_no_worker_with_its_task(
        self, client: AsyncClient, store: Store, clock: ManualClock
    ) -> None:
        await register(store, tasks=("other",))
        job = await client.enqueue(add, 1)

        assert only(await job.explain()).text == f"no live worker has task 'add'{ready(clock)}"

    async def test_has_no_worker_in_its_queue(
        self, client: AsyncClient, store: Store, clock: ManualClock
    ) -> None:
        await register(store, tasks=("embed",))
        job = await client.enqueue(embed, "text")

        assert only(await job.explain()).text == (
            f"no live worker that has task 'embed' serves queue 'embeddings'{ready(clock)}"
        )

    async def test_has_no_worker_with_its_tags(self, client: AsyncClient, store: Store) -> None:
        await register(store, tasks=("embed",), queues=("embeddings",), tags=("cpu",))
        job = await client.enqueue(embed, "text")

        finding = only(await job.explain())

        assert finding.kind is FindingKind.NO_TAGS
        assert finding.help == "start a worker with tags=['gpu']"

    async def test_is_in_a_paused_queue(self, client: AsyncClient, clock: ManualClock) -> None:
        job = await client.enqueue(add, 1)
        await client.pause_queue("default", by="ann")
        paused_at = clock().isoformat(sep=" ", timespec="seconds")

        finding = only(await job.explain())

        assert finding.text == f"queue 'default' is paused by ann since {paused_at}"
        assert finding.help == "client.resume_queue('default')"

    async def test_can_be_taken(self, client: AsyncClient, store: Store) -> None:
        await register(store)
        job = await client.enqueue(add, 1)

        told = await job.explain()

        assert only(told).kind is FindingKind.QUEUED
        assert told.summary.startswith("Task 'add' waits in queue 'default' since ")
        assert told.summary.endswith("; 1 live worker can take it.")

    async def test_could_be_taken_if_anybody_had_time(
        self, client: AsyncClient, store: Store, worker: PlayedWorker
    ) -> None:
        await register(store, concurrency=1)
        await client.enqueue(add, 1)
        await worker.claim()
        job = await client.enqueue(add, 2)

        assert (await job.explain()).summary.endswith("1 live worker can take it, and is busy.")

    async def test_runs(self, client: AsyncClient, worker: PlayedWorker) -> None:
        job = await client.enqueue(add, 1)
        await worker.claim()

        told = await job.explain()

        assert told.summary.startswith(
            "Attempt 1 of task 'add' runs on worker played-worker since "
        )

    async def test_was_asked_to_stop(self, client: AsyncClient, worker: PlayedWorker) -> None:
        job = await client.enqueue(add, 1)
        await worker.claim()
        await job.abort()

        assert only(await job.explain()).text.endswith(", and was asked to stop")

    async def test_lost_its_worker(
        self, client: AsyncClient, worker: PlayedWorker, store: Store, clock: ManualClock
    ) -> None:
        job = await client.enqueue(add, 1)
        await worker.claim()
        clock.advance(HOUR)
        alone = only(await job.explain())
        await register(store)

        found = only(await job.explain())

        assert alone.kind is found.kind is FindingKind.LOST
        assert alone.text.endswith(", and no worker is live")
        assert found.text.endswith(": the next live worker takes it over")

    async def test_backs_off_after_an_error(
        self, client: AsyncClient, worker: PlayedWorker, store: Store, clock: ManualClock
    ) -> None:
        job = await client.enqueue(add, 1)
        claimed = await worker.claim()
        failure = describe(ValueError("no route"))
        await worker.settle(claimed, Retried(failure=failure, delay=HOUR))
        failed = clock().isoformat(sep=" ", timespec="seconds")
        due = (clock() + HOUR).isoformat(sep=" ", timespec="seconds")
        await register(store)

        assert only(await job.explain()) == Finding(
            kind=FindingKind.RETRY,
            text=f"attempt 2 of task 'add' is due at {due}, by itself; the last one failed at "
            f"{failed}: ValueError: no route",
        )

    async def test_has_its_time_ahead(
        self, client: AsyncClient, store: Store, clock: ManualClock
    ) -> None:
        job = await client.enqueue(add, 1, delay="1h")
        due = (clock() + HOUR).isoformat(sep=" ", timespec="seconds")

        assert only(await job.explain()) == Finding(
            kind=FindingKind.SCHEDULED,
            text=f"task 'add' is to start at {due}, once a live worker can take it",
            help="start a worker with this task",
        )
        await register(store)
        assert only(await job.explain()) == Finding(
            kind=FindingKind.SCHEDULED, text=f"task 'add' is to start at {due}, by itself"
        )

    async def test_is_disabled(self, client: AsyncClient) -> None:
        job = await client.enqueue(add, 1)
        await client.disable(job.id)

        told = await job.explain()

        assert only(told).help == f"client.enable({job.id!r})"
        assert told.summary == (
            "It does not run: task 'add' was disabled, and does not run until it is enabled."
        )

    async def test_is_parked(self, client: AsyncClient, worker: PlayedWorker) -> None:
        job = await client.enqueue(add, 1)
        await worker.settle(await worker.claim(), Released())

        finding = only(await job.explain())

        assert finding.text == "task 'add' paused, and goes on once it is resumed"
        assert finding.help == f"client.resume({job.id!r})"

    async def test_failed(self, client: AsyncClient, worker: PlayedWorker) -> None:
        job = await client.enqueue(add, 1)
        await worker.fail(await worker.claim(), ValueError("no money"))

        finding = only(await job.explain())

        assert finding.text.startswith("task 'add' failed at ")
        assert finding.text.endswith(", after ValueError: no money")
        assert finding.help == f"client.retry({job.id!r})"

    async def test_is_in_the_dead_letter(self, client: AsyncClient, worker: PlayedWorker) -> None:
        job = await client.enqueue(add, 1)
        await worker.bury(await worker.claim(), ValueError("no money"))

        assert "is in the dead letter at " in only(await job.explain()).text

    async def test_was_cancelled(self, client: AsyncClient) -> None:
        job = await client.enqueue(add, 1)
        await job.abort()

        assert only(await job.explain()).kind is FindingKind.CANCELLED

    async def test_is_completed(self, client: AsyncClient, worker: PlayedWorker) -> None:
        job = await client.enqueue(add, 1)
        await worker.complete(await worker.claim(), 2)

        told = await job.explain()

        assert (told.summary, told.findings) == ("It is completed.", ())

    async def test_is_not_there(self, client: AsyncClient) -> None:
        with pytest.raises(JobNotFound):
            await client.handle("nobody").explain()
        with pytest.raises(RunNotFound):
            await client.explain("nobody")


class TestAJobOfARun:
    async def test_tells_its_part_of_the_run(
        self, client: AsyncClient, worker: PlayedWorker
    ) -> None:
        await client.submit(ordering, 3, id="order-3")
        claimed = await worker.claim()

        told = await client.explain(claimed.claim.id)

        assert (told.run, told.job, told.status) == ("order-3", claimed.claim.id, Status.ACTIVE)
        assert told.summary.startswith("Attempt 1 of task 'read_order' runs on worker ")

    async def test_tells_that_its_run_is_paused(
        self, client: AsyncClient, worker: PlayedWorker, clock: ManualClock
    ) -> None:
        await client.submit(ordering, 3, id="order-3")
        [job] = await client.jobs()
        await client.pause("order-3", by="ann")

        told = await client.explain(job.id)

        since = clock().isoformat(sep=" ", timespec="seconds")
        assert told.summary == f"It is paused by ann since {since}."
        assert only(told).help == "client.unpause('order-3')"


class TestLimits:
    """Jobs that limits hold back: which, until when, and who holds what they allow."""

    async def test_a_full_one_is_told_with_its_holders(
        self, client: AsyncClient, store: Store, clock: ManualClock
    ) -> None:
        limits = [Concurrency(1, key="api")]
        await register(store, task_limits=_of_task(limits))
        holder = await client.enqueue(call_api, 1)
        job = await client.enqueue(call_api, 2)
        await _claim(store, limits)
        since = clock().isoformat(sep=" ", timespec="seconds")

        told = await job.explain()

        assert told.summary.startswith("It does not run: limit 'api' is full")
        assert only(told) == Finding(
            kind=FindingKind.LIMITED,
            text=f"limit 'api' is full: 1 of 1 run, held by job {holder.id} on worker "
            f"played-worker since {since}{ready(clock)}",
            help=f"client.explain({holder.id!r})",
        )

    async def test_a_full_one_of_a_worker(self, client: AsyncClient, store: Store) -> None:
        limits = [Concurrency(1, queue="default")]
        await register(store, limits=tuple(map(info_of, limits)))
        await client.enqueue(call_api, 1)
        job = await client.enqueue(call_api, 2)
        await _claim(store, limits)

        assert "limit 'queue:default' is full: 1 of 1 run" in only(await job.explain()).text

    async def test_a_full_one_whose_key_is_computed(
        self, client: AsyncClient, store: Store
    ) -> None:
        limits = _of_task(call_tenant.limits, "call_tenant")
        await register(store, tasks=("call_tenant",), task_limits=limits)
        await client.enqueue(call_tenant, "a")
        same = await client.enqueue(call_tenant, "a")
        other = await client.enqueue(call_tenant, "b")
        await _claim(store, call_tenant.limits, keys=("tenant-a",), task_name="call_tenant")

        assert only(await same.explain()).kind is FindingKind.LIMITED
        assert only(await other.explain()).kind is FindingKind.QUEUED

    async def test_one_that_is_used_up_tells_when_it_opens(
        self, client: AsyncClient, store: Store, clock: ManualClock
    ) -> None:
        limits = [Rate(1, per="1m", key="api")]
        await register(store, task_limits=_of_task(limits))
        await client.enqueue(call_api, 1)
        job = await client.enqueue(call_api, 2)
        await _claim(store, limits)
        opens = (clock() + MINUTE).isoformat(sep=" ", timespec="seconds")

        assert only(await job.explain()).text == (
            f"limit 'api' is used up: 1 started within 0:01:00; the next one may start at {opens}"
            f"{ready(clock)}"
        )

    async def test_one_that_spaces_starts_tells_when_the_next_is(
        self, client: AsyncClient, store: Store, clock: ManualClock
    ) -> None:
        limits = [Spacing("1m", key="api")]
        await register(store, task_limits=_of_task(limits))
        await client.enqueue(call_api, 1)
        job = await client.enqueue(call_api, 2)
        await _claim(store, limits)
        opens = (clock() + MINUTE).isoformat(sep=" ", timespec="seconds")

        assert only(await job.explain()).text == (
            f"limit 'api' lets one start every 0:01:00; the next one may start at {opens}"
            f"{ready(clock)}"
        )

    async def test_a_closed_one_tells_until_when(
        self, client: AsyncClient, store: Store, clock: ManualClock
    ) -> None:
        await register(store, task_limits=_of_task([Concurrency(1, key="api")]))
        job = await client.enqueue(call_api, 1)
        await store.admin.close_limit("default", "api", clock() + HOUR)
        until = (clock() + HOUR).isoformat(sep=" ", timespec="seconds")

        assert only(await job.explain()).text == (
            f"limit 'api' is closed until {until}, as a job asked that met it{ready(clock)}"
        )

    async def test_one_with_room_holds_nothing_back(
        self, client: AsyncClient, store: Store
    ) -> None:
        limits = [Concurrency(2, key="api")]
        await register(store, task_limits=_of_task(limits))
        await client.enqueue(call_api, 1)
        job = await client.enqueue(call_api, 2)
        await _claim(store, limits, count=1)

        assert only(await job.explain()).kind is FindingKind.QUEUED

    async def test_one_worker_without_the_limit_is_enough(
        self, client: AsyncClient, store: Store
    ) -> None:
        limits = [Concurrency(1, key="api")]
        await register(store, task_limits=_of_task(limits))
        await register(store, id=WorkerId("free"))
        await client.enqueue(call_api, 1)
        job = await client.enqueue(call_api, 2)
        await _claim(store, limits)

        assert only(await job.explain()).kind is FindingKind.QUEUED

    async def test_of_a_run_are_told_with_the_run_that_holds_them(
        self, client: AsyncClient, store: Store
    ) -> None:
        flow = Flow("calling").then(call_api).build()
        of_flow = _of_task([Concurrency(1, key="api")], flow=flow.graph.text)
        await register(store, flows=(flow.graph.text,), task_limits=of_flow)
        await client.submit(flow, 1, id="one")
        [holder] = await _claim(store, [Concurrency(1, key="api")], flow=flow.graph.text)
        await client.submit(flow, 2, id="two")

        told = await client.explain("two")

        assert told.summary.startswith("Nothing runs: limit 'api' is full: 1 of 1 run")
        assert f"held by job {holder.claim.id} (call_api of run 'one') on" in only(told).text
        assert only(told).key == "call_api"


class TestWorkersTell:
    async def test_which_limits_they_keep(self, client: AsyncClient, store: Store) -> None:
        """A real one, whose word explaining goes by."""
        flow = Flow("calling").then(keep).then(limited).build()

        async def is_registered() -> bool:
            return bool(await client.workers())

        async with worker_at(store, [flow, asking]):
            await until(is_registered)
            [worker] = await client.workers()

        assert worker.info.task_limits == (
            TaskLimits(
                task="limited",
                flow=flow.graph.text,
                limits=(info_of(Concurrency(3, key="api")),),
            ),
        )


@task
def call_api(number: int) -> int:
    return number


@task(limits=[Concurrency(1, key=lambda tenant: f"tenant-{tenant}")])
def call_tenant(tenant: str) -> str:
    return tenant


@task(limits=[Concurrency(3, key="api")])
def limited(value: Any) -> Any:
    return value


def _of_task(
    limits: Sequence[Limit], name: str = "call_api", flow: str = ""
) -> tuple[TaskLimits, ...]:
    return (TaskLimits(task=name, limits=tuple(map(info_of, limits)), flow=flow),)


async def _claim(
    store: Store,
    limits: Sequence[Limit],
    *,
    count: int = 10,
    task_name: str = "call_api",
    keys: tuple[str, ...] = (),
    flow: str = "",
) -> list[ClaimedJob]:
    """As a worker claims that keeps to these limits."""
    lane = Lane(queue="default", task=task_name, keys=keys, flow=flow)
    rules = governing_rules(lane, limits, ())
    request = ClaimRequest(
        namespace="default",
        worker=WorkerId("played-worker"),
        lanes=[LaneRequest(lane=lane.text, queue="default", rules=rules)],
        limit=count,
        lease=HOUR,
    )
    return (await store.jobs.claim(request)).jobs
