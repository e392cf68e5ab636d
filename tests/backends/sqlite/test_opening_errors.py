"""Places that cannot be used: each a clear error at once, nothing left behind."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perdure.errors import StoreError, StoreUnreachable
from perdure.store.sqlite import connection
from perdure.store.sqlite.store import SqliteStore
from tests.backends.sqlite.files import connected
from tests.conformance.builders import insert

OPEN_AS_SOMEBODY_ELSE = """
import asyncio, os, sys
from perdure.errors import StoreUnreachable
from perdure.store.sqlite.store import SqliteStore

async def open_and_close(url):
    store = SqliteStore(url)
    await store.open()
    await store.close()

unwritable, writable = sys.argv[1:]
asyncio.run(open_and_close(writable))  # reads the library's own files while it may
if os.getuid() == 0:  # to whom everything is allowed
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(open_and_close(unwritable))
except StoreUnreachable as error:
    print(error)
"""


async def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(StoreUnreachable, match=r"no directory .*nowhere\. Create it first"):
        await SqliteStore(f"sqlite:///{tmp_path}/nowhere/work.db").open()


async def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(StoreUnreachable, match="it is a directory"):
        await SqliteStore(f"sqlite:///{tmp_path}").open()


@pytest.mark.parametrize(
    "part, mode, said",
    [
        ("work.db", 0o444, "work.db cannot be written by this user"),
        ("inner", 0o555, "inner cannot be written by this user"),
        ("outer", 0o600, "Permission denied"),
    ],
)
def test_a_place_that_this_user_may_not_use_is_named(url, part, mode, said):
    # Not below tmp_path, which other users cannot enter.
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "outer", "inner")
        folder.mkdir(parents=True)
        file = folder / "work.db"
        file.touch()
        for place in (Path(top), folder.parent, folder, file):
            place.chmod(mode if place.name == part else 0o777)

        done = subprocess.run(
            [sys.executable, "-c", OPEN_AS_SOMEBODY_ELSE, f"sqlite:///{file}", url],
            capture_output=True,
            text=True,
            check=True,
        )

        folder.parent.chmod(0o700)
        folder.chmod(0o700)
    assert said in done.stdout


async def test_a_file_that_stays_locked_is_given_up(path, url, monkeypatch):
    monkeypatch.setattr(connection, "OPEN_SECONDS_MAX", 0.05)
    with connected(path, isolation_level=None) as rival:
        rival.execute("CREATE TABLE notes (x)")
        rival.execute("BEGIN EXCLUSIVE")

        with pytest.raises(StoreUnreachable, match="locked"):
            await SqliteStore(url).open()


async def test_an_old_sqlite_is_refused(url, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))

    with pytest.raises(StoreError, match=r"needs 3\.35"):
        await SqliteStore(url).open()


async def test_a_store_that_is_not_open_says_so(url):
    store = SqliteStore(url)

    with pytest.raises(StoreError, match="not open"):
        await insert(store)

    await store.open()
    await store.close()
    with pytest.raises(StoreError, match="not open"):
        await insert(store)
