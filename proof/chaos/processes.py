"""The processes of chaos: started, signaled and ended by pid, restarted when they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure import StoreError, StoreUnreachable
from perdure.clock import monotonic

STOP_SECONDS_MAX = 60.0
"""How long a graceful stop may take on a busy machine before it is a finding."""
RESTART_SECONDS = 0.3
READY = "ready"
"""The line that a process prints once it is working."""
_OF_THE_STORE = (StoreError.__name__, StoreUnreachable.__name__)
EXCERPT_CHARACTERS = 2_000


class ChaosProcess:
    """One program with its settings, across restarts.

    An intended end is announced first; any other end is a finding.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, str],
        folder: Path,
    ) -> None:
        self.name = name
        self._environment = environment
        self.log = folder / f"{name}.log"
        self.is_frozen = False
        self.is_ready = False
        """Whether it is working: before that, signals simply end it."""
        self.unwanted_ends: list[str] = []
        self.failed_starts = 0
        self._module = module
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_wanted_end = False
        self.is_killed = self.is_stopped = False
        self._newer: asyncio.subprocess.Process | None = None
        """Takes the place of the process when that ends."""
        self._starts = 0
        self._said = ""

    def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep())

    @property
    def pid(self) -> int | None:
        """None between two processes."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    @property
    def is_at_work(self) -> bool:
        return self.is_ready and self.pid is not None

    @property
    def starts(self) -> int:
        return self._starts

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; False if there is no process."""
        if self.pid is None or self._process is None:
            return False
        self._process.send_signal(number)
        return True

    def kill(self) -> bool:
        """Kill it without warning, as power failures and the kernel do. It is restarted."""
        self._is_wanted_end = self.is_killed = True
        return self.send(signal.SIGKILL)

    async def stop_gracefully(self) -> str | None:
        """Send SIGTERM, and restart it; returns a complaint about how it ended, if any."""
        process, was_ready = self._process, self.is_ready
        self._is_wanted_end = True
        if process is None or not self.send(signal.SIGTERM):
            return None
        self.is_stopped = True
        began = monotonic()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            return f"{self.name} did not stop within {STOP_SECONDS_MAX:g} s: {self._excerpt()}"
        is_other = self.is_killed or self._newer is not None
        if code == 0 or (code == -signal.SIGTERM and not was_ready) or is_other:
            return None
        spent = monotonic() - began
        return f"{self.name} ended with {code} {spent:.1f} s after SIGTERM: {self._excerpt()}"

    @property
    def has_worker_id(self) -> bool:
        """Whether each start has the same worker id."""
        return bool(self._settings.get("worker"))

    async def supersede(self) -> int | None:
        """Start another one while it runs, which takes its place; returns its exit code.

        None if the other one ended first.
        """
        older = self._process
        assert older is not None
        self._is_wanted_end = True
        self._starts += 1
        newer = self._newer = await self._launched()
        ends = [asyncio.ensure_future(each.wait()) for each in (older, newer)]
        await asyncio.wait(ends, timeout=STOP_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
        if ends[1].done() and not ends[0].done():
            return None
        if not ends[0].done():
            older.kill()
        return await ends[0]

    def freeze(self) -> bool:
        self.is_frozen = self.send(signal.SIGSTOP)
        return self.is_frozen

    def thaw(self) -> None:
        self.is_frozen = False
        self.send(signal.SIGCONT)

    async def finish(self) -> str | None:
        """Stop it gracefully, for good."""
        self._is_closing = True
        return await self.stop_gracefully()

    async def close(self) -> None:
        """End it in any state."""
        self._is_closing = True
        if self.send(signal.SIGCONT):
            self.send(signal.SIGKILL)
        if self._newer is not None and self._newer.returncode is None:
            self._newer.kill()
        if self._keeper is not None:
            await self._keeper

    async def _keep(self) -> None:
        """Start it, and restart it whenever it ends, as a service manager does."""
        while not self._is_closing:
            self._is_wanted_end = self.is_killed = self.is_stopped = False
            self._said = ""
            if self._newer is None:
                self._process = await self._launched()
                self._starts += 1
            else:
                self._process, self._newer = self._newer, None
            await self._listen(self._process)
            code = await self._process.wait()
            if not self._is_wanted_end and not self._is_closing:
                self._ended_unasked(code)
            self.is_frozen = self.is_ready = False
            await asyncio.sleep(RESTART_SECONDS)

    async def _launched(self) -> asyncio.subprocess.Process:
        settings = {**self._settings, "generation": self._starts}
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            json.dumps(settings),
            # It reads this until EOF, which comes with the end of this process too.
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            # Not to a file: it must be able to report that its disk is full.
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environment},
            start_new_session=True,  # an interrupt from the terminal is for the harness only
        )

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        with self.log.open(
            "a", buffering=1
        ) as log:  # line-buffered: faults read there what they did
            async for line in process.stderr:
                text = line.decode(errors="replace")
                self.is_ready |= text.strip() == READY
                self._said = (self._said + text)[-EXCERPT_CHARACTERS:]
                log.write(text)

    def _ended_unasked(self, code: int) -> None:
        # A process that cannot use its store at startup reports it and ends, losing nothing.
        if not self.is_ready and any(error in self._said for error in _OF_THE_STORE):
            self.failed_starts += 1
        else:
            self.unwanted_ends.append(f"{self.name} ended with {code}: {self._excerpt()}")

    def _excerpt(self) -> str:
        return self._said.strip() or "it said nothing"


class ProcessPool:
    """All processes of one run."""

    def __init__(self, workers: Sequence[ChaosProcess], clients: Sequence[ChaosProcess]) -> None:
        self.workers = workers
        self.clients = clients

    @property
    def all(self) -> list[ChaosProcess]:
        return [*self.workers, *self.clients]

    def start(self) -> None:
        for each in self.all:
            each.start()

    def thaw(self) -> None:
        for each in self.all:
            each.thaw()

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self.all))
