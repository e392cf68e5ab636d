"""Flows that wait for people and signals; what follows the wait tells when it began."""

from __future__ import annotations

import time
from typing import Any

from bench.tasks import noop
from perdure import Flow, task


@task
async def stamp_after(_: Any) -> float:
    """When the body after the wait began, on the clock that the caller reads too."""
    return time.time()


FORM = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "minimum": 1}},
    "required": ["amount"],
}

ASKED = (
    Flow("asked")
    .then(noop)
    .approve("Pay {{ value }}?", name="ask", deciders=["finance"], form=FORM)
    .then(stamp_after)
    .build()
)
ASKED_OTHERS = (
    Flow("asked-others")
    .then(noop)
    .approve("Sign {{ value }}?", name="ask", deciders=["legal"])
    .then(stamp_after)
    .build()
)
TOLD = Flow("told").then(noop).wait_for_signal("news").then(stamp_after).build()
WAITING_FLOWS = [ASKED, ASKED_OTHERS, TOLD]
