"""The store contract on memory, SQLite and PostgreSQL."""

from __future__ import annotations

from perdure.testing.contract.suite import *  # noqa: F403
