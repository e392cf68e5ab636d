"""Which hints a write calls for, from what it did to each job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from perdure.model.hint import Hint, HintKind
from perdure.model.job import Status


class Moves:
    """Gathers what a write did, and says what to publish once it is committed."""

    def __init__(self) -> None:
        self._changed: set[str] = set()
        self._stopped: set[str] = set()
        self._ready: set[str] = set()
        self._is_scheduled = False
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

    def hints(self) -> Iterator[Hint]:
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
