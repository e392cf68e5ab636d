"""Names of secrets, which only workers resolve and which are never stored."""

from __future__ import annotations

VARIABLE_PREFIX = "PERDURE_SECRET_"
SECRET_LENGTH_MIN = 4
"""Masking a shorter secret would mask unrelated text."""
UNQUOTED_IN_URLS = "%/:=&?~+!$,;'@()*[]"
"""Characters that ``http`` nodes do not quote in the path and query of a URL."""


def variable_of(name: str) -> str:
    """The environment variable of a secret, for workers without their own provider."""
    return VARIABLE_PREFIX + name.upper().replace("-", "_")
