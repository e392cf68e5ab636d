"""Secrets: named texts that only workers know, and that are never kept."""

from __future__ import annotations

VARIABLE_PREFIX = "PERDURE_SECRET_"
SECRET_LENGTH_MIN = 4
"""A shorter one would be masked in everything."""


def variable_of(name: str) -> str:
    """The environment variable that has a secret, unless the worker has a provider of its own."""
    return VARIABLE_PREFIX + name.upper().replace("-", "_")
