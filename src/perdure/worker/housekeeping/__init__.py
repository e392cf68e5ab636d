"""What any worker may do for all, one at a time: a duty a file, each in bounded batches."""

from __future__ import annotations

BATCH = 1000
"""Rows that one statement of a duty may touch."""
