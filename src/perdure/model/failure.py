"""What one failed attempt leaves behind: bounded, plain text, never a pickled exception."""

from __future__ import annotations

import msgspec

from perdure.diagnostics import RECORD, Fault, render
from perdure.errors import InvalidInput, PerdureError
from perdure.model.value import Value


def type_name(error_type: type[BaseException]) -> str:
    """How an exception type is named in a stored failure."""
    if error_type.__module__ == "builtins":
        return error_type.__qualname__
    return f"{error_type.__module__}.{error_type.__qualname__}"


_STORED_NAMES = {
    "perdure.errors.ClaimLost": "perdure.errors.StaleClaim",
    "perdure.errors.ExternalFailed": "perdure.errors.OutsideFailed",
    "perdure.errors.JobUnsuccessful": "perdure.errors.JobEnded",
    "perdure.errors.NotDecider": "perdure.errors.NotADecider",
    "perdure.errors.PayloadNotSerializable": "perdure.errors.PayloadNotSerialisable",
    "perdure.errors.ProcessCrashed": "perdure.errors.ProcessDied",
    "perdure.errors.RunUnsuccessful": "perdure.errors.RunEndedBadly",
    "perdure.errors.UnknownNodeType": "perdure.errors.UnknownKind",
    "perdure.errors.WorkerCrashed": "perdure.errors.WorkerDied",
}
"""Errors that policies are stored with under an earlier name, which flow versions hash."""


_CURRENT_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}


def stored_name(name: str) -> str:
    """The name of an error type as flows store and hand it on."""
    return _STORED_NAMES.get(name, name)


def current_name(stored: str) -> str:
    """The name that the type of a stored name has now."""
    return _CURRENT_NAMES.get(stored, stored)


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
