"""What is out in the world and does not change: migrations, the schema they make, wire formats.

``python -m tests.upgrade.released URL`` writes down what was added, with a PostgreSQL to try the
migrations on. It does not change what is written down already.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from perdure.model.event import Event
from perdure.model.failure import Failure
from perdure.model.graph import Definition
from perdure.model.retry import CallPolicy
from perdure.model.run import RunSummary
from perdure.model.schedule import ScheduleDefinition, ScheduleState
from perdure.model.wait import Report
from perdure.model.worker import WorkerInfo
from perdure.store.opening import store_at
from perdure.store.postgres.address import parse_address
from perdure.store.postgres.session import PACKAGE as POSTGRES
from perdure.store.sql.migrations import load_migrations
from perdure.store.sqlite.transaction import PACKAGE as SQLITE

RELEASED = Path(__file__).parent / "released.json"
PACKAGES = {"sqlite": (SQLITE, "prefix"), "postgres": (POSTGRES, "schema")}
WRITTEN = (
    Event,
    Failure,
    Definition,
    CallPolicy,
    Report,
    ScheduleDefinition,
    ScheduleState,
    WorkerInfo,
    RunSummary,
)
"""What is written as JSON into rows, and read by the code of later versions."""
FORMER_NAMES = {
    "EdgeCounts": "Arrival",
    "Effects": "Then",
    "NodePollStarted": "NodeAsked",
    "OutputCheck": "Check",
    "Partition": "Lane",
    "RunResumed": "RunUnpaused",
}
"""Classes that were renamed: their names are in no row, or their tags say the former ones."""

_CATALOGUE = """
SELECT 'column ' || table_name || '.' || column_name || ' ' || data_type || ' '
    || is_nullable || ' ' || coalesce(column_default, '') || ' '
    || coalesce(collation_name, '') || ' ' || is_identity
FROM information_schema.columns
WHERE table_schema = $1
UNION ALL
SELECT 'index ' || indexdef
FROM pg_indexes
WHERE schemaname = $1
UNION ALL
SELECT 'constraint ' || conrelid::regclass::text || ' ' || conname || ' '
    || pg_get_constraintdef(oid)
FROM pg_constraint
WHERE connamespace = $1::text::regnamespace AND contype <> 'n'
"""


class Released(msgspec.Struct):
    migrations: dict[str, dict[str, str]]
    """By backend and file, the hash of its text."""
    schemas: dict[str, dict[str, str]]
    """By backend and highest migration, the hash of the tables that all of them make."""
    fields: dict[str, dict[str, Any]]
    """By kind of value, what its fields are as JSON."""


def read() -> Released:
    return msgspec.json.decode(RELEASED.read_bytes(), type=Released)


def migrations(backend: str) -> dict[str, str]:
    package, place = PACKAGES[backend]
    return {
        f"{step.version:04}_{step.name}": _hash(step.text)
        for step in load_migrations(package, {place: "x"})
    }


def highest(backend: str) -> str:
    return max(migrations(backend))


async def schema(url: str) -> str:
    """The hash of the tables in a fresh store at this place."""
    store = store_at(url)
    await store.open()
    await store.close()
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
            lines = [_plain_sql(text) for (text,) in found]
    else:
        address = parse_address(url)
        connection = await asyncpg.connect(address.dsn)
        try:
            found = await connection.fetch(_CATALOGUE, address.schema)
        finally:
            await connection.close()
        lines = [text.replace(f"{address.schema}.", "") for (text,) in found]
    return _hash("\n".join(sorted(lines)))


def fields() -> dict[str, dict[str, Any]]:
    """By kind of value: what each field is, and whether old data may lack it."""
    _, components = msgspec.json.schema_components(WRITTEN, ref_template="{name}")
    found = {
        FORMER_NAMES.get(kind, kind): dict(_fields(each))
        if "properties" in each
        else {"": _bare(each)}
        for kind, each in components.items()
    }
    return dict(sorted(found.items()))


def _fields(component: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    required = component.get("required", ())
    for name, found in component["properties"].items():
        yield name, _bare(found) | ({"needed": True} if name in required else {})


def _bare(found: Any) -> Any:
    """Without what is for readers only, and without defaults, which only new values get."""
    if isinstance(found, dict) and "$ref" in found:
        return {"$ref": FORMER_NAMES.get(found["$ref"], found["$ref"])}
    if isinstance(found, dict):
        left_out = ("description", "title", "default", "discriminator")
        return {key: _bare(each) for key, each in found.items() if key not in left_out}
    return [_bare(each) for each in found] if isinstance(found, list) else found


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What the code of today could not read, or would read as something else."""
    found = []
    for kind, fields in old.items():
        if kind not in new:
            found.append(f"{kind} is gone")
            continue
        for name, field in fields.items():
            if name not in new[kind]:
                found.append(f"{kind}.{name} is gone")
            elif not is_read_by(field, new[kind][name]):
                found.append(f"{kind}.{name} was {field} and is {new[kind][name]}")
        found += [
            f"{kind}.{name} is needed, and what is stored does not have it"
            for name, field in new[kind].items()
            if name not in fields and field.get("needed")
        ]
    return found


def is_read_by(old: Any, new: Any) -> bool:
    """Whether whatever was written as the one can be read as the other."""
    if isinstance(old, dict) and isinstance(new, dict):
        if not new.get("needed", False) <= old.get("needed", False):
            return False
        return all(
            key in new and is_read_by(each, new[key])
            for key, each in old.items()
            if key != "needed"
        )
    if isinstance(old, list) and isinstance(new, list):  # of types, or of values
        return all(any(is_read_by(each, other) for other in new) for each in old)
    return bool(old == new)


def _plain_sql(text: str) -> str:
    return " ".join(re.sub(r"--[^\n]*", "", text).split())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def write(postgres_url: str) -> None:
    old = read() if RELEASED.exists() else Released({}, {}, {})
    if found := changes(old.fields, fields()):
        raise SystemExit("\n".join(found))
    with tempfile.TemporaryDirectory() as folder:
        urls = {"sqlite": f"sqlite:///{folder}/new.db", "postgres": postgres_url}
        schemas = {
            name: {highest(name): await schema(url)} | old.schemas.get(name, {})
            for name, url in urls.items()
        }
    kept = {name: migrations(name) | old.migrations.get(name, {}) for name in urls}
    released = Released(migrations=kept, schemas=schemas, fields=fields())
    RELEASED.write_text(_lines(msgspec.to_builtins(released)) + "\n", encoding="utf-8")


def _lines(value: Any, depth: int = 0) -> str:
    """A line for each field, so that a change can be seen in review."""
    if depth == 3 or not isinstance(value, dict):
        return msgspec.json.encode(value, order="sorted").decode()
    indent = "  " * depth
    items = [f'{indent}  "{key}": {_lines(value[key], depth + 1)}' for key in sorted(value)]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
