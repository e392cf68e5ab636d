"""Stores that processes share, and worker processes that end with the test."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncClient

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 20.0
"""How long a test waits for what should happen soon, on a machine that is busy."""


class WorkerProcess:
    """A worker in a process of its own, and the events that it has emitted so far."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.events_so_far: list[tuple[str, str | None]] = []
        self.errors = ""
        self._news = asyncio.Event()
        self._readers = [
            asyncio.create_task(self._read_events()),
            asyncio.create_task(self._read_errors()),
        ]

    @classmethod
    async def start(cls, url: str, **settings: Any) -> WorkerProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.crash.worker_script",
            url,
            json.dumps(settings),
            cwd=ROOT,
            stdout=PIPE,
            stderr=PIPE,
        )
        worker = cls(process)
        try:
            await worker.emitted("WorkerStarted")
        except BaseException:  # a test that is cancelled meanwhile leaves no worker on its store
            await worker.close()
            raise
        return worker

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        """As power cuts and the kernel do: without a word."""
        self.send(signal.SIGKILL)
        await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_SECONDS):
            code = await self._process.wait()
            await asyncio.wait(self._readers)
        return code

    async def close(self) -> None:
        if self._process.returncode is None:
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
        await self.ended()

    def count(self, event: str, job: str | None = None) -> int:
        return sum(
            type == event and job in (None, about) for type, about in list(self.events_so_far)
        )

    async def emitted(self, event: str, job: str | None = None) -> None:
        """Wait until it has emitted this event."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not self.count(event, job):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(
                f"{event} of {job} did not come; so far: {self.events_so_far}\n{self.errors}"
            ) from None

    async def _read_events(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            self.events_so_far.append((event["event"], event["job"]))
            self._news.set()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.errors += line.decode()


Launch = Callable[..., Awaitable[WorkerProcess]]


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty store that several processes can use."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
async def client(shared_url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(shared_url) as client:
        yield client


@pytest.fixture
async def launch() -> AsyncIterator[Launch]:
    """Start a worker process on a store."""
    started: list[WorkerProcess] = []

    async def start(url: str, **settings: Any) -> WorkerProcess:
        worker = await WorkerProcess.start(url, **settings)
        started.append(worker)
        return worker

    yield start
    for worker in started:
        await worker.close()
