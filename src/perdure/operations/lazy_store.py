"""A store that is opened on first use, on the event loop that uses it, and closed once."""

from __future__ import annotations

import asyncio

from perdure.diagnostics import declare
from perdure.errors import StoreError
from perdure.store.contract import Store
from perdure.store.opening import store_at

CLOSED = declare("client.closed", "this client[ of {url}] is closed", "Create a new one")
OTHER_LOOP = declare(
    "client.other_loop",
    "this client of {url} belongs to another event loop",
    "Create one for each loop, or use Client, which works from every thread",
)


class LazyStore:
    """Belongs to one event loop. Given a store, it opens its own handle on the same database."""

    def __init__(self, place: str | Store) -> None:
        store = store_at(place)
        self._store = store if isinstance(place, str) else store.clone()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self.is_closed = False

    @property
    def url(self) -> str:
        return self._store.url

    async def opened(self) -> Store:
        """Return the store, opened now if it was not."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self.is_closed:
            await self._open(loop)
        return self._store

    async def close(self) -> None:
        async with self._opening:
            was_open = self._loop is not None and not self.is_closed
            self.is_closed = True
            if was_open:
                await self._store.close()

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop not in (None, loop):
            raise StoreError(OTHER_LOOP.fault(url=self.url))
        async with self._opening:
            if self.is_closed:
                raise StoreError(CLOSED.fault(url=self.url))
            if self._loop is None:
                await self._store.open()
                self._loop = loop
