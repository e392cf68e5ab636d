"""Flows that cool down: whether a new run comes too soon, and what is kept of it then.

Decided where a run is added, so that of many at once one begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from perdure.model.event import (
    NOTHING,
    NewEvent,
    RunSkipped,
    RunSubmitted,
    decode_event,
    encode_event,
)
from perdure.model.graph import Graph
from perdure.model.ids import RunId
from perdure.model.run import NewRun, RunStatus, RunSummary
from perdure.model.value import Value


class LastRun(Value):
    """The run of a flow that began last, or that was completed last, and when."""

    id: RunId
    at: datetime
    is_completed: bool = False


def with_cooldown(run: NewRun, graph: Graph) -> NewRun:
    """A run that is submitted by itself, which its flow's cooldown is about."""
    cooldown_ms = graph.definition.cooldown_ms
    return replace(run, cooldown=timedelta(milliseconds=cooldown_ms)) if cooldown_ms else run


def cooled(run: NewRun, now: datetime, last: Iterable[LastRun]) -> NewRun:
    """The run as it is to be added: as it is, or skipped because it comes too soon."""
    if run.cooldown is None:
        return run
    too_soon = [each for each in last if each.at + run.cooldown > now]
    if not too_soon:
        return run
    return _skipped(run, max(too_soon, key=lambda each: each.at), run.cooldown)


def _skipped(run: NewRun, last: LastRun, cooldown: timedelta) -> NewRun:
    """It keeps its input, and nothing follows."""
    submitted = decode_event(run.id, 1, run.events[0].data)
    assert isinstance(submitted, RunSubmitted)
    until = last.at + cooldown
    reason = (
        f"flow {run.flow!r} is cooling down until {_text(until)}: run {last.id!r} "
        f"{'was completed' if last.is_completed else 'began'} less than {cooldown} ago"
    )
    end = RunSkipped(reason=reason, last=last.id, until=until)
    return replace(
        run,
        status=RunStatus.SKIPPED,
        events=(
            replace(run.events[0], data=encode_event(replace(submitted, then=NOTHING))),
            NewEvent(data=encode_event(end)),
        ),
        jobs=(),
        waits=(),
        children=(),
        summary=msgspec.json.encode(RunSummary(reason=reason)),
    )


def _text(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
