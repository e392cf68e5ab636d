"""Judging what was measured of a store: each fault alone, and the action that would help."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.diagnostics import Action, Finding, Severity
from perdure.model.facts import OrphanedRun, StorageReport
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.job import DEFAULT_NAMESPACE, QueueDepth, QueueInfo, Status
from perdure.model.partition import Partition
from perdure.model.schedule import UnreadableSchedule
from perdure.model.worker import PollResult, WorkerInfo, WorkerState
from perdure.operations.insight.health import (
    LATENCY_MAX,
    LOG_BYTES_MAX,
    OVERDUE,
    SKEW_MAX,
    Vitals,
    judge,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
INFO = WorkerInfo(
    id=WorkerId("w-1"),
    namespace=DEFAULT_NAMESPACE,
    host="oak",
    pid=7,
    queues=("default",),
    tasks=("add",),
    tags=None,
    concurrency=10,
    lease=30 * SECOND,
    flows=("orders@v1",),
)
SURVEY = PollResult(
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
        polls={DEFAULT_NAMESPACE: SURVEY},
    )
    return replace(well, **changes)


def surveyed(*partitions: Partition, namespace: str = DEFAULT_NAMESPACE, **changes: Any) -> Vitals:
    poll = replace(SURVEY, partitions=tuple(partition.text for partition in partitions), **changes)
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
        findings = wrong(vitals(examination=replace(TABLES, orphaned_runs=orphaned_runs)))

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

    def test_a_dead_one_beside_a_live_one(self):
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
        late = replace(SURVEY, **{name: NOW - OVERDUE})
        assert wrong(vitals(polls={DEFAULT_NAMESPACE: late})) == []

        later = replace(SURVEY, **{name: NOW - timedelta(days=2, hours=3, minutes=4)})
        finding = the_one(vitals(polls={"team-a": later}), Severity.ERROR)
        assert (finding.about, finding.code) == (about, code)
        assert finding.args == {"late": timedelta(days=2, hours=3), "namespace": "team-a"}
        assert finding.actions == start(namespace="team-a")

    def test_that_somebody_takes(self):
        plain = Partition(queue="default", task="add", tags=("gpu",))
        of_a_run = Partition(queue="default", task="pack", flow="orders@v1")

        assert wrong(surveyed(plain, of_a_run)) == []

    @pytest.mark.parametrize(
        "partition, code, args, actions",
        [
            (
                Partition(queue="default", task="sub"),
                "health.task_unserved",
                {"task": "sub"},
                start(),
            ),
            (
                Partition(queue="default", task="pack", flow="orders@v2"),
                "health.flow_unserved",
                {"flow": "orders@v2"},
                start(),
            ),
            (
                Partition(queue="slow", task="add"),
                "health.queue_unserved",
                {"queue": "slow", "task": "add"},
                start(queues=("slow",)),
            ),
        ],
    )
    def test_that_nobody_takes(self, partition, code, args, actions):
        finding = the_one(surveyed(partition), Severity.ERROR)

        assert (finding.code, finding.args, finding.actions) == (code, args, actions)

    def test_that_needs_tags_which_nobody_has(self):
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

    def test_many_kinds_are_told_of_in_few_lines(self):
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

    def test_a_schedule_that_cannot_be_read(self):
        schedule = UnreadableSchedule(
            namespace="default", name="nightly", revision=1, due_at=None, reason="of version 9"
        )

        found = vitals(unreadable_schedules=(schedule,))
        finding = the_one(found, Severity.WARNING)
        assert finding.code == "health.schedule_unreadable"
        assert finding.args == {"schedule": "nightly", "reason": "of version 9"}
