"""Exit codes, and expected errors as one line on stderr instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum

import typer

from perdure.cli.renderer import CliRenderer, one_line
from perdure.errors import InvalidInput, PerdureError, StoreError


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
    """The run that was followed never began: its flow was cooling down."""
    INTERRUPTED = 130


EXIT_CODES = """Exit codes: 0 done; 1 it failed or was refused; 2 the command
cannot be understood; 3 the store cannot be reached or used; 4 or 5 the run that
was followed was cancelled or skipped; 130 interrupted with Ctrl-C."""


def tell(text: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"perdure: {text}\n")


_wants_json: ContextVar[bool] = ContextVar("wants_json", default=False)


def note_json(value: bool) -> bool:
    """Callback of ``--json``: errors of this command are JSON too."""
    _wants_json.set(value)
    return value


def tell_error(error: PerdureError, options: str = "") -> None:
    """One line on stderr: for people, or with ``--json`` an object for programs."""
    if _wants_json.get():
        sys.stderr.write(f"{_error_json(error, options)}\n")
    else:
        tell(error_line(error, options))


def error_line(error: PerdureError, options: str = "") -> str:
    """The error as one line; ``options`` go with every command that it suggests."""
    return one_line(error.render(CliRenderer(options), separator="; "))


def _error_json(error: PerdureError, options: str) -> str:
    import msgspec

    return msgspec.json.encode({"error": error.as_data(CliRenderer(options))}).decode()


@contextmanager
def errors_told(
    report: Callable[[PerdureError, str], object] = tell_error, *, options: str = ""
) -> Iterator[None]:
    """Turn expected errors into one line on stderr and an exit code."""
    try:
        yield
    except PerdureError as error:
        report(error, options)
        raise typer.Exit(exit_code_of(error)) from error
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from interrupt


def exit_code_of(error: PerdureError) -> ExitCode:
    match error:
        case InvalidInput():
            return ExitCode.USAGE
        case StoreError():
            return ExitCode.STORE
        case _:
            return ExitCode.REFUSED
