"""What a worker has done since it started."""

from __future__ import annotations

from datetime import datetime, timedelta

from perdure.model.value import Value


class WorkerStats(Value):
    """Counts of one worker. ``running`` and ``concurrency`` are of this moment."""

    started: int
    completed: int
    failed: int
    retried: int
    dead: int
    cancelled: int
    released: int
    claims_lost: int
    taken_over: int
    """Jobs of dead workers that this one saw to."""
    running: int
    concurrency: int
    average_duration: timedelta | None
    """Over completed jobs."""
    updated_at: datetime | None


class Tally:
    """The counters behind :class:`WorkerStats`."""

    def __init__(self) -> None:
        self.started = self.completed = self.failed = self.retried = self.dead = 0
        self.cancelled = self.released = self.claims_lost = self.taken_over = 0
        self.seconds = 0.0
        self.updated_at: datetime | None = None

    def stats(self, running: int, concurrency: int) -> WorkerStats:
        average = timedelta(seconds=self.seconds / self.completed) if self.completed else None
        return WorkerStats(
            started=self.started,
            completed=self.completed,
            failed=self.failed,
            retried=self.retried,
            dead=self.dead,
            cancelled=self.cancelled,
            released=self.released,
            claims_lost=self.claims_lost,
            taken_over=self.taken_over,
            running=running,
            concurrency=concurrency,
            average_duration=average,
            updated_at=self.updated_at,
        )
