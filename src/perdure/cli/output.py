"""Exit codes, errors as one line on stderr, and output that cannot be written."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import TYPE_CHECKING

from perdure.cli.renderer import CliRenderer, one_line
from perdure.errors import InvalidInput, PerdureError, StoreError

if TYPE_CHECKING:
    from pathlib import Path


class ExitCode(IntEnum):
    OK = 0
    REFUSED = 1
    """The job or run did not complete, or the operation does not apply to it."""
    USAGE = 2
    """The command cannot be understood."""
    STORE = 3
    """The store cannot be reached, or not be used by this version."""
    CANCELLED = 4
    """The run that was followed was cancelled."""
    SKIPPED = 5
    """The run that was followed never started: its flow was cooling down."""
    INTERRUPTED = 130


EXIT_CODES = """Exit codes: 0 success; 1 failed or refused; 2 invalid command; 3 store
unreachable or unusable; 4 or 5 the run followed was cancelled or skipped; 130 interrupted
with Ctrl-C."""


def exit_code_of(error: PerdureError) -> ExitCode:
    match error:
        case InvalidInput():
            return ExitCode.USAGE
        case StoreError():
            return ExitCode.STORE
        case _:
            return ExitCode.REFUSED


_wants_json: ContextVar[bool] = ContextVar("wants_json", default=False)


def note_json(arguments: Sequence[str]) -> None:
    """With ``--json``, errors are JSON too: also those that leave the arguments unparsed."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _wants_json.set("--json" in options)


def tell(text: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"perdure: {text}\n")


def tell_error(error: PerdureError, renderer: CliRenderer) -> None:
    """One line on stderr: for people, or with ``--json`` an object for programs."""
    if _wants_json.get():
        import msgspec

        data = msgspec.json.encode({"error": error.as_data(renderer)}).decode()
        sys.stderr.write(f"{data}\n")
    else:
        tell(error_line(error, renderer))


def error_line(error: PerdureError, renderer: CliRenderer) -> str:
    return one_line(error.render(renderer, separator="; "))


def write_text(text: str, output: Path | None) -> None:
    """Write to the file, or to stdout."""
    if output is None:
        sys.stdout.write(text.rstrip("\n") + "\n")
        return
    try:
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    except OSError as error:
        from perdure.transfer.format import UNWRITABLE

        fault = UNWRITABLE.fault(path=str(output), reason=error.strerror or str(error))
        raise InvalidInput(fault) from error
    sys.stderr.write(f"wrote {output}\n")


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def output_told() -> Iterator[None]:
    """Flush what was printed; if that fails, tell why in one line instead of a traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        _discard_output()
        sys.exit(ExitCode.REFUSED)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _discard_output()
        tell(f"cannot write: {error.strerror}. Free some room, or write elsewhere")
        sys.exit(ExitCode.REFUSED)


def _discard_output() -> None:
    """Python flushes stdout when it exits, and would fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
