"""What runs wait for, as it is read: what is due, and what others are to see to."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from perdure.model.ids import RunId
from perdure.model.run import Wait, WaitFilter, WaitKind
from perdure.store.sql.statements import fill
from perdure.store.sqlite.handle import Handle
from perdure.store.sqlite.rows import as_json, micros
from perdure.store.sqlite.run_rows import wait_from
from perdure.store.sqlite.statements import statements_of

_CONDITIONS = {
    "namespace": "wait.namespace = :namespace",
    "run": "wait.run_id = :run",
    "kind": "wait.kind = :kind",
    "name": "wait.name = :name",
    "deciders": """\
(wait.deciders = '[]' OR EXISTS (
        SELECT 1
        FROM json_each(wait.deciders) AS named
        WHERE named.value IN (SELECT value FROM json_each(:deciders))
    ))""",
    "after": "(wait.opened_at, wait.run_id, wait.key) > (:after_at, :after_run, :after_key)",
}
_ASKING = ("asking", "wait.kind IN ('outside', 'approval') AND wait.kind = :kind")
_INDEXES = {
    WaitKind.SIGNAL: ("signals", "wait.kind = 'signal'"),
    WaitKind.OUTSIDE: _ASKING,
    WaitKind.APPROVAL: _ASKING,
}
"""What a kind is listed by, and how to ask for it so that SQLite sees that it may."""


class SqliteWaits(Handle):
    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        rows = await self._read(
            lambda transaction: transaction.rows(
                "due_waits", namespace=namespace, now=transaction.now, limit=limit
            )
        )
        return [wait_from(row) for row in rows]

    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]:
        rows = await self._rows("run_waits", namespace=namespace, run=run)
        return [wait_from(row) for row in rows]

    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        text = listing_of_waits(self._place.prefix, filter)
        rows = await self._read(
            lambda transaction: transaction.rows_of(text, **_parameters(filter), limit=limit)
        )
        return [wait_from(row) for row in rows]


def listing_of_waits(prefix: str, filter: WaitFilter) -> str:
    """The text of the listing statement, by the index that serves the filter best."""
    asked = {name: text for name, text in _CONDITIONS.items() if getattr(filter, name) is not None}
    index = ""
    if filter.run is None and filter.kind in _INDEXES:
        index, asked["kind"] = _INDEXES[filter.kind]
    return _completed(prefix, index, " AND ".join(asked.values()) or "TRUE")


@lru_cache(maxsize=256)
def _completed(prefix: str, index: str, filter: str) -> str:
    place = {"index": f"INDEXED BY {prefix}waits_{index}" if index else "", "filter": filter}
    return fill(statements_of(prefix)["list_waits"], place)


def _parameters(filter: WaitFilter) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "namespace": filter.namespace,
        "run": filter.run,
        "kind": filter.kind,
        "name": filter.name,
        "deciders": as_json(filter.deciders),
    }
    if filter.after is not None:
        at, run, key = filter.after
        parameters |= {"after_at": micros(at), "after_run": run, "after_key": key}
    return parameters
