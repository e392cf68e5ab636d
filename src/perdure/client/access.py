"""What a client stands on: its namespace, its store, and how payloads are written and read."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from perdure.client.lazy_store import LazyStore
from perdure.client.waiting import Waiting
from perdure.client.watched import WatchedJobs, WatchedRuns
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.job import ALL_NAMESPACES
from perdure.model.payload import Codec, PlainCodec
from perdure.store.contract import Store
from perdure.tasks.calls import Storing

NAMESPACE_REQUIRED = declare(
    "client.namespace_required",
    "{operation} needs a single namespace, and this client uses '*'",
    "Create a client with `namespace`",
)


class Access:
    """Shared by a client and all handles that it gave out."""

    def __init__(
        self, place: str | Store, namespace: str, codec: Codec | None, payload_max_bytes: int
    ) -> None:
        self.namespace = check.name(namespace, "namespace")
        self.storing = Storing(
            codec=codec or PlainCodec(),
            payload_max_bytes=check.integer(payload_max_bytes, "payload_max_bytes", 1),
        )
        self.store = LazyStore(place)
        self.waiting = Waiting(self.store, WatchedJobs())
        self.waiting_for_runs = Waiting(self.store, WatchedRuns())

    @property
    def codec(self) -> Codec:
        return self.storing.codec

    @property
    def visible(self) -> str | None:
        """The namespace that reads and acts by id are about; None for an operator, who sees all."""
        return None if self.namespace == ALL_NAMESPACES else self.namespace

    def own(self, operation: str) -> str:
        """The one namespace for an operation that cannot span all."""
        if self.namespace == ALL_NAMESPACES:
            raise InvalidInput(NAMESPACE_REQUIRED.fault(operation=operation))
        return self.namespace

    async def close(self) -> None:
        await self.waiting.close()
        await self.waiting_for_runs.close()
        await self.store.close()


class Openable:
    """What has an access: opened on first use, or with ``async with``; closed once."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._access.store.url}, {self.namespace!r}>"

    @property
    def namespace(self) -> str:
        return self._access.namespace

    @property
    def store_url(self) -> str:
        """Where its store is, without the password."""
        return self._access.store.url

    async def open(self) -> Self:
        """Connect now instead of on first use, and create or upgrade the tables."""
        await self._access.store.opened()
        return self

    async def close(self) -> None:
        """Let go of everything. What was enqueued is written; whoever waits is told."""
        await self._access.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
