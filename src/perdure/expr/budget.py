"""The cost of evaluating conditions: counted, so that the same evaluation always costs the same.

One unit is a step of a pattern's automaton or a compared value, about half a microsecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, LongEvaluation

T = TypeVar("T")

COST_MAX = 3_000_000
"""One evaluation, with all its patterns and comparisons: a second or two, in a thread."""
LOOP_COST_MAX = 50_000
"""All evaluations of one decision on the event loop: some ten milliseconds."""
_JSON_BYTES_PER_UNIT = 500

TOO_COSTLY = declare(
    "condition.too_costly",
    "evaluating the condition takes too long (over {most} steps)",
    "Use fewer or simpler patterns, or compare shorter values",
)


class CostBudget:
    """What one evaluation may cost; raises ``InvalidInput`` beyond it.

    Within ``on_event_loop`` it raises ``LongEvaluation`` much earlier.
    """

    __slots__ = ("_left", "_loop", "built")

    def __init__(self) -> None:
        self._left = COST_MAX
        self.built: dict[str, object] = {}
        """The patterns that it has paid for, by ``expr.pattern``."""
        self._loop = _loop.get()

    def spend(self, cost: int) -> None:
        self._left -= cost
        if self._loop is not None:
            self._loop.spend(cost)
        if self._left < 0:
            raise InvalidInput(TOO_COSTLY.fault(most=COST_MAX))

    def spend_on_json(self, data: bytes) -> None:
        self.spend(1 + len(data) // _JSON_BYTES_PER_UNIT)


class _LoopBudget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = LOOP_COST_MAX

    def spend(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise LongEvaluation


_loop: ContextVar[_LoopBudget | None] = ContextVar("loop_budget", default=None)


class on_event_loop:
    """Raise ``LongEvaluation`` for evaluations that would block the event loop for too long.

    Every step of a run enters it, and a generator would cost more.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _loop.set(_LoopBudget())

    def __exit__(self, *_: object) -> None:
        _loop.reset(self._token)


def spend_on_loop(cost: int) -> None:
    """Charge work that has no limit here, or its own; only the event loop has one for it."""
    if (loop := _loop.get()) is not None:
        loop.spend(cost)


async def evaluate(decide: Callable[[], T]) -> T:
    """Call ``decide`` on the event loop, or again in a thread if its evaluations take long."""
    try:
        with on_event_loop():
            return decide()
    except LongEvaluation:
        return await asyncio.to_thread(decide)
