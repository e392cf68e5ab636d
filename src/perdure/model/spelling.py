"""How an error spells what somebody passed in, which may be anything."""

from __future__ import annotations

from typing import Any

SPELLED_MAX = 300


def spelled(value: Any) -> str:
    """As Python writes it, shortened; its type where that cannot be told."""
    try:
        text = repr(value)
    except Exception:  # nested too deep, or a class of the caller's that fails at it
        return f"<{type(value).__name__}>"
    if len(text) <= SPELLED_MAX:
        return text
    half = SPELLED_MAX // 2 - 2
    return f"{text[:half]}...{text[-half:]}"
