"""Workers that are started anew whenever the code changes, and what is told meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import typer

from perdure import clock
from perdure.cli.exits import ExitCode, tell_error
from perdure.cli.present import as_json_line
from perdure.cli.run_news import LOOK_MAX, RunWatch, told
from perdure.cli.source_files import SourceFiles
from perdure.client.client import AsyncClient
from perdure.errors import PerdureError
from perdure.model.job import ALL_NAMESPACES
from perdure.worker.pauses import set_within
from perdure.worker.supervisor import (
    ProcessEnded,
    ProcessKilled,
    ProcessNotStarted,
    Supervisor,
    SupervisorEvent,
)

LOOK_SECONDS = 0.3
"""How often files and runs are looked at."""


class Found(TypedDict):
    """What the code at hand has."""

    flows: list[str]
    tasks: list[str]


class Code(NamedTuple):
    """How to look at the code, and how to run workers with it."""

    look: Callable[[], Found | None]
    command: Callable[[int, int], Sequence[str]]
    grace: timedelta


class Development:
    """Runs until SIGTERM or Ctrl-C; the second one stops at once."""

    def __init__(self, url: str, code: Code, processes: int, *, as_json: bool) -> None:
        self._client = AsyncClient(url, namespace=ALL_NAMESPACES)
        self._code = code
        self._processes = processes
        self._as_json = as_json
        self._files = SourceFiles(Path.cwd())
        self._runs = RunWatch()
        self._stopping = asyncio.Event()
        self._supervisor: Supervisor | None = None

    def run(self) -> ExitCode:
        found = self._code.look()
        if found is None:
            return ExitCode.USAGE
        return asyncio.run(self._work(found))

    async def _work(self, found: Found) -> ExitCode:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        async with self._client:
            await self._tell_runs()  # from now on, what is new is told
            self._tell("store", f"store: {self._client.store_url}")
            self._tell_found(found)
            following = asyncio.create_task(self._follow_runs())
            try:
                while not self._stopping.is_set():
                    await self._work_until_a_change()
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
        self._tell("stopped", "stopped; nothing is lost")
        return ExitCode.OK

    async def _work_until_a_change(self) -> None:
        """Keep workers running with the code as it is, and end them when there is other code."""
        self._supervisor = Supervisor(
            self._code.command, self._processes, self._code.grace, self._tell_process
        )
        working = asyncio.create_task(self._supervisor.keep_running())
        try:
            await self._usable_change()
        finally:
            if not self._stopping.is_set():  # else they have been told already
                self._supervisor.stop()
            await working

    async def _usable_change(self) -> None:
        while not await set_within(self._stopping, LOOK_SECONDS):
            changed = await asyncio.to_thread(self._files.changed)
            if not changed:
                continue
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            self._tell("changed", f"{changed[0]}{more} changed", files=changed)
            found = await asyncio.to_thread(self._code.look)
            if found is not None:
                self._tell_found(found)
                return
            self._tell("kept", "it cannot be used; the workers of before go on")

    async def _follow_runs(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._tell_runs()
            except PerdureError as error:
                tell_error(error)

    async def _tell_runs(self) -> None:
        for news in self._runs.news(await self._client.runs(limit=LOOK_MAX)):
            run = news.run
            status = "began" if news.is_new else run.status.value
            self._tell("run", told(news), run=run.id, flow=run.flow, status=status)

    def _stop(self) -> None:
        self._stopping.set()
        if self._supervisor is not None:
            self._supervisor.stop()

    # What is told

    def _tell_found(self, found: Found) -> None:
        for kind, names in (("flows", found["flows"]), ("tasks", found["tasks"])):
            if names:
                self._tell(kind, f"{kind}: {', '.join(names)}", names=names)
        count = f"{self._processes} worker process{'' if self._processes == 1 else 'es'}"
        files = f"{len(self._files)} file{'' if len(self._files) == 1 else 's'}"
        self._tell("workers", f"{count}, started anew when one of {files} here changes")

    def _tell_process(self, event: SupervisorEvent) -> None:
        """What happens to processes, as far as it was not asked for."""
        match event:
            case ProcessEnded(restart_in=timedelta() as delay):
                text = f"worker process {event.pid} ended with {event.exit_code}"
                seconds = delay.total_seconds()
                self._tell("ended", f"{text}; it is started again in {seconds:g} s", pid=event.pid)
            case ProcessKilled():
                text = f"worker process {event.pid} did not stop in time, and was killed"
                self._tell("killed", text, pid=event.pid)
            case ProcessNotStarted():
                self._tell("not started", f"a worker process cannot be started: {event.reason}")

    def _tell(self, what: str, text: str, **fields: Any) -> None:
        now = clock.system_clock()
        if self._as_json:
            typer.echo(as_json_line({"at": now, "what": what, "text": text, **fields}))
        else:
            typer.echo(f"{now.astimezone():%H:%M:%S}  {text}")
