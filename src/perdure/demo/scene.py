"""What the demo sees of the store at one moment, and what changed since the moment before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perdure.model.ids import JobId
from perdure.model.job import FINISHED, HELD, Job, Status
from perdure.model.value import Value


class WorkerSight(Value):
    """One worker process."""

    name: str
    pid: int
    is_alive: bool
    is_killed: bool
    holds: int


class Scene(Value):
    """All jobs and workers at one moment."""

    seconds: float
    jobs: Mapping[JobId, Job]
    workers: tuple[WorkerSight, ...] = ()

    @property
    def counts(self) -> dict[Status, int]:
        counts = dict.fromkeys(Status, 0)
        for job in self.jobs.values():
            counts[job.status] += 1
        return {status: count for status, count in counts.items() if count}

    @property
    def running(self) -> list[Job]:
        """Those that workers hold, the ones that have come furthest first."""
        held = [job for job in self.jobs.values() if job.status in HELD]
        return sorted(held, key=lambda job: (-job.progress.percent, job.id))

    @property
    def finished(self) -> int:
        return sum(job.status in FINISHED for job in self.jobs.values())

    @property
    def is_over(self) -> bool:
        return bool(self.jobs) and self.finished == len(self.jobs)


def changes(before: Scene, after: Scene, names: Mapping[str, str]) -> list[str]:
    """Say what happened in between, as far as it is worth a line; ``names`` of jobs by id."""
    concerned: dict[str, list[str]] = {}
    for id, job in after.jobs.items():
        if (was := before.jobs.get(id)) is not None:
            for text in _told(was, job):
                concerned.setdefault(text, []).append(names[id])
    return [f"{_listed(sorted(who))}: {text}" for text, who in concerned.items()]


def _told(was: Job, job: Job) -> Iterator[str]:
    if job.failures > was.failures and job.status is not Status.FAILED:
        yield "failed, will be tried again"
    if job.deaths > was.deaths:
        yield "the lease ran out, back to the queue"
    if was.status is Status.SCHEDULED and job.status is not was.status and not was.attempt:
        yield "the delay is over"
    if job.status is was.status:
        return
    if job.status in (Status.FAILED, Status.DEAD, Status.CANCELLED):
        yield f"now {job.status}"
    elif job.status is Status.COMPLETED and job.failures:
        yield f"completed at try {job.failures + 1}"
    elif job.status is Status.COMPLETED and job.deaths:
        yield "completed after the takeover"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} jobs ({', '.join(names)})"
