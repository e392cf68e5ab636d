"""A SQLite store of the test's own, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from perdure.clock import ManualClock
from perdure.store.sqlite.store import SqliteStore
from tests.backends.sqlite.files import Rival
from tests.support.stores import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(url: str, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    async with opened(SqliteStore(url, clock)) as store:
        yield store


@pytest.fixture
def rival(store: SqliteStore, path: Path) -> Iterator[Rival]:
    """Another connection to the file, which can block writers."""
    rival = Rival(path)
    yield rival
    rival.close()
