"""What runs wait for, as it is read: what is due, and what others are to see to."""

from __future__ import annotations

from typing import Any

from perdure.model.ids import RunId
from perdure.model.run import Wait, WaitFilter, WaitKind
from perdure.store.postgres.access import Access
from perdure.store.postgres.run_rows import wait
from perdure.store.sql.statements import fill

_INDEXED = frozenset({WaitKind.SIGNAL, WaitKind.OUTSIDE, WaitKind.APPROVAL})


class PostgresWaits(Access):
    async def due_waits(self, namespace: str, limit: int) -> list[Wait]:
        found = await self._fetch("due_waits", self._moment(), namespace, limit)
        return [wait(row) for row in found]

    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]:
        return [wait(row) for row in await self._fetch("run_waits", namespace, run)]

    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        statement, arguments = filtered_waits(self._statements["list_waits"], filter, after=1)
        is_indexed = filter.run is not None or filter.kind in _INDEXED
        fetch = self._connections.fetch if is_indexed else self._scan
        found = await fetch(statement, limit, *arguments)
        return [wait(row) for row in found]


def filtered_waits(statement: str, filter: WaitFilter, after: int = 0) -> tuple[str, list[Any]]:
    """The statement with the filter in it, and its arguments, numbered on from ``after``.

    The kind stands in the text, as one of ours, so that the partial indexes can serve it. It is
    hidden from them where a run is asked for: its few waits are found by its id.
    """
    wanted = {
        "namespace = ${}": filter.namespace,
        "run_id = ${}": filter.run,
        "name = ${}": filter.name,
        "(deciders = '{{}}' OR deciders && ${}::text[])": filter.deciders,
    }
    given = [(test, value) for test, value in wanted.items() if value is not None]
    conditions = [test.format(number) for number, (test, _) in enumerate(given, after + 1)]
    arguments: list[Any] = [value for _, value in given]
    if filter.after is not None:
        number = after + len(arguments) + 1
        conditions.append(f"(opened_at, run_id, key) > (${number}, ${number + 1}, ${number + 2})")
        arguments += filter.after
    if filter.kind is not None:
        kind = "kind" if filter.run is None else "kind || ''"
        conditions.append(f"{kind} = '{WaitKind(filter.kind).value}'")
    return fill(statement, {"filter": " AND ".join(conditions) or "true"}), arguments
