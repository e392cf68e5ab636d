"""Ids of chaos runs: they say what the run is, so that clients and the verdict know its input."""

from __future__ import annotations

from perdure.model.value import Value

_APART = "."


class Named(Value):
    flow: str
    number: int
    """Its input."""


def run_name(flow: str, number: int, unique: str) -> str:
    return _APART.join([flow, str(number), unique])


def named(id: str) -> Named | None:
    """What an id says; None if no client chose it, as with children and ticks."""
    parts = id.split(_APART)
    if "/" in id or "@" in id or len(parts) < 3 or not parts[1].isdigit():
        return None
    return Named(flow=parts[0], number=int(parts[1]))
