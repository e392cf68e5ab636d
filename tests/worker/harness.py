"""Workers on the test's own event loop, and events to wait for instead of sleeping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from perdure import Worker
from perdure.worker.events import JobEvent, WorkerEvent, WorkerStarted

WAIT_SECONDS = 15.0
"""How long a test waits for what should happen at once, on a machine that is busy."""

E = TypeVar("E", bound=WorkerEvent)


class Running:
    """A worker at work, and all events it has emitted."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.events: list[WorkerEvent] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        worker.on(WorkerEvent, self._hear)

    @property
    def id(self) -> str:
        return self.worker.id

    async def start(self) -> Running:
        self._serving = asyncio.create_task(self.worker.serve())
        waiting = asyncio.create_task(self.emitted(WorkerStarted))
        await asyncio.wait([self._serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        if self._serving.done():
            waiting.cancel()
            await self._serving
        return self

    async def stop(self, grace: float = 0) -> None:
        """Ask it to stop and wait until it has; raises what ended it badly."""
        if self._serving is not None:
            self.worker.shutdown(grace)
            await self.stopped()

    async def stopped(self) -> None:
        assert self._serving is not None
        await asyncio.wait_for(asyncio.shield(self._serving), WAIT_SECONDS)

    def all(self, found_type: type[E], job_id: str | None = None) -> list[E]:
        """Its events of this type, of any job or of one."""
        return [
            event
            for event in self.events
            if isinstance(event, found_type)
            and (job_id is None or (isinstance(event, JobEvent) and event.job_id == job_id))
        ]

    async def emitted(self, found_type: type[E], job_id: str | None = None, count: int = 1) -> E:
        """Wait for ``count`` events of this type; return the last one."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(found := self.all(found_type, job_id)) < count:
                self._news.clear()
                await self._news.wait()
        return found[count - 1]

    def _hear(self, event: WorkerEvent) -> None:
        self._loop.call_soon_threadsafe(self._note, event)

    def _note(self, event: WorkerEvent) -> None:
        self.events.append(event)
        self._news.set()


class Gate:
    """A point where a body stops, and signals its arrival, until the test lets it continue."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._came = asyncio.Event()
        self._left = asyncio.Event()
        self._opened = threading.Event()
        self._opened_here = asyncio.Event()
        self.visits = 0

    async def pass_through(self) -> None:
        """For async bodies on the test's event loop."""
        self._note()
        await self._opened_here.wait()

    def pass_in_thread(self) -> None:
        """For sync bodies. Gives up in the end, so that no thread outlives the test run."""
        self._loop.call_soon_threadsafe(self._note)
        self._opened.wait(WAIT_SECONDS)

    def leave(self) -> None:
        """For bodies whose end nothing else signals; from any thread."""
        self._loop.call_soon_threadsafe(self._left.set)

    async def left(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await self._left.wait()

    async def reached(self, visits: int = 1) -> None:
        """Wait until so many bodies came to the gate."""
        async with asyncio.timeout(WAIT_SECONDS):
            while self.visits < visits:
                self._came.clear()
                await self._came.wait()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def open(self) -> None:
        self._opened.set()
        self._opened_here.set()

    def _note(self) -> None:
        self.visits += 1
        self._came.set()


class Peak:
    """How many were inside at once, and the most there ever were."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0

    def __enter__(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        self.inside -= 1


async def stress_start_stop(make: Callable[[], Worker], *, rounds: int = 5, side: int = 3) -> None:
    """Start and stop workers over and over, several side by side, each stop a little later."""

    async def one(number: int) -> None:
        for round_ in range(rounds):
            serving = asyncio.create_task((worker := make()).serve())
            await asyncio.sleep(0.004 * round_ * number)
            worker.shutdown(0)
            await soon(serving)

    await asyncio.gather(*(one(number) for number in range(side)))


async def soon(awaitable: Any) -> Any:
    """Wait for what should happen at once."""
    return await asyncio.wait_for(awaitable, WAIT_SECONDS)


async def until(ask: Callable[[], Awaitable[Any]], expected: Any = True) -> None:
    """Ask again and again until the answer is the expected one, for what no event tells."""
    async with asyncio.timeout(WAIT_SECONDS):
        while await ask() != expected:  # noqa: ASYNC110 (nothing would set an event)
            await asyncio.sleep(0.02)
