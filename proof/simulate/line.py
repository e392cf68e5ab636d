"""The line between one process and the store, with everything that lines do to calls.

It keeps the promise of the contract as a backend does that can lose its connection: what got lost
is tried again, with growing delays, and no write counts twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from perdure.errors import StoreError
from perdure.model.hint import Hint
from perdure.store.memory.state import State
from perdure.store.wakeups import Listener
from proof.simulate.actors import Actor, Process
from proof.simulate.loop import SimulatedLoop
from proof.simulate.repeats import is_undone_without_caller, repeated
from proof.simulate.trace import Trace
from proof.simulate.weather import Weather
from proof.simulate.worker_parts import at_once

RETRY_FIRST, RETRY_MAX = 0.05, 2.0
CARRIED_OUT_ANYWAY = 0.3
"""How often the server goes on with a statement whose caller has left."""
LATE_SECONDS_MAX = 10.0

Carry = Callable[[], Coroutine[Any, Any, Any]]


class Watcher(Protocol):
    """Who sees every call that reached the store, right before and after it is carried out."""

    def sees(self, name: str) -> None: ...

    def saw(self, name: str, args: tuple[Any, ...], answer: Any) -> None: ...


@dataclass(slots=True)
class Call:
    """One call to the store, however often it is tried."""

    state: State
    name: str
    args: tuple[Any, ...]
    carry: Carry
    is_repeated: bool = False
    is_answered: bool = False
    """Whether who sent it has an answer."""
    first: Any = None
    """What the store answered when it was carried out, if it was."""


class Line:
    """What all handles of one process share."""

    def __init__(
        self, actor: Actor, weather: Weather, loop: SimulatedLoop, trace: Trace, watcher: Watcher
    ) -> None:
        self._actor = actor
        self._wire = Actor(Process(f"{actor.name}~"))
        """What is on its way: it outlives who has sent it."""
        self._weather = weather
        self._loop = loop
        self._trace = trace
        self._watcher = watcher
        self._draw = random.Random(f"{loop.seed} line of {actor.name}")

    async def call(self, state: State, name: str, args: tuple[Any, ...], carry: Carry) -> Any:
        if self._loop.in_thread:  # where nothing can be waited for
            return _given(self._carried_out(name, args, carry))
        call = Call(state, name, args, carry)
        for delay in _growing_delays(self._draw):
            fate = self._draw.random()
            if self._weather.out_until > self._loop.now:
                await asyncio.sleep(self._weather.out_until - self._loop.now)
            weather = self._weather
            if fate < weather.refused:
                await self._travel_back()
                self._trace(f"{name}: refused")
                raise StoreError(f"the simulated store refused {name}, and nothing was written")
            fate -= weather.refused
            if fate < weather.lost_before:
                self._lose(call)
            else:
                answer = await self._answer(call)
                if fate - weather.lost_before >= weather.lost_after:
                    call.is_answered = True
                    await self._travel_back()
                    return _given(answer)
                self._trace(f"{name}: lost on the way back")
            call.is_repeated = True
            if weather.silence:
                await asyncio.sleep(self._draw.random() * weather.silence)
            if weather.given_up and self._draw.random() < weather.given_up:
                self._trace(f"{name}: given up")
                raise StoreError(f"nobody knows what the simulated store has done of {name}")
            await asyncio.sleep(delay)
        raise AssertionError("delays never end")

    def hear(self, listener: Listener) -> Listener:
        """The listener of a process, which hints reach late, twice, without names, or never."""
        context = copy_context()

        def hear(hint: Hint) -> None:
            weather, draw = self._weather, self._draw
            if self._actor.process.is_dead or draw.random() < weather.hint_lost:
                return
            if hint.names and draw.random() < weather.hint_unnamed:
                hint = Hint(kind=hint.kind)
            times = 2 if draw.random() < weather.hint_twice else 1
            for _ in range(times):
                delay = draw.random() * weather.hint_delay
                self._loop.call_later(delay, listener, hint, context=context)

        return hear

    def _lose(self, call: Call) -> None:
        """Let it never arrive, or long after it was given up or tried again."""
        weather, draw = self._weather, self._draw
        if draw.random() >= weather.late:
            self._trace(f"{call.name}: lost on the way there")
            return
        self._trace(f"{call.name}: on its way for long")

        def arrive() -> None:
            if not weather.late:  # it is calm: what is not there by now got lost
                return
            if call.is_answered and is_undone_without_caller(call.name, call.args):
                self._trace(f"{call.name}: undone")
                return
            self._trace(f"{call.name}: arrives late")
            call.first = self._carried_out(call.name, call.args, call.carry)

        self._send(draw.random() ** 3 * LATE_SECONDS_MAX, arrive)

    async def _answer(self, call: Call) -> Any:
        """What the store answers. Once sent it arrives, whatever becomes of who has sent it."""
        if not self._weather.latency:
            return self._arrived(call)
        answered: asyncio.Future[Any] = self._loop.create_future()

        def arrive() -> None:
            answer = self._arrived(call)
            if not answered.done():
                answered.set_result(answer)

        sent = self._send(self._draw.random() * self._weather.latency, arrive)
        try:
            return await answered
        except asyncio.CancelledError:
            if self._draw.random() < CARRIED_OUT_ANYWAY:
                self._trace(f"{call.name}: cancelled, and carried out all the same")
            else:
                sent.cancel()
            raise

    def _send(self, seconds: float, arrive: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, arrive, context=self._wire.context())

    async def _travel_back(self) -> None:
        if self._weather.latency:
            await asyncio.sleep(self._draw.random() * self._weather.latency)

    def _arrived(self, call: Call) -> Any:
        carried_out = partial(self._carried_out, call.name, call.args, call.carry)
        if call.is_repeated:
            self._trace(f"{call.name}: once more")
            call.first = repeated(call.state, call.name, call.args, call.first, carried_out)
        else:
            call.first = carried_out()
        return call.first

    def _carried_out(self, name: str, args: tuple[Any, ...], carry: Carry) -> Any:
        """The answer of the store, or the error that it is."""
        self._watcher.sees(name)
        try:
            answer = at_once(carry())
        except Exception as error:
            answer = error
        self._watcher.saw(name, args, answer)
        return answer


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _growing_delays(draw: random.Random) -> Iterator[float]:
    delay = RETRY_FIRST
    while True:
        yield delay * draw.uniform(0.5, 1)
        delay = min(delay * 2, RETRY_MAX)
