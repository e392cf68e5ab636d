"""The store of a simulation: that in memory, at the other end of a line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from perdure.clock import Clock
from perdure.store.contract import PARTS
from perdure.store.memory.state import State
from perdure.store.memory.store import MemoryStore
from perdure.store.memory.transaction import Session
from perdure.store.wakeups import Kinds, Listener
from perdure.testing.wrapped_store import wrap_part
from proof.simulate.line import Line

URL = "memory://"


class SimulatedStore(MemoryStore):
    """A handle of one process: every call goes over its line."""

    def __init__(self, state: State, clock: Clock, line: Line) -> None:
        super().__init__(URL, session=Session(state, clock))
        self._line = line
        for name in PARTS:
            setattr(self, name, wrap_part(name, getattr(self, name), self._send))

    def clone(self) -> SimulatedStore:
        return SimulatedStore(self._session.state, self._session.clock, self._line)

    def subscribe(self, listener: Listener, kinds: Kinds = None) -> Callable[[], None]:
        return super().subscribe(self._line.hear(listener), kinds)

    async def now(self) -> datetime:
        moment: datetime = await self._send("now", super().now, (), {})
        return moment

    async def _send(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        carry = partial(method, *args, **kwargs)
        return await self._line.call(self._session.state, name, args, carry)
