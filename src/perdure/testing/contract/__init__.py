"""The store contract as tests: prove a store of your own with those that prove the built-in ones.

They need pytest and pytest-asyncio (``asyncio_mode = "auto"``). Write a :class:`Harness` for the
store and a ``harness`` fixture in ``conftest.py``:

    class MyHarness(Harness):
        capabilities = frozenset({"audit"})

        def __init__(self, path: Path) -> None:
            self.url = f"mystore://{path}"

        def store(self, clock: Clock | None = None) -> Store:
            return MyStore(self.url, clock=clock)

    @pytest.fixture
    def harness(tmp_path: Path) -> Harness:
        return MyHarness(tmp_path / "store")

and one module that imports the suite, ``test_contract.py``:

    from perdure.testing.contract.suite import *

The modules of this package are imported, not collected, hence their names without ``test_``.
Each test class is named after the method that it tests (``TestJobsClaim``: ``store.jobs.claim``)
or the situation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal

import pytest

from perdure.clock import Clock
from perdure.model.ids import RunId
from perdure.store.contract import Store

Capability = Literal["audit", "caller_transaction", "transfer"]
"""An optional part of the contract:

- ``audit``: the store can be checked by ``perdure verify``.
- ``caller_transaction``: jobs and runs can be written within the caller's transaction.
- ``transfer``: the store can be exported and imported.
"""

TOPICS = (
    "store",
    "inserts",
    "claims",
    "leases",
    "clock_steps",
    "limits",
    "settlements",
    "transitions",
    "admin",
    "queries",
    "ends",
    "live",
    "maintenance",
    "submissions",
    "commits",
    "places",
    "node_jobs",
    "waits",
    "runs",
    "schedules",
    "hints",
    "audit",
    "transactions",
    "transfer",
    "differential",
)
"""The modules with tests."""

# Before any of them is imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in (*TOPICS, "builders", "handles", "operations"))
)


class Harness(ABC):
    """One empty place for the data of a store under test. Each test gets a harness of its own."""

    url: str
    """Where it is. What ``store.url`` says may differ in all but the scheme."""
    capabilities: frozenset[Capability] = frozenset()
    """The optional parts that the store has. Tests of any other are skipped."""

    @abstractmethod
    def store(self, clock: Clock | None = None) -> Store:
        """Return an unopened handle on the place; every call, another handle on the same place.

        The store takes the time from ``clock``, which the test turns; None: the real time.
        """

    async def delete_run(self, store: Store, namespace: str, run: RunId) -> None:
        """Delete the row of a run, and nothing that belongs to it, bypassing the open ``store``.

        Needed for ``audit``, which has to find what is left.
        """
        raise NotImplementedError

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction; give the connection that ``insert_in_transaction`` takes.

        The block's end commits, an exception rolls back. Needed for ``caller_transaction``.
        """
        raise NotImplementedError

    def blocking_transaction(self) -> AbstractContextManager[Any]:
        """The same on a connection with blocking calls. Needed for ``caller_transaction``."""
        raise NotImplementedError

    def empty_store(self, clock: Clock) -> Store:
        """Return an unopened store at another, empty place. Needed for ``transfer``."""
        raise NotImplementedError
