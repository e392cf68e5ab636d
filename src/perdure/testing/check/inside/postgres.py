"""The inside of a store in PostgreSQL."""

from __future__ import annotations

from typing import Any

from perdure.model.ids import RunId
from perdure.store.contract import Store
from perdure.store.postgres.store import PostgresStore
from perdure.testing.check.inside.reads import Details

_LANES = "SELECT id, lane FROM {schema}.jobs WHERE run_id = $1 AND namespace = $2"
_HELD = "SELECT key FROM {schema}.waits WHERE run_id = $1 AND namespace = $2 AND is_held"
_STRAYS = """
SELECT 'events of a run that is gone, number ' || run_serial FROM (
    SELECT DISTINCT run_serial FROM {schema}.events
) AS logs
WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = run_serial)
UNION ALL
SELECT 'a snapshot of a run that is gone, number ' || run_serial FROM {schema}.snapshots
WHERE NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = run_serial)
UNION ALL
SELECT 'wait ' || key || ' of run ' || run_id FROM {schema}.waits AS wait
WHERE NOT EXISTS (
    SELECT 1 FROM {schema}.runs AS run
    WHERE run.id = wait.run_id AND run.namespace = wait.namespace
)
UNION ALL
SELECT 'steps of ' || owner FROM (
    SELECT DISTINCT owner, run_serial, job_id FROM {schema}.steps
) AS owners
WHERE (
    run_serial IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE serial = owners.run_serial)
) OR (
    job_id IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = owners.job_id)
)
UNION ALL
SELECT 'failures of job ' || job_id FROM (SELECT DISTINCT job_id FROM {schema}.failures) AS failed
WHERE NOT EXISTS (SELECT 1 FROM {schema}.jobs WHERE id = failed.job_id)
LIMIT 100
"""


class PostgresInside:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._schema = f'"{store._address.schema}"'

    @staticmethod
    def of(store: Store) -> PostgresInside:
        assert isinstance(store, PostgresStore)
        return PostgresInside(store)

    async def details(self, namespace: str, run: RunId) -> Details:
        lanes = await self._rows(_LANES, run, namespace)
        held = await self._rows(_HELD, run, namespace)
        return Details(lanes=dict(lanes), held=frozenset(key for (key,) in held))

    async def strays(self) -> list[str]:
        found = await self._store._scan(_STRAYS.format(schema=self._schema))
        return [text for (text,) in found]

    async def _rows(self, text: str, *values: str) -> list[Any]:
        statement = text.format(schema=self._schema)
        return await self._store._connections.fetch(statement, *values)
