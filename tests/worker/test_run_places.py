"""How many runs of a flow are in progress at once."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Concurrency, Flow, InvalidInput, Rate, RunStatus, TemplateMissing, task
from perdure.model.ids import RUN_START, RUN_TIMEOUT
from perdure.store.contract import Store
from perdure.verify.verifier import verify_store
from tests.worker.harness import until

pytestmark = pytest.mark.every_store  # locks and wake-ups differ by store
Queued, Running, Waiting = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING


@task
async def pass_on(value: Any) -> Any:
    return value


@task(name="fail_once")
async def fail_once(value: Any) -> Any:
    if not FAILED:
        FAILED.append(value)
        raise ValueError("no")
    return value


FAILED: list[Any] = []
HELD = Flow("held", max_running=1).wait_for_signal("go").then(pass_on).build()
KEYED = (
    Flow("keyed", max_running=Concurrency(1, key="{{ input.tenant }}"))
    .wait_for_signal("go")
    .build()
)


@pytest.fixture(autouse=True)
async def _is_sound(store_url: str, store: Store):
    FAILED.clear()
    yield
    assert await verify_store(store) == []


class Runs:
    def __init__(self, client: Any, start_worker: Any) -> None:
        self.client = client
        self.start_worker = start_worker

    async def hold_place(self, id: str) -> Any:
        """Start a worker, and a run that takes the only place; the worker."""
        worker = await self.start_worker(flows=[HELD])
        await self.client.submit(HELD, id=id)
        await self.are(Waiting, id)
        return worker

    async def by_status(self, status: RunStatus) -> list[str]:
        found = await self.client.runs.list(status=status.value)
        return sorted(each.id for each in found.items)

    async def are(self, status: RunStatus, *ids: str) -> None:
        await until(lambda: self.by_status(status), sorted(ids))

    async def go(self, id: str) -> Any:
        await self.client.runs.signal(id, "go", id)
        return await self.client.runs.handle(id).result(10)


@pytest.fixture
def runs(client: Any, start_worker: Any) -> Runs:
    return Runs(client, start_worker)


class TestAPlace:
    async def test_is_held_from_start_to_end_waits_included(self, client, runs, start_worker):
        for id in ("a", "b", "c"):
            await client.submit(HELD, id, id=id)
        await start_worker(flows=[HELD])
        await runs.are(Waiting, "a")
        assert await runs.by_status(Queued) == ["b", "c"]

        assert await runs.go("a") == "a"

        await runs.are(Waiting, "b")
        assert await runs.by_status(Queued) == ["c"]
        assert [await runs.go("b"), await runs.go("c")] == ["b", "c"]

    @pytest.mark.parametrize("end", ["cancel", "replace"])
    async def test_is_free_when_its_run_is_gone(self, client, runs, start_worker, end):
        await start_worker(flows=[HELD, KEYED])
        await client.submit(HELD, id="a")
        await runs.are(Waiting, "a")
        await client.submit(HELD, id="b")

        if end == "cancel":
            await client.runs.cancel("a")
        else:
            await client.submit(KEYED, {"tenant": "x"}, id="a", on_conflict="replace")

        await runs.are(Waiting, *({"cancel": "b", "replace": "ab"}[end]))

    async def test_goes_to_the_most_urgent_run(self, client, runs, start_worker):
        await runs.hold_place("first")
        await client.submit(HELD, id="low", priority="low")
        await client.submit(HELD, id="normal")
        await client.submit(HELD, id="raised", priority="low")
        await client.runs.set_priority("raised", "critical")

        order = ["first", "raised", "normal", "low"]
        for id in order:
            await runs.are(Waiting, id)
            await runs.go(id)

    async def test_is_counted_by_key_and_across_versions(self, client, runs, start_worker):
        other = (
            Flow("keyed", max_running=Concurrency(1, key="{{ input.tenant }}"))
            .wait_for_signal("go")
            .then(pass_on)
            .build()
        )
        await start_worker(flows=[KEYED, other])
        await client.submit(KEYED, {"tenant": "x"}, id="x")
        await client.submit(KEYED, {"tenant": "y"}, id="y")
        await runs.are(Waiting, "x", "y")

        await client.submit(other, {"tenant": "x"}, id="x2")

        await runs.are(Queued, "x2")
        await runs.go("y")
        assert await runs.by_status(Queued) == ["x2"]
        await runs.go("x")
        await runs.are(Waiting, "x2")

    async def test_is_not_needed_by_child_runs(self, world):
        child = Flow("inner", max_running=1).then(pass_on).build()
        parent = Flow("outer", max_running=1).map(child, name="each").build()
        assert await (await world.submit(parent, [1, 2, 3])).result(10) == [1, 2, 3]

    async def test_serves_every_run_in_turn_with_several_workers(self, client, start_worker):
        flow = Flow("busy", max_running=3).then(pass_on).then(pass_on, name="again").build()
        runs = [await client.submit(flow, number) for number in range(20)]
        for _ in range(2):
            await start_worker(flows=[flow])
        runs += [await client.submit(flow, number) for number in range(20, 40)]
        assert [await run.result(20) for run in runs] == list(range(40))

    async def test_may_be_one_of_more_once_the_bound_is_raised(self, client, runs, start_worker):
        raised = Flow("held", max_running=3).wait_for_signal("go").then(pass_on).build()
        await runs.hold_place("a")
        await client.submit(HELD, id="b")
        await client.submit(raised, id="c")
        await client.submit(raised, id="d", priority="high")

        await runs.are(Waiting, "a", "d")  # c does not overtake b, whose own bound is 1
        await runs.go("a")
        await runs.go("d")
        await runs.are(Waiting, "b", "c")

    async def test_is_taken_by_a_delayed_run_at_its_time(self, client, runs, start_worker):
        await runs.hold_place("a")
        await client.submit(HELD, id="late", delay="1ms", priority="low")

        async def waits_for_a_place() -> bool:
            found = await client.runs.explain("late")
            return found.headline[0].code == "explain.run_waits_for_place"

        await until(waits_for_a_place)
        await client.submit(HELD, id="b")
        await runs.go("a")
        await runs.are(Waiting, "b")
        await runs.go("b")
        await runs.are(Waiting, "late")

    async def test_is_found_by_the_next_worker_if_the_one_that_should_start_it_is_gone(
        self, client, runs, start_worker, store
    ):
        """The commit that ends a run makes the next one due, for any worker."""
        worker = await runs.hold_place("a")
        await client.submit(HELD, id="b")
        await worker.stop()

        await client.runs.cancel("a")

        due = await store.maintenance.due_waits("default", 10)
        assert [(wait.run, wait.key) for wait in due] == [("b", RUN_START)]
        assert await runs.by_status(Queued) == ["b"]
        await start_worker(flows=[HELD])
        await runs.are(Waiting, "b")


class TestAQueuedRun:
    async def test_that_was_retried_queues_again(self, client, runs, start_worker):
        flow = Flow("held", max_running=1).then(fail_once).wait_for_signal("go").build()
        await start_worker(flows=[flow])
        await client.submit(flow, id="a")
        await client.submit(flow, id="b")
        await runs.are(Waiting, "b")
        await runs.are(RunStatus.FAILED, "a")

        await client.runs.retry("a")

        assert (await client.runs.get("a")).status is Queued
        assert (await client.runs.get("a")).started_at is None
        await runs.go("b")
        await runs.are(Waiting, "a")
        await runs.go("a")

    async def test_that_was_forked_queues_again_with_its_changes(self, client, runs, start_worker):
        flow = (
            Flow("held", max_running=1)
            .then(pass_on)
            .wait_for_signal("go")
            .then(pass_on, name="last")
            .build()
        )
        await start_worker(flows=[flow])
        await client.submit(flow, 1, id="a")
        await runs.are(Waiting, "a")

        await client.runs.fork("a", new_id="b", patch={"pass_on": 2})

        assert (await client.runs.get("b")).status is Queued
        await runs.go("a")
        await runs.are(Waiting, "b")
        assert await runs.go("b") == "b"

    async def test_can_be_paused_resumed_and_cancelled_without_blocking_others(
        self, client, runs, start_worker
    ):
        await runs.hold_place("a")
        for id in ("paused", "cancelled", "b"):
            await client.submit(HELD, id=id)
        await client.runs.pause("paused")
        await client.runs.cancel("cancelled")

        await runs.go("a")
        await runs.are(Waiting, "b")
        await client.runs.resume("paused")
        await runs.are(Queued, "paused")
        await runs.go("b")
        await runs.are(Waiting, "paused")

    async def test_names_who_holds_the_places(self, client, runs, start_worker):
        await start_worker(flows=[KEYED])
        await client.submit(KEYED, {"tenant": "x"}, id="a")
        await runs.are(Waiting, "a")
        await client.submit(KEYED, {"tenant": "x"}, id="b")

        [found] = (await client.runs.explain("b")).headline

        assert found.code == "explain.run_waits_for_place"
        wanted = {"held": 1, "most": 1, "key": "x", "flow": "keyed", "holders": ("a",)}
        assert found.args.items() >= wanted.items()

    async def test_says_that_no_worker_would_start_it(self, client):
        await client.submit(HELD, id="a")
        await client.submit(HELD, id="b")
        for id in ("a", "b"):
            [found] = (await client.runs.explain(id)).headline
            assert found.code == "explain.run_queued_no_worker"

    async def test_counts_its_timeout_from_its_start(self, client, runs, start_worker, store):
        await runs.hold_place("a")
        await client.submit(HELD, id="b", timeout="1h")
        waits = await store.queries.run_waits("default", "b")
        assert [wait.key for wait in waits] == [RUN_START]
        await runs.go("a")
        await runs.are(Waiting, "b")
        waits = await store.queries.run_waits("default", "b")
        assert RUN_TIMEOUT in [wait.key for wait in waits]

    async def test_of_a_schedule_waits_too(self, client, runs, start_worker):
        await runs.hold_place("a")
        await client.schedules.save("often", HELD, every="1h")
        started = await client.schedules.trigger("often")
        await runs.are(Queued, started.run)
        await runs.go("a")
        await runs.are(Waiting, started.run)


class TestMaxRunning:
    @pytest.mark.parametrize(
        "given", [0, "2", True, Rate(1, per=1), Concurrency(1, queue="q"), Concurrency(1, key=str)]
    )
    async def test_must_be_a_number_or_a_concurrency(self, client, given):
        with pytest.raises(InvalidInput) as caught:
            await client.submit(HELD, max_running=given)
        assert caught.value.faults[0].where[:1] == ("max_running",)

    async def test_needs_its_key_in_the_input(self, client):
        with pytest.raises(TemplateMissing):
            await client.submit(KEYED, {"tenants": "x"})
        with pytest.raises(InvalidInput):
            await client.submit(KEYED, {"tenant": ""})
        assert not (await client.runs.list()).items

    async def test_is_no_part_of_the_version(self):
        plain = Flow("held").wait_for_signal("go").then(pass_on).build()
        assert HELD.version == plain.version

    async def test_counts_by_the_value_of_the_key_which_is_no_template(self, client, store):
        for policy in ("fail", "replace"):
            await client.submit(KEYED, {"tenant": "{{ input.x }}"}, id="a", on_conflict=policy)
        [run] = await store.queries.get_runs([("default", "a")])
        assert run.settings.running_key == "{{ input.x }}"

    async def test_is_kept_with_the_run(self, client, store):
        await client.submit(KEYED, {"tenant": "x"}, id="a", max_running=5)
        [run] = await store.queries.get_runs([("default", "a")])
        assert (run.settings.max_running, run.settings.running_key) == (5, "x")
