"""The reads that each backend offers to an audit, found by the kind of the store."""

from __future__ import annotations

from typing import Protocol

from perdure.model.ids import RunId
from perdure.model.value import Value
from perdure.store.contract import Store


class Details(Value):
    """What the contract leaves out of a run's jobs and waits."""

    lanes: dict[str, str]
    """By job."""
    held: frozenset[str]
    """Keys of waits that are kept from becoming due."""


class InsideReads(Protocol):
    async def details(self, namespace: str, run: RunId) -> Details: ...

    async def strays(self) -> list[str]:
        """What belongs to no run and no job that is there, in words."""


def inside_of(store: Store) -> InsideReads | None:
    """None for a store that is not one of ours: then only what the contract shows is checked."""
    kinds = {kind.__name__ for kind in type(store).__mro__}
    if "MemoryStore" in kinds:
        from perdure.testing.check.inside.memory import MemoryInside

        return MemoryInside.of(store)
    if "SqliteStore" in kinds:
        from perdure.testing.check.inside.sqlite import SqliteInside

        return SqliteInside.of(store)
    if "PostgresStore" in kinds:
        from perdure.testing.check.inside.postgres import PostgresInside

        return PostgresInside.of(store)
    return None
