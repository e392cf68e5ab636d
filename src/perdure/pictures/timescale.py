"""Round times for the axis of a timeline, and spans in words."""

from __future__ import annotations

from datetime import timedelta

_STEPS = (
    *(mantissa * 10.0**power for power in range(-3, 1) for mantissa in (1, 2, 5)),
    *(10.0, 15.0, 30.0),
    *(60.0 * each for each in (1, 2, 5, 10, 15, 30)),
    *(3600.0 * each for each in (1, 2, 3, 6, 12)),
)
_DAY = 86_400.0


def ticks(span: timedelta, most: int) -> list[timedelta]:
    """Round times from the beginning on, at most so many."""
    seconds = span.total_seconds()
    step = next((each for each in _STEPS if seconds / each < most), None)
    if step is None:
        step = _DAY
        while seconds / step >= most:
            step *= 2
    return [timedelta(seconds=step * number) for number in range(int(seconds / step) + 1)]


def brief(span: timedelta) -> str:
    """A span in a few characters, with the digits that matter: ``350ms``, ``2.5s``, ``1h05m``."""
    seconds = span.total_seconds()
    if seconds < 0.0005:
        return "0s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    minutes = round(seconds / 60)
    if seconds < 3600 - 30:
        whole, rest = divmod(round(seconds), 60)
        return f"{whole}m{rest:02}s" if rest else f"{whole}m"
    if seconds < _DAY - 30:
        return f"{minutes // 60}h{minutes % 60:02}m" if minutes % 60 else f"{minutes // 60}h"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24}h" if hours % 24 else f"{hours // 24}d"
