"""Ids of runs, checked."""

from __future__ import annotations

from typing import Any

from perdure import clock
from perdure.diagnostics import declare, truncate
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.ids import RunId
from perdure.model.run import RUN_ID_MAX_BYTES

CHILD_MARK = "/"
"""Stands between the id of a run and what names its child."""
REASON_MAX = 2_000
"""Characters of a reason or a note."""
ID_TOO_LONG = declare(
    "run.id_too_long", "run id {id!r} has {size_bytes} bytes, more than the {most} allowed"
)
ID_RESERVED = declare(
    "run.id_reserved", "run id {id!r} must not contain {mark!r}, which separates child runs"
)


def new_run_id(id: Any) -> RunId:
    """The id for a new run: the caller's own, or one that is made up."""
    if id is None:
        return RunId(clock.new_id())
    checked = run_id(id)
    if (size := len(checked.encode())) > RUN_ID_MAX_BYTES:
        shown = truncate(checked, 60)
        raise InvalidInput(ID_TOO_LONG.fault(id=shown, size_bytes=size, most=RUN_ID_MAX_BYTES))
    if CHILD_MARK in checked:
        raise InvalidInput(ID_RESERVED.fault(id=checked, mark=CHILD_MARK))
    return checked


def run_id(id: Any) -> RunId:
    """An id by which a run may be looked up, a child's included."""
    return RunId(check.name(id, "id", most=None, label="run id"))
