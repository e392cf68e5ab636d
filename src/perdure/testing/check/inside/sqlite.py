"""The inside of a store in SQLite."""

from __future__ import annotations

from typing import Any

from perdure.model.ids import RunId
from perdure.store.contract import Store
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.check.inside.reads import Details

_LANES = "SELECT id, lane FROM {prefix}jobs WHERE run_id = :run AND namespace = :namespace"
_HELD = """
SELECT key FROM {prefix}waits
WHERE run_id = :run AND namespace = :namespace AND is_held = 1
"""
_STRAYS = """
SELECT 'events of a run that is gone, number ' || run_serial FROM (
    SELECT DISTINCT run_serial FROM {prefix}events
    WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
)
UNION ALL
SELECT 'a snapshot of a run that is gone, number ' || run_serial FROM {prefix}snapshots
WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
UNION ALL
SELECT 'wait ' || key || ' of run ' || run_id FROM {prefix}waits AS wait
WHERE NOT EXISTS (
    SELECT 1 FROM {prefix}runs AS run
    WHERE run.id = wait.run_id AND run.namespace = wait.namespace
)
UNION ALL
SELECT 'steps of ' || owner FROM (
    SELECT DISTINCT owner FROM {prefix}steps
    WHERE run_serial NOT IN (SELECT serial FROM {prefix}runs)
       OR job_id NOT IN (SELECT id FROM {prefix}jobs)
)
UNION ALL
SELECT 'failures of job ' || job_id FROM (
    SELECT DISTINCT job_id FROM {prefix}failures
    WHERE job_id NOT IN (SELECT id FROM {prefix}jobs)
)
UNION ALL
SELECT 'the input of job ' || job_id FROM {prefix}large_inputs
WHERE job_id NOT IN (SELECT id FROM {prefix}jobs)
LIMIT 100
"""


class SqliteInside:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._prefix = store._place.prefix

    @staticmethod
    def of(store: Store) -> SqliteInside:
        assert isinstance(store, SqliteStore)
        return SqliteInside(store)

    async def details(self, namespace: str, run: RunId) -> Details:
        place = {"namespace": namespace, "run": run}
        lanes = await self._rows(_LANES, **place)
        held = await self._rows(_HELD, **place)
        return Details(lanes=dict(lanes), held=frozenset(key for (key,) in held))

    async def strays(self) -> list[str]:
        return [text for (text,) in await self._rows(_STRAYS)]

    async def _rows(self, text: str, **parameters: str) -> list[Any]:
        statement = text.format(prefix=self._prefix)
        found = await self._store._read(
            lambda transaction: transaction.rows_of(statement, **parameters)
        )
        return list(found)
