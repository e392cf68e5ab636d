"""The raw cost on PostgreSQL: the same rows, claimed and acknowledged with plain asyncpg.

No features: one table, its primary key and the index that a queue needs; no fencing, no leases.
"""

from __future__ import annotations

import sys
import time

import asyncpg

SCHEMA = """
DROP TABLE IF EXISTS raw_jobs;
CREATE TABLE raw_jobs (
    id text COLLATE "C" PRIMARY KEY,
    queue text NOT NULL,
    task text NOT NULL,
    status text NOT NULL,
    rank double precision NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    worker text,
    input bytea NOT NULL,
    output bytea
);
CREATE INDEX raw_waiting ON raw_jobs (queue, rank, id) WHERE status = 'waiting';
"""
INSERT = """
INSERT INTO raw_jobs (id, queue, task, status, rank, input)
SELECT id, 'default', 'noop', 'waiting', extract(epoch FROM now()), input
FROM unnest($1::text[], $2::bytea[]) AS new (id, input)
"""
CLAIM = """
UPDATE raw_jobs SET status = 'active', worker = 'raw'
WHERE id IN (
    SELECT id FROM raw_jobs
    WHERE queue = 'default' AND status = 'waiting'
    ORDER BY rank, id
    LIMIT 100
    FOR UPDATE SKIP LOCKED
)
RETURNING id, input
"""
ACK = """
UPDATE raw_jobs SET status = 'completed', finished_at = now(), output = done.output
FROM unnest($1::text[], $2::bytea[]) AS done (id, output)
WHERE raw_jobs.id = done.id
"""


def rows(count: int) -> tuple[list[str], list[bytes]]:
    base = time.time_ns()
    return [f"{base + n:026d}" for n in range(count)], [b"[[%d],{}]" % n for n in range(count)]


async def insert_one_by_one(url: str, count: int) -> float:
    """Inserts per second, one row per statement."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(SCHEMA)
        ids, inputs = rows(count)
        await connection.execute(INSERT, ["0"], [b"0"])
        began = time.perf_counter()
        for id, input in zip(ids, inputs, strict=True):
            await connection.execute(INSERT, [id], [input])
        return count / (time.perf_counter() - began)
    finally:
        await connection.close()


async def insert_bulk(url: str, count: int) -> float:
    """Rows per second, all in one statement."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(SCHEMA)
        ids, inputs = rows(count)
        began = time.perf_counter()
        await connection.execute(INSERT, ids, inputs)
        return count / (time.perf_counter() - began)
    finally:
        await connection.close()


async def drain(url: str) -> int:
    """Claim and acknowledge in batches of 100 until nothing is left."""
    connection = await asyncpg.connect(url)
    done = 0
    try:
        while claimed := await connection.fetch(CLAIM):
            await connection.execute(ACK, [row[0] for row in claimed], [row[1] for row in claimed])
            done += len(claimed)
        return done
    finally:
        await connection.close()


if __name__ == "__main__":
    import asyncio

    print("started", flush=True)
    sys.stdin.readline()
    print(asyncio.run(drain(sys.argv[1])), flush=True)
