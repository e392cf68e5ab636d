"""What one failed attempt leaves behind: bounded, plain text, never a pickled exception."""

from __future__ import annotations

from perdure.model.value import Value


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
