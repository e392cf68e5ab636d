"""The ``script`` node type: runs a command in its own process session and cleans up after it.

It waits for the process to exit, not for the end of its output: a process that the command left
running may keep the pipes open forever.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Annotated, Any

from msgspec import Meta, field

from perdure import clock
from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput, PerdureError, Permanent
from perdure.model.payload import to_json
from perdure.model.text import first_words, last_words, preview
from perdure.model.value import Value
from perdure.nodes.config import (
    Span,
    duration_faults,
    foreign_json,
    named_ports,
    port_faults,
    port_of,
    seconds_of,
)
from perdure.tasks.context import AbortSignal, Context
from perdure.tasks.node_type import NodeConfig, NodeType
from perdure.tasks.result import Complete, complete

OUTPUT_DEFAULT_BYTES = 1024 * 1024
OUTPUT_MAX_BYTES = 64 * 1024 * 1024
STDERR_MAX = 1_000
"""Characters of stderr in an error message."""

Word = str | int | float

NOT_ALLOWED = declare(
    "script.not_allowed",
    "this worker does not execute commands",
    "Allow it if you trust all flows: Worker(..., allow_scripts=True)",
)
KILLED = declare("script.killed", "{command} was killed by signal {signal}[: {stderr}]")
COMMAND_FAILED = declare("script.failed", "{command} exited with code {exit_code}[: {stderr}]")
INVALID_EXIT_CODE = declare(
    "script.invalid_exit_code", "{exit_code!r} is not an exit code from 0 to 255"
)


class CommandFailed(PerdureError):
    """The command failed. The node's retries apply."""


class Script(NodeType):
    """Executes a command with its arguments, never through a shell.

    Only on workers with ``allow_scripts=True``. The output has the exit code, stdout and stderr,
    and stdout as JSON if it is an object. A nonzero exit code fails unless ``exit`` maps it to a
    port.
    """

    name = "script"

    class Config(NodeConfig):
        command: Annotated[list[Word], Meta(min_length=1)]
        """The program and its arguments. Visible to all users of the machine: no secrets here."""
        stdin: Any = None
        """Strings are passed unchanged, other values as JSON."""
        env: dict[str, Word | bool] = field(default_factory=dict)
        """Added to the few variables that the command inherits from the worker."""
        cwd: str | None = None
        timeout: Span = "60s"
        """After this, the command and its child processes are killed."""
        max_bytes: Annotated[int, Meta(ge=1, le=OUTPUT_MAX_BYTES)] = OUTPUT_DEFAULT_BYTES
        """The limit for stdout and for stderr, each; the rest is dropped and marked."""
        exit: dict[str, str] = field(default_factory=dict)
        """The port to continue on, by exit code."""

    def execute(self, config: Config, ctx: Context) -> Complete:
        if not ctx.allows_scripts:
            raise Permanent(NOT_ALLOWED.fault())

        stdin = b""
        if isinstance(config.stdin, str):
            stdin = config.stdin.encode()
        elif config.stdin is not None:
            stdin = to_json(config.stdin, "stdin", OUTPUT_MAX_BYTES)
        command = ScriptCommand(
            argv=tuple(map(as_word, config.command)),
            stdin=stdin,
            env=environment({name: as_word(value) for name, value in config.env.items()}),
            cwd=config.cwd,
            seconds=seconds_of(config.timeout, "timeout"),
            output_max=config.max_bytes,
        )
        ending = execute(command, ctx.abort_signal, ctx.mask)
        ctx.check()
        code, stdout, stderr = ending.exit_code, ending.stdout, ending.stderr.text
        if ending.is_timed_out:
            raise TimeoutError(f"{command.label} was killed after {command.seconds:g} s")
        port = config.exit.get(str(code))
        if port is None and code != 0:
            # Masked before truncation, which could leave an unmasked part of a secret.
            tail = last_words(ctx.mask(stderr).strip(), STDERR_MAX)
            if code < 0:
                fault = KILLED.fault(command=command.label, signal=-code, stderr=tail)
            else:
                fault = COMMAND_FAILED.fault(command=command.label, exit_code=code, stderr=tail)
            raise CommandFailed(fault)

        parsed = None
        if not stdout.is_truncated:
            with suppress(ValueError, RecursionError):
                parsed = foreign_json(stdout.text.encode())
        output = {
            "exit_code": code,
            "stdout": stdout.text,
            "stderr": stderr,
            "json": parsed if isinstance(parsed, dict) else None,
        }
        return complete(output, port_of(port))

    def ports_of(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        return named_ports(config.get("exit"))

    def faults_of(self, config: Mapping[str, Any]) -> list[Fault]:
        return [*duration_faults(config, "timeout"), *exit_faults(config)]


def exit_faults(config: Mapping[str, Any], named: Sequence[str] = ()) -> list[Fault]:
    """Faults of ports by exit code, or by the name of another end."""
    faults: list[Fault] = []
    codes = config.get("exit", {})
    for code, port in codes.items() if isinstance(codes, Mapping) else ():
        is_code = code.isascii() and code.isdecimal() and len(code) <= 3
        if code not in named and (not is_code or int(code) > 255):
            faults.append(INVALID_EXIT_CODE.fault(("exit", code), exit_code=code))
        else:
            faults += port_faults(port, "exit", code)
    return faults


def as_word(word: Word | bool) -> str:
    return word if isinstance(word, str) else to_json(word, "word").decode()


INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""The only variables a command inherits: the worker's environment contains secrets."""
GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""

# The machine is overloaded, so a retry may succeed. Any other error is the command's fault.
_TRANSIENT = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})

