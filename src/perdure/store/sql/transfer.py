"""Where each kind of row is kept: the tables that both SQL backends have, whole, in order."""

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
"""Of values, about: rows may hold a mebibyte each."""


class Table(Value):
    name: str
    order: str
    """By what its rows are read, so that a dump of the same contents is the same file."""


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
}


@cache
def columns_of(row_type: type[TransferRow]) -> tuple[str, ...]:
    return row_type.__struct_fields__


def selection(row_type: type[TransferRow], place: str, columns: Iterable[str]) -> str:
    """The statement that reads a whole table, each row called what its kind is.

    ``place`` is what stands before the name of the table.
    """
    table = TABLES[row_type]
    listed = ", ".join(columns)
    row = f'"{row_type.__struct_config__.tag}"'  # quoted, since a limit is a word of SQL too
    return f"SELECT {listed} FROM {place}{table.name} AS {row} ORDER BY {table.order}"


def counting(place: str) -> str:
    """The statement that counts the rows of all tables, in the order of ``TABLES``."""
    each = (f"(SELECT count(*) FROM {place}{table.name})" for table in TABLES.values())
    return f"SELECT {', '.join(each)}"


def emptiness(place: str) -> str:
    """The statement that says of each table, in the order of ``TABLES``, whether it has a row."""
    each = (f"EXISTS (SELECT 1 FROM {place}{table.name})" for table in TABLES.values())
    return f"SELECT {', '.join(each)}"


def check_empty(found: Iterable[Any], url: str) -> None:
    """Refuse a store in which there is anything already, by the answer to ``emptiness``.

    Definitions may be there: a worker that started first has saved its own.
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
    """The type of each field, None left aside."""
    return tuple(_without_none(field.type) for field in msgspec.structs.fields(row_type))


def converted(
    values: Iterable[Any], types: Iterable[Any], by_type: Mapping[Any, Convert]
) -> list[Any]:
    """Values as another side has them: those of some types converted, None left as it is."""
    return [
        value if value is None or (convert := by_type.get(type)) is None else convert(value)
        for value, type in zip(values, types, strict=True)
    ]


def size_of(values: Iterable[Any]) -> int:
    """How many bytes of values a row has, about."""
    return sum(len(value) for value in values if isinstance(value, bytes))


MOMENT = datetime
NAMES = tuple[str, ...]


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (types.UnionType, Union):
        return annotation
    [only] = (each for each in get_args(annotation) if each is not type(None))
    return only
