"""A worker as its row in the store shows it."""

from __future__ import annotations

from perdure.model.ids import WorkerId
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.testing.contract.builders import worker_info
from tests.support.stores import opened


async def register_worker(place: str | Store, id: str) -> None:
    """Let it give a sign of life now."""
    async with opened(store_at(place)) as store:
        await store.maintenance.register_worker(worker_info(id=WorkerId(id), namespace="default"))
