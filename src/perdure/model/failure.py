"""The stored form of a failure: bounded plain strings, never a pickled exception."""

from __future__ import annotations

import msgspec

from perdure.diagnostics import RECORD, Fault, render
from perdure.errors import InvalidInput, PerdureError
from perdure.model.value import Value


def type_name(error_type: type[BaseException]) -> str:
    """The qualified name of an exception type, as stored in failures."""
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
"""Earlier names of errors, under which retry policies are stored: flow versions hash them."""


_CURRENT_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}


def stored_name(name: str) -> str:
    """The name under which an error type is stored."""
    return _STORED_NAMES.get(name, name)


def current_name(stored: str) -> str:
    """The current name of a stored error type."""
    return _CURRENT_NAMES.get(stored, stored)


class Cause(Value):
    """One exception in the chain of causes."""

    type: str
    message: str


class Failure(Value):
    """Why an attempt failed. ``type`` is the exception's qualified name."""

    type: str
    message: str
    traceback: str = ""
    causes: tuple[Cause, ...] = ()
    code: str | msgspec.UnsetType = msgspec.UNSET
    """The code of a Perdure error, such as ``node.no_signal``. Only stored if set."""


def failure_of(fault: Fault, error: type[PerdureError] = InvalidInput) -> Failure:
    """The failure for a decision of the engine or store, without an exception."""
    return Failure(type=type_name(error), message=render(fault, RECORD), code=fault.code)
