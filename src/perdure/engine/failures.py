"""How an exception becomes a stored ``Failure``: bounded plain text, masked before it is shortened.

What follows from a failure is decided in ``engine.retry``.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType

from msgspec import UNSET, UnsetType

from perdure.diagnostics import declared
from perdure.errors import (
    PerdureError,
    record_text,
)
from perdure.model.failure import Cause, Failure, type_name
from perdure.model.payload import storable_text

MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000
CAUSES_MAX = 8
_OURS = "perdure.worker"

Masked = Callable[[str], str]


def describe(error: BaseException, masked: Masked | None = None) -> Failure:
    """Type, message, traceback and cause chain of an exception.

    ``masked`` takes out what must not be kept, before texts are shortened.
    Never fails: an exception is code of somebody else's, and what its own methods raise must
    cost no more than a part of the description.
    """
    try:
        causes = tuple(_causes(error, masked))
    except BaseException:
        causes = ()
    return Failure(
        type=_type(error, masked),
        message=_text(error, masked),
        traceback=_traceback(error, masked),
        causes=causes,
        code=_code(error),
    )


def _causes(error: BaseException, masked: Masked | None) -> list[Cause]:
    causes: list[Cause] = []
    seen = {id(error)}
    below = _below(error)
    while below is not None and id(below) not in seen and len(causes) < CAUSES_MAX:
        seen.add(id(below))
        causes.append(Cause(type=_type(below, masked), message=_text(below, masked)))
        below = _below(below)
    return causes


def _code(error: BaseException) -> str | UnsetType:
    """Only a declared one: a subclass of an application's may have any ``code``."""
    try:
        code = error.diagnostic.code if isinstance(error, PerdureError) else UNSET
        return code if type(code) is str and code in declared() else UNSET
    except BaseException:  # a subclass of somebody else's
        return UNSET


def _below(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _type(error: BaseException, masked: Masked | None) -> str:
    try:
        return _shorten(type_name(type(error)), MESSAGE_MAX, masked)
    except BaseException:
        return "BaseException"


def _text(error: BaseException, masked: Masked | None) -> str:
    try:
        return _shorten(record_text(error), MESSAGE_MAX, masked)
    except BaseException:  # a broken __str__ must not hide the error it belongs to
        return f"<{_type(error, masked).rpartition('.')[2]} without a readable message>"


def _traceback(error: BaseException, masked: Masked | None) -> str:
    try:
        shown = _without_our_frames(error.__traceback__)
        lines = traceback.format_exception(type(error), error, shown, limit=50)
        return _shorten("".join(lines), TRACEBACK_MAX, masked)
    except BaseException:
        return f"{_type(error, masked)}: {_text(error, masked)}\n"


def _shorten(text: str, limit: int, masked: Masked | None = None) -> str:
    """Keep both ends: the start says where it came from, the end what it was."""
    text = storable_text(text if masked is None else masked(text))
    if len(text) <= limit:
        return text
    half = limit // 2 - 10
    return f"{text[:half]}\n… (cut) …\n{text[-half:]}"


def _without_our_frames(frames: TracebackType | None) -> TracebackType | None:
    """Start where the task's own code does."""
    start = frames
    while start is not None and start.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        start = start.tb_next
    return start or frames