_CHUNK = 65_536
_SECRET_MAX_BYTES = 65_536
"""How much is captured beyond the limit, so that a secret that truncation splits is whole."""
_REST_CHUNKS_MAX = 32
_WAIT_MAX_SECONDS = 3_600.0

INVALID_VARIABLE = declare(
    "script.invalid_variable", "env {variable!r} is not a valid environment variable"
)
NOT_POSIX = declare("script.not_posix", "commands can only be executed on POSIX systems")
ZERO_CHARACTER = declare(
    "script.zero_character", "{command} cannot be started: it contains a zero character"
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
    def label(self) -> str:
        """The program alone: its arguments may be long or private."""
        return f"command {preview(self.argv[0])!r}"


class ScriptOutput(Value):
    text: str
    is_truncated: bool


class ScriptExit(Value):
    exit_code: int
    """If negative: minus the signal that killed it."""
    stdout: ScriptOutput
    stderr: ScriptOutput
    is_timed_out: bool


def environment(own: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    for name, value in own.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidInput(
                INVALID_VARIABLE.fault(("env", name), name=name, variable=preview(name))
            )
    return {**inherited, **own}


def execute(
    command: ScriptCommand, abort: AbortSignal, mask: Callable[[bytes], bytes]
) -> ScriptExit:
    """Run a command until it exits, times out, or the attempt is aborted.

    ``mask`` masks secrets in output before it is truncated.
    """
    wakes, wake = socket.socketpair()
    with wakes, wake, selectors.DefaultSelector() as selector:
        running = _Running(command, abort, mask, selector, wake)
        selector.register(wakes, selectors.EVENT_READ, lambda _: wakes.recv(_CHUNK))
        return running.ending()


class _Running:
    """One process. The calling thread handles its pipes; a second thread waits for its exit."""

    def __init__(
        self,
        command: ScriptCommand,
        abort: AbortSignal,
        mask: Callable[[bytes], bytes],
        selector: selectors.BaseSelector,
        wake: socket.socket,
    ) -> None:
        self._command = command
        self._selector = selector
        self._wake = wake
        self._abort = abort
        self._mask = mask
        self._is_ending = False
        self._stdout = _Capture(command.output_max, keeps_end=False)
        self._stderr = _Capture(command.output_max, keeps_end=True)
        self._unsent = memoryview(command.stdin)
        self._has_exited = threading.Event()
        if os.name != "posix":
            raise Permanent(NOT_POSIX.fault())
        if "\0" in "".join([*command.argv, command.cwd or ""]):
            raise Permanent(ZERO_CHARACTER.fault(command=command.label))
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
            if isinstance(error, OSError) and error.errno in _TRANSIENT:
                raise
            fault = NOT_STARTED.fault(command=command.label, reason=str(error))
            raise Permanent(fault) from error

    def ending(self) -> ScriptExit:
        try:
            self._listen()
            is_over = self._until_exit(self._command.seconds)
            if not is_over:
                self._end()
            # Until its exit code is collected, its process group id cannot be reused.
            self._signal_group(signal.SIGKILL)
            self._read_rest()
        finally:
            self._clean_up()
        code = self._process.returncode
        return ScriptExit(
            exit_code=-signal.SIGKILL if code is None else code,
            stdout=self._stdout.output(self._mask),
            stderr=self._stderr.output(self._mask),
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
        with suppress(OSError):  # closed already
            self._wake.send(b".")

    def _until_exit(self, seconds: float) -> bool:
        """Transfer bytes until the process exits; False on timeout or abort."""
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
        except OSError:  # it closed its stdin
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._close(pipe)

    def _receive(self, pipe: IO[bytes]) -> bool:
        """Read available bytes; False if there are none now, or the pipe has ended."""
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
        """Read what is left in the pipes; bounded, because an escaped process may still write."""
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
    """Captures the beginning or the end of a stream, and counts its bytes."""

    def __init__(self, max_bytes: int, *, keeps_end: bool) -> None:
        self._max = max_bytes
        self._captured_max = max_bytes + _SECRET_MAX_BYTES
        self._keeps_end = keeps_end
        self._captured = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        if self._keeps_end:
            self._captured += data
            if len(self._captured) > 2 * self._captured_max:
                del self._captured[: -self._captured_max]
        else:
            self._captured += data[: self._captured_max - len(self._captured)]

    def output(self, mask: Callable[[bytes], bytes]) -> ScriptOutput:
        if self._total <= self._max:
            return ScriptOutput(text=self._captured.decode(errors="replace"), is_truncated=False)
        text = self._truncated(mask).decode(errors="replace")
        mark = f"… (truncated: {self._total} bytes in all) …"
        # Drop one character, which truncation may have split.
        if self._keeps_end:
            text = f"{mark}\n{last_words(text, len(text) - 1)}"
        else:
            text = f"{first_words(text, len(text) - 1)}\n{mark}"
        return ScriptOutput(text=text, is_truncated=True)

    def _truncated(self, mask: Callable[[bytes], bytes]) -> bytes:
        """The output, masked and then truncated."""
        captured = self._captured[-self._captured_max :] if self._keeps_end else self._captured
        masked = mask(bytes(captured))
        if self._total <= self._captured_max:  # every secret in it is whole
            dropped = max(0, len(masked) - self._max)
        else:
            # One at the end of what was captured may not be. Masking lengthens nothing, so that end
            # has at most as many bytes as before.
            dropped = min(len(masked), _SECRET_MAX_BYTES)
        return masked[dropped:] if self._keeps_end else masked[: len(masked) - dropped]
