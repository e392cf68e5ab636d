"""Listening for wake-ups."""

from __future__ import annotations

import asyncio

from perdure.model.hint import Hint, HintType
from perdure.store.contract import Store


class Ear:
    """Gathers what one handle hears."""

    def __init__(self, store: Store) -> None:
        self._heard: asyncio.Queue[Hint] = asyncio.Queue()
        self.stop = store.subscribe(self._heard.put_nowait)

    @property
    def is_silent(self) -> bool:
        return self._heard.empty()

    async def hears(self, found_type: HintType, name: str = "") -> None:
        """Wait until a hint of that kind names ``name``, or means anything."""
        async with asyncio.timeout(5):
            while True:
                hint = await self._heard.get()
                if hint.type is found_type and (not hint.names or name in hint.names):
                    return
