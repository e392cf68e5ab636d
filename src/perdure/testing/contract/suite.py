"""All contract tests and their fixtures, for ``from perdure.testing.contract.suite import *``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from importlib import import_module
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.store.contract import AuditStore, Store, TransferStore
from perdure.testing.contract import TOPICS, Capability, Harness

__all__ = [
    "audit",
    "blocking_transaction",
    "clock",
    "empty",
    "second",
    "store",
    "transaction",
    "transfer",
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(harness: Harness, clock: ManualClock) -> AsyncIterator[Store]:
    store = harness.store(clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def second(store: Store) -> AsyncIterator[Store]:
    """A second handle on the same place."""
    second = store.clone()
    await second.open()
    yield second
    await second.close()


@pytest.fixture
def audit(harness: Harness, store: Store) -> AuditStore:
    _require(harness, "audit")
    assert store.audit is not None
    return store.audit


@pytest.fixture
def transfer(harness: Harness, store: Store) -> TransferStore:
    _require(harness, "transfer")
    assert store.transfer is not None
    return store.transfer


@pytest.fixture
async def empty(harness: Harness, clock: ManualClock) -> AsyncIterator[Store]:
    """A store at another place, to import into."""
    _require(harness, "transfer")
    store = harness.empty_store(clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def transaction(harness: Harness) -> Callable[[], AbstractAsyncContextManager[Any]]:
    _require(harness, "caller_transaction")
    return harness.transaction


@pytest.fixture
def blocking_transaction(harness: Harness) -> Callable[[], AbstractContextManager[Any]]:
    _require(harness, "caller_transaction")
    return harness.blocking_transaction


def _require(harness: Harness, capability: Capability) -> None:
    if capability not in harness.capabilities:
        pytest.skip(f"the harness does not declare the capability {capability!r}")


# By name, so that no new test is forgotten here.
for _topic in TOPICS:
    _module = import_module(f"{__package__}.{_topic}")
    for _name, _value in vars(_module).items():
        if (
            _name.startswith(("Test", "test_"))
            and getattr(_value, "__module__", None) == _module.__name__
        ):
            assert _name not in globals(), f"two tests are called {_name}"
            globals()[_name] = _value
            __all__.append(_name)
