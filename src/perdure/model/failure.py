"""What one failed attempt leaves behind: bounded, plain text, never a pickled exception."""

from __future__ import annotations

import msgspec

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
    code: str | msgspec.UnsetType = msgspec.UNSET
    """Of an error of Perdure's own, such as ``node.no_signal``. Stored only if there is one."""
