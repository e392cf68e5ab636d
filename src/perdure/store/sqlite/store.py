"""The store at ``sqlite:///path.db``: shared by all processes that open the same file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from perdure.clock import Clock, system_clock
from perdure.model.graph import Graph
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.store.contract import CONTRACT_NUMBER, Store
from perdure.store.sqlite.address import SqliteAddress, place_at
from perdure.store.sqlite.admin import SqliteAdmin
from perdure.store.sqlite.audit import SqliteAudit
from perdure.store.sqlite.borrowed import BorrowedWrite
from perdure.store.sqlite.database import close_database, open_database
from perdure.store.sqlite.jobs import SqliteJobs, insert_jobs
from perdure.store.sqlite.live import SqliteLive
from perdure.store.sqlite.maintenance import SqliteMaintenance
from perdure.store.sqlite.migrations import require_sqlite
from perdure.store.sqlite.queries import SqliteQueries
from perdure.store.sqlite.runs import SqliteRuns
from perdure.store.sqlite.schedules import SqliteSchedules
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.submit import submit_with_definitions
from perdure.store.sqlite.transaction import Transaction
from perdure.store.sqlite.transfer import SqliteTransfer
from perdure.store.wakeups import HintTypes, Listener, hub_of

T = TypeVar("T")


class SqliteStore(Store):
    """A handle on one file; handles of one process share its threads and connections."""

    contract_number = CONTRACT_NUMBER
    has_one_writer = True

    def __init__(
        self, url: str, clock: Clock | None = None, *, place: SqliteAddress | None = None
    ) -> None:
        session = Session(place or place_at(url), clock or system_clock)
        self._session = session
        self._hub = hub_of(session.place.name)
        self.jobs = SqliteJobs(session)
        self.runs = SqliteRuns(session)
        self.queries = SqliteQueries(session)
        self.admin = SqliteAdmin(session)
        self.maintenance = SqliteMaintenance(session)
        self.schedules = SqliteSchedules(session)
        self.live = SqliteLive(session)
        self.transfer = SqliteTransfer(session)
        self.audit = SqliteAudit(session)

    @property
    def url(self) -> str:
        return self._session.place.url

    async def open(self) -> None:
        if self._session.database is None:
            self._session.database = await open_database(self._session.place)

    async def require(self) -> None:
        require_sqlite(self._session.place)

    async def close(self) -> None:
        database, self._session.database = self._session.database, None
        if database is not None:
            await close_database(database)

    def clone(self) -> SqliteStore:
        # By the resolved place: a relative path must mean the same file after a change of
        # directory.
        return SqliteStore(self.url, self._session.clock, place=self._session.place)

    async def now(self) -> datetime:
        return self._session.clock()

    def subscribe(self, listener: Listener, types: HintTypes = None) -> Callable[[], None]:
        unsubscribe = self._hub.subscribe(listener, types)
        if self._session.database is not None:
            self._session.database.nudge()
        return unsubscribe

    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        return await self._borrowed(lambda each: insert_jobs(each, jobs)).run_on(connection)

    def insert_in_blocking_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        return self._borrowed(lambda each: insert_jobs(each, jobs)).run_blocking_on(connection)

    async def submit_in_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        work = partial(submit_with_definitions, run=run, definitions=definitions)
        return await self._borrowed(work).run_on(connection)

    def submit_in_blocking_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        work = partial(submit_with_definitions, run=run, definitions=definitions)
        return self._borrowed(work).run_blocking_on(connection)

    def _borrowed(self, work: Callable[[Transaction], T]) -> BorrowedWrite[T]:
        return BorrowedWrite(self._session.place, self._session.clock, work)
