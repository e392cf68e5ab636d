"""Checks stores, logs and output: consistent histories, no secrets, nothing for terminals."""

from __future__ import annotations

import base64
import logging
import re
import sqlite3
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from perdure.store.contract import Store
from perdure.store.memory.store import MemoryStore
from perdure.store.opening import store_at
from perdure.store.postgres.address import parse_address
from perdure.verify import Finding, finding_text, verify_store
from perdure.worker.log_setup import JsonLines, PlainLines
from proof.strategies.values import PASSWORD

NOT_WORK = ("workers", "maintenance_leases", "migrations")
"""Tables of workers, which change by themselves."""


async def contents(url: str, *, is_all: bool = False) -> Any:
    """The contents by table, if the store has tables; ``is_all`` includes those of workers."""
    if url.startswith("memory:"):
        return _of_memory(url)
    left_out = () if is_all else NOT_WORK
    return (
        _of_sqlite(url, left_out)
        if url.startswith("sqlite:")
        else await _of_postgres(url, left_out)
    )


def _of_memory(url: str) -> Any:
    store = store_at(url)
    assert isinstance(store, MemoryStore)
    state = store._session.state
    return repr(
        [
            sorted(state.jobs.items()),
            sorted(state.paused.items()),
            sorted(state.limits.items()),
            _plain(state.records),
            _plain(state.schedules),
        ]
    )


def _plain(records: Any) -> Any:
    return {
        name: value
        for name in getattr(type(records), "__slots__", None) or vars(records)
        if isinstance(value := getattr(records, name), dict)
    }


def _of_sqlite(url: str, left_out: tuple[str, ...]) -> Any:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = [name for (name,) in connection.execute(names)]
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in tables
            if not table.endswith(left_out)
        }


async def _of_postgres(url: str, left_out: tuple[str, ...]) -> Any:
    address = parse_address(url)
    connection = await asyncpg.connect(address.dsn)
    try:
        names = "SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1"
        tables = [name for (name,) in await connection.fetch(names, address.schema)]
        return {
            table: sorted(
                map(tuple, await connection.fetch(f'SELECT * FROM "{address.schema}"."{table}"')),
                key=repr,
            )
            for table in tables
            if not table.endswith(left_out)
        }
    finally:
        await connection.close()


SECRET_MARK = "5591027746380"
SECRET = f'tok"en\\é-{SECRET_MARK}/ü'
"""A worker's secret. JSON, URLs, ``repr`` and ASCII each encode its parts differently."""
_PARTS = (
    SECRET_MARK,
    base64.b64encode(SECRET.encode()).decode(),
    *(base64.b64encode(bytes(at) + SECRET_MARK.encode()).decode()[4:-4] for at in range(3)),
    PASSWORD,
)
"""At least one of these survives any encoding."""


class Leak(AssertionError):
    """A secret was revealed."""


def check_secrets(where: str, thing: object, url: str = "") -> None:
    """Raise ``Leak`` if ``thing`` contains a secret, or the password of the store at ``url``."""
    text = thing if isinstance(thing, str) else repr(thing)
    if any(part in text for part in _parts(url)):
        raise Leak(f"{where} contains a secret: {text[:2000]}")


def visible_parts(error: BaseException) -> str:
    """Everything visible of an error: its message, fields and causes."""
    chain = "".join(traceback.format_exception(error))
    return f"{error!r} {vars(error)!r} {chain}"


# Written out here, because ``model.text`` is what is tested: C0 except tab and newline, DEL, C1,
# separators of lines, and what Unicode calls bidi controls.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


class Unsafe(AssertionError):
    """Output has characters that control terminals, or reorder lines."""


def check_printed(where: str, text: str) -> None:
    """Raise ``Unsafe`` if a terminal would not show the text as it is."""
    if found := _CONTROLS.search(text):
        around = text[max(0, found.start() - 200) : found.end() + 200]
        raise Unsafe(f"{where} prints {found[0]!r} in {around!r}")


class LogCapture(logging.Handler, AbstractContextManager["LogCapture"]):
    """Captures all log records, including debug ones, and formats them as a worker does."""

    def __init__(self, url: str = "") -> None:
        super().__init__(logging.DEBUG)
        self._url = url
        self._faults: list[AssertionError] = []
        self._formats = (PlainLines(is_coloured=False), JsonLines())
        self._level_before = logging.NOTSET
        self.heard = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.heard += 1
        where = f"the log of {record.name}"
        try:
            check_secrets(where, self.format(record), self._url)
            for each in self._formats:
                check_printed(where, each.format(record))
        except (Leak, Unsafe) as fault:
            # Not raised here: the logging code must not be disturbed, and may be in another thread.
            self._faults.append(fault)

    def check(self) -> None:
        if self._faults:
            raise self._faults[0]

    def __enter__(self) -> LogCapture:
        root = logging.getLogger()
        self._level_before = root.level
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        root.setLevel(self._level_before)


def _parts(url: str) -> tuple[str, ...]:
    password = urlsplit(url).password if url else None
    return _PARTS if password is None else (*_PARTS, password)


def nothing_excused(_: Finding) -> bool:
    return False


async def inspect_store(
    url: str, store: Store, *, is_excused: Callable[[Finding], bool] = nothing_excused
) -> None:
    """All accepted work is consistent, and contains no secret."""
    check_secrets("the store", await contents(url, is_all=True), url)
    findings = [finding for finding in await verify_store(store) if not is_excused(finding)]
    assert not findings, "\n".join(map(finding_text, findings))
