"""Looking at a store creates and upgrades nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from perdure.store.postgres.address import parse_address
from tests.cli.commands import Commands
from tests.cli.test_errors import assert_told
from tests.upgrade.conftest import restore

LOOKS = [
    ["runs", "list"],
    ["queues", "list"],
    ["explain", "order-5"],
    ["store", "export", "{folder}/out.jsonl"],
]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A database of somebody else's."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
        connection.commit()
    return path


def tables_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]


@pytest.mark.parametrize("look", LOOKS)
class TestASqliteFile:
    def test_of_somebody_else_gets_no_tables(self, look, foreign):
        words = [word.format(folder=foreign.parent) for word in look]
        answer = Commands(f"sqlite:///{foreign}")(*words)

        assert_told(answer, 3, "app.db has no tables of Perdure", "The first worker")
        assert tables_in(foreign) == ["mine"]

    def test_that_is_empty_stays_so(self, look, tmp_path):
        path = tmp_path / "empty.db"
        path.touch()
        words = [word.format(folder=tmp_path) for word in look]

        assert_told(Commands(f"sqlite:///{path}")(*words), 3, "no tables of Perdure")
        assert path.stat().st_size == 0


def test_a_schema_of_postgresql_is_not_created(bare_postgres_url):
    asked = Commands(bare_postgres_url)
    for look in (["runs", "list"], ["queues", "list"]):
        assert_told(asked(*look), 3, "no tables of Perdure")

    assert asyncio.run(_schemas(bare_postgres_url)) == 0


async def _schemas(url: str) -> int:
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_namespace WHERE nspname = $1", address.schema
        )
        return count
    finally:
        await connection.close()


@pytest.mark.parametrize("found_type", ["sqlite", "postgres"])
def test_older_tables_are_left_as_they_are(found_type, bare_sqlite_url, bare_postgres_url):
    url = bare_sqlite_url if found_type == "sqlite" else bare_postgres_url
    asyncio.run(restore(url, 2))

    for _ in range(2):
        assert_told(Commands(url)("runs", "list"), 3, "are at version 2", "upgrades them")


class TestDoctor:
    def test_reports_missing_tables_and_makes_none(self, foreign):
        shown = Commands(f"sqlite:///{foreign}")("doctor")

        assert shown.exit_code == 3
        assert "app.db has no tables of Perdure" in " ".join(shown.out.split())
        assert ["1", "error"] in shown.rows
        assert tables_in(foreign) == ["mine"]

    def test_reports_a_server_that_is_not_there_as_json(self):
        shown = Commands("postgresql://ann:hunter2@127.0.0.1:1/none")("doctor", "--json")

        assert (shown.exit_code, shown.json["is_well"]) == (3, False)
        [finding] = shown.json["findings"]
        assert (finding["severity"], finding["about"]) == ("error", "store")
        assert finding["code"] == "store.unreachable"
        assert "hunter2" not in shown.out + shown.error

    def test_refuses_a_wrong_url_as_bad_usage(self):
        assert_told(Commands("mysql://host/db")("doctor"), 2, "'mysql' is not a store")
