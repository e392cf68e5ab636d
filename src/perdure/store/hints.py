"""Which hints a write calls for, from what it did to each job and run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from perdure.model.hint import Hint, HintKind
from perdure.model.job import NewJob, Status


class WriteHints:
    """Gathers what a write did, and says what to publish once it is committed."""

    def __init__(self) -> None:
        self._changed: set[str] = set()
        self._stopped: set[str] = set()
        self._ready: set[str] = set()
        self._stepped: set[str] = set()
        self._moved_runs: set[str] = set()
        self._is_scheduled = False
        self._is_due = False
        self._frees_limit = False

    def queued(self, status: str, lane: str) -> None:
        """A job now waits, or will."""
        if status == Status.WAITING:
            self._ready.add(lane)
        elif status == Status.SCHEDULED:
            self._is_scheduled = True

    def moved(self, id: str, status: str, lane: str | None, *, frees_limit: bool = False) -> None:
        """A job got another status; ``frees_limit`` when it made room for others."""
        self._changed.add(id)
        self._frees_limit = self._frees_limit or frees_limit
        if lane is not None:
            self.queued(status, lane)

    def changed(self, ids: Iterable[str]) -> None:
        self._changed.update(ids)

    def stopped(self, id: str) -> None:
        """A holder has to know: it is asked to stop, or its claim is gone."""
        self._stopped.add(id)

    def frees_limit(self) -> None:
        self._frees_limit = True

    def taken(self, jobs: Iterable[tuple[str, bool, bool]]) -> None:
        """Jobs were taken from their run: id, whether it was held, whether under a limit."""
        for id, was_held, was_limited in jobs:
            if was_held:
                self._stopped.add(id)
            self._frees_limit = self._frees_limit or was_limited

    def stepped(self, run: str, *, is_moved: bool) -> None:
        """A run got events; ``is_moved`` when it got another status too."""
        (self._moved_runs if is_moved else self._stepped).add(run)

    def due(self) -> None:
        """A wait was opened with a time, or became due."""
        self._is_due = True

    def hints(self) -> Iterator[Hint]:
        """What every process should know."""
        if self._stopped:
            yield Hint(kind=HintKind.ABORTING, names=frozenset(self._stopped))
        if self._changed:
            yield Hint(kind=HintKind.CHANGED, names=frozenset(self._changed))
        if self._frees_limit:
            yield Hint(kind=HintKind.READY)
        elif self._ready:
            yield Hint(kind=HintKind.READY, names=frozenset(self._ready))
        if self._is_scheduled:
            yield Hint(kind=HintKind.SCHEDULED)
        if self._is_due:
            yield Hint(kind=HintKind.DUE)
        if self._moved_runs:
            yield Hint(kind=HintKind.RUN, names=frozenset(self._moved_runs))

    def hints_nearby(self) -> Iterator[Hint]:
        """What this process alone is told: a notification for each step would cost too much.

        Who follows a run from another process looks for new events by itself.
        """
        if self._stepped:
            yield Hint(kind=HintKind.RUN, names=frozenset(self._stepped))


def note_queued(job: NewJob, hints: WriteHints) -> None:
    """A job was inserted; where only the store knows whether its time has come, tell of both."""
    if job.run_at is not None or job.delay > timedelta(0):
        hints.queued(Status.SCHEDULED, job.lane.text)
    if job.run_at is not None or job.delay <= timedelta(0):
        hints.queued(Status.WAITING, job.lane.text)
