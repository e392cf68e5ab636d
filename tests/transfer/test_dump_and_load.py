"""What the two backends promise about dumping and loading."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime

import asyncpg
import pytest

from perdure import AsyncClient, AsyncJobQueue
from perdure.errors import StoreError
from perdure.store.contract import Store, TransferStore
from perdure.store.contract.transfer import (
    JobRow,
    LimitRow,
    LimitStartRow,
    PrunedEndRow,
    QueueRow,
    SnapshotRow,
    TransferRow,
)
from perdure.store.opening import store_at
from perdure.store.postgres.address import parse_address
from perdure.store.sql.transfer import BATCH_ROWS_MAX, TABLES, columns_of
from tests.support.stores import opened
from tests.transfer.flows import calm, flaky

AT = datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)


def transfer_of(store: Store) -> TransferStore:
    assert store.transfer is not None
    return store.transfer


async def dumped(store: Store) -> list[Sequence[TransferRow]]:
    async with transfer_of(store).export_rows() as dump:
        return [batch async for batch in dump.batches()]


async def given(*batches: Sequence[TransferRow]) -> AsyncIterator[Sequence[TransferRow]]:
    for batch in batches:
        yield batch


def job(number: int, **fields: object) -> JobRow:
    made = {
        "id": f"job-{number:06}",
        "namespace": "default",
        "queue": "default",
        "task": "print",
        "partition_key": '["default","print",[],[]]',
        "status": "waiting",
        "priority": 3,
        "rank": 1.5,
        "input_hash": -number,
        "input": b"[[1],{}]",
        "created_at": AT,
        "ready_at": AT,
    }
    return JobRow(**(made | fields))  # type: ignore[arg-type]


class TestDump:
    async def test_comes_in_bounded_batches(self, sqlite_url):
        async with AsyncClient(sqlite_url, tasks=[flaky]) as client:
            await client.enqueue_many(flaky, ["x"] * (2 * BATCH_ROWS_MAX + 1))
        async with opened(store_at(sqlite_url)) as store:
            batches = await dumped(store)
        assert [len(batch) for batch in batches] == [BATCH_ROWS_MAX, BATCH_ROWS_MAX, 1]

    async def test_large_values_make_smaller_batches(self, target_url):
        async with opened(store_at(target_url)) as store:
            large = [job(number, input=b"x" * 1024 * 1024) for number in range(9)]
            await transfer_of(store).import_rows(given(large))
            batches = await dumped(store)

        assert [len(batch) for batch in batches] == [4, 4, 1]
        assert [row for batch in batches for row in batch] == large

    async def test_a_row_that_is_not_what_it_should_be_is_named(self, sqlite_url):
        async with AsyncJobQueue(sqlite_url) as queue:
            id = await queue.enqueue("print", 1)
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
            connection.execute("UPDATE perdure_jobs SET input = 'a text'")
            connection.commit()
        async with opened(store_at(sqlite_url)) as store:
            with pytest.raises(StoreError, match=id) as caught:
                await dumped(store)
            assert caught.value.code == "store.unmovable_row"


class TestLoad:
    ROWS: Sequence[Sequence[TransferRow]] = (
        [SnapshotRow(run_serial=3, number=9, data=b"\x00\xff")],
        [job(1, output=b"1", status="completed", finished_at=AT, hidden=True), job(2)],
        [LimitRow(namespace="default", key="api", closed_until=AT, last_start_at=AT)],
        [
            LimitStartRow(namespace="default", key="api", started_at=AT, count=2),
            LimitStartRow(namespace="default", key="api", started_at=AT, count=3),
        ],
        [QueueRow(namespace="default", name="slow", paused_at=AT, paused_by="ann")],
        [PrunedEndRow(namespace="default", type="job.completed", until=AT)],
    )

    async def test_writes_nothing_when_a_row_is_refused(self, target_url):
        async with opened(store_at(target_url)) as store:
            with pytest.raises(StoreError):
                await transfer_of(store).import_rows(given([job(1)], [job(1)]))
            found = await dumped(store)
        assert found == []

    async def test_definitions_that_a_worker_saved_are_no_hindrance(self, target_url):
        async with opened(store_at(target_url)) as store:
            await store.runs.save_definition("default", calm.name, calm.version, calm.graph.data)
            [definitions] = await dumped(store)
            await transfer_of(store).import_rows(given(definitions, [job(1)]))
            found = await dumped(store)

        assert found == [definitions, [job(1)]]

    async def test_texts_that_postgresql_cannot_keep_lose_a_character(self, postgres_url):
        async with opened(store_at(postgres_url)) as store:
            await transfer_of(store).import_rows(given([job(1, progress_message="half\x00way")]))
            [[found]] = await dumped(store)
        assert isinstance(found, JobRow)
        assert found.progress_message == "half\ufffdway"


class TestColumns:
    """A migration that adds a column, and forgets to move it, fails here."""

    async def test_every_column_on_sqlite_is_moved(self, sqlite_url):
        async with opened(store_at(sqlite_url)):
            pass
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute(COLUMNS_ON_SQLITE).fetchall()
        columns = by_table(rows, TABLES_OF_THE_PLACE | {"large_inputs"})
        columns["runs"].add("number")  # that of the last event
        assert columns == MOVED

    async def test_every_column_on_postgresql_is_moved(self, postgres_url):
        address = parse_address(postgres_url)
        connection = await asyncpg.connect(address.dsn)
        rows = await connection.fetch(COLUMNS_ON_POSTGRESQL, address.schema)
        await connection.close()
        assert by_table(rows, TABLES_OF_THE_PLACE) == MOVED


COLUMNS_ON_SQLITE = """
SELECT replace(made.name, 'perdure_', ''), had.name
FROM sqlite_master AS made, pragma_table_info(made.name) AS had
WHERE made.type = 'table'
"""
COLUMNS_ON_POSTGRESQL = """
SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = $1
"""
TABLES_OF_THE_PLACE = {
    "migrations",
    "workers",
    "maintenance_leases",
    "subscribers",
    "live_events",
}
NOT_MOVED = {"lease_until", "claimed_alone", "run_number", "limit_keys", "token", "submission"} | {
    "incarnation",
    "used_at",
    "children",
    "was_left",
}
"""About claims of jobs, and about lost responses."""
IN_THEIR_ORDER = {"failures", "steps"}
"""Their numbers say no more than that."""
MOVED = {
    table.name: {*columns_of(row_type), *(["number"] if table.name in IN_THEIR_ORDER else [])}
    for row_type, table in TABLES.items()
}


def by_table(rows: Iterable[tuple[str, str]], without: set[str]) -> dict[str, set[str]]:
    columns: dict[str, set[str]] = {}
    for table, column in rows:
        if table not in without and column not in NOT_MOVED:
            columns.setdefault(table, set()).add(column)
    return columns
