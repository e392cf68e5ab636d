"""The store at ``memory://name``: shared by all handles of that name in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

from perdure.clock import Clock, system_clock
from perdure.diagnostics import safe_repr
from perdure.errors import InvalidStoreUrl
from perdure.model.graph import Graph
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.store.contract import CONTRACT_NUMBER, Store
from perdure.store.contract.refusals import unusable_connection
from perdure.store.memory.admin import MemoryAdmin
from perdure.store.memory.audit import MemoryAudit
from perdure.store.memory.jobs import MemoryJobs
from perdure.store.memory.live import MemoryLive
from perdure.store.memory.maintenance import MemoryMaintenance
from perdure.store.memory.queries import MemoryQueries
from perdure.store.memory.runs import MemoryRuns
from perdure.store.memory.schedules import MemorySchedules
from perdure.store.memory.state import state_of
from perdure.store.memory.transaction import Session
from perdure.store.wakeups import HintTypes, Listener

_SCHEME = "memory://"


class MemoryStore(Store):
    """A handle on a named state in memory; ``memory://`` without a name is private to it."""

    contract_number = CONTRACT_NUMBER

    def __init__(
        self, url: str, clock: Clock | None = None, *, session: Session | None = None
    ) -> None:
        self._url = url
        self._session = session or Session(state_of(_name_in(url)), clock or system_clock)
        self.jobs = MemoryJobs(self._session)
        self.runs = MemoryRuns(self._session)
        self.queries = MemoryQueries(self._session)
        self.admin = MemoryAdmin(self._session)
        self.maintenance = MemoryMaintenance(self._session)
        self.schedules = MemorySchedules(self._session)
        self.live = MemoryLive(self._session)
        self.transfer = None
        self.audit = MemoryAudit(self._session)

    @property
    def url(self) -> str:
        return self._url

    async def open(self) -> None:
        pass

    async def require(self) -> None:
        raise InvalidStoreUrl(
            url=self._url, reason="a store in memory is only seen by its own process"
        )

    async def close(self) -> None:
        pass

    def clone(self) -> MemoryStore:
        # A nameless state can be reached only through its session.
        return MemoryStore(self._url, session=self._session)

    async def now(self) -> datetime:
        return self._session.clock()

    def subscribe(self, listener: Listener, types: HintTypes = None) -> Callable[[], None]:
        return self._session.state.hub.subscribe(listener, types)

    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        _refuse(connection)

    def insert_in_blocking_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        _refuse(connection)

    async def submit_in_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        _refuse(connection)

    def submit_in_blocking_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        _refuse(connection)


def _name_in(url: str) -> str:
    name = url.removeprefix(_SCHEME)
    if name == url or "?" in name or "#" in name:
        raise InvalidStoreUrl(url=url, reason="a place in memory has a name and no options")
    return name


def _refuse(connection: Any) -> NoReturn:
    reason = "a store in memory takes part in no transaction"
    raise unusable_connection(safe_repr(connection), "none, or use SQLite or PostgreSQL", reason)
