"""The raw cost on SQLite: the same rows, claimed and acknowledged with plain sqlite3."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from bench.raw_postgres import rows

SCHEMA = """
CREATE TABLE IF NOT EXISTS raw_jobs (
    id TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    status TEXT NOT NULL,
    rank REAL NOT NULL,
    created_at REAL NOT NULL,
    finished_at REAL,
    worker TEXT,
    input BLOB NOT NULL,
    output BLOB
);
CREATE INDEX IF NOT EXISTS raw_waiting ON raw_jobs (queue, rank, id) WHERE status = 'waiting';
"""
INSERT = "INSERT INTO raw_jobs VALUES (?, 'default', 'noop', 'waiting', ?, ?, NULL, NULL, ?, NULL)"
CLAIM = """
UPDATE raw_jobs SET status = 'active', worker = 'raw'
WHERE id IN (
    SELECT id FROM raw_jobs
    WHERE queue = 'default' AND status = 'waiting'
    ORDER BY rank, id LIMIT 100
)
RETURNING id, input
"""
ACK = "UPDATE raw_jobs SET status = 'completed', finished_at = ?, output = ? WHERE id = ?"


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.executescript(SCHEMA)
    return connection


def insert_one_by_one(path: Path, count: int) -> float:
    connection = connect(path)
    ids, inputs = rows(count)
    began = time.perf_counter()
    for id, input in zip(ids, inputs, strict=True):
        now = time.time()
        connection.execute(INSERT, (id, now, now, input))
    rate = count / (time.perf_counter() - began)
    connection.close()
    return rate


def insert_bulk(path: Path, count: int) -> float:
    connection = connect(path)
    ids, inputs = rows(count)
    began = time.perf_counter()
    now = time.time()
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        INSERT, [(i, now, now, data) for i, data in zip(ids, inputs, strict=True)]
    )
    connection.execute("COMMIT")
    rate = count / (time.perf_counter() - began)
    connection.close()
    return rate


def drain(path: Path) -> float:
    """Jobs per second, claimed and acknowledged in batches of 100."""
    connection = connect(path)
    began = time.perf_counter()
    done = 0
    while claimed := connection.execute(CLAIM).fetchall():
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(ACK, [(time.time(), input, id) for id, input in claimed])
        connection.execute("COMMIT")
        done += len(claimed)
    rate = done / (time.perf_counter() - began)
    connection.close()
    return rate
