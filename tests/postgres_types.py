"""What asyncpg asks a server about its types, kept for the whole test process.

Every new connection asks about arrays of numbers, of moments and the like: three round trips. A
handle opens a few connections in its life; the tests open thousands. The types below came with the
server, and have the same numbers everywhere. Should asyncpg call the method otherwise some day,
tests get slower, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import asyncpg

FIRST_OWN_OID = 16_384
"""From here on a database numbers what was created in it."""
_NOTHING_ASKED = SimpleNamespace(name="nothing was asked")
"""In place of the statement that asks: one with a name, which disturbs no statement without."""


def cache_introspection() -> None:
    introspect = asyncpg.Connection._introspect_types
    known: dict[frozenset[int], Any] = {}

    async def cached(self: Any, typeoids: Iterable[int], timeout: float) -> tuple[Any, Any]:
        asked = frozenset(typeoids)
        if asked in known:
            return known[asked], _NOTHING_ASKED
        types, statement = await introspect(self, asked, timeout)
        if max(asked) < FIRST_OWN_OID:
            known[asked] = types
        return types, statement

    asyncpg.Connection._introspect_types = cached
