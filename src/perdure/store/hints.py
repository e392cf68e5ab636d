"""Which hints a write calls for, from what it did to each job and run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from perdure.model.hint import Hint, HintKind
from perdure.model.job import NewJob, Status

_ORDER = (
    HintKind.ABORTING,
    HintKind.CHANGED,
    HintKind.READY,
    HintKind.SCHEDULED,
    HintKind.DUE,
    HintKind.RUN,
)
"""Who has to stop is told first."""


class WriteHints:
    """Gathers what a write did, and says what to publish once it is committed."""

    __slots__ = ("_names", "_stepped")

    def __init__(self) -> None:
        self._names: dict[HintKind, set[str] | None] = {}
        """None instead of names means any."""
        self._stepped: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._names or self._stepped)

    def queued(self, status: str, lane: str) -> None:
        """A job now waits, or will."""
        if status == Status.WAITING:
            self._add(HintKind.READY, lane)
        elif status == Status.SCHEDULED:
            self._names[HintKind.SCHEDULED] = None

    def moved(self, id: str, status: str, lane: str | None, *, frees_limit: bool = False) -> None:
        """A job got another status; ``frees_limit`` when it made room for others."""
        self._add(HintKind.CHANGED, id)
        if frees_limit:
            self.frees_limit()
        if lane is not None:
            self.queued(status, lane)

    def changed(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._add(HintKind.CHANGED, id)

    def stopped(self, id: str) -> None:
        """A holder has to know: it is asked to stop, or its claim is gone."""
        self._add(HintKind.ABORTING, id)

    def frees_limit(self) -> None:
        """Any lane may have jobs that can start now; so when a queue is no longer paused."""
        self._names[HintKind.READY] = None

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
            self._add(HintKind.RUN, run)
        else:
            self._stepped.add(run)

    def due(self) -> None:
        """A wait was opened with a time, or became due."""
        self._names[HintKind.DUE] = None

    def merge(self, more: WriteHints) -> None:
        """Take over what another write did that is committed together with this one."""
        for kind, names in more._names.items():
            known = self._names.setdefault(kind, set())
            if known is not None and names is not None:
                known |= names
            else:
                self._names[kind] = None
        self._stepped |= more._stepped

    def hints(self) -> Iterator[Hint]:
        """What every process should know."""
        for kind in _ORDER:
            if kind in self._names:
                yield Hint(kind=kind, names=frozenset(self._names[kind] or ()))

    def hints_nearby(self) -> Iterator[Hint]:
        """What this process alone is told: a notification for each step would cost too much.

        Who follows a run from another process looks for new events by itself.
        """
        if self._stepped:
            yield Hint(kind=HintKind.RUN, names=frozenset(self._stepped))

    def _add(self, kind: HintKind, name: str) -> None:
        names = self._names.setdefault(kind, set())
        if names is not None:
            names.add(name)


def note_queued(job: NewJob, hints: WriteHints) -> None:
    """A job was inserted; where only the store knows whether its time has come, tell of both."""
    if job.run_at is not None or job.delay > timedelta(0):
        hints.queued(Status.SCHEDULED, job.lane.text)
    if job.run_at is not None or job.delay <= timedelta(0):
        hints.queued(Status.WAITING, job.lane.text)
