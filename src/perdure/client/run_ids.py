"""Ids and other texts that callers give to runs, checked."""

from __future__ import annotations

from typing import Any

from perdure import clock
from perdure.diagnostics import safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.payload import storable_text
from perdure.model.run import RUN_ID_MAX_BYTES

CHILD_MARK = "/"
"""Stands between the id of a run and what names its child."""
REASON_MAX = 2_000


def new_run_id(id: Any) -> RunId:
    """The id for a new run: the caller's own, or one that is made up."""
    if id is None:
        return RunId(clock.new_id())
    checked = run_id(id)
    if len(checked.encode()) > RUN_ID_MAX_BYTES:
        size = len(checked.encode())
        raise InvalidInput(
            f"run id {checked[:40]!r}... has {size} bytes, more than the {RUN_ID_MAX_BYTES} allowed"
        )
    if CHILD_MARK in checked:
        raise InvalidInput(
            f"run id {id!r} must not contain {CHILD_MARK!r}, which names the children of a run"
        )
    return checked


def run_id(id: Any) -> RunId:
    """An id by which a run may be looked up, a child's included."""
    if not isinstance(id, str) or not id or storable_text(id) != id:
        raise InvalidInput(
            f"run id {safe_repr(id)} must be a text of 1 to {RUN_ID_MAX_BYTES} bytes that can be "
            "stored"
        )
    return RunId(id)


def checked_by(by: Any) -> str | None:
    return None if by is None else check.name(by, "by")


def checked_reason(reason: Any) -> str | None:
    return checked_text(reason, "reason")


def checked_text(text: Any, what: str, length_max: int = REASON_MAX) -> str | None:
    """What somebody says for others to read."""
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > length_max:
        shown = safe_repr(text)
        raise InvalidInput(f"{what}={shown} must be a text of at most {length_max} characters")
    return storable_text(text)
