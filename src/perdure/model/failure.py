"""What one failed attempt leaves behind: bounded, plain text, never a pickled exception."""

from __future__ import annotations

import msgspec

from perdure.diagnostics import RECORD, Fault, render
from perdure.errors import InvalidInput, PerdureError
from perdure.model.value import Value


def type_name(error_type: type[BaseException]) -> str:
    """How an exception type is named in a policy and in a stored failure."""
    if error_type.__module__ == "builtins":
        return error_type.__qualname__
    return f"{error_type.__module__}.{error_type.__qualname__}"


class Cause(Value):
    """One link of the chain below an error."""

    type: str
    message: str


class Failure(Value):
    """Why an attempt failed. ``type`` is the exception's qualified name."""

    type: str
    message: str
    traceback: str = ""
    causes: tuple[Cause, ...] = ()
    code: str | msgspec.UnsetType = msgspec.UNSET
    """Of an error of Perdure's own, such as ``node.no_signal``. Stored only if there is one."""


def failure_of(fault: Fault, error: type[PerdureError] = InvalidInput) -> Failure:
    """What is recorded where there was no exception: an engine or a store decided it."""
    return Failure(type=type_name(error), message=render(fault, RECORD), code=fault.code)
