"""The kit: step by step through flows and jobs, and what it says when a test is wrong."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from perdure import (
    CONTEXT,
    Context,
    Flow,
    InvalidInput,
    JobFailed,
    NotDecider,
    ResultTimeout,
    RetryLater,
    RunFailed,
    RunNotFound,
    RunStuck,
    task,
)
from perdure.testing import AsyncKit, AsyncKitJob, AsyncKitRun, Kit, KitJob, KitRun, in_turn
from tests.support.refusal import failing, refused
from tests.testing.kit_flows import (
    Order,
    asking,
    call,
    charge,
    deciding,
    double,
    doubling,
    narrow,
    ordering,
    parent,
    sending,
    settle,
)

pytest_plugins = ["perdure.testing.pytest_plugin"]


class TestSteps:
    def test_a_signal_takes_effect_at_once(self, kit):
        run = kit.submit(asking)
        kit.advance("2h")
        run.signal("answer", {"yes": True})
        run.assert_completed({"yes": True})
        run.assert_executed("delay", "answer", "settle")

    def test_a_flow_without_tasks_runs(self, kit):
        flow = Flow("waits", max_running=1).wait_for_signal("go").build()
        first, second = kit.submit(flow), kit.submit(flow)
        assert (first.status, second.status) == ("waiting", "queued")
        first.signal("go", 1)
        first.assert_completed(1)
        assert second.status == "waiting"

    def test_a_run_takes_the_options_of_submit(self, kit):
        run = kit.submit(asking, delay="1h", timeout="3h", queue="slow", priority="high")
        assert run.status == "queued"
        kit.advance("1h")
        assert run.status == "waiting"
        kit.advance("3h")
        record = run.record()
        assert (record.priority, record.failure.code) == (2, "run.timed_out")

    def test_people_decide_in_the_name_of_the_next_decider(self, kit):
        run = kit.submit(deciding, 100)
        run.decide("boss")
        run.assert_waiting("boss", type="approval")

        run.decide("boss", note="fine")

        answers = run.outputs["boss"]["answers"]
        assert [(each["by"], each.get("note")) for each in answers] == [
            ("ann", None),
            ("bob", "fine"),
        ]

    def test_a_person_who_may_not_decide_is_refused(self, kit):
        run = kit.submit(deciding, 100)
        with pytest.raises(NotDecider):
            run.decide("boss", by="eve")

    def test_what_a_child_waits_for_is_sent_through_its_parent(self, kit):
        run = kit.submit(parent, 100, id="order")
        assert [wait.run for wait in run.waiting] == ["order", "order/child"]
        run.decide("boss")
        run.decide("boss")
        run.assert_completed()
        kit.run("order/child").assert_executed("boss", "settle")

    @pytest.mark.parametrize(
        "report, found",
        [
            ({"result": "L-1"}, [1, "completed", "L-1", None]),
            ({"error": "no ship"}, [1, "failed", None, "no ship"]),
        ],
    )
    def test_outside_work_is_reported_on(self, kit, report, found):
        run = kit.submit(sending, 1)
        run.report("send", status="progress", progress=0.5)
        run.assert_waiting("send", type="external", name="supplier")
        run.report("send", **report)
        run.assert_completed(found)

    def test_a_paused_run_stands_still_until_it_is_unpaused(self, kit):
        run = kit.submit(asking)
        run.pause(reason="lunch", by="ann")
        kit.advance("1d")
        assert run.status == "paused"
        run.resume()
        run.assert_waiting("answer", type="signal")

    def test_a_cancelled_run_has_no_result(self, kit):
        run = kit.submit(asking)
        run.cancel(reason="enough")
        assert run.status == "cancelled"

    def test_a_failed_run_is_retried(self, kit):
        kit.fake("each[1]", ValueError("odd"))
        run = kit.submit(doubling, [1, 2])
        run.assert_failed("ValueError: odd", at="each")
        kit.fake("each[1]", 9)
        run.retry()
        run.assert_completed([2, 9])

    def test_the_code_under_test_has_an_ordinary_client(self):
        with Kit(tasks=[settle]) as kit:
            ids = [
                kit.client.enqueue(kit.client.task("settle").options(fingerprint="x"), 5).id
                for _ in range(2)
            ]
            assert kit.client.jobs.count(status="waiting") == 1

            kit.run_until_idle()

            kit.job(ids[1], settle).assert_completed(5)

    def test_runs_of_the_code_under_test_are_found(self):
        with Kit(flows=[doubling]) as kit:
            kit.client.submit("doubling", [1], id="first")
            kit.client.submit(doubling, [2], id="second")
            kit.run_until_idle()
            assert [run.id for run in kit.runs()] == ["first", "second"]
            kit.run("second", doubling).assert_completed([4])

    def test_code_that_waits_for_its_own_results_gets_them(self):
        with Kit(tasks=[double], flows=[doubling]) as kit:
            with kit.working():
                assert kit.client.enqueue(double, 2).result(timeout=20) == 4
                assert kit.client.submit(doubling, [3]).result(timeout=20) == [6]
            job = kit.client.enqueue(double, 5)
            assert job.status == "waiting"

    def test_what_goes_wrong_in_such_a_block_is_raised_at_its_end(self, kit):
        with refused("testing.task_without_code"), kit.working():
            kit.client.enqueue(double, 2)

    def test_another_queue_is_served_too(self, kit):
        kit.enqueue(settle.options(queue="aside"), 5).assert_completed(5)

    def test_a_paused_queue_is_not(self, kit):
        kit.client.queues.pause("default", by="ann")
        job = kit.enqueue(settle, 5)
        job.assert_status("waiting")
        kit.client.queues.resume("default")
        kit.run_until_idle()
        job.assert_completed(5)

    def test_secrets_are_those_of_the_kit(self):
        @task
        def reveal(nothing: None, ctx: Context = CONTEXT) -> int:
            return len(ctx.secret("TOKEN"))

        with Kit(secrets={"TOKEN": "12345"}) as kit:
            kit.submit(Flow("revealing").then(reveal).build()).assert_completed(5)

    def test_bodies_may_meet_where_more_than_one_is_allowed(self):
        together = threading.Barrier(3)

        @task
        def meet(number: int) -> int:
            together.wait(timeout=20)
            return number

        with Kit(concurrency=3) as kit:
            meeting = Flow("meeting").map(meet).build()
            kit.submit(meeting, [1, 2, 3]).assert_completed([1, 2, 3])


def odd_run(kit: Kit) -> KitRun:
    kit.fake("each", ValueError("odd"))
    return kit.submit(doubling, [1])


def odd_job(kit: Kit) -> KitJob:
    kit.fake(double, ValueError("odd"))
    return kit.enqueue(double, 1)


WRONG: list[tuple[Callable[[Kit], object], str]] = [
    (lambda kit: kit.submit(doubling, [1]).assert_completed([3]), "with [2], not with [3]"),
    (lambda kit: odd_run(kit).assert_failed("paper"), "with 'ValueError: odd', without 'paper'"),
    (lambda kit: odd_run(kit).assert_failed(at="settle"), "at node 'each', not at 'settle'"),
    (lambda kit: kit.submit(doubling, []).assert_failed(), "not failed; it is completed"),
    (lambda kit: kit.submit(asking).assert_waiting("answer"), "at node 'answer'; it is waiting"),
    (lambda kit: kit.submit(asking).assert_waiting(type="signal"), "not wait, type 'signal'"),
    (lambda kit: kit.submit(asking).assert_waiting(name="x"), "not wait, name 'x'"),
    (lambda kit: kit.submit(doubling, [1]).assert_executed("x"), "['each[0]', 'each'], not ['x']"),
    (lambda kit: kit.submit(doubling, [1]).assert_event("node_failed"), "node_failed never"),
    (
        lambda kit: kit.submit(doubling, [1]).assert_event("item_completed", "each", times=2),
        "item_completed of 'each' 1 times, not 2 times",
    ),
    (
        lambda kit: kit.submit(doubling, [1]).assert_event("item_completed", value=3),
        "item_completed with 3 never",
    ),
    (lambda kit: kit.submit(doubling, list(range(50))).assert_failed(), "… 23 before these"),
    (lambda kit: odd_job(kit).assert_failed("even"), "with 'ValueError: odd', without 'even'"),
    (lambda kit: kit.enqueue(double, 1).assert_completed(6), "gave 2, not 6"),
    (lambda kit: kit.enqueue(double.options(delay="1h"), 1).assert_failed(), "not failed for good"),
]


class TestAssertions:
    """Each says how the run is, why, and what happened."""

    def test_that_it_is_completed(self, kit):
        run = kit.submit(asking, id="a-1")
        with pytest.raises(AssertionError) as raised:
            run.assert_completed()
        first, *why, events, event = str(raised.value).splitlines()
        assert first == "run 'a-1' of flow 'asking' is not completed; it is waiting"
        assert "2030-01-01 02:00:00" in "".join(why)
        assert (events, event) == ("its events:", "   1  2030-01-01 00:00:00  run_submitted")

    def test_pass_where_it_is_so(self, kit):
        run = kit.submit(doubling, [1])
        run.assert_executed("each[0]", "each")
        run.assert_event("item_completed", "each[0]", value=2, times=1)
        run.assert_event("node_failed", times=0)
        odd_job(kit).assert_failed("odd")

    @pytest.mark.parametrize("wrong, expected", WRONG)
    def test_say_what_is_so_instead(self, kit, wrong, expected):
        with pytest.raises(AssertionError) as raised:
            wrong(kit)
        assert expected in str(raised.value)

    def test_about_a_job(self, kit):
        kit.fake(charge, ConnectionError("busy"))
        job = kit.enqueue(charge, Order(1, 2))

        with pytest.raises(AssertionError) as raised:
            job.assert_completed()
        assert str(raised.value).splitlines() == [
            f"job {job.id} of task 'charge' is not completed; it is scheduled after 1 attempts",
            "  its next attempt is due at 2030-01-01 00:01:00+00:00",
            "  attempt 1: ConnectionError: busy",
        ]


class TestResults:
    def test_of_a_run_that_waits_say_for_what(self, kit):
        run = kit.submit(asking)
        with pytest.raises(RunStuck) as stuck:
            run.result()
        assert "2030-01-01 02:00:00" in str(stuck.value)

    def test_of_a_run_are_raised_or_returned(self, kit):
        assert kit.submit(doubling, [1]).result() == [2]
        kit.fake("each", ValueError("odd"))
        with failing(None, RunFailed, type="ValueError"):
            kit.submit(doubling, [1]).result()

    def test_of_a_job_are_raised_or_returned(self, kit):
        assert kit.enqueue(double, 1).result() == 2
        kit.fake(double, ValueError("odd"))
        with failing(None, JobFailed, type="ValueError"):
            kit.enqueue(double, 1).result()
        with refused("job.result_timeout", ResultTimeout, status="scheduled"):
            kit.enqueue(double.options(delay="1h"), 1).result()


class TestRefusals:
    def test_a_job_without_code_is_named(self, kit):
        kit.client.enqueue(settle, 1)
        with refused("testing.task_without_code", InvalidInput, task="settle"):
            kit.run_until_idle()

    def test_a_run_without_code_is_named(self, kit):
        kit.client.submit(doubling, [1])
        with refused("testing.flow_without_code", InvalidInput):
            kit.run_until_idle()

    def test_what_is_no_code_is_refused(self, kit):
        with refused("argument.type", InvalidInput, name="code"):
            kit.add(Flow("unbuilt"))  # type: ignore[arg-type]  # that is what is tested

    def test_an_unknown_run_is_named(self, kit):
        with refused("run.not_found", RunNotFound, run_id="nowhere"):
            kit.run("nowhere").assert_completed()

    def test_a_body_that_does_not_end_is_named(self):
        let_go = threading.Event()

        @task
        def linger(nothing: None) -> None:
            let_go.wait(20)

        lingering = Flow("lingering").then(linger).build()
        with Kit(timeout="50ms") as kit:
            with refused(
                "testing.not_settled", running="'linger'", timeout=timedelta(milliseconds=50)
            ):
                kit.submit(lingering)
            let_go.set()


class TestOnAnEventLoop:
    async def test_has_the_same_names(self):
        async with AsyncKit(fakes={"fetch": Order(1, 2), "charge": "paid"}) as kit:
            run = await kit.submit(ordering, 1)
            await run.assert_completed("paid shipped by ship")
            assert await run.executed() == ["fetch", "charge", "ship"]

            waiting = await kit.submit(asking)
            await kit.advance("2h")
            await waiting.signal("answer", 3)
            await waiting.assert_completed(3)
            await (await kit.enqueue(double, 4)).assert_completed(8)

    async def test_several_acts_at_once_wait_for_each_other(self):
        async with AsyncKit() as kit:
            runs = await asyncio.gather(*(kit.submit(doubling, [n]) for n in range(5)))
            assert [await run.result() for run in runs] == [[2 * n] for n in range(5)]

    async def test_bodies_are_executed_on_the_loop_of_the_test(self):
        @task
        async def loop_of(nothing: None) -> bool:
            return asyncio.get_running_loop() is loop

        loop = asyncio.get_running_loop()
        async with AsyncKit() as kit:
            await (await kit.submit(Flow("looping").then(loop_of).build())).assert_completed(True)

    async def test_the_blocking_kit_works_there_too(self, kit):
        kit.submit(doubling, [1]).assert_completed([2])


@pytest.mark.parametrize(
    "facade, target", [(Kit, AsyncKit), (KitRun, AsyncKitRun), (KitJob, AsyncKitJob)]
)
def test_the_facades_have_all_that_they_stand_for(facade, target):
    def names(each: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(each) if not name.startswith("_")}

    assert names(facade) - {"client"} == names(target)


# Time in the kit: it stands still, and passes in the order in which things are due.


START = datetime(2030, 1, 1, tzinfo=UTC)


class TestAdvance:
    def test_nothing_happens_before_its_time(self, kit):
        run = kit.submit(asking)
        kit.advance("1h59m59s")
        run.assert_waiting("delay", type="timer")
        kit.advance("1s")
        run.assert_waiting("answer", type="signal", name="answer")

    def test_a_timeout_fires_at_its_own_time_on_the_way(self, kit):
        run = kit.submit(asking)
        kit.advance("30d")
        run.assert_completed("reminded")
        assert run.events[-1].at == START + timedelta(days=3, hours=2)
        assert kit.now == START + timedelta(days=30)

    def test_retries_come_when_they_are_due(self):
        busy = ConnectionError("busy")
        with Kit(fakes={"fetch": Order(1, 2), "charge": in_turn(busy, busy, "paid")}) as kit:
            run = kit.submit(ordering, 1)

            run.assert_event("node_retried", "charge", times=1)
            kit.advance("1m")
            run.assert_event("node_retried", "charge", times=2)
            kit.advance("2m")
            run.assert_completed("paid shipped by ship")
        assert [call.attempt for call in kit.calls_of("charge")] == [1, 2, 3]

    def test_a_delayed_job_waits_for_its_time(self, kit):
        job = kit.enqueue(settle.options(delay="1h"), 5)
        job.assert_status("scheduled")
        kit.advance("1h")
        job.assert_completed(5)

    def test_a_deadline_that_passed_fails_a_job(self, kit):
        kit.client.queues.pause("default")
        job = kit.enqueue(settle.options(deadline="1h"), 5)
        kit.advance("1h")
        job.assert_failed("DeadlineExceeded")

    def test_a_rate_lets_through_what_it_allows(self):
        with Kit(tasks=[call]) as kit:
            kit.client.enqueue_many(call, range(5))
            kit.run_until_idle()
            counts = [len(kit.calls)]

            for _ in range(3):
                kit.advance("61s")  # the window has a margin
                counts.append(len(kit.calls))

            assert counts == [2, 4, 5, 5]

    def test_a_limit_on_what_runs_at_once_stops_nothing_for_good(self):
        with Kit(tasks=[narrow], concurrency=4) as kit:
            kit.client.enqueue_many(narrow, range(5))
            kit.run_until_idle()
            assert kit.client.jobs.count(status="completed") == 5

    def test_a_closed_limit_opens_again(self):
        later = RetryLater(after="10m", limit="task:call")
        with Kit(fakes={call: in_turn(later, 1, 2)}) as kit:
            first, second = kit.enqueue(call, 1), kit.enqueue(call, 2)
            second.assert_status("waiting")
            kit.advance("10m")
            first.assert_status("completed")
            second.assert_status("completed")

    def test_schedules_tick(self, kit):
        kit.schedule("hourly", settle, every="1h", args=[1])
        kit.advance("5h30m")
        assert len(kit.calls_of(settle)) == 5

    def test_a_schedule_starts_runs_at_its_times(self):
        nightly = Flow("nightly").then(settle).build()
        with Kit() as kit:
            kit.schedule("nightly", nightly, cron="0 3 * * *", timezone="UTC", input=1)
            kit.advance("2d")
            began = [run.events[0].at for run in kit.runs(nightly)]
            assert began == [START + timedelta(hours=3), START + timedelta(days=1, hours=3)]

    def test_goes_as_far_as_the_next_thing(self, kit):
        kit.submit(asking)
        assert kit.advance_to_next() == timedelta(hours=2)
        assert kit.advance_to_next() == timedelta(days=3)
        assert kit.advance_to_next() is None

    def test_goes_to_a_moment_and_not_back(self):
        with Kit(now=datetime(2024, 2, 28, tzinfo=UTC)) as kit:
            kit.advance_to(datetime(2024, 3, 1, tzinfo=UTC))
            assert kit.now == datetime(2024, 3, 1, tzinfo=UTC)
            with refused("testing.clock_turned_back", InvalidInput):
                kit.advance_to(datetime(2024, 2, 29, tzinfo=UTC))

    def test_a_worker_that_stood_still_is_not_taken_for_dead(self, kit):
        run = kit.submit(asking)
        kit.advance("5h")
        kit.client.queues.pause("default")
        run.signal("answer", 1)
        [finding] = run.explain().findings
        assert finding.code == "explain.queue_paused"


class TestOrder:
    def test_bodies_are_executed_one_at_a_time_in_the_order_of_the_queue(self):
        order: list[int] = []

        @task
        def note(number: int) -> None:
            order.append(number)

        noting = Flow("noting").map(note).build()
        with Kit() as kit:
            kit.submit(noting, list(range(30)))

        assert order == list(range(30))

    def test_the_same_happens_each_time(self):
        def history() -> list[tuple[object, ...]]:
            busy = in_turn(ConnectionError("busy"), "paid")
            with Kit(fakes={"fetch": Order(1, 2), charge: busy}) as kit:
                run = kit.submit(ordering, 1)
                kit.advance("1d")
                return [(event.number, event.at, event.type, event.key) for event in run.events]

        assert history() == history()
