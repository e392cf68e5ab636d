"""Who acts in a simulation: processes with threads, each with a queue of what it does next.

What belongs to whom is told by the context that every callback carries, so one event loop can be
many: each thread takes its callbacks in their order, as asyncio promises, while the seed decides
whose turn it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field


@dataclass(slots=True)
class Process:
    """What lives and dies together, and has one clock, which may be wrong."""

    name: str
    rate: float = 1.0
    """How fast its monotonic clock runs."""
    offset: float = 0.0
    wall_offset: float = 0.0
    """By how many seconds its wall clock is wrong."""
    is_dead: bool = False
    dies_after: int | None = None
    """Callbacks until it dies, in the middle of whatever it does."""
    actors: list[Actor] = field(default_factory=list)
    """Its threads."""

    def local(self, now: float) -> float:
        return self.offset + now * self.rate

    def true(self, local: float) -> float:
        return (local - self.offset) / self.rate


class Actor:
    """One thread of a process."""

    __slots__ = ("buried", "frozen_until", "name", "pace", "process", "ready")

    def __init__(self, process: Process, name: str = "") -> None:
        self.process = process
        self.name = f"{process.name}.{name}" if name else process.name
        self.frozen_until = 0.0
        self.pace = 0.0
        """Seconds that one callback takes at most; most take no time at all."""
        self.ready: deque[asyncio.Handle] = deque()
        self.buried: list[asyncio.Handle] = []
        """What a dead one was about to do. Kept, or the ends of its coroutines would run."""
        process.actors.append(self)

    def context(self) -> Context:
        """A context of its own: what is started in it belongs to this actor."""
        context = copy_context()
        context.run(ACTING.set, self)
        return context


ACTING: ContextVar[Actor] = ContextVar("acting")
