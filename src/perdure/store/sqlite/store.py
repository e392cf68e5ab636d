"""The store at ``sqlite:///path.db``: shared by all processes that open the same file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from datetime import datetime
from typing import Any

from perdure.clock import Clock, system_clock
from perdure.model.job import Inserted, NewJob
from perdure.store.contract import Store
from perdure.store.kept import MovableStore
from perdure.store.sqlite.database import close_database, open_database
from perdure.store.sqlite.dumping import SqliteDumping
from perdure.store.sqlite.housekeeping import SqliteHousekeeping
from perdure.store.sqlite.insight import SqliteInsight
from perdure.store.sqlite.jobs import SqliteJobs
from perdure.store.sqlite.loading import SqliteLoading
from perdure.store.sqlite.operators import SqliteOperators
from perdure.store.sqlite.place import place_at
from perdure.store.sqlite.reads import SqliteReads
from perdure.store.sqlite.runs import SqliteRuns
from perdure.store.sqlite.schedules import SqliteSchedules
from perdure.store.sqlite.transactions import BorrowedInsert
from perdure.store.wakeups import Kinds, Listener, hub_of


class SqliteStore(
    SqliteJobs,
    SqliteRuns,
    SqliteSchedules,
    SqliteOperators,
    SqliteReads,
    SqliteInsight,
    SqliteHousekeeping,
    SqliteDumping,
    SqliteLoading,
    Store,
    MovableStore,
):
    """A handle on one file; handles of one process share its threads and connections."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        super().__init__(place_at(url), clock or system_clock)
        self._hub = hub_of(self._place.name)

    @property
    def url(self) -> str:
        return self._place.url

    async def open(self) -> None:
        if self._database is None:
            self._database = await open_database(self._place)

    async def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await close_database(database)

    def twin(self) -> SqliteStore:
        twin = copy(self)  # a relative path means the same file after a change of directory
        twin._database = None
        return twin

    async def now(self) -> datetime:
        return self._clock()

    def subscribe(self, listener: Listener, kinds: Kinds = None) -> Callable[[], None]:
        unsubscribe = self._hub.subscribe(listener, kinds)
        if self._database is not None:
            self._database.nudge()
        return unsubscribe

    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        return await BorrowedInsert(self._place, self._clock, jobs).run_on(connection)

    def insert_in_blocking_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        return BorrowedInsert(self._place, self._clock, jobs).run_blocking_on(connection)
