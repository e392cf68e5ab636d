"""The hints to publish after a write, from its changes to jobs and runs."""

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
    HintType.SUBSCRIBED,
    HintType.LIVE,
)
"""Stop requests are published first."""


class WriteHints:
    """Collects the changes of a write, and returns the hints to publish once it is committed."""

    __slots__ = ("_names", "_stepped")

    def __init__(self) -> None:
        self._names: dict[HintType, set[str] | None] = {}
        """None instead of names means any."""
        self._stepped: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._names or self._stepped)

    def queued(self, status: str, partition: str) -> None:
        """A job is waiting, or will be."""
        if status == Status.WAITING:
            self._add(HintType.READY, partition)
        elif status == Status.SCHEDULED:
            self._names[HintType.SCHEDULED] = None

    def moved(
        self, id: str, status: str, partition: str | None, *, frees_limit: bool = False
    ) -> None:
        """A job's status changed; ``frees_limit`` if it made room for others."""
        self._add(HintType.CHANGED, id)
        if frees_limit:
            self.frees_limit()
        if partition is not None:
            self.queued(status, partition)

    def changed(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._add(HintType.CHANGED, id)

    def stopped(self, id: str) -> None:
        """The job's worker must stop, or its claim is lost."""
        self._add(HintType.ABORTING, id)

    def frees_limit(self) -> None:
        """Any partition may have jobs that can start now, as when a queue is resumed."""
        self._names[HintType.READY] = None

    def taken(self, jobs: Iterable[tuple[str, bool, bool]]) -> None:
        """Jobs were removed from their run: id, whether claimed, whether under a limit."""
        for id, was_held, was_limited in jobs:
            if was_held:
                self.stopped(id)
            if was_limited:
                self.frees_limit()

    def stepped(self, run: str, *, is_moved: bool) -> None:
        """A run got events; ``is_moved`` if its status changed too."""
        if is_moved:
            self._add(HintType.RUN, run)
        else:
            self._stepped.add(run)

    def due(self) -> None:
        """A wait was opened with a time, or became due."""
        self._names[HintType.DUE] = None

    def subscribed(self) -> None:
        """A client subscribed to live events, or unsubscribed."""
        self._names[HintType.SUBSCRIBED] = None

    def live(self) -> None:
        """Live events were published."""
        self._names[HintType.LIVE] = None

    def merge(self, more: WriteHints) -> None:
        """Merge the changes of another write in the same commit."""
        for hint_type, names in more._names.items():
            known = self._names.setdefault(hint_type, set())
            if known is not None and names is not None:
                known |= names
            else:
                self._names[hint_type] = None
        self._stepped |= more._stepped

    def hints(self) -> Iterator[Hint]:
        """Hints for all processes."""
        for hint_type in _ORDER:
            if hint_type in self._names:
                yield Hint(type=hint_type, names=frozenset(self._names[hint_type] or ()))

    def hints_nearby(self) -> Iterator[Hint]:
        """Hints for this process only: a notification per step would cost too much.

        Observers of a run in another process poll for new events.
        """
        if self._stepped:
            yield Hint(type=HintType.RUN, names=frozenset(self._stepped))

    def _add(self, hint_type: HintType, name: str) -> None:
        names = self._names.setdefault(hint_type, set())
        if names is not None:
            names.add(name)


def note_queued(job: NewJob, hints: WriteHints) -> None:
    """A job was inserted; if only the store knows whether it is due, publish both hints."""
    if job.run_at is not None or job.delay > timedelta(0):
        hints.queued(Status.SCHEDULED, job.partition.text)
    if job.run_at is not None or job.delay <= timedelta(0):
        hints.queued(Status.WAITING, job.partition.text)
