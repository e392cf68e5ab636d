"""Flows that wait for people and signals; the next task returns when it started."""

from __future__ import annotations

import time
from typing import Any

from bench.tasks import noop
from perdure import Flow, task


@task
async def stamp_after(_: Any) -> float:
    """When the task after the wait started, on the caller's clock."""
    return time.time()


FORM = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}},
    "required": ["amount"],
}

ASKED = (
    Flow("asked")
    .then(noop)
    .approve("Pay {{ value }}?", name="ask", deciders=["role:finance"], form=FORM)
    .then(stamp_after)
    .build()
)
ASKED_OTHERS = (
    Flow("asked-others")
    .then(noop)
    .approve("Sign {{ value }}?", name="ask", deciders=["role:legal"])
    .then(stamp_after)
    .build()
)
TOLD = Flow("told").then(noop).wait_for_signal("news").then(stamp_after).build()
WAITING_FLOWS = [ASKED, ASKED_OTHERS, TOLD]
