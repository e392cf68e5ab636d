"""An event loop on which time is simulated, and the seed decides whose turn it is.

When nobody has anything to do, the time jumps to the next timer. There are no threads, no sockets
and no real sleep.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from itertools import count
from typing import Any

from proof.simulate.actors import ACTING, Actor, Process

STEPS_AT_ONE_TIME_MAX = 200_000
LATE = 1e-9
"""A timer is never early, whatever rounding makes of skewed clocks."""
THREAD_SECONDS = 0.002
"""What is handed to a thread comes back within so long."""


class NothingLeft(Exception):
    """Somebody waits, and nothing will ever happen."""


class TimeStandsStill(Exception):
    """Callbacks follow on callbacks without end."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one callback of one actor at a time."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self.seed = seed
        self.now = 0.0
        self.steps = 0
        self.home = Actor(Process("world"))
        self.in_thread = False
        """Whether what runs just now would run in a thread that may block."""
        self.alone: Actor | None = None
        """Nobody else gets a turn, and no time passes, while one is alone."""
        self._draw = random.Random(f"turns of {seed}")
        self._order = count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._busy: dict[Actor, None] = {}
        self._steps_now = 0

    # What asyncio asks of a loop

    def time(self) -> float:
        return ACTING.get(self.home).process.local(self.now)

    def call_at(  # type: ignore[override]  # how its arguments are typed differs by version
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        true = ACTING.get(self.home).process.true(when) + LATE
        heapq.heappush(self._timers, (true, next(self._order), timer))
        return timer

    def run_in_executor(  # type: ignore[override]  # the same
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do it later, and at once: a thread takes its time to start."""
        future = self.create_future()
        self.call_later(self._draw.random() * THREAD_SECONDS, self._in_thread, future, func, args)
        return future

    def _in_thread(
        self, future: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if future.cancelled():
            return
        self.in_thread = True
        try:
            result = func(*args)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            self.in_thread = False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are passed over when their time comes."""

    def _write_to_self(self) -> None:
        """Nobody has to be woken: there is one thread."""

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    # Whose turn it is

    def _run_once(self) -> None:
        self._sort()
        actor = self.alone or self._next()
        handle = actor.ready.popleft()
        if not actor.ready:
            del self._busy[actor]
        if handle.cancelled():
            return
        self.steps += 1
        self._steps_now += 1
        if self._steps_now > STEPS_AT_ONE_TIME_MAX:
            raise TimeStandsStill(f"{actor.name} does not come to rest: {handle!r}")
        handle._run()
        if actor.pace:
            actor.frozen_until = max(
                actor.frozen_until, self.now + self._draw.random() * actor.pace
            )
        if actor.process.dies_after is not None:
            actor.process.dies_after -= 1
            if actor.process.dies_after <= 0:
                self.kill(actor.process)

    def _next(self) -> Actor:
        able = [actor for actor in self._busy if actor.frozen_until <= self.now]
        while not able:
            self._pass_time()
            able = [actor for actor in self._busy if actor.frozen_until <= self.now]
        return able[0] if len(able) == 1 else able[int(self._draw.random() * len(able))]

    def _sort(self) -> None:
        """Hand what became ready to those whose it is."""
        while self._timers and self._timers[0][0] <= self.now:
            self._hand(heapq.heappop(self._timers)[2])
        ready = self._ready  # type: ignore[attr-defined]  # where call_soon puts it
        while ready:
            self._hand(ready.popleft())

    def _hand(self, handle: asyncio.Handle) -> None:
        actor = handle._context.get(ACTING, self.home)  # type: ignore[attr-defined]
        if actor.process.is_dead:
            actor.buried.append(handle)
        else:
            actor.ready.append(handle)
            self._busy[actor] = None

    def _pass_time(self) -> None:
        """Let the time pass until somebody has something to do."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        times = [actor.frozen_until for actor in self._busy]
        if self._timers:
            times.append(self._timers[0][0])
        if not times:
            raise NothingLeft("somebody waits for what never comes")
        self.now = max(self.now, min(times))
        self._steps_now = 0
        self._sort()

    def kill(self, process: Process) -> None:
        """Let a process do nothing more: what it was about to do is kept aside, and never done."""
        process.is_dead = True
        for actor in [actor for actor in self._busy if actor.process is process]:
            actor.buried += actor.ready
            actor.ready.clear()
            del self._busy[actor]

    def bury(self) -> None:
        """End what never ended, and close: nothing of it is left for whoever comes next."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            with suppress(BaseException):  # its end may do anything, and nobody is there
                coroutine.close()
        self.close()
