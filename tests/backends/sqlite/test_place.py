"""URLs: which file they mean, and what is refused before anything is touched."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perdure.errors import InvalidStoreUrl, StoreError, StoreUnreachable
from perdure.store.sqlite import connection
from perdure.store.sqlite.address import place_at
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.contract.builders import insert
from tests.backends.sqlite.files import connected
from tests.support.refusal import refused


class TestPath:
    def test_is_relative_after_three_slashes(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert place_at("sqlite:///data/work.db").path == os.path.realpath("data/work.db")

    def test_is_absolute_after_four(self, tmp_path):
        assert place_at(f"sqlite:///{tmp_path}/work.db").path == f"{tmp_path}/work.db"

    def test_may_contain_what_urls_must_quote(self):
        assert place_at("sqlite:////data/a%20b%3Fc%23.db").path == "/data/a b?c#.db"

    def test_is_the_same_for_a_symbolic_link(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path / "data")
        linked = place_at(f"sqlite:///{tmp_path}/link/work.db")
        assert linked.key == place_at(f"sqlite:///{tmp_path}/data/work.db").key

    async def test_keeps_its_meaning_for_a_clone_after_a_change_of_directory(
        self, tmp_path, monkeypatch
    ):
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        store = SqliteStore("sqlite:///work.db")

        monkeypatch.chdir(tmp_path / "elsewhere")
        target = store.clone()
        await target.open()
        await target.close()

        assert (tmp_path / "work.db").exists()


class TestMode:
    async def test_of_a_new_store_lets_only_its_owner_read(self, tmp_path):
        """Finding 11: database, WAL and shared memory, whatever the umask."""
        before = os.umask(0)
        try:
            store = SqliteStore(f"sqlite:///{tmp_path}/work.db")
            await store.open()
        finally:
            os.umask(before)

        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
        await store.close()

        assert modes == dict.fromkeys(("work.db", "work.db-wal", "work.db-shm"), 0o600)

    async def test_of_an_existing_file_is_kept(self, tmp_path):
        (tmp_path / "work.db").touch(0o640)
        (tmp_path / "work.db").chmod(0o640)
        store = SqliteStore(f"sqlite:///{tmp_path}/work.db")
        await store.open()
        await store.close()
        assert stat.S_IMODE((tmp_path / "work.db").stat().st_mode) == 0o640


class TestOptions:
    def test_have_defaults(self):
        place = place_at("sqlite:///work.db")
        assert (place.prefix, place.synchronous) == ("perdure_", "normal")

    def test_set_the_prefix_and_how_it_syncs(self):
        place = place_at("sqlite:///work.db?prefix=jobs_&synchronous=full")
        assert (place.prefix, place.synchronous) == ("jobs_", "full")


@pytest.mark.parametrize(
    "url, named",
    [
        ("sqlite://work.db", "sqlite:///work.db"),
        ("sqlite:work.db?", "sqlite:///work.db"),
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///work.db?mode=memory", "mode"),
        ("sqlite:///work.db?prefix=", "prefix"),
        ("sqlite:///work.db?prefix=jobs; DROP TABLE x", "prefix"),
        ("sqlite:///work.db?prefix=sqlite_", "prefix"),
        ("sqlite:///work.db?synchronous=off", "synchronous"),
        ("sqlite:///work.db#1", "%23"),
    ],
)
def test_refuses_a_url_that_cannot_be_used(url, named):
    with pytest.raises(InvalidStoreUrl) as caught:
        place_at(url)
    assert named in caught.value.reason


# Places that cannot be used: each a clear error at once, nothing left behind.


OPEN_AS_ANOTHER_USER = """
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
    with pytest.raises(StoreUnreachable) as caught:
        await SqliteStore(f"sqlite:///{tmp_path}/nowhere/work.db").open()
    assert f"{tmp_path}/nowhere" in caught.value.reason


async def test_a_directory_is_not_a_file(tmp_path):
    with refused("store.unreachable", StoreUnreachable):
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
            [sys.executable, "-c", OPEN_AS_ANOTHER_USER, f"sqlite:///{file}", url],
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
        with pytest.raises(StoreUnreachable, match="locked"):  # as SQLite says
            await SqliteStore(url).open()


async def test_an_old_sqlite_is_refused(url, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with refused("store.sqlite_too_old", StoreError):
        await SqliteStore(url).open()


async def test_a_store_that_is_not_open_says_so(url):
    store = SqliteStore(url)
    with refused("store.not_open", StoreError):
        await insert(store)
    await store.open()
    await store.close()
    with refused("store.not_open", StoreError):
        await insert(store)
