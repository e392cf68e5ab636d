"""What a backend must do; the only package that says it. One file per part of a store.

Each bullet is a promise with a conformance test. Every write is one transaction. Times that decide
ownership are the store's own; tests turn its clock. A store publishes its own wake-ups, after the
write that they are about. Every method may be called again after a lost connection: backends that
can lose one retry by themselves, with growing, jittered, capped delays, and no write counts twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from perdure.model.graph import Graph
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.store.contract.admin import AdminStore
from perdure.store.contract.audit import AuditStore
from perdure.store.contract.jobs import ClaimRequest, JobStore, PartitionClaim
from perdure.store.contract.maintenance import POLL_PARTITIONS_MAX, MaintenanceStore
from perdure.store.contract.queries import QueryStore
from perdure.store.contract.runs import EventsAfter, EventsBefore, RunStore
from perdure.store.contract.schedules import ScheduleStore
from perdure.store.contract.transfer import TransferStore
from perdure.store.wakeups import HintTypes, Listener

__all__ = [
    "PARTS",
    "POLL_PARTITIONS_MAX",
    "AdminStore",
    "AuditStore",
    "ClaimRequest",
    "EventsAfter",
    "EventsBefore",
    "JobStore",
    "MaintenanceStore",
    "PartitionClaim",
    "QueryStore",
    "RunStore",
    "ScheduleStore",
    "Store",
    "TransferStore",
]

PARTS: Mapping[str, type] = {
    "jobs": JobStore,
    "runs": RunStore,
    "queries": QueryStore,
    "admin": AdminStore,
    "maintenance": MaintenanceStore,
    "schedules": ScheduleStore,
}
"""The parts that every store has, by the name of their attribute."""


class Store(Protocol):
    """One place that keeps everything. Usable from any thread's event loop it was opened on."""

    jobs: JobStore
    runs: RunStore
    queries: QueryStore
    admin: AdminStore
    maintenance: MaintenanceStore
    schedules: ScheduleStore
    transfer: TransferStore | None
    """None where contents do not outlive the process."""
    audit: AuditStore | None
    """None where a store shows only what the other parts do."""
    has_one_writer: bool = False
    """Whether everybody else waits while a caller's transaction has written something."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, without the password."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create or upgrade the tables under a lock.

        - Raises ``StoreUnreachable`` when nobody answers, at once rather than for ever.
        - Raises ``SchemaMismatch`` when the tables belong to a newer version or to others.
        - Several processes may open an empty store at the same moment.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections and threads, after sending the last wake-ups."""

    @abstractmethod
    def clone(self) -> Store:
        """Another handle on the same place, for another thread's event loop. Not opened yet."""

    @abstractmethod
    async def now(self) -> datetime: ...

    @abstractmethod
    def subscribe(self, listener: Listener, types: HintTypes = None) -> Callable[[], None]:
        """Call ``listener`` on this store's event loop for each hint; returns how to stop it.

        - Only for hints of these kinds, where they are given.
        - Hints come from every process that uses the store, and may be missed or repeated.
        """

    @abstractmethod
    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        """``jobs.insert`` within the caller's own open transaction; theirs to commit.

        - Raises ``InvalidInput`` for a connection that cannot be used with this store.
        """

    @abstractmethod
    def insert_in_blocking_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        """The same on a connection with blocking calls, from the caller's thread."""

    @abstractmethod
    async def submit_in_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        """``runs.submit`` within the caller's own open transaction.

        - A store with one writer saves the definitions in it too; with others, the caller has saved
          them before (see ``has_one_writer``).
        - Raises ``RunExists`` before the run is written; what the caller wrote stays.
        - Takes no run that replaces another one (``replace``).
        """

    @abstractmethod
    def submit_in_blocking_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        """The same on a connection with blocking calls, from the caller's thread."""
