"""Terminal output, one-line errors on stderr, and exit codes.

All output of a command goes through here or through ``Terminal``. Stored text is untrusted:
characters that move the cursor, set the clipboard or reorder a line are escaped.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import TYPE_CHECKING

import click

from perdure.cli.renderer import CliRenderer, one_line
from perdure.errors import InvalidInput, PerdureError, StoreError, WorkerSuperseded
from perdure.model.text import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType, TracebackType


class ExitCode(IntEnum):
    OK = 0
    REFUSED = 1
    """The job or run did not complete, or the operation does not apply to it."""
    USAGE = 2
    """The command line is invalid."""
    STORE = 3
    """The store is unreachable or incompatible with this version."""
    CANCELLED = 4
    """The followed run was cancelled."""
    SKIPPED = 5
    """The followed run never started: its flow was cooling down."""
    SUPERSEDED = 6
    """The worker stopped because another one with its id was started: do not restart it."""
    BODY_RUNS = 7
    """The worker ended its process, because a timed-out sync body did not end: restart it."""
    INTERRUPTED = 130


EXIT_CODES = """Exit codes: 0 success; 1 failed or rejected; 2 invalid command; 3 store
unreachable or unusable; 4 run cancelled; 5 run skipped; 6 superseded by another worker with
the same id; 7 a timed-out task does not end; 130 interrupted with Ctrl-C."""


def exit_code_of(error: PerdureError) -> ExitCode:
    match error:
        case InvalidInput():
            return ExitCode.USAGE
        case StoreError():
            return ExitCode.STORE
        case WorkerSuperseded():
            return ExitCode.SUPERSEDED
        case _:
            return ExitCode.REFUSED


_wants_json: ContextVar[bool] = ContextVar("wants_json", default=False)


def note_json(arguments: Sequence[str]) -> None:
    """With ``--json``, errors are JSON too, including errors in parsing the arguments."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _wants_json.set("--json" in options)


def echo(text: str = "", *, err: bool = False) -> None:
    """Write one line to stdout, or to stderr."""
    click.echo(visible(text), err=err)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Write multi-line text, such as JSON or a traceback."""
    click.echo(visible_lines(text.rstrip("\n")), err=err)


def ask(prompt: str) -> str:
    """Read a line from the terminal."""
    return input(visible(prompt))


def print_message(text: str) -> None:
    """Write one line to stderr, with the name of the program."""
    echo(f"perdure: {text}", err=True)


def print_error(error: PerdureError, renderer: CliRenderer) -> None:
    """Write an error to stderr: one line of text, or a JSON object with ``--json``."""
    if _wants_json.get():
        import msgspec

        data = msgspec.json.encode({"error": error.as_data(renderer)}).decode()
        echo(visible_json(data), err=True)
    else:
        print_message(error_line(error, renderer))


def error_line(error: PerdureError, renderer: CliRenderer) -> str:
    return one_line(error.render(renderer, separator="; "))


def write_text(text: str, output: Path | None) -> None:
    """Write to the file, or to stdout."""
    if output is None:
        echo_lines(text)
        return
    try:
        output.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    except OSError as error:
        from perdure.transfer.format import UNWRITABLE

        fault = UNWRITABLE.fault(path=str(output), reason=error.strerror or str(error))
        raise InvalidInput(fault) from error
    echo(f"wrote {output}", err=True)


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def output_flushed() -> Iterator[None]:
    """Flush stdout; report a failure in one line instead of a traceback."""
    _escape_what_python_prints()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        _discard_output()
        sys.exit(ExitCode.REFUSED)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _discard_output()
        print_message(f"cannot write: {error.strerror}. Free some room, or write elsewhere")
        sys.exit(ExitCode.REFUSED)


def _escape_what_python_prints() -> None:
    """Tracebacks and warnings may quote stored text."""

    def hooks() -> ModuleType:
        from perdure.worker import log_setup  # ``perdure --help`` must not load logging

        return log_setup

    sys.excepthook = _print_unexpected
    sys.unraisablehook = lambda found: hooks().log_unraisable(found)
    threading.excepthook = lambda found: hooks().log_thread_error(found)
    warnings.showwarning = lambda *found, **more: hooks().log_warning(*found, **more)


def _print_unexpected(
    found_type: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    import traceback

    echo_lines("".join(traceback.format_exception(found_type, error, trace)), err=True)


def _discard_output() -> None:
    """Redirect stdout: Python flushes it at exit and would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
