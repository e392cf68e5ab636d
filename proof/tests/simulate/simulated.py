"""Small pieces of a simulation, to look at one by one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from perdure.store.memory.state import State
from proof.simulate.actors import Actor, Process
from proof.simulate.clocks import moment
from proof.simulate.line import Line, Watcher
from proof.simulate.loop import SimulatedLoop
from proof.simulate.store import SimulatedStore
from proof.simulate.trace import Trace
from proof.simulate.weather import Weather


class Seen:
    """Who sees what reached the store."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def sees(self, name: str) -> None:
        """Nothing is compared."""

    def saw(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        self.names.append(name)


def actor(name: str, **details: Any) -> Actor:
    return Actor(Process(name, **details))


def spawn(loop: SimulatedLoop, who: Actor, act: Coroutine[Any, Any, Any]) -> Any:
    return who.context().run(loop.create_task, act)


def store_on(
    loop: SimulatedLoop, weather: Weather, seen: Watcher, state: State | None = None
) -> SimulatedStore:
    line = Line(actor("someone"), weather, loop, Trace(loop), seen)
    return SimulatedStore(state or State(), lambda: moment(loop.now), line)
