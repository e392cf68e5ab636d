"""``python -m perdure.demo`` from start to end, and what it makes of the record."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from perdure import Job, Progress, Status
from perdure.demo.scene import Scene, WorkerSight, changes
from perdure.demo.screens import picture
from perdure.demo.verdict import Expected, judge, most_in_a_second
from perdure.model.ids import JobId

NOW = datetime(2030, 1, 1, tzinfo=UTC)
EXPECTED = Expected(ids=["a", "b"], aborted="b", words=10, limited="letters", rate=1)


def job(id: str, status: Status = Status.COMPLETED) -> Job:
    return Job(
        id=JobId(id),
        namespace="default",
        queue="default",
        task="count_words",
        tags=(),
        status=status,
        priority=3,
        group=None,
        fingerprint=None,
        attempt=1,
        failures=0,
        deaths=0,
        max_attempts=None,
        worker=None,
        epoch=1,
        progress=Progress(percent=0),
        created_at=NOW,
        ready_at=NOW,
        deadline_at=None,
        started_at=NOW,
        finished_at=None,
        lease_until=None,
    )


def scene(*jobs: Job) -> Scene:
    sights = (
        WorkerSight(name="worker 1", pid=1, is_alive=True, is_killed=False, holds=2),
        WorkerSight(name="worker 2", pid=2, is_alive=False, is_killed=True, holds=0),
    )
    return Scene(seconds=1, jobs={each.id: each for each in jobs}, workers=sights)


@pytest.mark.timeout(150)
def test_ends_by_itself_with_a_good_result(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perdure.demo", "--fast"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "each finished exactly once in the record" in done.stdout
    assert "SIGKILL" in done.stdout
    assert "has taken over all" in done.stdout
    assert "proofread alice: now cancelled" in done.stdout
    assert "\x1b" not in done.stdout


class TestChanges:
    NAMES = {"a": "count a", "b": "count b"}  # noqa: RUF012

    def test_are_told_together_when_they_are_the_same(self) -> None:
        before = scene(job("a", Status.ACTIVE), job("b", Status.ACTIVE))
        after = scene(
            replace(job("a", Status.SCHEDULED), failures=1),
            replace(job("b", Status.SCHEDULED), failures=1),
        )

        assert changes(before, after, self.NAMES) == [
            "2 jobs (count a, count b): failed, will be tried again"
        ]

    def test_include_leases_that_ran_out(self) -> None:
        before = scene(job("a", Status.ACTIVE))
        after = scene(replace(job("a", Status.WAITING), deaths=1))

        assert changes(before, after, self.NAMES) == [
            "count a: the lease ran out, back to the queue"
        ]

    def test_leave_out_what_is_ordinary(self) -> None:
        before = scene(job("a", Status.WAITING))

        assert changes(before, scene(job("a", Status.ACTIVE), job("b")), self.NAMES) == []
        assert changes(before, scene(job("a", Status.COMPLETED)), self.NAMES) == []


class TestJudge:
    GOOD = (job("a"), job("b", Status.CANCELLED))

    def test_is_content_when_every_job_ended_as_it_should(self) -> None:
        verdict = judge(self.GOOD, EXPECTED, 10)

        assert verdict.is_good
        assert verdict.outcomes == {Status.COMPLETED: 1, Status.CANCELLED: 1}

    @pytest.mark.parametrize(
        "jobs, words, problem",
        [
            ((job("a"),), 10, "job b is not in the record"),
            ((*GOOD, job("a")), 10, "job a is there 2 times"),
            ((job("a", Status.ACTIVE), GOOD[1]), 10, "count_words a is not finished: it is active"),
            ((job("a", Status.DEAD), GOOD[1]), 10, "count_words a is dead instead of completed"),
            ((job("a"), job("b")), 10, "count_words b is completed instead of cancelled"),
            (GOOD, 9, "the words counted are 9 instead of 10"),
        ],
    )
    def test_names_what_is_wrong(self, jobs: tuple[Job, ...], words: int, problem: str) -> None:
        verdict = judge(jobs, EXPECTED, words)

        assert problem in verdict.problems

    def test_sees_a_rate_that_was_exceeded(self) -> None:
        jobs = [replace(each, group="letters") for each in self.GOOD]

        assert judge(jobs, EXPECTED, 10).problems == ("2 letters started within a second",)

    def test_counts_a_sliding_second(self) -> None:
        moments = [NOW + timedelta(seconds=each) for each in (0, 0.6, 1.0, 1.5, 1.61)]

        assert most_in_a_second(moments) == 3
        assert most_in_a_second([]) == 0


@pytest.mark.parametrize("width", [40, 60, 120])
def test_the_picture_fits_the_terminal(width: int) -> None:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    names = {"a": "count_words a-book-with-a-very-long-title-indeed", "b": "count_words b"}
    jobs = (job("a", Status.ACTIVE), job("b", Status.ABORTING))

    console.print(picture(scene(*jobs), names, [(1.5, "something happened " * 5)]))

    console.file.close()
    lines = console.export_text().splitlines()
    assert all(len(line.rstrip()) <= width for line in lines)
    assert any("0/2 jobs" in line for line in lines)
    assert any("✗ worker 2" in line for line in lines)
