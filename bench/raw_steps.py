"""The raw cost of one step: the same rows, an event, a run and a job, in one commit."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from statistics import median

import asyncpg

POSTGRES = """
DROP TABLE IF EXISTS raw_events, raw_runs, raw_node_jobs;
CREATE TABLE raw_events (
    run bigint, number integer, at timestamptz, data bytea, value bytea, PRIMARY KEY (run, number)
);
CREATE TABLE raw_runs (
    id bigint PRIMARY KEY, number integer, status text, updated_at timestamptz
) WITH (fillfactor = 50);
CREATE TABLE raw_node_jobs (
    id bigint PRIMARY KEY, partition text, node text, input bytea, started_at timestamptz
) WITH (fillfactor = 50);
"""
STEP = """
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::integer[], $3::bytea[], $4::bytea[])
        AS line (run, number, data, value)
),
events AS (
    INSERT INTO raw_events (run, number, at, data, value)
    SELECT run, number, now(), data, value FROM given
),
runs AS (
    UPDATE raw_runs SET number = given.number, updated_at = now()
    FROM given WHERE raw_runs.id = given.run
)
UPDATE raw_node_jobs SET node = 'step-' || given.number, input = given.value, started_at = now()
FROM given WHERE raw_node_jobs.id = given.run
"""
SQLITE = """
CREATE TABLE raw_events (
    run integer, number integer, at integer, data blob, value blob, PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE raw_runs (id integer PRIMARY KEY, number integer, status text, updated_at integer);
CREATE TABLE raw_node_jobs (id integer PRIMARY KEY, partition text, node text, input blob);
"""
DATA = b'{"type":"NodeCompleted","node":"step-12","then":{"started":["step-13"]}}'


async def step_ms_postgres(url: str, steps: int) -> float:
    """Milliseconds per commit, one after the other."""
    connection = await _prepared(url, 1)
    try:
        times = []
        for number in range(1, steps + 20):
            began = time.perf_counter()
            await connection.execute(STEP, [0], [number], [DATA], [b"12"])
            times.append((time.perf_counter() - began) * 1000)
        return median(times[20:])
    finally:
        await connection.close()


async def batched_steps_postgres(url: str, runs: int, length: int = 10) -> float:
    """Steps per second, with one commit for a step of every run."""
    connection = await _prepared(url, runs)
    try:
        ids = list(range(runs))
        await connection.execute(STEP, ids, [0] * runs, [DATA] * runs, [b"12"] * runs)
        began = time.perf_counter()
        for number in range(1, length + 1):
            await connection.execute(STEP, ids, [number] * runs, [DATA] * runs, [b"12"] * runs)
        return runs * length / (time.perf_counter() - began)
    finally:
        await connection.close()


async def _prepared(url: str, runs: int) -> asyncpg.Connection:
    connection = await asyncpg.connect(url)
    await connection.execute(POSTGRES)
    ids = [(number,) for number in range(runs)]
    await connection.executemany("INSERT INTO raw_runs VALUES ($1, 0, 'running', now())", ids)
    jobs = "INSERT INTO raw_node_jobs VALUES ($1, 'partition', 'step-0', '1', now())"
    await connection.executemany(jobs, ids)
    return connection


def steps_sqlite(path: Path, steps: int) -> float:
    """Steps per second, one commit each."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(SQLITE)
    connection.execute("INSERT INTO raw_runs VALUES (0, 0, 'running', 0)")
    connection.execute("INSERT INTO raw_node_jobs VALUES (0, 'partition', 'step-0', '1')")
    began = time.perf_counter()
    for number in range(1, steps + 1):
        connection.execute("BEGIN IMMEDIATE")
        row = (0, number, number, DATA, b"12")
        connection.execute("INSERT INTO raw_events VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("UPDATE raw_runs SET number = ?, updated_at = ? WHERE id = 0", row[1:3])
        move = "UPDATE raw_node_jobs SET node = ?, input = ? WHERE id = 0"
        connection.execute(move, (f"step-{number}", b"12"))
        connection.execute("COMMIT")
    rate = steps / (time.perf_counter() - began)
    connection.close()
    return rate
