"""What clients do with schedules, and what is refused before anything is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import (
    AsyncClient,
    Flow,
    InvalidFlow,
    InvalidInput,
    Retry,
    RunEnded,
    RunNotRetryable,
    RunSkipped,
    RunStatus,
    ScheduleNotFound,
    TickResult,
    task,
)
from perdure.model.partition import Partition
from perdure.store.contract import Store
from tests.client.flows import add, asking, keep, ordering, parent, shouting
from tests.client.harness import CountedStore, PlayedWorker, worker_at
from tests.support.refusal import refused
from tests.worker.ticking import ids_of_runs, tick

HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2030, 1, 1, tzinfo=UTC)
NOWHERE = datetime(2030, 1, 1)  # noqa: DTZ001 (that it has no zone is what is wrong with it)

cooling = Flow("cooling", cooldown="1h").then(keep).build()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[AsyncClient]:
    flows = [ordering, asking, parent, cooling, shouting]
    async with AsyncClient(store, tasks=[add], flows=flows) as client:
        yield client


class TestSchedule:
    async def test_reports_what_it_saved(self, client):
        made = await client.schedules.save(
            "nightly",
            ordering,
            cron="0  3 * * *",
            timezone="Europe/Berlin",
            input=7,
            overlap="queue",
            catch_up="all",
            end_at=MIDNIGHT + 1000 * HOUR,
        )

        assert (made.name, made.flow, made.version, made.task) == (
            "nightly",
            "ordering",
            ordering.version,
            None,
        )
        assert (made.cron, made.every, made.timezone) == ("0 3 * * *", None, "Europe/Berlin")
        assert (made.overlap, made.catch_up) == ("queue", "all")
        assert made.next_at == MIDNIGHT + 2 * HOUR
        assert (made.created_at, made.end_at) == (MIDNIGHT, MIDNIGHT + 1000 * HOUR)
        assert (made.last_at, made.last_run, made.started, made.history) == (None, None, 0, ())
        assert await client.schedules.get("nightly") == made
        assert list(await client.schedules.list()) == [made]

    async def test_takes_flows_and_tasks_by_name(self, client):
        of_flow = await client.schedules.save("a", "ordering", every="15m", input=1)
        of_task = await client.schedules.save("b", "add", every=timedelta(minutes=15), args=(1, 2))
        assert (of_flow.flow, of_flow.task) == ("ordering", None)
        assert (of_task.flow, of_task.task) == (None, "add")
        assert of_flow.every == of_task.every == timedelta(minutes=15)
        assert of_flow.next_at == MIDNIGHT + timedelta(minutes=15)

    async def test_leaves_the_pause_of_an_operator_alone(self, client):
        await client.schedules.save("often", ordering, every="1h", input=1)
        await client.schedules.pause("often", by="ann")
        again = await client.schedules.save("often", ordering, every="2h", input=1)
        assert again.is_paused
        assert (again.paused_by, again.next_at) == ("ann", None)

    async def test_may_start_paused(self, client, store, clock):
        made = await client.schedules.save("often", ordering, every="1h", input=1, paused=True)
        clock.advance(5 * HOUR)
        assert made.is_paused
        assert await tick(store) == 0

    @pytest.mark.parametrize(
        "name, target, options, code, parameter",
        [
            ("", ordering, {}, "argument.name", "schedule"),
            (None, ordering, {}, "argument.name", "schedule"),
            ("nightly", ordering, {"every": "soon"}, "argument.duration", "every"),
            ("nightly", ordering, {"every": 0}, "argument.not_positive", "every"),
            ("nightly", ordering, {"cron": ""}, "argument.type", "cron"),
            ("nightly", ordering, {"cron": 3}, "argument.type", "cron"),
            ("nightly", ordering, {"timezone": None}, "argument.type", "timezone"),
            ("nightly", ordering, {"overlap": "wait"}, "argument.choice", "overlap"),
            ("nightly", ordering, {"catch_up": True}, "argument.choice", "catch_up"),
            ("nightly", ordering, {"paused": "yes"}, "argument.type", "paused"),
            ("nightly", add, {"args": "12"}, "argument.type", "args"),
            ("nightly", ordering, {"start_at": "now"}, "argument.type", "start_at"),
            ("nightly", ordering, {"end_at": NOWHERE}, "argument.naive", "end_at"),
        ],
    )
    async def test_refuses_an_unusable_argument(
        self, client, name, target, options, code, parameter
    ):
        options = {"every": "1h", **options}
        if target is ordering:
            options["input"] = 7
        with refused(code, InvalidInput, name=parameter):
            await client.schedules.save(name, target, **options)
        assert list(await client.schedules.list()) == []

    @pytest.mark.parametrize(
        "name, target, options, code, args",
        [
            ("a/b", ordering, {}, "run.id_reserved", {"mark": "/"}),
            ("ä" * 150, ordering, {}, "run.id_too_long", {"most": 256}),
            ("nightly", "orderin", {}, "schedule.unknown_target", {"nearest": ("ordering",)}),
            ("nightly", 7, {}, "flow.not_built", {"value": "7"}),
            ("nightly", add, {"input": 1}, "schedule.flow_option", {"task": "add"}),
            ("nightly", add, {"kwargs": {"third": 1}}, "task.unknown_argument", {"name": "third"}),
            ("nightly", shouting, {"input": 7}, "flow.invalid_input", {"flow": "shouting"}),
            (
                "nightly",
                ordering,
                {"input": 7, "args": [1], "kwargs": {"a": 1}},
                "schedule.task_options",
                {"flow": "ordering", "options": ("args", "kwargs")},
            ),
            (
                "nightly",
                ordering,
                {"input": 7, "options": {"deadline": datetime(2100, 1, 1, tzinfo=UTC)}},
                "schedule.job_option",
                {"options": ("deadline",)},
            ),
            ("nightly", ordering, {"input": 7, "options": {"retries": 1}}, "argument.unknown", {}),
            (
                "nightly",
                add,
                {"args": [1], "options": {"delay": "1m"}},
                "schedule.job_option",
                {"options": ("delay",)},
            ),
            (
                "nightly",
                add.options(queue="slow", delay="1m", fingerprint="x"),
                {"args": [1]},
                "schedule.job_option",
                {"options": ("delay", "fingerprint")},
            ),
        ],
    )
    async def test_refuses_what_cannot_be_started(self, client, name, target, options, code, args):
        with refused(code, InvalidInput, **args):
            await client.schedules.save(name, target, every="1h", **options)
        assert list(await client.schedules.list()) == []

    async def test_gives_runs_the_settings_as_they_were_when_it_was_saved(self, client):
        options = {"priority": "high", "timeout": "1h", "delay": "1h"}
        await client.schedules.save("nightly", ordering, every="1h", input=7, options=options)

        started = await client.schedules.trigger("nightly")

        run = await client.runs.get(started.run)
        assert (run.status, run.priority, run.settings.timeout_ms) == ("queued", 2, 3_600_000)

    async def test_refuses_a_name_that_is_of_both(self, store):
        @task(name="ordering")
        def other(id: int) -> int:
            return id

        async with AsyncClient(store, tasks=[other], flows=[ordering]) as client:
            with refused("schedule.ambiguous_target", InvalidInput, name="ordering"):
                await client.schedules.save("nightly", "ordering", every="1h")

    async def test_refuses_a_client_of_all_namespaces(self, store):
        async with AsyncClient(store, namespace="*") as operator:
            with refused("client.namespace_required", InvalidInput, operation="schedules.save"):
                await operator.schedules.save("nightly", ordering, every="1h", input=1)


class TestReading:
    @pytest.mark.parametrize("act", ["get", "pause", "resume", "trigger", "delete"])
    async def test_an_unknown_name_is_reported_with_the_nearest(self, client, act):
        await client.schedules.save("nightly", ordering, every="1h", input=1)
        nearest = ("nightly",)
        with refused("schedule.not_found", ScheduleNotFound, name="nigthly", nearest=nearest):
            await getattr(client.schedules, act)("nigthly")


class TestTrigger:
    async def test_starts_a_run_at_once_and_leaves_the_times_alone(self, client, store):
        made = await client.schedules.save("often", ordering, every="1h", input=7)
        started = await client.schedules.trigger("often", by="ann")

        assert started.run is not None
        handle = client.runs.handle(started.run)
        assert handle.id.startswith("often@manual-")
        async with worker_at(store):
            assert await handle.result(20) == 14
        record = await client.schedules.get("often")
        assert record.next_at == made.next_at
        assert (record.started, record.last_run) == (1, handle.id)
        [tick] = record.history
        assert (tick.at, tick.result, tick.run) == (MIDNIGHT, TickResult.STARTED, handle.id)
        assert tick.reason == "triggered by ann"

    @pytest.mark.parametrize("by_name", [False, True])
    async def test_starts_a_job_with_what_was_said_of_it(self, client, store, by_name):
        said: dict[str, Any] = {
            "queue": "slow",
            "priority": 1,
            "retries": Retry(2, first="5s"),
            "timeout": "30s",
            "tags": ["gpu"],
        }
        if by_name:
            await client.schedules.save("sums", "add", every="1h", args=[2, 3], options=said)  # type: ignore[arg-type]
        else:
            await client.schedules.save("sums", add.options(**said), every="1h", args=[2, 3])

        await client.schedules.trigger("sums")
        [triggered] = await PlayedWorker(store).claim_all()
        await client.enqueue(add.options(**said), 2, 3)
        [enqueued] = await PlayedWorker(store).claim_all()

        assert triggered.partition == Partition(queue="slow", task="add", tags=("gpu",))
        assert triggered.policy is not None
        same = replace(enqueued, claim=triggered.claim, created_at=triggered.created_at)
        assert triggered == same

    async def test_said_again_without_settings_starts_a_job_of_the_task_as_it_is(
        self, client, store
    ):
        await client.schedules.save(
            "sums", add.options(queue="slow", retries=3), every="1h", args=[2, 3]
        )
        await client.schedules.save("sums", add, every="1h", args=[2, 3])
        await client.schedules.trigger("sums")
        [job] = await PlayedWorker(store).claim_all()
        assert (job.partition, job.policy) == (Partition(queue="default", task="add"), None)

    async def test_starts_even_while_paused_or_busy(self, client):
        await client.schedules.save("ask", asking, every="1h", paused=True)
        first, second = await client.schedules.trigger("ask"), await client.schedules.trigger("ask")
        assert first.id != second.id
        assert len(await ids_of_runs(client)) == 2
        assert (await client.schedules.get("ask")).is_paused

    async def test_many_at_once_start_each(self, client):
        await client.schedules.save("ask", asking, every="1h")
        handles = await asyncio.gather(*(client.schedules.trigger("ask") for _ in range(5)))
        assert len({handle.id for handle in handles}) == 5
        assert (await client.schedules.get("ask")).started == 5
        assert len(await ids_of_runs(client)) == 5

    async def test_within_a_cooldown_gives_the_skipped_run(self, client):
        await client.schedules.save("cool", cooling, every="1h", input=1)
        await client.schedules.trigger("cool")
        started = await client.schedules.trigger("cool")
        with pytest.raises(RunSkipped):
            await client.runs.handle(started.id).result()
        record = await client.schedules.get("cool")
        assert (record.started, record.skipped) == (1, 1)


class TestDelete:
    async def test_stops_ticks_and_leaves_running_work(self, client, store, clock):
        await client.schedules.save("ask", asking, every="1h")
        handle = await client.schedules.trigger("ask")
        await client.schedules.delete("ask")
        clock.advance(2 * HOUR)
        await tick(store)

        assert list(await client.schedules.list()) == []
        assert await ids_of_runs(client) == [handle.id]
        assert (await client.runs.get(handle.id)).status is RunStatus.RUNNING


class TestCooldown:
    async def test_a_second_submit_is_skipped_and_says_until_when(self, client, clock):
        first = await client.submit(cooling, 1)
        clock.advance(HOUR / 2)
        second = await client.submit(cooling, 2)

        with refused("run.skipped", RunSkipped, run_id=second.id) as error:
            await second.result()
        for shown in (first.id, "2030-01-01T01:00:00Z"):
            assert shown in error.value.reason
        record = await second.record()
        assert (record.status, record.is_ended) == (RunStatus.SKIPPED, True)
        assert [run.id for run in await client.runs.list(status="skipped")] == [second.id]

    async def test_its_log_says_what_happened_and_keeps_the_input(self, client):
        first = await client.submit(cooling, 1)
        second = await client.submit(cooling, 2)

        submitted, skipped = await second.events()
        assert (submitted.type, submitted.value) == ("run_submitted", 2)
        assert (skipped.type, skipped.status) == ("run_skipped", RunStatus.SKIPPED)
        assert skipped.details["last"] == first.id
        assert await second.outputs() == {}
        explanation = await client.runs.explain(second.id)
        assert [each.code for each in explanation.headline] == ["explain.skipped"]
        assert explanation.headline[0].args["reason"].startswith("flow 'cooling' is cooling down")

    async def test_is_final_but_may_be_forked(self, client, store):
        await client.submit(cooling, 1)
        skipped = await client.submit(cooling, 2)

        with refused("run.not_retryable", RunNotRetryable, reason="it is skipped"):
            await skipped.retry()
        with refused("run.ended", RunEnded):
            await skipped.cancel()
        forked = await client.runs.handle(skipped.id).fork()
        async with worker_at(store, [cooling]):
            assert await forked.result(20) == 2

    @pytest.mark.parametrize(
        "cooldown, code",
        [("never", "argument.duration"), (0, "argument.not_positive"), (-1, "argument.negative")],
    )
    def test_what_is_no_duration_is_refused(self, cooldown, code):
        with refused(code, InvalidFlow, name="cooldown"):
            Flow("cooling", cooldown=cooldown).then(keep).build()


class TestAnOutageWhileAScheduleIsChanged:
    async def test_makes_no_tick_due_again_that_has_been(self, store, clock):
        async def lose_an_hour() -> None:
            clock.advance(HOUR)

        counted = CountedStore(store)
        counted.after["schedules.list"] = lose_an_hour
        async with AsyncClient(counted.as_store(), tasks=[add]) as client:
            await client.schedules.save("often", add, args=[1, 2], every="4s")
            counted.after["schedules.list"] = lose_an_hour
            changed = await client.schedules.save("often", add, args=[1, 2], every="2s")
        assert changed.next_at is not None
        assert changed.next_at > clock()
