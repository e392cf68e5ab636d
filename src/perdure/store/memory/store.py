"""The store at ``memory://name``: shared by all handles of that name in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

from perdure.clock import Clock, system_clock
from perdure.errors import InvalidInput, InvalidStoreUrl
from perdure.model.job import Inserted, NewJob
from perdure.store.contract import Store
from perdure.store.memory.housekeeping import MemoryHousekeeping
from perdure.store.memory.insight import MemoryInsight
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.operators import MemoryOperators
from perdure.store.memory.reads import MemoryReads
from perdure.store.memory.runs import MemoryRuns
from perdure.store.memory.schedules import MemorySchedules
from perdure.store.memory.state import state_of
from perdure.store.wakeups import Kinds, Listener

_SCHEME = "memory://"


class MemoryStore(
    MemoryJobs,
    MemoryRuns,
    MemorySchedules,
    MemoryOperators,
    MemoryReads,
    MemoryInsight,
    MemoryHousekeeping,
    Store,
):
    """A handle on a place in memory; ``memory://`` without a name is a place of its own."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        super().__init__(state_of(_name_in(url)), clock or system_clock)
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def twin(self) -> MemoryStore:
        twin = MemoryStore(self._url, self._clock)
        twin._state = self._state  # a nameless place is found by no other way
        return twin

    async def now(self) -> datetime:
        return self._clock()

    def subscribe(self, listener: Listener, kinds: Kinds = None) -> Callable[[], None]:
        return self._state.hub.subscribe(listener, kinds)

    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        _refuse(connection)

    def insert_in_blocking_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        _refuse(connection)


def _name_in(url: str) -> str:
    name = url.removeprefix(_SCHEME)
    if name == url or "?" in name or "#" in name:
        raise InvalidStoreUrl(url, "a place in memory has a name and no options")
    return name


def _refuse(connection: Any) -> NoReturn:
    raise InvalidInput(
        f"connection={connection!r} cannot be used: a store in memory takes part in no "
        "transaction; enqueue without connection=, or use sqlite:// or postgresql://"
    )
