"""The event loop of a history: simulated time, actors and their clocks, and a trace.

Each process and each thread in it is an actor. The seed decides which actor runs next; within one
thread callbacks keep their order, as asyncio promises.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import count
from typing import Any

from perdure import clock
from perdure.worker import service
from perdure.worker.lease_renewal import STOP_SECONDS, LeaseRenewer
from perdure.worker.steps import AttemptSteps


@dataclass(slots=True)
class Process:
    """A unit of crashes, with one clock, which may be wrong."""

    name: str
    rate: float = 1.0
    """The speed of its monotonic clock."""
    offset: float = 0.0
    wall_offset: float = 0.0
    """The error of its wall clock in seconds."""
    is_dead: bool = False
    dies_after: int | None = None
    """Callbacks until it dies, in the middle of its work."""
    actors: list[Actor] = field(default_factory=list)
    """Its threads."""

    def local(self, now: float) -> float:
        return self.offset + now * self.rate

    def true(self, local: float) -> float:
        return (local - self.offset) / self.rate


class Actor:
    """One thread of a process."""

    __slots__ = ("discarded", "frozen_until", "name", "pace", "process", "ready")

    def __init__(self, process: Process, name: str = "") -> None:
        self.process = process
        self.name = f"{process.name}.{name}" if name else process.name
        self.frozen_until = 0.0
        self.pace = 0.0
        """Maximum seconds of one callback; most take no time."""
        self.ready: deque[asyncio.Handle] = deque()
        self.discarded: list[asyncio.Handle] = []
        """Pending handles of a dead actor. Kept, because dropping them would finalize their
        coroutines.
        """
        process.actors.append(self)

    def context(self) -> Context:
        """A separate context: tasks started in it belong to this actor."""
        context = copy_context()
        context.run(CURRENT_ACTOR.set, self)
        return context


CURRENT_ACTOR: ContextVar[Actor] = ContextVar("acting")


STEPS_AT_ONE_TIME_MAX = 200_000
LATE = 1e-9
"""A timer never fires early, despite rounding of skewed clocks."""
THREAD_SECONDS = 0.002
"""Maximum latency of a thread."""


class NothingLeft(Exception):
    """A task waits, and nothing will ever happen."""


class TimeStandsStill(Exception):
    """Callbacks schedule callbacks endlessly."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one callback of one actor at a time."""

    def __init__(self, seed: str) -> None:
        super().__init__()
        self.seed = seed
        self.now = 0.0
        self.steps = 0
        self.home = Actor(Process("world"))
        self.in_thread = False
        """Whether the current callback runs in a thread that may block."""
        self.alone: Actor | None = None
        """While an actor is alone, no other runs, and no time passes."""
        self._draw = random.Random(f"turns of {seed}")
        self._order = count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._busy: dict[Actor, None] = {}
        self._steps_now = 0

    # The interface that asyncio requires of a loop.

    def time(self) -> float:
        return CURRENT_ACTOR.get(self.home).process.local(self.now)

    def call_at(  # type: ignore[override]  # how its arguments are typed differs by version
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        true = CURRENT_ACTOR.get(self.home).process.true(when) + LATE
        heapq.heappush(self._timers, (true, next(self._order), timer))
        return timer

    def run_in_executor(  # type: ignore[override]  # the same
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it later, in one piece: a thread takes time to start."""
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
        """Nothing: canceled timers are skipped when they fire."""

    def _write_to_self(self) -> None:
        """Nothing: there is only one thread."""

    def _process_events(self, event_list: Any) -> None:
        """Nothing: there are no events."""

    # Scheduling.

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
            raise TimeStandsStill(f"{actor.name} does not become idle: {handle!r}")
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
        """Assign ready handles to their actors."""
        while self._timers and self._timers[0][0] <= self.now:
            self._hand(heapq.heappop(self._timers)[2])
        ready = self._ready  # type: ignore[attr-defined]  # where call_soon puts it
        while ready:
            self._hand(ready.popleft())

    def _hand(self, handle: asyncio.Handle) -> None:
        actor = handle._context.get(CURRENT_ACTOR, self.home)  # type: ignore[attr-defined]
        if actor.process.is_dead:
            actor.discarded.append(handle)
        else:
            actor.ready.append(handle)
            self._busy[actor] = None

    def _pass_time(self) -> None:
        """Advance the time until an actor is ready."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        times = [actor.frozen_until for actor in self._busy]
        if self._timers:
            times.append(self._timers[0][0])
        if not times:
            raise NothingLeft("deadlock: a task waits and nothing is scheduled")
        self.now = max(self.now, min(times))
        self._steps_now = 0
        self._sort()

    def kill(self, process: Process) -> None:
        """Kill a process: its pending handles are set aside, and never run."""
        process.is_dead = True
        for actor in [actor for actor in self._busy if actor.process is process]:
            actor.discarded += actor.ready
            actor.ready.clear()
            del self._busy[actor]

    def finalize(self) -> None:
        """Finalize everything left, and close, so that nothing leaks into the next history."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            with suppress(BaseException):  # a finalizer may raise anything
                coroutine.close()
        self.close()


BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    return BEGINNING + timedelta(seconds=seconds)


class _Time:
    """The part of ``time`` that ``perdure.clock`` uses, on the current actor's clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def time_ns(self) -> int:
        return int(self.wall().timestamp() * 1e9)

    def wall(self) -> datetime:
        loop = self._loop
        return moment(loop.now + CURRENT_ACTOR.get(loop.home).process.wall_offset)


class _Datetime:
    """The part of ``datetime`` that it uses."""

    def __init__(self, time: _Time) -> None:
        self._time = time

    def now(self, timezone: tzinfo) -> datetime:
        return self._time.wall().astimezone(timezone)


class _Os:
    """The part of ``os`` that it uses."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def urandom(self, size: int) -> bytes:
        return self._draw.randbytes(size)


@contextmanager
def simulated_clock(loop: SimulatedLoop, seed: str) -> Iterator[None]:
    """Take time, ids and randomness from the simulation within the block."""
    time = _Time(loop)
    chance = random.getstate()
    ids: Any = clock.new_id.__self__  # type: ignore[attr-defined]  # it is a method
    names: dict[str, Any] = {
        "time": time,
        "datetime": _Datetime(time),
        "os": _Os(random.Random(f"ids of {seed}")),
    }
    before = {name: getattr(clock, name) for name in names}
    _replace(names)
    ids.__init__()  # otherwise they would continue those of the last simulation
    random.seed(f"chance of {seed}")
    try:
        yield
    finally:
        _replace(before)
        ids.__init__()
        random.setstate(chance)


def _replace(names: dict[str, Any]) -> None:
    for name, value in names.items():
        setattr(clock, name, value)


class Trace:
    """Hashes all lines, and prints them if requested."""

    def __init__(self, loop: SimulatedLoop, show: Callable[[str], None] | None = None) -> None:
        self._loop = loop
        self._show = show
        self._hash = hashlib.blake2b(digest_size=16)

    def __call__(self, what: str) -> None:
        actor = CURRENT_ACTOR.get(self._loop.home).name
        line = f"{self._loop.now:12.6f}  {actor:<12}  {what}"
        self._hash.update(line.encode())
        if self._show is not None:
            self._show(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class LeaseRenewerOnLoop(LeaseRenewer):
    """The renewer with its thread as a separate actor, which may freeze independently."""

    def start(self) -> None:
        renewer = Actor(CURRENT_ACTOR.get().process, "leases")
        task = asyncio.get_running_loop().create_task
        self._renewing = renewer.context().run(task, self._renew_until_stopped())

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.wait([self._renewing], timeout=STOP_SECONDS)
        if not self._renewing.done():
            self._renewing.cancel()
            await asyncio.wait([self._renewing])


def at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that never waits, but may yield."""
    try:
        while coroutine.send(None) is None:
            pass
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise AssertionError(f"{coroutine!r} waits, where nothing can be waited for")


def _wait(self: AttemptSteps, coroutine: Coroutine[Any, Any, Any]) -> Any:
    return at_once(coroutine)


@contextmanager
def threadless() -> Iterator[None]:
    """Run workers without threads within the block."""
    changes: list[tuple[Any, str, Any]] = [
        (service, "LeaseRenewer", LeaseRenewerOnLoop),
        (AttemptSteps, "wait", _wait),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
