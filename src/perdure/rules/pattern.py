"""Patterns from definitions, which may come over a network: found in texts, in bounded time."""

from __future__ import annotations

import re

PATTERN_MAX = 500
TEXT_MAX = 10_000


def pattern_fault(pattern: str) -> str:
    """Why the pattern cannot be used, or nothing."""
    if len(pattern) > PATTERN_MAX:
        return f"is a pattern of {len(pattern)} characters, more than the {PATTERN_MAX} allowed"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"is not a pattern: {error}"
    return ""


def is_found(pattern: str, text: str) -> bool:
    return len(text) <= TEXT_MAX and not pattern_fault(pattern) and bool(re.search(pattern, text))
