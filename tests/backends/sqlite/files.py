"""The database file, seen from outside the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any


class Rival:
    """Another connection to the same file."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def lock(self) -> None:
        """Keep other connections from writing."""
        self._connection.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        self._connection.execute("ROLLBACK")

    def count(self, table: str = "perdure_jobs") -> int:
        [(count,)] = self._connection.execute(f"SELECT count(*) FROM {table}")
        return int(count)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def connected(path: Path, **options: Any) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, **options)) as connection:
        yield connection


def run_script(path: Path, script: str) -> None:
    with connected(path) as connection:
        connection.executescript(script)


def schema_of(path: Path) -> list[tuple[str, str]]:
    with connected(path) as connection:
        return connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()
