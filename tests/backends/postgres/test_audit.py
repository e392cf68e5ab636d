"""What the verifier reads of tables that somebody has tampered with."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from perdure.store.contract.audit import SharedFingerprint
from perdure.store.postgres.store import PostgresStore
from tests.conformance.builders import NAMESPACE, PARTITION, insert


async def test_finds_fingerprints_that_several_jobs_share(bare_postgres_url):
    store = PostgresStore(bare_postgres_url)
    await store.open()
    for fingerprint in ("one", "two", "three"):
        await insert(store, fingerprint=fingerprint)
    parts = urlsplit(bare_postgres_url)
    [schema] = parse_qs(parts.query)["schema"]
    connection = await asyncpg.connect(urlunsplit(parts._replace(query="")))
    await connection.execute(f'DROP INDEX "{schema}".jobs_fingerprint')
    await connection.execute(
        f"UPDATE \"{schema}\".jobs SET fingerprint = 'same' WHERE fingerprint <> 'one'"
    )
    await connection.close()

    found = await store.audit.shared_fingerprints(NAMESPACE)

    assert found == [
        SharedFingerprint(namespace=NAMESPACE, queue=PARTITION.queue, fingerprint="same", count=2)
    ]
    assert await store.audit.shared_fingerprints("nobody's") == []
    await store.close()
