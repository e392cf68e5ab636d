"""What a worker may do for its namespace, one at a time: a duty a file, in bounded batches."""

from __future__ import annotations

BATCH = 1000
"""Rows that one statement of a duty may touch."""
