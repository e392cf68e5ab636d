"""A command as a process of its own session, within a time, of which nothing is left behind.

The process is waited for by its exit, not by the end of its output: something that it started and
left running may keep that open for ever.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

from perdure import clock
from perdure.client.context import AbortSignal
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, Permanent
from perdure.model.showing import cut
from perdure.model.value import Value
from perdure.nodes.excerpt import beginning, ending

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""What a command gets of the worker's own environment, in which secrets are."""
GRACE_SECONDS = 2.0
"""Between being asked to end, and being killed."""

# The machine has too much to do, which may pass; all else is wrong with the command.
_FLEETING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})

_CHUNK = 65_536
_REST_CHUNKS_MAX = 32
_WAIT_MAX_SECONDS = 3_600.0

INVALID_VARIABLE = declare(
    "script.invalid_variable", "env {variable!r} is not a variable that a command can be given"
)
NOT_POSIX = declare("script.not_posix", "commands are executed on POSIX systems only")
ZERO_CHARACTER = declare(
    "script.zero_character", "{command} cannot be started: there is a zero character in it"
)
NOT_STARTED = declare("script.not_started", "{command} cannot be started: {reason}")


class Command(Value):
    argv: tuple[str, ...]
    stdin: bytes
    env: dict[str, str]
    cwd: str | None
    seconds: float
    output_max: int

    @property
    def shown(self) -> str:
        """The program alone: what follows it may be long, or private."""
        return f"command {cut(self.argv[0])!r}"


class Output(Value):
    text: str
    is_cut: bool


class Ending(Value):
    exit_code: int
    """Negative: minus the signal that killed it."""
    stdout: Output
    stderr: Output
    is_timed_out: bool


def environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    for name, value in own.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidInput(INVALID_VARIABLE.fault(("env", name), name=name, variable=cut(name)))
    return {**kept, **own}


def execute(command: Command, abort: AbortSignal) -> Ending:
    """Run it to its end, or end it when its time is over or the attempt is aborted."""
    wakes, wake = socket.socketpair()
    with wakes, wake, selectors.DefaultSelector() as selector:
        running = _Running(command, abort, selector, wake)
        selector.register(wakes, selectors.EVENT_READ, lambda _: wakes.recv(_CHUNK))
        return running.ending()


def _started(command: Command) -> subprocess.Popen[bytes]:
    if os.name != "posix":
        raise Permanent(NOT_POSIX.fault())
    if "\0" in "".join([*command.argv, command.cwd or ""]):
        raise Permanent(ZERO_CHARACTER.fault(command=command.shown))
    try:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command.env,
            cwd=command.cwd,
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _FLEETING:
            raise
        raise Permanent(NOT_STARTED.fault(command=command.shown, reason=str(error))) from error


class _Running:
    """One process, watched by the thread that started it; another one only waits for its exit."""

    def __init__(
        self,
        command: Command,
        abort: AbortSignal,
        selector: selectors.BaseSelector,
        wake: socket.socket,
    ) -> None:
        self._command = command
        self._selector = selector
        self._wake = wake
        self._abort = abort
        self._is_ending = False
        self._stdout = _Capture(command.output_max, keeps_end=False)
        self._stderr = _Capture(command.output_max, keeps_end=True)
        self._unsent = memoryview(command.stdin)
        self._has_exited = threading.Event()
        self._process = _started(command)

    def ending(self) -> Ending:
        try:
            self._listen()
            is_over = self._until_exit(self._command.seconds)
            if not is_over:
                self._end()
            # While nobody has asked for its exit code, the number of the group is still its own.
            self._signal_group(signal.SIGKILL)
            self._read_rest()
        finally:
            self._clean_up()
        code = self._process.returncode
        return Ending(
            exit_code=-signal.SIGKILL if code is None else code,
            stdout=self._stdout.output(),
            stderr=self._stderr.output(),
            is_timed_out=not is_over,
        )

    def _listen(self) -> None:
        stdin, stdout, stderr = self._pipes()
        for pipe in (stdin, stdout, stderr):
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(stdin, selectors.EVENT_WRITE, self._send)
        self._selector.register(stdout, selectors.EVENT_READ, self._receive)
        self._selector.register(stderr, selectors.EVENT_READ, self._receive)
        threading.Thread(target=self._wait, name="perdure-command", daemon=True).start()
        self._abort.on_fire(lambda _reason: self._wake_up())

    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        return process.stdin, process.stdout, process.stderr

    def _wait(self) -> None:
        with suppress(ChildProcessError):
            if sys.platform == "linux":
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.wait()
        self._has_exited.set()
        self._wake_up()

    def _wake_up(self) -> None:
        with suppress(OSError):  # it is over already
            self._wake.send(b".")

    def _until_exit(self, seconds: float) -> bool:
        """Pass bytes on until the process exits; False: the time is over, or it was aborted."""
        until = clock.monotonic() + seconds
        while not self._has_exited.is_set():
            left = until - clock.monotonic()
            if left <= 0 or (self._abort.is_set() and not self._is_ending):
                return False
            for key, _events in self._selector.select(min(left, _WAIT_MAX_SECONDS)):
                key.data(key.fileobj)
        return True

    def _end(self) -> None:
        self._is_ending = True
        self._signal_group(signal.SIGTERM)
        if not self._until_exit(GRACE_SECONDS):
            self._signal_group(signal.SIGKILL)
            self._until_exit(GRACE_SECONDS)

    def _signal_group(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _send(self, pipe: IO[bytes]) -> None:
        try:
            self._unsent = self._unsent[os.write(pipe.fileno(), self._unsent[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it does not want to read more
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._close(pipe)

    def _receive(self, pipe: IO[bytes]) -> bool:
        """Take what is there; False if that is nothing for now, or nothing more."""
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close(pipe)
            return False
        (self._stdout if pipe is self._process.stdout else self._stderr).add(data)
        return True

    def _read_rest(self) -> None:
        """What is still in the pipes; bounded, as something that got away may go on writing."""
        _stdin, stdout, stderr = self._pipes()
        for pipe in (stdout, stderr):
            for _ in range(_REST_CHUNKS_MAX):
                if pipe.closed or not self._receive(pipe):
                    break

    def _close(self, pipe: IO[bytes]) -> None:
        self._selector.unregister(pipe)
        pipe.close()

    def _clean_up(self) -> None:
        self._signal_group(signal.SIGKILL)
        for pipe in self._pipes():
            with suppress(OSError):
                pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)


class _Capture:
    """The beginning or the end of a stream, and how much of it there was."""

    def __init__(self, max_bytes: int, *, keeps_end: bool) -> None:
        self._max = max_bytes
        self._keeps_end = keeps_end
        self._kept = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        if self._keeps_end:
            self._kept += data
            if len(self._kept) > 2 * self._max + _CHUNK:
                del self._kept[: -self._max]
        else:
            self._kept += data[: self._max - len(self._kept)]

    def output(self) -> Output:
        is_cut = self._total > self._max
        kept = self._kept[-self._max :] if self._keeps_end else self._kept
        text = kept.decode(errors="replace")
        if is_cut:
            mark = f"… (cut: {self._total} bytes in all) …"
            # One character less, so that what was cut in two is left out.
            if self._keeps_end:
                text = f"{mark}\n{ending(text, len(text) - 1)}"
            else:
                text = f"{beginning(text, len(text) - 1)}\n{mark}"
        return Output(text=text, is_cut=is_cut)
