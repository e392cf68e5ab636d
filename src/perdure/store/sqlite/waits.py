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

_BEFORE_ALL_TIMES = -(2**63)


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
    place = "" if filter.namespace is None else " AND wait.namespace = :namespace"
    if filter.run is not None:
        return _completed(prefix, "", f"wait.run_id = :run{place}")
    match filter.kind:
        case WaitKind.SIGNAL:
            named = "" if filter.name is None else f" AND wait.name = :name{place}"
            return _completed(prefix, "signals", f"wait.kind = 'signal'{named}")
        case WaitKind.OUTSIDE | WaitKind.APPROVAL:
            where = f"wait.kind IN ('outside', 'approval') AND wait.kind = :kind{place}"
            return _completed(prefix, "asking", where)
        case _:
            return _completed(prefix, "", "TRUE")


@lru_cache(maxsize=256)
def _completed(prefix: str, index: str, where: str) -> str:
    place = {"index": f"INDEXED BY {prefix}waits_{index}" if index else "", "where": where}
    return fill(statements_of(prefix)["list_waits"], place)


def _parameters(filter: WaitFilter) -> dict[str, Any]:
    at, run, key = filter.after or (None, "", "")
    return {
        "namespace": filter.namespace,
        "run": filter.run,
        "kind": filter.kind,
        "name": filter.name,
        "deciders": None if filter.deciders is None else as_json(filter.deciders),
        "after_at": _BEFORE_ALL_TIMES if at is None else micros(at),
        "after_run": run,
        "after_key": key,
    }
