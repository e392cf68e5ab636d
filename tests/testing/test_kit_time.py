"""Time in the kit: it stands still, and passes in the order in which things are due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perdure import Flow, InvalidInput, RetryLater, task
from perdure.testing import Kit, in_turn
from tests.support.refusal import refused
from tests.testing.kit_flows import Order, asking, call, charge, narrow, ordering, settle

START = datetime(2030, 1, 1, tzinfo=UTC)


class TestAdvance:
    def test_nothing_happens_before_its_time(self):
        with Kit() as kit:
            run = kit.submit(asking)

            kit.advance("1h59m59s")
            run.assert_waiting("delay", type="timer")
            kit.advance("1s")
            run.assert_waiting("answer", type="signal", name="answer")

    def test_a_timeout_fires_at_its_own_time_on_the_way(self):
        with Kit() as kit:
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

    def test_a_delayed_job_waits_for_its_time(self):
        with Kit() as kit:
            job = kit.enqueue(settle.options(delay="1h"), 5)

            job.assert_status("scheduled")
            kit.advance("1h")
            job.assert_completed(5)

    def test_a_deadline_that_passed_fails_a_job(self):
        with Kit() as kit:
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
                kit.advance("1m")
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

    def test_schedules_tick(self):
        with Kit() as kit:
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

    def test_goes_as_far_as_the_next_thing(self):
        with Kit() as kit:
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

    def test_a_worker_that_stood_still_is_not_taken_for_dead(self):
        with Kit() as kit:
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
