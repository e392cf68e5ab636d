"""Judging what was measured of a store: each fault alone, and the command that would help."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.model.health import Severity, Symptom, Vitals
from perdure.model.ids import JobId, RunId, WorkerId
from perdure.model.insight import OrphanedRun, StorageReport
from perdure.model.job import DEFAULT_NAMESPACE, QueueDepth, QueueInfo, Status
from perdure.model.lane import Lane
from perdure.model.schedule import UnreadableSchedule
from perdure.model.worker import PollResult, WorkerInfo, WorkerState
from perdure.rules.health import LATENCY_MAX, LOG_BYTES_MAX, OVERDUE, SKEW_MAX, judge

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
    now=NOW, lanes=(), next_due_at=None, next_lease_end_at=None, next_deadline_at=None
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
        surveys={DEFAULT_NAMESPACE: SURVEY},
    )
    return replace(well, **changes)


def surveyed(*lanes: Lane, namespace: str = DEFAULT_NAMESPACE, **changes: Any) -> Vitals:
    survey = replace(SURVEY, lanes=tuple(lane.text for lane in lanes), **changes)
    return vitals(surveys={namespace: survey})


def wrong(found: Vitals) -> list[Symptom]:
    return [each for each in judge(found) if each.severity is not Severity.OK]


def the_one(found: Vitals, severity: Severity) -> Symptom:
    [symptom] = wrong(found)
    assert symptom.severity is severity
    return symptom


class TestAWellStore:
    def test_has_nothing_but_what_is_well(self) -> None:
        symptoms = judge(vitals())

        assert wrong(vitals()) == []
        assert [each.about for each in symptoms] == [
            "store",
            "schema",
            "clock",
            "indexes",
            "workers",
            "work",
        ]
        assert symptoms[0].text == "it answers in 1.0 ms"


class TestThePlace:
    @pytest.mark.parametrize("ahead", [SKEW_MAX, -SKEW_MAX])
    def test_bounds_are_still_well(self, ahead: timedelta) -> None:
        log = replace(TABLES, log_bytes=LOG_BYTES_MAX)

        assert wrong(vitals(latency=LATENCY_MAX, skew=ahead, examination=log)) == []

    def test_a_slow_store(self) -> None:
        symptom = the_one(vitals(latency=LATENCY_MAX + SECOND), Severity.WARNING)

        assert symptom.text.startswith("it answers in 1100.0 ms")

    @pytest.mark.parametrize("sign, word", [(1, "ahead of"), (-1, "behind")])
    def test_a_clock_that_goes_wrong(self, sign: int, word: str) -> None:
        symptom = the_one(vitals(skew=sign * 90 * SECOND), Severity.WARNING)

        assert f"clock is 1m30s {word} the store's" in symptom.text
        assert symptom.help == "timedatectl set-ntp true"

    def test_a_damaged_file(self) -> None:
        found = replace(TABLES, damages=("page 7 is never used",))

        assert the_one(vitals(examination=found), Severity.ERROR).text == "page 7 is never used"

    def test_an_index_that_is_missing_comes_with_the_statement_that_makes_it(self) -> None:
        found = replace(TABLES, missing_indexes={"jobs_held": "CREATE INDEX jobs_held …;"})
        symptom = the_one(vitals(examination=found), Severity.ERROR)

        assert (symptom.about, symptom.help) == ("indexes", "CREATE INDEX jobs_held …;")

    def test_an_index_that_is_not_valid(self) -> None:
        found = replace(TABLES, invalid_indexes={"jobs_held": "REINDEX …;"})

        assert the_one(vitals(examination=found), Severity.ERROR).help == "REINDEX …;"

    def test_a_log_that_grows(self) -> None:
        found = replace(TABLES, log_bytes=2 * LOG_BYTES_MAX)

        assert "512 MB" in the_one(vitals(examination=found), Severity.WARNING).text

    def test_runs_that_go_nowhere_are_named_up_to_five(self) -> None:
        strays = tuple(OrphanedRun(run=RunId(f"r-{n}"), namespace="team-a") for n in range(7))
        symptoms = wrong(vitals(examination=replace(TABLES, strays=strays)))

        assert len(symptoms) == 6
        assert symptoms[0].text == (
            "run 'r-0' of namespace 'team-a' has no job and waits for nothing"
        )
        assert "--namespace team-a" in symptoms[0].help
        assert "2 more" in symptoms[-1].text


class TestWorkers:
    def test_none_and_nothing_to_do(self) -> None:
        assert "nothing to do" in the_one(vitals(workers=()), Severity.WARNING).text

    def test_none_and_work_to_do(self) -> None:
        lane = Lane(queue="default", task="add")
        symptom = the_one(replace(surveyed(lane), workers=()), Severity.ERROR)

        assert symptom.text == "there is work, and no worker is live"
        assert symptom.help == "perdure worker MODULE"

    def test_work_that_is_due_now_is_work_to_do(self) -> None:
        found = replace(surveyed(next_wait_at=NOW), workers=())

        assert the_one(found, Severity.ERROR).about == "workers"

    def test_a_dead_one_beside_a_live_one(self) -> None:
        dead = worker(seen=INFO.lease + SECOND, id=WorkerId("w-2"))
        symptom = the_one(vitals(workers=(worker(), dead)), Severity.WARNING)

        assert symptom.text == ("worker w-2 (oak, process 7) has given no sign of life for 31s")

    def test_one_lives_up_to_the_end_of_its_lease(self) -> None:
        assert wrong(vitals(workers=(worker(seen=INFO.lease),))) == []


class TestWork:
    @pytest.mark.parametrize(
        "name, about",
        [
            ("next_lease_end_at", "leases"),
            ("next_due_at", "jobs"),
            ("next_deadline_at", "jobs"),
            ("next_wait_at", "waits"),
            ("next_tick_at", "schedules"),
        ],
    )
    def test_that_is_overdue(self, name: str, about: str) -> None:
        late = replace(SURVEY, **{name: NOW - OVERDUE})
        assert wrong(vitals(surveys={DEFAULT_NAMESPACE: late})) == []

        later = replace(SURVEY, **{name: NOW - timedelta(days=2, hours=3)})
        symptom = the_one(vitals(surveys={"team-a": later}), Severity.ERROR)
        assert symptom.about == about
        assert "of namespace 'team-a', for 2d3h now" in symptom.text
        assert symptom.help == "perdure worker MODULE --namespace team-a"

    def test_that_somebody_takes(self) -> None:
        plain = Lane(queue="default", task="add", tags=("gpu",))
        of_a_run = Lane(queue="default", task="pack", flow="orders@v1")

        assert wrong(surveyed(plain, of_a_run)) == []

    @pytest.mark.parametrize(
        "lane, text, help",
        [
            (
                Lane(queue="default", task="sub"),
                "jobs of task 'sub' wait, and no live worker has it",
                "perdure worker MODULE",
            ),
            (
                Lane(queue="default", task="pack", flow="orders@v2"),
                "jobs of flow orders@v2 wait, and no live worker has it",
                "perdure worker MODULE",
            ),
            (
                Lane(queue="slow", task="add"),
                "jobs wait in queue 'slow', which no live worker that has 'add' serves",
                "perdure worker MODULE --queues slow",
            ),
        ],
    )
    def test_that_nobody_takes(self, lane: Lane, text: str, help: str) -> None:
        symptom = the_one(surveyed(lane), Severity.ERROR)

        assert (symptom.text, symptom.help) == (text, help)

    def test_that_needs_tags_which_nobody_has(self) -> None:
        lane = Lane(queue="default", task="add", tags=("gpu", "big"))
        found = replace(surveyed(lane), workers=(worker(tags=("gpu",)),))

        symptom = the_one(found, Severity.ERROR)
        assert "the tags gpu, big" in symptom.text
        assert symptom.help.endswith("--queues default --tags gpu,big")

    def test_of_a_namespace_that_no_live_worker_serves(self) -> None:
        symptom = the_one(
            surveyed(Lane(queue="default", task="add"), namespace="team-a"), Severity.ERROR
        )

        assert symptom.text == "jobs wait of namespace 'team-a', which no live worker serves"

    def test_of_a_paused_queue_is_not_stuck(self) -> None:
        assert wrong(surveyed(Lane(queue="slow", task="add"), paused=("slow",))) == []

    def test_many_kinds_are_told_of_in_few_lines(self) -> None:
        lanes = [Lane(queue="default", task=f"task-{n}") for n in range(8)]

        assert [each.text for each in wrong(surveyed(*lanes))][-1] == "so do 3 more kinds of jobs"


class TestWhatSomebodyStopped:
    def test_a_paused_queue_with_what_waits_in_it(self) -> None:
        queue = QueueInfo(
            namespace="team-a", queue="mail", paused_at=NOW - 90 * SECOND, paused_by="ann"
        )
        depth = [
            QueueDepth(namespace="team-a", queue="mail", status=Status.WAITING, count=3),
            QueueDepth(namespace="team-a", queue="mail", status=Status.COMPLETED, count=5),
            QueueDepth(namespace="team-a", queue="slow", status=Status.WAITING, count=9),
        ]
        found = vitals(paused_queues=(queue,), depth=tuple(depth))

        symptom = the_one(found, Severity.WARNING)
        assert symptom.text == (
            "queue 'mail' of namespace 'team-a' was paused by ann, 1m30s ago; 3 jobs wait"
        )
        assert symptom.help == "perdure queues resume mail --namespace team-a"

    def test_a_paused_queue_whose_name_a_shell_would_take_apart(self) -> None:
        queue = QueueInfo(namespace="default", queue="big mail", paused_at=NOW, paused_by=None)

        symptom = the_one(vitals(paused_queues=(queue,)), Severity.WARNING)

        assert symptom.help == "perdure queues resume 'big mail'"

    def test_the_dead_letter(self) -> None:
        depth = QueueDepth(namespace="default", queue="mail", status=Status.DEAD, count=1)
        symptom = the_one(vitals(depth=(depth,)), Severity.WARNING)

        assert symptom.text == "1 job is in the dead letter"
        assert symptom.help == "perdure jobs list --status dead"

    def test_a_schedule_that_cannot_be_read(self) -> None:
        schedule = UnreadableSchedule(
            namespace="default", name="nightly", revision=1, due_at=None, reason="of version 9"
        )

        found = vitals(unreadable_schedules=(schedule,))
        assert the_one(found, Severity.WARNING).text.endswith("cannot be read: of version 9")
