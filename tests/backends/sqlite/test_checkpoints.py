"""The WAL stays small, whatever its rows are like."""

from __future__ import annotations

from pathlib import Path

from perdure.store.opening import store_at
from perdure.store.sqlite.connection import BYTES
from perdure.store.sqlite.writer import PAGES, ROWS_PER_PAGE
from tests.conformance.builders import PARTITION, insert, insert_many

LARGE = b"x" * 1_000_000


def wal_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def test_large_rows_do_not_make_the_wal_grow_for_ever(tmp_path):
    path = tmp_path / "work.db"
    store = store_at(f"sqlite:///{path}")
    await store.open()
    try:
        largest = 0
        for _ in range(8 * BYTES // len(LARGE)):
            await insert(store, partition=PARTITION, input=LARGE)
            largest = max(largest, wal_bytes(path))

        assert path.stat().st_size > 4 * BYTES
        assert largest < 3 * BYTES
    finally:
        await store.close()


async def test_many_small_rows_are_moved_into_the_file(tmp_path):
    path = tmp_path / "work.db"
    store = store_at(f"sqlite:///{path}")
    await store.open()
    try:
        before = path.stat().st_size
        for _ in range(3):
            await insert_many(store, PAGES * ROWS_PER_PAGE // 2, partition=PARTITION)

        assert path.stat().st_size > before
    finally:
        await store.close()
