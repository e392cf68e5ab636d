"""Several worker processes: restarted with back-off when they crash, and stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from perdure import clock
from perdure.model.value import Value
from perdure.worker.events import WorkerStarted
from perdure.worker.lease_renewal import set_within
from perdure.worker.worker import Worker

FIRST_DELAY = timedelta(seconds=0.5)
DELAY_MAX = timedelta(seconds=30)
STEADY_AFTER = timedelta(seconds=60)
"""After this much uptime, a crash counts as the first again."""


def crashes_in_a_row(before: int, up_for: timedelta) -> int:
    """The number of crashes in a row after one more, with ``before`` earlier ones."""
    return 1 if up_for >= STEADY_AFTER else before + 1


def restart_delay(crashes: int) -> timedelta:
    """How long to wait after this many crashes in a row."""
    if crashes < 1:
        raise ValueError(f"crashes={crashes} must be at least 1")
    # The cap applies long before this many doublings; the limit prevents an overflow.
    doublings = min(crashes - 1, 32)
    return min(DELAY_MAX, FIRST_DELAY * (1 << doublings))


KILL_MARGIN = timedelta(seconds=20)
"""How long after its grace period a child may still write before it is considered hung."""
_STOP = b"s"
_STOP_NOW = b"n"
_LETTERS_MAX = 64


class SupervisorEvent(Value):
    pass


class StopRequested(SupervisorEvent):
    """A signal arrived; every worker process stops within this time."""

    grace: timedelta


class ProcessEvent(SupervisorEvent):
    """An event of one child; ``number`` is its position, from 1."""

    number: int


class ProcessStarted(ProcessEvent):
    pid: int


class ProcessNotStarted(ProcessEvent):
    """The system refused to start the process."""

    reason: str
    restart_in: timedelta


class ProcessEnded(ProcessEvent):
    """A worker process ended. ``restart_in`` is None if it is not restarted."""

    pid: int
    exit_code: int
    """Negative: the signal that killed it."""
    restart_in: timedelta | None


class ProcessKilled(ProcessEvent):
    """The process was killed because it did not stop in time; its jobs are taken over later."""

    pid: int


class Supervisor:
    """Keeps ``count`` worker processes running until stopped.

    ``command`` makes the arguments of a child from its number and the descriptor of its pipe,
    which it passes to :func:`follow_supervisor`. A child that exits with ``final_code`` is not
    restarted.
    """

    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        count: int,
        grace: timedelta,
        emit: Callable[[SupervisorEvent], None],
        kill_margin: timedelta = KILL_MARGIN,
        final_code: int | None = None,
    ) -> None:
        self._command = command
        self._count = count
        self._grace = grace
        self._emit = emit
        self._final_code = final_code
        self._kill_margin = kill_margin
        self._children: dict[int, _WorkerProcess] = {}
        self._letter: bytes | None = None
        self._stopping = asyncio.Event()
        self._killed = 0

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def run(self) -> bool:
        """Work until SIGTERM or SIGINT, or until all children have exited with the final code.

        False when a child had to be killed at the end.
        """
        asyncio.run(self._supervise())
        return not self._killed

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        await self.keep_running()

    async def keep_running(self) -> None:
        """Run on a running event loop until ``stop`` is called; the caller handles signals."""
        await asyncio.gather(*(self._keep(number) for number in range(1, self._count + 1)))

    async def _keep(self, number: int) -> None:
        crashes = 0
        while not self._stopping.is_set():
            began = clock.monotonic()
            try:
                child = await _WorkerProcess.start(number, self._command)
            except OSError as error:
                # Out of memory or processes: keep the other children running.
                crashes += 1
                delay = restart_delay(crashes)
                self._emit(ProcessNotStarted(number=number, reason=str(error), restart_in=delay))
            else:
                exit_code = await self._ended(child)
                if exit_code == self._final_code or self._stopping.is_set():
                    self._emit(_ended(child, exit_code, None))
                    return
                crashes = crashes_in_a_row(crashes, timedelta(seconds=clock.monotonic() - began))
                delay = restart_delay(crashes)
                self._emit(_ended(child, exit_code, delay))
            await set_within(self._stopping, delay.total_seconds())

    async def _ended(self, child: _WorkerProcess) -> int:
        self._children[child.number] = child
        self._emit(ProcessStarted(number=child.number, pid=child.pid))
        if self._letter is not None:
            child.send(self._letter)  # stopped while this process was starting
        try:
            return await child.wait()
        finally:
            del self._children[child.number]

    def stop(self) -> None:
        """The first call stops gracefully, the second immediately."""
        grace = timedelta(0) if self._letter else self._grace
        self._letter = _STOP_NOW if self._letter else _STOP
        self._stopping.set()
        self._emit(StopRequested(grace=grace))
        for child in self._children.values():
            child.send(self._letter)
        seconds = (grace + self._kill_margin).total_seconds()
        asyncio.get_running_loop().call_later(seconds, self._kill)

    def _kill(self) -> None:
        for child in self._children.values():
            child.kill()
            self._killed += 1
            self._emit(ProcessKilled(number=child.number, pid=child.pid))


def _ended(child: _WorkerProcess, exit_code: int, restart_in: timedelta | None) -> ProcessEnded:
    return ProcessEnded(
        number=child.number, pid=child.pid, exit_code=exit_code, restart_in=restart_in
    )


class _WorkerProcess:
    """One process and the writing end of its pipe."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, pipe: int) -> None:
        self.number = number
        self._process = process
        self._pipe = pipe

    @classmethod
    async def start(
        cls, number: int, command: Callable[[int, int], Sequence[str]]
    ) -> _WorkerProcess:
        theirs, ours = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command(number, theirs), stdin=asyncio.subprocess.DEVNULL, pass_fds=[theirs]
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        return cls(number, process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, letter: bytes) -> None:
        with suppress(OSError):  # it is ending by itself
            os.write(self._pipe, letter)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> int:
        try:
            return await self._process.wait()
        finally:
            os.close(self._pipe)


def follow_supervisor(worker: Worker, pipe: int) -> None:
    """Stop this worker when the supervisor says so over the pipe, or dies."""

    def listen(_started: WorkerStarted) -> None:
        asyncio.get_running_loop().add_reader(pipe, hear)

    def hear() -> None:
        letters = os.read(pipe, _LETTERS_MAX)
        if not letters:
            asyncio.get_running_loop().remove_reader(pipe)
        worker.shutdown(timedelta(0) if _STOP_NOW in letters else None)

    worker.on(WorkerStarted, listen)
