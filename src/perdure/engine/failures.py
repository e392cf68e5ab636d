"""Convert an exception into a stored ``Failure``: plain text, masked, then truncated.

``engine.retry`` decides whether the failure is retried.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType

from msgspec import UNSET, UnsetType

from perdure.diagnostics import declare, declared
from perdure.errors import (
    PerdureError,
    WorkerCrashed,
    record_text,
)
from perdure.model.failure import Cause, Failure, failure_of, type_name
from perdure.model.job import ClaimedJob
from perdure.model.payload import storable_text

MESSAGE_MAX = 4_000
TRACEBACK_MAX = 16_000
CAUSES_MAX = 8
_OURS = "perdure.worker"

TOO_MANY_CRASHES = declare(
    "job.too_many_crashes",
    "its workers crashed {crashes} times, {alone} times while it was their only job",
    "Find out why it crashes its process, then retry it",
)

Mask = Callable[[str], str]


def too_many_crashes(job: ClaimedJob) -> Failure:
    fault = TOO_MANY_CRASHES.fault(crashes=job.crashes, alone=job.suspicion.alone)
    return failure_of(fault, WorkerCrashed)


def describe(error: BaseException, mask: Mask | None = None) -> Failure:
    """Type, message, traceback and cause chain of an exception.

    ``mask`` removes secrets before strings are truncated. Never raises: the exception's class is
    user code, and an error in its methods may cost only a part of the description.
    """
    try:
        causes = tuple(_causes(error, mask))
    except BaseException:
        causes = ()
    return Failure(
        type=_type(error, mask),
        message=_text(error, mask),
        traceback=_traceback(error, mask),
        causes=causes,
        code=_code(error),
    )


def _causes(error: BaseException, mask: Mask | None) -> list[Cause]:
    causes: list[Cause] = []
    seen = {id(error)}
    below = _below(error)
    while below is not None and id(below) not in seen and len(causes) < CAUSES_MAX:
        seen.add(id(below))
        causes.append(Cause(type=_type(below, mask), message=_text(below, mask)))
        below = _below(below)
    return causes


def _code(error: BaseException) -> str | UnsetType:
    """The code if it is declared: an application's subclass may have any ``code``."""
    try:
        code = error.diagnostic.code if isinstance(error, PerdureError) else UNSET
        return code if type(code) is str and code in declared() else UNSET
    except BaseException:  # an application's subclass may raise anything
        return UNSET


def _below(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None:
        return error.__cause__
    return None if error.__suppress_context__ else error.__context__


def _type(error: BaseException, mask: Mask | None) -> str:
    try:
        return _shorten(type_name(type(error)), MESSAGE_MAX, mask)
    except BaseException:
        return "BaseException"


def _text(error: BaseException, mask: Mask | None) -> str:
    try:
        return _shorten(record_text(error), MESSAGE_MAX, mask)
    except BaseException:  # a broken __str__ must not hide the error it belongs to
        return f"<{_type(error, mask).rpartition('.')[2]} without a readable message>"


def _traceback(error: BaseException, mask: Mask | None) -> str:
    try:
        shown = _without_our_frames(error.__traceback__)
        lines = traceback.format_exception(type(error), error, shown, limit=50)
        return _shorten("".join(lines), TRACEBACK_MAX, mask)
    except BaseException:
        return f"{_type(error, mask)}: {_text(error, mask)}\n"


def _shorten(text: str, limit: int, mask: Mask | None = None) -> str:
    """Keep both ends: the start shows where the error came from, the end what it was."""
    text = storable_text(text if mask is None else mask(text))
    if len(text) <= limit:
        return text
    half = limit // 2 - 10
    return f"{text[:half]}\n… (cut) …\n{text[-half:]}"


def _without_our_frames(frames: TracebackType | None) -> TracebackType | None:
    """Skip the worker's frames, so that the traceback starts in the task's own code."""
    start = frames
    while start is not None and start.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        start = start.tb_next
    return start or frames
