"""The contract that every backend implements. One file per part of a store.

It is public and provisional until 1.0: a minor version of Perdure may change it. A version whose
contract differs from that of the version before raises ``CONTRACT_NUMBER``.

Each bullet is a promise with a test in ``perdure.testing.contract``. Every write is one
transaction. Times that decide ownership come from the store's clock, which tests control. A store
publishes its own wake-ups after the write. Every method is safe to repeat after a lost connection:
backends that can lose one retry with growing, jittered, capped delays, and no write counts twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Protocol

from perdure.model.graph import Graph
from perdure.model.job import Inserted, NewJob
from perdure.model.run import NewRun, Submitted
from perdure.store.contract.admin import AdminStore
from perdure.store.contract.audit import AuditStore
from perdure.store.contract.jobs import ClaimRequest, JobStore, PartitionClaim
from perdure.store.contract.live import LIVE_KEPT, SUBSCRIBER_LEASE, SUBSCRIBERS_MAX, LiveStore
from perdure.store.contract.maintenance import POLL_PARTITIONS_MAX, MaintenanceStore
from perdure.store.contract.queries import QueryStore
from perdure.store.contract.runs import DEFINITION_FRESH, EventsAfter, EventsBefore, RunStore
from perdure.store.contract.schedules import ScheduleStore
from perdure.store.contract.transfer import TransferStore
from perdure.store.wakeups import HintTypes, Listener

__all__ = [
    "CONTRACT_NUMBER",
    "DEFINITION_FRESH",
    "LIVE_KEPT",
    "PARTS",
    "POLL_PARTITIONS_MAX",
    "SUBSCRIBERS_MAX",
    "SUBSCRIBER_LEASE",
    "AdminStore",
    "AuditStore",
    "ClaimRequest",
    "EventsAfter",
    "EventsBefore",
    "JobStore",
    "LiveStore",
    "MaintenanceStore",
    "PartitionClaim",
    "QueryStore",
    "RunStore",
    "ScheduleStore",
    "Store",
    "TransferStore",
]

CONTRACT_NUMBER = 1
"""The number of this contract; compared with that of each store before it is opened."""

PARTS: Mapping[str, type] = {
    "jobs": JobStore,
    "runs": RunStore,
    "queries": QueryStore,
    "admin": AdminStore,
    "maintenance": MaintenanceStore,
    "schedules": ScheduleStore,
    "live": LiveStore,
}
"""The parts of every store, by attribute name."""


class Store(Protocol):
    """A handle on a database. Belongs to the event loop that opened it."""

    contract_number: ClassVar[int]
    """The number of the contract that it was written for: a literal, not ``CONTRACT_NUMBER``."""
    jobs: JobStore
    runs: RunStore
    queries: QueryStore
    admin: AdminStore
    maintenance: MaintenanceStore
    schedules: ScheduleStore
    live: LiveStore
    transfer: TransferStore | None
    """None if the contents do not outlive the process."""
    audit: AuditStore | None
    """None if the store cannot be audited."""
    has_one_writer: bool = False
    """Whether an uncommitted write of a caller's transaction blocks all other writers."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Its URL, without the password."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, and create or upgrade the tables under a lock.

        - Raises ``StoreUnreachable`` if the server does not respond, instead of retrying forever.
        - Raises ``SchemaMismatch`` if the tables are of a newer version or not ours.
        - Several processes may open an empty store at the same moment.
        """

    @abstractmethod
    async def require(self) -> None:
        """Raise unless ``open()`` would find the tables of this version. Creates nothing.

        - Raises a ``StoreError``: ``InvalidStoreUrl`` if no other process can see the store.
        """

    @abstractmethod
    async def close(self) -> None:
        """Send pending wake-ups, then close connections and threads."""

    @abstractmethod
    def clone(self) -> Store:
        """Return another, unopened handle on the same database, for another event loop."""

    @abstractmethod
    async def now(self) -> datetime: ...

    @abstractmethod
    def subscribe(self, listener: Listener, types: HintTypes = None) -> Callable[[], None]:
        """Call ``listener`` on this store's event loop for each hint; return an unsubscribe
        function.

        - Only for hints of these types, if given.
        - Hints come from every process that uses the store, and may be missed or repeated.
        """

    @abstractmethod
    async def insert_in_transaction(
        self, connection: Any, jobs: Sequence[NewJob]
    ) -> list[Inserted]:
        """``jobs.insert`` within the caller's open transaction, which the caller commits.

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

        - A store with one writer saves the definitions in it too; for others, the caller has saved
          them before (see ``has_one_writer``).
        - Raises ``RunExists`` before the run is written; the caller's own writes stay.
        - Takes no run that replaces another one (``replace``).
        """

    @abstractmethod
    def submit_in_blocking_transaction(
        self, connection: Any, run: NewRun, definitions: Sequence[Graph]
    ) -> Submitted:
        """The same on a connection with blocking calls, from the caller's thread."""
