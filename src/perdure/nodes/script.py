"""``script``: a command in a process session of its own, of which nothing is left behind.

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
from typing import IO, Annotated, Any

from msgspec import Meta, field

from perdure import clock
from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput, PerdureError, Permanent
from perdure.model.graph import DEFAULT_PORT, ORDINARY
from perdure.model.payload import from_json, to_json
from perdure.model.text import cut, first_words, last_words
from perdure.model.value import Value
from perdure.nodes.config import Span, duration_faults, port_faults, seconds_of
from perdure.tasks.context import AbortSignal, Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, complete

OUTPUT_DEFAULT_BYTES = 1024 * 1024
OUTPUT_MAX_BYTES = 64 * 1024 * 1024
_TOLD_MAX = 1_000
"""How many characters of stderr an error tells."""

Word = str | int | float

NOT_ALLOWED = declare(
    "script.not_allowed",
    "this worker does not execute commands; allow it if you trust every flow that it is given: "
    "Worker(..., allow_scripts=True)",
)
KILLED = declare("script.killed", "{command} was killed by signal {signal}[: {stderr}]")
COMMAND_FAILED = declare("script.failed", "{command} ended with exit code {exit_code}[: {stderr}]")
INVALID_EXIT_CODE = declare(
    "script.invalid_exit_code", "{exit_code!r} is not an exit code from 0 to 255"
)


class CommandFailed(PerdureError):
    """The command ended badly: the node's retries decide what follows."""


class Script(NodeType):
    """Executes a command with its arguments, never through a shell. Off unless the worker allows.

    The output has the exit code, what was written to stdout and stderr, and stdout as JSON if it
    is an object. An exit code other than 0 fails, unless it is given a port.
    """

    name = "script"

    class Config(NodeConfig):
        command: Annotated[list[Word], Meta(min_length=1)]
        """The program and its arguments. Everybody on the machine can see them: no secrets."""
        stdin: Any = None
        """A text as it is, all else as JSON."""
        env: dict[str, Word | bool] = field(default_factory=dict)
        """Added to the few variables that a command gets of the worker's."""
        cwd: str | None = None
        timeout: Span = "60s"
        """Then the command and all that it started are killed."""
        max_bytes: Annotated[int, Meta(ge=1, le=OUTPUT_MAX_BYTES)] = OUTPUT_DEFAULT_BYTES
        """Of stdout, and again of stderr; what is more is dropped, and a mark left."""
        exit: dict[str, str] = field(default_factory=dict)
        """An exit code, and the port to go on from."""

    def execute(self, config: Config, ctx: Context) -> Complete:
        if not ctx.allows_scripts:
            raise Permanent(NOT_ALLOWED.fault())

        stdin = b""
        if isinstance(config.stdin, str):
            stdin = config.stdin.encode()
        elif config.stdin is not None:
            stdin = to_json(config.stdin, "stdin", OUTPUT_MAX_BYTES)
        command = ScriptCommand(
            argv=tuple(map(_word, config.command)),
            stdin=stdin,
            env=environment({name: _word(value) for name, value in config.env.items()}),
            cwd=config.cwd,
            seconds=seconds_of(config.timeout, "timeout"),
            output_max=config.max_bytes,
        )
        ending = execute(command, ctx.abort_signal)
        ctx.check()
        code, stdout, stderr = ending.exit_code, ending.stdout, ending.stderr.text
        if ending.is_timed_out:
            raise TimeoutError(f"{command.shown} was killed after {command.seconds:g} s")
        port = config.exit.get(str(code))
        if port is None and code != 0:
            told = last_words(stderr.strip(), _TOLD_MAX)
            if code < 0:
                fault = KILLED.fault(command=command.shown, signal=-code, stderr=told)
            else:
                fault = COMMAND_FAILED.fault(command=command.shown, exit_code=code, stderr=told)
            raise CommandFailed(fault)

        found = None
        if not stdout.is_cut:
            with suppress(ValueError, RecursionError):
                found = from_json(stdout.text.encode())
        output = {
            "exit_code": code,
            "stdout": stdout.text,
            "stderr": stderr,
            "json": found if isinstance(found, dict) else None,
        }
        return complete(output, ORDINARY if port in (None, DEFAULT_PORT) else port)

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        codes = config.get("exit")
        ports = codes.values() if isinstance(codes, Mapping) else ()
        return tuple(dict.fromkeys(port for port in ports if port != DEFAULT_PORT))

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        faults = duration_faults(config, "timeout")
        codes = config.get("exit", {})
        if isinstance(codes, Mapping):
            for code, port in codes.items():
                is_code = code.isascii() and code.isdecimal() and len(code) <= 3
                if not is_code or int(code) > 255:
                    faults.append(INVALID_EXIT_CODE.fault(("exit", code), exit_code=code))
                else:
                    faults += port_faults(port, "exit", code)
        return faults


def _word(word: Word | bool) -> str:
    return word if isinstance(word, str) else to_json(word, "word").decode()


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


class ScriptCommand(Value):
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


class ScriptOutput(Value):
    text: str
    is_cut: bool


class ScriptExit(Value):
    exit_code: int
    """Negative: minus the signal that killed it."""
    stdout: ScriptOutput
    stderr: ScriptOutput
    is_timed_out: bool


def environment(own: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    for name, value in own.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidInput(INVALID_VARIABLE.fault(("env", name), name=name, variable=cut(name)))
    return {**kept, **own}


def execute(command: ScriptCommand, abort: AbortSignal) -> ScriptExit:
    """Run it to its end, or end it when its time is over or the attempt is aborted."""
    wakes, wake = socket.socketpair()
    with wakes, wake, selectors.DefaultSelector() as selector:
        running = _Running(command, abort, selector, wake)
        selector.register(wakes, selectors.EVENT_READ, lambda _: wakes.recv(_CHUNK))
        return running.ending()


class _Running:
    """One process, watched by the thread that started it; another one only waits for its exit."""

    def __init__(
        self,
        command: ScriptCommand,
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
        if os.name != "posix":
            raise Permanent(NOT_POSIX.fault())
        if "\0" in "".join([*command.argv, command.cwd or ""]):
            raise Permanent(ZERO_CHARACTER.fault(command=command.shown))
        try:
            self._process = subprocess.Popen(
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
            fault = NOT_STARTED.fault(command=command.shown, reason=str(error))
            raise Permanent(fault) from error

    def ending(self) -> ScriptExit:
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
        return ScriptExit(
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

    def output(self) -> ScriptOutput:
        is_cut = self._total > self._max
        kept = self._kept[-self._max :] if self._keeps_end else self._kept
        text = kept.decode(errors="replace")
        if is_cut:
            mark = f"… (cut: {self._total} bytes in all) …"
            # One character less, so that what was cut in two is left out.
            if self._keeps_end:
                text = f"{mark}\n{last_words(text, len(text) - 1)}"
            else:
                text = f"{first_words(text, len(text) - 1)}\n{mark}"
        return ScriptOutput(text=text, is_cut=is_cut)
