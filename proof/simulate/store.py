"""The store of a simulation: that in memory, at the other end of a line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from perdure.clock import Clock
from perdure.store.contract import Store
from perdure.store.memory.state import State
from perdure.store.memory.store import MemoryStore
from perdure.store.wakeups import Kinds, Listener
from proof.simulate.line import Line

URL = "memory://"


class SimulatedStore(MemoryStore):
    """A handle of one process: every call goes over its line."""

    def __init__(self, state: State, clock: Clock, line: Line) -> None:
        super().__init__(URL, clock)
        self._state = state
        self._line = line

    def twin(self) -> SimulatedStore:
        return SimulatedStore(self._state, self._clock, self._line)

    def subscribe(self, listener: Listener, kinds: Kinds = None) -> Callable[[], None]:
        return super().subscribe(self._line.hear(listener), kinds)


def _sent(name: str) -> Callable[..., Any]:
    """A method of the contract, as a call over the line."""

    async def call(self: SimulatedStore, *args: Any, **kwargs: Any) -> Any:
        carry = partial(getattr(MemoryStore, name), self, *args, **kwargs)
        return await self._line.call(self._state, name, args, carry)

    return call


# All of them, whichever the contract has: what opens and closes a handle goes over no line.
for _name in sorted(Store.__abstractmethods__ - {"open", "close"}):
    if inspect.iscoroutinefunction(getattr(MemoryStore, _name)):
        setattr(SimulatedStore, _name, _sent(_name))
