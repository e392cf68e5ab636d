"""What a failed assertion says: how things are, why, and what happened so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.client.run_handles import AsyncRunHandle
from perdure.client.run_records import EventRecord
from perdure.diagnostics import render
from perdure.model.explanation import Explanation

EVENTS_MAX = 30
VALUE_MAX = 60


async def told(run: AsyncRunHandle, explanation: Explanation, wanted: str) -> str:
    """That a run is not as it should be, with everything that helps to see why."""
    record, events = await run.record(), await run.events()
    name = f"run {run.id!r} of flow {record.flow!r}"
    status = "" if record.status in wanted else f"; it is {record.status}"
    lines = [f"{name} {wanted}{status}", f"  {explanation.summary}"]
    lines += [f"  - {render(finding)}" for finding in explanation.findings]
    return "\n".join([*lines, "its events:", *_listed(events)])


def event_line(event: EventRecord) -> str:
    """One event, as a failed assertion shows it."""
    what = f"{event.number:>4}  {event.at:%Y-%m-%d %H:%M:%S}  {event.kind}"
    if event.key:
        what += f" {event.key}"
    if event.failure is not None:
        return f"{what}: {event.failure.type}: {event.failure.message}"
    return what if event.value is None else f"{what}: {shortened(event.value)}"


def shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_MAX else f"{text[:VALUE_MAX]}…"


def _listed(events: list[EventRecord]) -> Iterable[str]:
    left_out = len(events) - EVENTS_MAX
    if left_out > 0:
        yield f"      … {left_out} before these"
    for event in events[-EVENTS_MAX:]:
        yield event_line(event)
