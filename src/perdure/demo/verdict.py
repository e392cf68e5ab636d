"""Whether the record says what it must: every job once, and the words add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from perdure.model.job import FINISHED, Job, Status
from perdure.model.value import Value


class Verdict(Value):
    """What the demo found in the record."""

    outcomes: Mapping[Status, int]
    attempts: int
    retried: int
    """Jobs that failed at first."""
    taken_over: int
    """Jobs whose worker died."""
    words: int
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


class Expected(Value):
    """What must come out."""

    ids: Sequence[str]
    aborted: str
    words: int
    limited: str
    """The group under a rate limit."""
    rate: int
    """Its starts in any one second."""


def judge(jobs: Sequence[Job], expected: Expected, words: int) -> Verdict:
    """Compare the record with what was enqueued; ``words`` is the sum of the jobs' results."""
    return Verdict(
        outcomes=dict(Counter(job.status for job in jobs)),
        attempts=sum(job.attempt for job in jobs),
        retried=sum(job.failures > 0 for job in jobs),
        taken_over=sum(job.deaths > 0 for job in jobs),
        words=words,
        problems=tuple(_problems(jobs, expected, words)),
    )


def _problems(jobs: Sequence[Job], expected: Expected, words: int) -> list[str]:
    seen = Counter(job.id for job in jobs)
    problems = [f"job {id} is not in the record" for id in expected.ids if id not in seen]
    problems += [f"job {id} is there {count} times" for id, count in seen.items() if count > 1]
    for job in jobs:
        wanted = Status.CANCELLED if job.id == expected.aborted else Status.COMPLETED
        if job.status not in FINISHED:
            problems.append(f"{job.task} {job.id} is not finished: it is {job.status}")
        elif job.status is not wanted:
            problems.append(f"{job.task} {job.id} is {job.status} instead of {wanted}")
    if words != expected.words:
        problems.append(f"the words counted are {words} instead of {expected.words}")
    starts = [job.started_at for job in jobs if job.group == expected.limited and job.started_at]
    if (most := most_in_a_second(starts)) > expected.rate:
        problems.append(f"{most} {expected.limited} started within a second")
    return problems


def most_in_a_second(moments: Sequence[datetime]) -> int:
    """How many of these moments fit into one second."""
    ordered = sorted(moments)
    return max(
        (
            sum(start <= each < start + timedelta(seconds=1) for each in ordered)
            for start in ordered
        ),
        default=0,
    )
