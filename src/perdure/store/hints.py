"""Which hints a write calls for, from what it did to each job and run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from perdure.model.hint import Hint, HintType
from perdure.model.job import NewJob, Status

_ORDER = (
    HintType.ABORTING,
    HintType.CHANGED,
    HintType.READY,
    HintType.SCHEDULED,
    HintType.DUE,
    HintType.RUN,
)
"""Who has to stop is told first."""


class WriteHints:
    """Gathers what a write did, and says what to publish once it is committed."""

    __slots__ = ("_names", "_stepped")

    def __init__(self) -> None:
        self._names: dict[HintType, set[str] | None] = {}
        """None instead of names means any."""
        self._stepped: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._names or self._stepped)

    def queued(self, status: str, partition: str) -> None:
        """A job now waits, or will."""
        if status == Status.WAITING:
            self._add(HintType.READY, partition)
        elif status == Status.SCHEDULED:
            self._names[HintType.SCHEDULED] = None

    def moved(
        self, id: str, status: str, partition: str | None, *, frees_limit: bool = False
    ) -> None:
        """A job got another status; ``frees_limit`` when it made room for others."""
        self._add(HintType.CHANGED, id)
        if frees_limit:
            self.frees_limit()
        if partition is not None:
            self.queued(status, partition)

    def changed(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._add(HintType.CHANGED, id)

    def stopped(self, id: str) -> None:
        """A holder has to know: it is asked to stop, or its claim is gone."""
        self._add(HintType.ABORTING, id)

    def frees_limit(self) -> None:
        """Any partition may have jobs that can start now; so when a queue is no longer paused."""
        self._names[HintType.READY] = None

    def taken(self, jobs: Iterable[tuple[str, bool, bool]]) -> None:
        """Jobs were taken from their run: id, whether it was held, whether under a limit."""
        for id, was_held, was_limited in jobs:
            if was_held:
                self.stopped(id)
            if was_limited:
                self.frees_limit()

    def stepped(self, run: str, *, is_moved: bool) -> None:
        """A run got events; ``is_moved`` when it got another status too."""
        if is_moved:
            self._add(HintType.RUN, run)
        else:
            self._stepped.add(run)

    def due(self) -> None:
        """A wait was opened with a time, or became due."""
        self._names[HintType.DUE] = None

    def merge(self, more: WriteHints) -> None:
        """Take over what another write did that is committed together with this one."""
        for hint_type, names in more._names.items():
            known = self._names.setdefault(hint_type, set())
            if known is not None and names is not None:
                known |= names
            else:
                self._names[hint_type] = None
        self._stepped |= more._stepped

    def hints(self) -> Iterator[Hint]:
        """What every process should know."""
        for hint_type in _ORDER:
            if hint_type in self._names:
                yield Hint(type=hint_type, names=frozenset(self._names[hint_type] or ()))

    def hints_nearby(self) -> Iterator[Hint]:
        """What this process alone is told: a notification for each step would cost too much.

        Who follows a run from another process looks for new events by itself.
        """
        if self._stepped:
            yield Hint(type=HintType.RUN, names=frozenset(self._stepped))

    def _add(self, hint_type: HintType, name: str) -> None:
        names = self._names.setdefault(hint_type, set())
        if names is not None:
            names.add(name)


def note_queued(job: NewJob, hints: WriteHints) -> None:
    """A job was inserted; where only the store knows whether its time has come, tell of both."""
    if job.run_at is not None or job.delay > timedelta(0):
        hints.queued(Status.SCHEDULED, job.partition.text)
    if job.run_at is not None or job.delay <= timedelta(0):
        hints.queued(Status.WAITING, job.partition.text)
