"""The table of each type of transfer row, for both SQL backends."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, Union, get_args, get_origin

import msgspec

from perdure.errors import StoreNotEmpty
from perdure.model.value import Value
from perdure.store.contract.transfer import (
    DefinitionRow,
    EventRow,
    FailureRow,
    JobRow,
    LimitRow,
    LimitStartRow,
    PastCountRow,
    PrunedEndRow,
    QueueRow,
    RunRow,
    ScheduleRow,
    SnapshotRow,
    StepRow,
    TransferRow,
    WaitRow,
)

BATCH_ROWS_MAX = 1000
BATCH_BYTES_MAX = 4 * 1024 * 1024
"""The approximate size of the values in a batch: a row may be a mebibyte."""


class Table(Value):
    name: str
    order: str
    """The sort order of an export, so that the same contents yield the same file."""


TABLES: Mapping[type[TransferRow], Table] = {
    DefinitionRow: Table(name="definitions", order="namespace, flow, version"),
    RunRow: Table(name="runs", order="serial"),
    EventRow: Table(name="events", order="run_serial, number"),
    SnapshotRow: Table(name="snapshots", order="run_serial"),
    WaitRow: Table(name="waits", order="run_id, namespace, key"),
    JobRow: Table(name="jobs", order="id"),
    FailureRow: Table(name="failures", order="number"),
    StepRow: Table(name="steps", order="number"),
    LimitRow: Table(name="limits", order="namespace, key"),
    LimitStartRow: Table(name="limit_starts", order="namespace, key, started_at, count"),
    QueueRow: Table(name="queues", order="namespace, name"),
    ScheduleRow: Table(name="schedules", order="namespace, name"),
    PastCountRow: Table(name="past_counts", order="namespace, task, queue, name"),
    PrunedEndRow: Table(name="pruned_ends", order="namespace, type"),
}


@cache
def columns_of(row_type: type[TransferRow]) -> tuple[str, ...]:
    return row_type.__struct_fields__


def selection(row_type: type[TransferRow], place: str, columns: Iterable[str]) -> str:
    """The statement that reads a whole table, with each row tagged by its type.

    ``place`` precedes the name of the table.
    """
    table = TABLES[row_type]
    listed = ", ".join(columns)
    row = f'"{row_type.__struct_config__.tag}"'  # quoted: LIMIT is a keyword
    return f"SELECT {listed} FROM {place}{table.name} AS {row} ORDER BY {table.order}"


def counting(place: str) -> str:
    """The statement that counts the rows of all tables, in the order of ``TABLES``."""
    each = (f"(SELECT count(*) FROM {place}{table.name})" for table in TABLES.values())
    return f"SELECT {', '.join(each)}"


def emptiness(place: str) -> str:
    """The statement that tests each table, in the order of ``TABLES``, for rows."""
    each = (f"EXISTS (SELECT 1 FROM {place}{table.name})" for table in TABLES.values())
    return f"SELECT {', '.join(each)}"


def check_empty(found: Iterable[Any], url: str) -> None:
    """Refuse a store that has rows, given the result of ``emptiness``.

    Definitions are allowed: a worker that started first has saved its own.
    """
    full = [
        table.name
        for (row_type, table), has_rows in zip(TABLES.items(), found, strict=True)
        if has_rows and row_type is not DefinitionRow
    ]
    if full:
        raise StoreNotEmpty(url=url, tables=full)


Convert = Callable[[Any], Any]


@cache
def types_of(row_type: type[TransferRow]) -> tuple[Any, ...]:
    """The type of each field, without None."""
    return tuple(_without_none(field.type) for field in msgspec.structs.fields(row_type))


def converted(
    values: Iterable[Any], types: Iterable[Any], by_type: Mapping[Any, Convert]
) -> list[Any]:
    """Values converted by type for the other side; None stays None."""
    return [
        value if value is None or (convert := by_type.get(type)) is None else convert(value)
        for value, type in zip(values, types, strict=True)
    ]


def size_of(values: Iterable[Any]) -> int:
    """The approximate size of a row's values in bytes."""
    return sum(len(value) for value in values if isinstance(value, bytes))


MOMENT = datetime
NAMES = tuple[str, ...]


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (types.UnionType, Union):
        return annotation
    [only] = (each for each in get_args(annotation) if each is not type(None))
    return only
