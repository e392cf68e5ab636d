"""Small parts of a simulation, for tests."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from perdure.store.memory.state import MemoryState
from proof.simulate.loop import Actor, Process, SimulatedLoop, Trace, moment
from proof.simulate.network import FaultProfile, Network, Watcher
from proof.simulate.world import SimulatedStore


class Seen:
    """Records the calls that reached the store."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def sees(self, name: str) -> None:
        """Compares nothing."""

    def saw(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        self.names.append(name)

    def received(self, name: str, answer: Any) -> None:
        """Expects nothing."""


def actor(name: str, **details: Any) -> Actor:
    return Actor(Process(name, **details))


def spawn(loop: SimulatedLoop, who: Actor, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return who.context().run(loop.create_task, coroutine)


def store_on(
    loop: SimulatedLoop, faults: FaultProfile, seen: Watcher, state: MemoryState | None = None
) -> SimulatedStore:
    network = Network(actor("someone"), faults, loop, Trace(loop), seen)
    return SimulatedStore(state or MemoryState(), lambda: moment(loop.now), network)
