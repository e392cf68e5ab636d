"""The store under test, once for each backend, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.clock import ManualClock
from perdure.store.contract import Store
from perdure.store.opening import store_at


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(store_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    store = store_at(store_url, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def target(store: Store) -> AsyncIterator[Store]:
    """A second handle on the same place."""
    target = store.clone()
    await target.open()
    yield target
    await target.close()
