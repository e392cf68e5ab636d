"""From an exception to the bounded, plain text that is kept of it."""

from __future__ import annotations

import traceback
from types import TracebackType

from perdure.model.failure import Cause, Failure
from perdure.model.payload import storable_text
from perdure.model.retry import type_name

MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000
CAUSES_MAX = 8
_OURS = "perdure.worker"


def describe(error: BaseException) -> Failure:
    """Type, message, traceback and cause chain of an exception."""
    shown = _without_our_frames(error.__traceback__)
    lines = traceback.format_exception(type(error), error, shown, limit=50)
    return Failure(
        type=type_name(type(error)),
        message=_shorten(_text(error), MESSAGE_MAX),
        traceback=_shorten("".join(lines), TRACEBACK_MAX),
        causes=tuple(_causes(error)),
    )


def _causes(error: BaseException) -> list[Cause]:
    causes: list[Cause] = []
    seen = {id(error)}
    below = _below(error)
    while below is not None and id(below) not in seen and len(causes) < CAUSES_MAX:
        seen.add(id(below))
        message = _shorten(_text(below), MESSAGE_MAX)
        causes.append(Cause(type=type_name(type(below)), message=message))
        below = _below(below)
    return causes


def _below(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a broken __str__ must not hide the error it belongs to
        return f"<{type(error).__qualname__} without a readable message>"


def _shorten(text: str, limit: int) -> str:
    """Keep both ends: the start says where it came from, the end what it was."""
    text = storable_text(text)
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
