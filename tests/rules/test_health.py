"""Which workers are live, when they are restarted, and how a store is judged by its figures."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock, new_id, system_clock
from perdure.diagnostics import Action, Finding, Severity
from perdure.model.facts import OrphanedRun, RunStats, StorageReport
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import DEFAULT_NAMESPACE, QueueDepth, QueueInfo, Status
from perdure.model.partition import Partition
from perdure.model.run import RunStatus
from perdure.model.schedule import UnreadableSchedule
from perdure.model.worker import PollResult, WorkerState, has_code, has_tags, is_live
from perdure.operations.insight.health import (
    LATENCY_MAX,
    LOG_BYTES_MAX,
    OVERDUE,
    SKEW_MAX,
    Vitals,
    judge,
)
from perdure.testing.contract.builders import worker_info
from perdure.worker.poller import OUTAGE_SECONDS, RECONNECT_SECONDS, TakeoverGrace
from perdure.worker.supervisor import (
    DELAY_MAX,
    FIRST_DELAY,
    STEADY_AFTER,
    crashes_in_a_row,
    restart_delay,
)
from tests.architecture.source_tree import modules

# Judging what was measured of a store: each fault alone, and the action that would help.


NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)

INFO = worker_info(
    id=WorkerId("w-1"),
    namespace=DEFAULT_NAMESPACE,
    host="oak",
    pid=7,
    queues=("default",),
    tasks=("add",),
    lease=30 * SECOND,
    flows=("orders@v1",),
)

POLL = PollResult(
    now=NOW, partitions=(), next_due_at=None, next_lease_end_at=None, next_deadline_at=None
)

TABLES = StorageReport(schema_version=4, log_bytes=0)


def worker(seen: timedelta = SECOND, **changes: Any) -> WorkerState:
    info = replace(INFO, **changes)
    return WorkerState(info=info, started_at=NOW, seen_at=NOW - seen, running=(JobId("j"),))


def vitals(**changes: Any) -> Vitals:
    """A store that is well, and one live worker."""
    well = Vitals(
        now=NOW,
        latency=SECOND / 1000,
        skew=timedelta(0),
        examination=TABLES,
        workers=(worker(),),
        polls={DEFAULT_NAMESPACE: POLL},
    )
    return replace(well, **changes)


def surveyed(*partitions: Partition, namespace: str = DEFAULT_NAMESPACE, **changes: Any) -> Vitals:
    poll = replace(POLL, partitions=tuple(partition.text for partition in partitions), **changes)
    return vitals(polls={namespace: poll})


def wrong(found: Vitals) -> list[Finding]:
    return [each for each in judge(found) if each.severity is not Severity.OK]


def the_one(found: Vitals, severity: Severity) -> Finding:
    [finding] = wrong(found)
    assert finding.severity is severity
    return finding


def start(**args: Any) -> tuple[Action, ...]:
    return (Action("worker.run", args, ("module",)),)


class TestAWellStore:
    def test_has_nothing_but_what_is_well(self):
        findings = judge(vitals())

        assert wrong(vitals()) == []
        assert [each.about for each in findings] == [
            "store",
            "schema",
            "clock",
            "indexes",
            "workers",
            "work",
        ]
        assert (findings[0].code, findings[0].args) == ("health.store", {"latency": SECOND / 1000})


class TestThePlace:
    @pytest.mark.parametrize("ahead", [SKEW_MAX, -SKEW_MAX])
    def test_bounds_are_still_well(self, ahead):
        log = replace(TABLES, log_bytes=LOG_BYTES_MAX)
        assert wrong(vitals(latency=LATENCY_MAX, skew=ahead, examination=log)) == []

    def test_a_slow_store(self):
        finding = the_one(vitals(latency=LATENCY_MAX + SECOND), Severity.WARNING)
        assert finding.code == "health.store_slow"
        assert finding.args == {"latency": LATENCY_MAX + SECOND}

    @pytest.mark.parametrize("sign, code", [(1, "health.clock_ahead"), (-1, "health.clock_behind")])
    def test_a_clock_that_goes_wrong(self, sign, code):
        finding = the_one(vitals(skew=sign * 90 * SECOND), Severity.WARNING)
        assert (finding.code, finding.args) == (code, {"skew": 90 * SECOND})

    def test_a_store_clock_that_was_set_back(self):
        """Finding 36: doctor reports a store clock that was set back."""
        newest_at = NOW + 90 * SECOND
        finding = the_one(
            vitals(examination=replace(TABLES, newest_at=newest_at)), Severity.WARNING
        )
        assert (finding.about, finding.code) == ("clock", "health.clock_set_back")
        assert finding.args == {"step": 90 * SECOND, "newest_at": newest_at, "now": NOW}
        still_well = replace(TABLES, newest_at=NOW + SKEW_MAX)
        assert wrong(vitals(examination=still_well)) == []

    def test_a_damaged_file(self):
        found = replace(TABLES, damages=("page 7 is never used",))
        finding = the_one(vitals(examination=found), Severity.ERROR)
        assert finding.code == "health.damaged"
        assert finding.args == {"damage": "page 7 is never used"}

    def test_an_index_that_is_missing_comes_with_the_statement_that_makes_it(self):
        found = replace(TABLES, missing_indexes={"jobs_claimed": "CREATE INDEX jobs_claimed …;"})
        finding = the_one(vitals(examination=found), Severity.ERROR)
        assert (finding.about, finding.code) == ("indexes", "health.index_missing")
        assert finding.args == {
            "index": "jobs_claimed",
            "statement": "CREATE INDEX jobs_claimed …;",
        }

    def test_an_index_that_is_not_valid(self):
        found = replace(TABLES, invalid_indexes={"jobs_claimed": "REINDEX …;"})
        finding = the_one(vitals(examination=found), Severity.ERROR)
        assert finding.code == "health.index_invalid"
        assert finding.args["statement"] == "REINDEX …;"

    def test_a_log_that_grows(self):
        found = replace(TABLES, log_bytes=2 * LOG_BYTES_MAX)
        finding = the_one(vitals(examination=found), Severity.WARNING)
        assert (finding.code, finding.args) == ("health.log_large", {"megabytes": 512})

    def test_runs_that_go_nowhere_are_named_up_to_five(self):
        orphaned_runs = tuple(
            OrphanedRun(run=RunId(f"r-{n}"), namespace="team-a") for n in range(7)
        )
        found = vitals(examination=replace(TABLES, orphaned_runs=orphaned_runs))
        findings = wrong(found)

        assert "health.work" not in {each.code for each in judge(found)}, "these runs are stuck"
        assert len(findings) == 6
        lost = {"id": "r-0", "namespace": "team-a"}
        assert findings[0].code == "health.run_orphaned"
        assert findings[0].args == {"run": "r-0", "namespace": "team-a"}
        assert findings[0].actions == (Action("runs.cancel", lost), Action("runs.retry", lost))
        assert (findings[-1].code, findings[-1].args) == ("health.more", {"count": 2})


class TestWorkers:
    def test_none_and_nothing_to_do(self):
        assert the_one(vitals(workers=()), Severity.WARNING).code == "health.no_worker_idle"

    def test_none_and_work_to_do(self):
        partition = Partition(queue="default", task="add")
        finding = the_one(replace(surveyed(partition), workers=()), Severity.ERROR)
        assert (finding.code, finding.actions) == ("health.no_worker", start())

    def test_work_that_is_due_now_is_work_to_do(self):
        found = replace(surveyed(next_wait_at=NOW), workers=())
        assert the_one(found, Severity.ERROR).about == "workers"

    def test_a_dead_one_and_a_live_one(self):
        dead = worker(seen=INFO.lease + SECOND, id=WorkerId("w-2"))
        finding = the_one(vitals(workers=(worker(), dead)), Severity.WARNING)
        assert finding.code == "health.worker_silent"
        assert finding.args == {"worker": "w-2", "host": "oak", "pid": 7, "silent": 31 * SECOND}

    def test_one_lives_up_to_the_end_of_its_lease(self):
        assert wrong(vitals(workers=(worker(seen=INFO.lease),))) == []


class TestWork:
    @pytest.mark.parametrize(
        "name, about, code",
        [
            ("next_lease_end_at", "leases", "health.lease_overdue"),
            ("next_due_at", "jobs", "health.job_overdue"),
            ("next_deadline_at", "jobs", "health.deadline_overdue"),
            ("next_wait_at", "waits", "health.wait_overdue"),
            ("next_tick_at", "schedules", "health.schedule_overdue"),
        ],
    )
    def test_that_is_overdue(self, name, about, code):
        late = replace(POLL, **{name: NOW - OVERDUE})
        assert wrong(vitals(polls={DEFAULT_NAMESPACE: late})) == []
        later = replace(POLL, **{name: NOW - timedelta(days=2, hours=3, minutes=4)})
        finding = the_one(vitals(polls={"team-a": later}), Severity.ERROR)
        assert (finding.about, finding.code) == (about, code)
        assert finding.args == {"late": timedelta(days=2, hours=3), "namespace": "team-a"}
        assert finding.actions == start(namespace="team-a")

    def test_that_a_worker_can_take(self):
        plain = Partition(queue="default", task="add", tags=("gpu",))
        of_a_run = Partition(queue="default", task="pack", flow="orders@v1")
        assert wrong(surveyed(plain, of_a_run)) == []

    @pytest.mark.parametrize(
        "place, what, args, started",
        [
            ({"task": "sub"}, "task", {"task": "sub"}, {}),
            ({"task": "pack", "flow": "orders@v2"}, "flow", {"flow": "orders@v2"}, {}),
            (
                {"queue": "slow"},
                "queue",
                {"queue": "slow", "task": "add"},
                {"queues": ("slow",)},
            ),
        ],
    )
    def test_that_no_worker_takes(self, place, what, args, started):
        partition = Partition(**{"queue": "default", "task": "add"} | place)
        finding = the_one(surveyed(partition), Severity.ERROR)
        assert (finding.code, finding.args) == (f"health.{what}_unserved", args)
        assert finding.actions == start(**started)

    def test_that_needs_tags_which_no_worker_has(self):
        partition = Partition(queue="default", task="add", tags=("gpu", "big"))
        found = replace(surveyed(partition), workers=(worker(tags=("gpu",)),))
        finding = the_one(found, Severity.ERROR)
        assert finding.code == "health.tags_unserved"
        assert finding.args == {"tags": ("gpu", "big"), "task": "add"}
        assert finding.actions == start(queues=("default",), tags=("gpu", "big"))

    def test_of_a_namespace_that_no_live_worker_serves(self):
        finding = the_one(
            surveyed(Partition(queue="default", task="add"), namespace="team-a"), Severity.ERROR
        )
        assert finding.code == "health.namespace_unserved"
        assert finding.args == {"namespace": "team-a"}
        assert finding.actions == start(namespace="team-a")

    def test_of_a_paused_queue_is_not_stuck(self):
        assert wrong(surveyed(Partition(queue="slow", task="add"), paused=("slow",))) == []

    def test_many_partitions_are_summarized(self):
        partitions = [Partition(queue="default", task=f"task-{n}") for n in range(8)]
        *named, more = wrong(surveyed(*partitions, *partitions))
        assert [each.args["task"] for each in named] == [f"task-{n}" for n in range(5)]
        assert (more.code, more.args) == ("health.more", {"count": 3})


class TestWhatSomebodyStopped:
    def test_a_paused_queue_with_what_waits_in_it(self):
        queue = QueueInfo(
            namespace="team-a", queue="mail", paused_at=NOW - 90 * SECOND, paused_by="ann"
        )
        depth = [
            QueueDepth(namespace="team-a", queue="mail", status=Status.WAITING, count=3),
            QueueDepth(namespace="team-a", queue="mail", status=Status.COMPLETED, count=5),
            QueueDepth(namespace="team-a", queue="slow", status=Status.WAITING, count=9),
        ]
        found = vitals(paused_queues=(queue,), depth=tuple(depth))

        finding = the_one(found, Severity.WARNING)
        assert finding.code == "health.queue_paused"
        assert finding.args == {
            "queue": "mail",
            "by": "ann",
            "ago": 90 * SECOND,
            "waiting": 3,
            "namespace": "team-a",
        }
        resume = {"name": "mail", "namespace": "team-a"}
        assert finding.actions == (Action("queues.resume", resume),)

    def test_the_dead_letter(self):
        depth = QueueDepth(namespace="default", queue="mail", status=Status.DEAD, count=1)
        finding = the_one(vitals(depth=(depth,)), Severity.WARNING)
        assert (finding.code, finding.args) == ("health.dead_letters", {"count": 1})
        assert finding.actions == (Action("jobs.list", {"status": "dead"}),)

    def test_failed_runs(self):
        runs = RunStats(namespace="default", counts={RunStatus.FAILED: 2, RunStatus.COMPLETED: 9})
        finding = the_one(vitals(runs=(runs,)), Severity.WARNING)
        assert (finding.code, finding.args) == ("health.runs_failed", {"count": 2})
        assert finding.actions == (Action("runs.list", {"status": "failed"}),)
        [more] = wrong(vitals(runs=(replace(runs, more=(RunStatus.FAILED,)),)))
        assert more.args == {"count_min": 2}

    def test_runs_that_wait_for_people_are_reported_without_a_warning(self):
        found = vitals(runs=(RunStats(namespace="team-a", waiting_for_people=3),))
        [finding] = [each for each in judge(found) if each.code == "health.runs_waiting"]
        assert wrong(found) == []
        assert finding.args == {"count": 3, "namespace": "team-a"}
        assert finding.actions == (Action("approvals.list", {"namespace": "team-a"}),)

    def test_more_dead_letters_than_were_counted(self):
        depth = [
            QueueDepth(namespace="default", queue=queue, status=Status.DEAD, count=9, has_more=more)
            for queue, more in (("mail", True), ("slow", False))
        ]
        finding = the_one(vitals(depth=tuple(depth)), Severity.WARNING)
        assert (finding.code, finding.args) == ("health.dead_letters", {"count_min": 18})

    def test_a_schedule_that_cannot_be_read(self):
        schedule = UnreadableSchedule(
            namespace="default", name="nightly", revision=1, due_at=None, reason="of version 9"
        )
        found = vitals(unreadable_schedules=(schedule,))
        finding = the_one(found, Severity.WARNING)
        assert finding.code == "health.schedule_unreadable"
        assert finding.args == {"schedule": "nightly", "reason": "of version 9"}


# Which workers are live, and which have what a job needs.


MOMENT = timedelta(microseconds=1)
WORKER = WorkerState(info=INFO, started_at=NOW, seen_at=NOW, running=())


class TestIsLive:
    def test_until_its_lease_is_over(self):
        assert is_live(WORKER, NOW + INFO.lease)
        assert not is_live(WORKER, NOW + INFO.lease + MOMENT)

    @pytest.mark.parametrize("leases", [0.5, 4])
    def test_for_part_of_a_lease_or_several(self, leases):
        assert is_live(WORKER, NOW + leases * INFO.lease, leases=leases)
        assert not is_live(WORKER, NOW + leases * INFO.lease + MOMENT, leases=leases)

    def test_is_asked_here_alone(self):
        """Stores keep leases, and the verifier says how late a job is; all else uses this rule."""
        elsewhere = {
            module.name
            for module in modules()
            if not module.name.startswith("store.")
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Attribute)
            and node.attr == "lease"
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "info"
        }

        assert elsewhere == {"model.worker", "verify.rules.jobs"}


class TestHasCode:
    def test_of_a_run_the_version_counts_and_of_a_plain_job_the_task(self):
        assert has_code(INFO, task="anything", flow="orders@v1")
        assert not has_code(INFO, task="add", flow="orders@v2")
        assert has_code(INFO, task="add", flow="")
        assert not has_code(INFO, task="orders@v1", flow="")


class TestHasTags:
    def test_a_worker_without_tags_takes_any_job(self):
        assert has_tags(None, ["gpu"])

    def test_a_worker_with_tags_needs_all_that_are_wanted(self):
        assert has_tags(["gpu", "eu"], ["gpu"])
        assert has_tags([], [])
        assert not has_tags(["gpu"], ["gpu", "eu"])


# When the supervisor starts a dead worker process again.


SHORT_OF_STEADY = STEADY_AFTER - timedelta(milliseconds=1)


class TestRestartDelay:
    def test_is_short_after_the_first_crash(self):
        assert restart_delay(1) == FIRST_DELAY

    def test_grows_with_every_further_crash(self):
        delays = [restart_delay(crashes) for crashes in range(1, 6)]
        assert delays == sorted(set(delays))

    def test_is_capped_however_often_it_crashed(self):
        assert restart_delay(10) == DELAY_MAX
        assert restart_delay(10**9) == DELAY_MAX

    def test_refuses_a_count_of_none(self):
        with pytest.raises(ValueError, match="crashes=0"):
            restart_delay(0)


class TestConsecutiveCrashes:
    def test_counts_up_while_it_crashes_soon_after_its_start(self):
        assert crashes_in_a_row(0, timedelta(0)) == 1
        assert crashes_in_a_row(3, SHORT_OF_STEADY) == 4

    def test_restarts_once_it_was_up_for_a_while(self):
        assert crashes_in_a_row(7, STEADY_AFTER) == 1


RENEWAL_SECONDS = 10.0


class Watch:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class TestTakeoverGrace:
    """After an outage, leases that ran out say nothing about their holders."""

    def test_is_not_needed_while_the_store_answers_promptly(self):
        grace = TakeoverGrace(INFO.lease, Watch())
        grace.note_delay(OUTAGE_SECONDS)
        assert not grace.seconds_left

    def test_lasts_until_every_worker_had_the_time_to_renew(self):
        watch = Watch()
        grace = TakeoverGrace(INFO.lease, watch)
        grace.note_delay(40)
        watch.seconds += RENEWAL_SECONDS + RECONNECT_SECONDS - 0.1
        assert grace.seconds_left
        watch.seconds += 0.2
        assert not grace.seconds_left

    def test_lets_jobs_be_taken_over_between_delays_that_never_end(self):
        watch = Watch()
        grace = TakeoverGrace(INFO.lease, watch)
        needed = []
        for _ in range(120):
            grace.note_delay(2)
            needed.append(grace.seconds_left)
            watch.seconds += 1
        assert needed.count(False) >= 45

    def test_restarts_with_a_later_outage(self):
        watch = Watch()
        grace = TakeoverGrace(INFO.lease, watch)
        grace.note_delay(2)
        watch.seconds += 2 * (RENEWAL_SECONDS + RECONNECT_SECONDS)
        grace.note_delay(2)
        assert grace.seconds_left


# The clock that tests turn, and ids that sort by when they were made.


class TestManualClock:
    def test_stands_still_until_it_is_turned(self):
        start = datetime(2031, 5, 6, tzinfo=UTC)
        clock = ManualClock(start)
        assert clock() == clock() == start
        clock.advance(timedelta(microseconds=1))
        assert clock() == start + timedelta(microseconds=1)


class TestSystemClock:
    def test_is_aware_of_its_zone(self):
        assert system_clock().utcoffset() == timedelta(0)


class TestNewId:
    def test_sorts_by_when_it_was_made(self):
        ids = [new_id() for _ in range(5000)]
        assert ids == sorted(set(ids))

    def test_has_26_plain_characters(self):
        id = new_id()
        assert len(id) == 26
        assert id.isascii()
        assert id.isalnum()
        assert id == id.lower()

    def test_differs_from_thread_to_thread(self):
        with ThreadPoolExecutor(4) as threads:
            batches = list(threads.map(lambda _: [new_id() for _ in range(1000)], range(4)))
        assert len({id for batch in batches for id in batch}) == 4000
