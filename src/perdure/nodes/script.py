"""``script``: a command on the worker's machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, field

from perdure.client.context import Context
from perdure.diagnostics import Fault, declare
from perdure.errors import PerdureError, Permanent
from perdure.model.graph import DEFAULT_PORT, ORDINARY
from perdure.model.payload import from_json, to_json
from perdure.model.result import Complete, complete
from perdure.nodes import excerpt
from perdure.nodes.config import Span, duration_faults, port_faults, seconds_of
from perdure.nodes.kind import Kind, Settings

if TYPE_CHECKING:
    from perdure.nodes.command import Command, Ending

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


class Script(Kind):
    """Executes a command with its arguments, never through a shell. Off unless the worker allows.

    The output has the exit code, what was written to stdout and stderr, and stdout as JSON if it
    is an object. An exit code other than 0 fails, unless it is given a port.
    """

    name = "script"

    class Config(Settings):
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
        from perdure.nodes.command import execute

        command = _command(config)
        ending = execute(command, ctx.abort_signal)
        ctx.check()
        if ending.is_timed_out:
            raise TimeoutError(f"{command.shown} was killed after {command.seconds:g} s")
        port = config.exit.get(str(ending.exit_code))
        if port is None:
            if ending.exit_code != 0:
                raise CommandFailed(_failure(command, ending))
            port = ORDINARY
        return complete(_output(ending), ORDINARY if port == DEFAULT_PORT else port)

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


def _command(config: Script.Config) -> Command:
    from perdure.nodes.command import Command, environment

    return Command(
        argv=tuple(_word(word) for word in config.command),
        stdin=_stdin(config.stdin),
        env=environment({name: _word(value) for name, value in config.env.items()}),
        cwd=config.cwd,
        seconds=seconds_of(config.timeout, "timeout"),
        output_max=config.max_bytes,
    )


def _word(word: Word | bool) -> str:
    return word if isinstance(word, str) else to_json(word, "word").decode()


def _stdin(given: Any) -> bytes:
    match given:
        case None:
            return b""
        case str():
            return given.encode()
        case _:
            return to_json(given, "stdin", OUTPUT_MAX_BYTES)


def _output(ending: Ending) -> dict[str, Any]:
    return {
        "exit_code": ending.exit_code,
        "stdout": ending.stdout.text,
        "stderr": ending.stderr.text,
        "json": None if ending.stdout.is_cut else _object(ending.stdout.text),
    }


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = from_json(text.encode())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _failure(command: Command, ending: Ending) -> Fault:
    stderr = excerpt.ending(ending.stderr.text.strip(), _TOLD_MAX)
    if ending.exit_code < 0:
        return KILLED.fault(command=command.shown, signal=-ending.exit_code, stderr=stderr)
    return COMMAND_FAILED.fault(command=command.shown, exit_code=ending.exit_code, stderr=stderr)
