"""Priority, time, place and bounds of a whole run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from perdure import (
    Flow,
    InvalidFlow,
    InvalidInput,
    RunFailed,
    RunStatus,
    RunStuck,
    run_flow_async,
    task,
)
from perdure.model.ids import RunId
from perdure.store.contract import Store
from perdure.verify.verifier import verify_store
from perdure.worker.events import AttemptFailed, AttemptRetried
from tests.support.refusal import fails, refused
from tests.support.tasks import gated
from tests.worker.harness import Gate, until

PAST = datetime(2020, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


@task
async def pass_on(value: Any) -> Any:
    return value


@task
async def undo(value: Any) -> None:
    pass


@task(retries=5, name="fail")
async def fail(value: Any) -> None:
    raise ValueError("no")


@task(priority="low", queue="slow", name="slow")
async def slow(value: Any) -> Any:
    return value


@pytest.fixture(autouse=True)
async def _is_sound(store_url: str, store: Store):
    yield
    assert await verify_store(store) == []


CHAIN = Flow("chain").then(pass_on).build()
DEEP = Flow("deep").flow(CHAIN).build()
WAITING = Flow("waiting").wait_for_signal("go").then(pass_on).build()


async def status(client: Any, id: str) -> RunStatus:
    return (await client.runs.get(id)).status


async def times_out(run: Any) -> None:
    await fails(run, "run.timed_out", RunFailed)


class TestADelayedRun:
    async def test_is_queued_without_a_job_until_its_time(self, client, start_worker, store):
        run = await client.submit(CHAIN, 7, id="late", delay="300ms")

        found = await client.runs.get("late")
        assert (found.status, found.started_at) == (RunStatus.QUEUED, None)
        assert found.start_at == found.created_at + timedelta(milliseconds=300)
        assert await store.queries.run_jobs("default", run.id) == []
        assert [each.id for each in (await client.runs.list(status="queued")).items] == ["late"]
        explained = await client.runs.explain("late")
        assert [each.code for each in explained.headline] == ["explain.run_queued_no_worker"]
        await start_worker(flows=[CHAIN])
        assert await run.result(10) == 7
        found = await client.runs.get("late")
        assert found.started_at >= found.start_at

    async def test_starts_at_once_if_its_time_has_passed(self, client, start_worker):
        await start_worker(flows=[CHAIN])
        assert await (await client.submit(CHAIN, 7, run_at=PAST)).result(10) == 7

    async def test_waits_for_the_end_of_a_pause(self, client, start_worker):
        await client.submit(CHAIN, 7, id="late", delay="1ms")
        await client.runs.pause("late")
        await start_worker(flows=[CHAIN])
        await (await client.submit(CHAIN, 1, delay="20ms")).result(10)  # it is the later one
        assert await status(client, "late") is RunStatus.PAUSED
        await client.runs.resume("late")
        assert await client.runs.handle("late").result(10) == 7

    async def test_keeps_signals_until_it_starts(self, client, start_worker):
        run = await client.submit(WAITING, 7, id="late", delay="100ms")
        await client.runs.signal("late", "go", 8)
        await start_worker(flows=[WAITING])
        assert await run.result(10) == 8

    async def test_can_be_cancelled_retried_and_forked(self, client, start_worker):
        await client.submit(CHAIN, 7, id="late", delay="1h")
        fork = await client.runs.fork("late", new_id="fork")
        await client.runs.cancel("late")
        assert await status(client, "late") is RunStatus.CANCELLED
        await client.runs.retry("late")
        await start_worker(flows=[CHAIN])
        assert await client.runs.handle("late").result(10) == 7
        assert await client.runs.handle(fork.id).result(10) == 7

    async def test_can_be_replaced_and_migrated(self, client, start_worker):
        other = Flow("chain").then(pass_on).then(pass_on, name="again").build()
        await client.submit(CHAIN, 7, id="late", delay="1h")
        await client.submit(CHAIN, 8, id="late", delay="50ms", on_conflict="replace")
        await client.runs.migrate("late", to=other)
        await start_worker(flows=[other])
        assert await client.runs.handle("late").result(10) == 8

    async def test_checks_its_input_when_it_is_submitted(self, client):
        strict = Flow("strict").map(pass_on, over="items").build()
        with refused("flow.invalid_input", InvalidInput):
            await client.submit(strict, 7, delay="1h")
        assert await client.runs.count() == 0


class TestThePriorityOfARun:
    async def test_shifts_that_of_its_jobs(self, client, store):
        flow = Flow("two", priority="high").fork(a=pass_on, b=slow).build()
        for id, given in (("one", "critical"), ("two", None), ("five", 5)):
            await client.submit(flow, 1, id=id, priority=given)
        found = {
            id: {job.task: job.priority for job in await store.queries.run_jobs("default", id)}
            for id in ("one", "two", "five")
        }
        assert found == {
            "one": {"pass_on": 1, "slow": 2},
            "two": {"pass_on": 2, "slow": 3},
            "five": {"pass_on": 5, "slow": 5},
        }

    async def test_lets_an_urgent_one_overtake(self, client, start_worker):
        order: list[str] = []

        @task
        async def note(name: str) -> None:
            order.append(name)

        flow = Flow("noted").then(note).build()
        for name, priority in (("batch", 5), ("raised", 5), ("usual", 3)):
            await client.submit(flow, name, id=name, priority=priority)
        await client.runs.set_priority("raised", "critical", by="ops")
        await start_worker(flows=[flow], concurrency=1)
        for name in ("batch", "raised", "usual"):
            await client.runs.handle(name).result(10)
        assert order == ["raised", "usual", "batch"]
        assert (await client.runs.get("raised")).priority == 1

    async def test_is_inherited_by_children_also_later(self, client, start_worker, store):
        child = Flow("child", priority=5).wait_for_signal("go").then(pass_on).build()
        flow = Flow("parent").flow(child).build()
        await start_worker(flows=[flow])
        await client.submit(flow, 1, id="p", priority=2)
        assert (await client.runs.get("p/child")).priority == 2
        await client.runs.set_priority("p", 1)
        assert (await client.runs.get("p/child")).priority == 1
        await client.runs.signal("p/child", "go", 3)
        assert await client.runs.handle("p").result(10) == 3

    async def test_counts_before_the_next_node_continues_in_place(self, client, start_worker):
        order: list[str] = []
        gate = Gate()

        @task
        async def first(name: str) -> str:
            await gate.pass_through()
            return name

        @task
        async def note(name: str) -> None:
            order.append(name)

        flow = Flow("noted").then(first).then(note).build()
        await start_worker(note, flows=[flow], concurrency=1)
        run = await client.submit(flow, "lowered")
        await gate.reached()
        await client.enqueue(note, "job")
        await client.runs.set_priority(run.id, "minimal")
        gate.open()
        await run.result(10)
        assert order == ["job", "lowered"]

    async def test_stays_for_the_next_jobs(self, client, store):
        await client.submit(WAITING, 1, id="r")
        await client.runs.set_priority("r", 4)
        await client.runs.signal("r", "go")
        [job] = await store.queries.run_jobs("default", "r")
        assert job.priority == 4


def test_settings_of_a_flow_are_written_as_yaml_and_are_not_part_of_its_version():
    plain = Flow("any").then(pass_on).build()
    flow = Flow(
        "any",
        priority="high",
        queue="gpu",
        tags=["eu"],
        timeout="90s",
        timeout_counts_waiting=False,
        max_attempts=4,
        sticky="30s",
    )
    built = flow.then(pass_on).build()
    read = Flow.from_yaml(built.to_yaml(), tasks=[pass_on])
    assert built.settings != plain.settings
    assert (built.version, read.version, read.settings) == (
        plain.version,
        plain.version,
        built.settings,
    )
    with refused("argument.not_positive", InvalidFlow):
        Flow.from_yaml("flow: any\ntimeout: 0s\nnodes: [{id: a, task: pass_on}]", tasks=[pass_on])


class TestThePlaceOfARun:
    async def test_is_for_nodes_without_one(self, client, store):
        flow = Flow("placed", queue="batch").fork(a=pass_on, b=slow).build()
        await client.submit(flow, 1, id="a")
        await client.submit(flow, 1, id="b", queue="gpu", tags=["eu"])
        found = {
            (id, job.task, job.queue, job.tags)
            for id in ("a", "b")
            for job in await store.queries.run_jobs("default", id)
        }
        assert found == {
            ("a", "pass_on", "batch", ()),
            ("a", "slow", "slow", ()),
            ("b", "pass_on", "gpu", ("eu",)),
            ("b", "slow", "slow", ("eu",)),
        }

    @pytest.mark.parametrize("is_read", [False, True])
    async def test_is_not_for_nodes_in_the_default_queue(
        self, client, start_worker, store, is_read
    ):
        plain = Flow("placed").then(pass_on).then(pass_on, name="here").build()
        flow = Flow("placed").then(pass_on).then(pass_on, name="here", queue="default").build()
        assert flow.version == plain.version
        if is_read:
            flow = Flow.from_yaml(flow.to_yaml(), tasks=[pass_on])
        parent = Flow("parent").flow(flow).build()
        run = await client.submit(flow, 1, queue="gpu")
        above = await client.submit(parent, 1, queue="gpu")
        await start_worker(flows=[parent], queues=["gpu"])
        for id in (run.id, f"{above.id}/placed"):
            await until(partial(_waits_in, store, id, {"here": "default"}))
        await start_worker(flows=[parent])
        assert [await run.result(10), await above.result(10)] == [1, 1]

    async def test_is_served_by_the_workers_of_its_flow_and_by_those_there(
        self, client, start_worker
    ):
        there: dict[str, Any] = {"queue": "gpu", "tags": ["eu"]}
        placed = Flow("placed", **there).then(pass_on).build()
        moved = Flow("moved").then(pass_on).then(pass_on, name="again").build()
        runs = [await client.submit(placed, 1), await client.submit(moved, 2, **there)]
        await start_worker(flows=[placed])
        await start_worker(flows=[moved], queues=["gpu"], tags=["eu"])
        assert [await run.result(10) for run in runs] == [1, 2]


class TestAChildRun:
    FLOW = Flow("child", priority=5, queue="batch", tags=["us"], timeout="2h")
    CHILD = FLOW.wait_for_signal("go").then(pass_on).build()

    @pytest.mark.parametrize(
        "given, expected",
        [
            ({}, (4, "batch", ("us",), HOUR * 2)),
            (
                {"priority": "high", "queue": "gpu", "tags": ["eu"], "timeout": "1h"},
                (2, "gpu", ("eu",), HOUR),
            ),
        ],
    )
    @pytest.mark.parametrize("method", ["flow", "map"])
    async def test_has_the_settings_of_its_node_then_of_its_flow(
        self, client, start_worker, store, method, given, expected
    ):
        flow = getattr(Flow("parent"), method)(self.CHILD, name="run", **given).build()
        read = Flow.from_yaml(flow.to_yaml(), flows=[self.CHILD], tasks=[pass_on])
        assert (read.version, read.settings) == (flow.version, flow.settings)
        worker = await start_worker(flows=[read])
        run = await client.submit(read, [1], priority=4)
        id = f"{run.id}/run" + ("[0]" if method == "map" else "")
        await until(lambda: _has_started(client, id))
        await worker.stop()  # so that the job stays in the queue
        child = await client.runs.get(id)
        await client.runs.signal(child.id, "go")

        [job] = await store.queries.run_jobs("default", child.id)
        waits = await store.queries.run_waits("default", child.id)
        [timer] = [each for each in waits if each.key == "run:timeout"]
        limit = timer.due_at - timer.opened_at
        assert (child.priority, job.queue, job.tags, limit) == expected

    async def _delayed(self, client, method="flow", delay="1h", **settings):
        """A run that waits for a delayed child run, and its flow."""
        flow = getattr(Flow("parent", **settings), method)(DEEP, name="run", delay=delay).build()
        read = Flow.from_yaml(flow.to_yaml(), flows=[DEEP], tasks=[pass_on])
        plain = getattr(Flow("parent"), method)(DEEP, name="run").build()
        assert (read.version, read.settings) == (plain.version, flow.settings)
        return read, await client.submit(read, 1 if method == "flow" else [1, 1], id="p")

    @pytest.mark.parametrize("method, id", [("flow", "p/run"), ("map", "p/run[1]")])
    async def test_may_be_delayed(self, client, start_worker, store, method, id):
        flow, run = await self._delayed(client, method)
        await start_worker(flows=[flow])
        child = await client.runs.get(id)
        assert (child.status, child.started_at) == (RunStatus.QUEUED, None)
        assert child.start_at == child.created_at + HOUR
        assert await store.queries.run_jobs("default", child.id) == []
        for waiting, code in ((run.id, "explain.child"), (id, "explain.run_queued")):
            explained = await client.runs.explain(waiting)
            assert {each.code for each in explained.findings} == {code}
        await run.cancel()
        assert await status(client, id) is RunStatus.CANCELLED

    async def test_that_is_delayed_starts_while_its_parent_is_paused(self, client, start_worker):
        flow, run = await self._delayed(client, delay="50ms")
        await run.pause()
        await start_worker(flows=[flow])
        await client.runs.handle("p/run").result(10)
        assert await status(client, run.id) is RunStatus.PAUSED
        await run.resume()
        assert await run.result(10) == 1
        child = await client.runs.get("p/run")
        assert child.started_at >= child.start_at
        assert (await client.runs.get("p/run/chain")).settings.delay_ms is None

    async def test_that_is_delayed_ends_with_its_parent(self, client, start_worker):
        flow, run = await self._delayed(client, timeout="100ms")
        await start_worker(flows=[flow])
        await times_out(run)
        await until(lambda: _is_ended(client, "p/run"))
        assert await status(client, "p/run") is RunStatus.CANCELLED


class TestATimeout:
    async def test_fails_the_run_and_cancels_its_children(self, client, start_worker):
        flow = Flow("parent", timeout="100ms").flow(WAITING).build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, 1, id="p")
        await times_out(run)
        await until(lambda: _is_ended(client, "p/waiting"))
        assert await status(client, "p/waiting") is RunStatus.CANCELLED

    async def test_undoes_what_was_done(self, client, start_worker):
        flow = Flow("undone").then(pass_on, undo=undo).wait_for_signal("go").build()
        await start_worker(flows=[flow])
        run = await client.submit(flow, 1, timeout="100ms")
        await times_out(run)
        types = [each.type for each in (await client.runs.events(run.id)).items]
        assert "node_undone" in types

    async def test_does_not_interrupt_a_compensation(self, client, store, world):
        gate, held = gated()
        steps = Flow("undone", timeout="1h").then(pass_on, undo=held).then(fail, retries=0)
        flow = steps.build()
        run = await world.submit(flow, 1)
        await gate.reached()
        assert await status(client, run.id) is RunStatus.COMPENSATING
        assert await store.queries.run_waits("default", run.id) == []  # nor the timer
        gate.open()
        await fails(run, None, RunFailed, type="ValueError")

    async def test_counts_while_the_run_is_paused_but_not_while_it_is_queued(
        self, client, start_worker
    ):
        run = await client.submit(WAITING, 1, delay="300ms", timeout="100ms")
        await start_worker(flows=[WAITING])
        await until(lambda: _has_started(client, run.id))
        await client.runs.pause(run.id)
        await times_out(run)

    async def test_may_leave_out_the_time_that_the_run_waits(self, client, start_worker, world):
        flow = (
            Flow("patient", timeout="400ms", timeout_counts_waiting=False)
            .wait_for_signal("go")
            .then(pass_on)
            .build()
        )
        run = await world.submit(flow, 1)
        quick = await client.submit(WAITING, 1, timeout="450ms")
        await start_worker(flows=[WAITING])
        await times_out(quick)
        assert await status(client, run.id) is RunStatus.WAITING
        await client.runs.signal(run.id, "go", 5)
        assert await run.result(10) == 5

    async def test_starts_again_with_a_retry(self, client, start_worker, store):
        await start_worker(flows=[WAITING])
        run = await client.submit(WAITING, 1, timeout="100ms")
        await times_out(run)
        await client.runs.retry(run.id)
        [timer] = [
            each
            for each in await store.queries.run_waits("default", run.id)
            if each.key == "run:timeout"
        ]
        assert timer.due_at > timer.opened_at
        await times_out(run)

    async def test_may_be_a_deadline_which_a_late_retry_drops(self, client, start_worker, store):
        run = await client.submit(WAITING, 1, deadline=PAST)
        await start_worker(flows=[WAITING])
        await times_out(run)
        await client.runs.retry(run.id)
        assert [each.key for each in await store.queries.run_waits("default", run.id)] == ["go"]
        await client.runs.signal(run.id, "go", 5)
        assert await run.result(10) == 5

    async def test_leaves_nothing_behind_in_a_completed_run(self, client, start_worker, store):
        await start_worker(flows=[CHAIN])
        run = await client.submit(CHAIN, 1, timeout="1h")
        assert await run.result(10) == 1
        assert await store.queries.run_waits("default", run.id) == []

    async def test_does_not_keep_run_flow_waiting(self):
        flow = Flow("timed", timeout="1h", queue="gpu").wait_for_signal("go").then(pass_on).build()
        assert await run_flow_async(flow, signals={"go": 3}) == 3
        with pytest.raises(RunStuck):
            await run_flow_async(flow)


class TestAttemptsOfARun:
    @pytest.mark.parametrize("on_error", ["fail", "continue"])
    async def test_are_bounded_over_all_nodes(self, client, on_error, world):
        flow = (
            Flow("failing", max_attempts=2)
            .fork(
                a=Flow().then(fail, retries=0, name="a", on_error="continue"),
                b=Flow().then(fail, name="b", on_error=on_error),
            )
            .build()
        )
        run = await world.submit(flow, 1)
        await fails(run, "run.attempts_exhausted", RunFailed)
        await client.runs.retry(run.id)
        await fails(run, "run.attempts_exhausted", RunFailed)

    async def test_are_not_said_to_be_retried_when_they_are_exhausted(self, client, start_worker):
        flow = Flow("failing", max_attempts=1).then(fail).build()
        worker = await start_worker(flows=[flow])
        run = await client.submit(flow, 1)
        await fails(run, "run.attempts_exhausted", RunFailed)
        await worker.emitted(AttemptFailed)
        assert worker.all(AttemptRetried) == []


@pytest.mark.parametrize(
    "options, code",
    [
        ({"priority": "urgent"}, "argument.choice"),
        ({"priority": 0}, "argument.range"),
        ({"delay": "1h", "run_at": PAST}, "argument.exclusive"),
        ({"timeout": "1h", "deadline": PAST}, "argument.exclusive"),
        ({"deadline": PAST, "timeout_counts_waiting": False}, "argument.exclusive"),
        ({"timeout": 0}, "argument.not_positive"),
        ({"max_attempts": 0}, "argument.range"),
        ({"tags": "eu"}, "argument.type"),
        ({"color": 1}, "argument.unknown"),
    ],
)
async def test_bad_settings_are_refused(client, options, code):
    with refused(code, InvalidInput):
        await client.submit(CHAIN, 1, **options)
    assert await client.runs.count() == 0


async def _is_ended(client: Any, id: str) -> bool:
    return (await client.runs.get(id)).is_ended


async def _waits_in(store: Store, id: str, queues: dict[str, str]) -> bool:
    jobs = await store.queries.run_jobs("default", RunId(id))
    return {job.node.key: job.queue for job in jobs if job.node} == queues


async def _has_started(client: Any, id: str) -> bool:
    return (await client.runs.get(id)).started_at is not None
