"""Connections that know what an earlier one of this process has asked about the server's types.

The driver has every new connection ask about arrays of numbers, of moments and the like, which is
three round trips and ten times the work of an ordinary statement. These types came with the
server, and have the same numbers on every server there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import asyncpg

FIRST_OWN_OID = 16_384
"""From here on a database numbers what was created in it."""

_learned: dict[frozenset[int], Any] = {}
_NOTHING_ASKED = SimpleNamespace(name="nothing was asked")
"""In place of the statement that asks: one with a name, which disturbs no statement without."""


class LearnedConnection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no type hints
    """A connection that asks only about types that nobody asked about before.

    It overrides a method that the driver calls but does not document. Were it called otherwise
    some day, connections would ask again, and a test would say so.
    """

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float) -> tuple[Any, Any]:
        asked = frozenset(typeoids)
        if asked in _learned:
            return _learned[asked], _NOTHING_ASKED
        types, statement = await super()._introspect_types(typeoids, timeout)
        if max(asked) < FIRST_OWN_OID:
            _learned[asked] = types
        return types, statement
