"""Logs with times: what was played by hand, as a store would have kept it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from perdure.model.event import Event, StoredEvent, encode_event
from perdure.operations.insight.timeline import timeline_of
from perdure.render.timeline import Timeline, TimelineRow
from tests.rules.played import Played

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def stored(events: Sequence[Event]) -> list[StoredEvent]:
    """One event a second, the first one at ``START``."""
    return [
        StoredEvent(number=number, at=START + (number - 1) * SECOND, data=encode_event(event))
        for number, event in enumerate(events, 1)
    ]


def timeline(run: Played, *, after: timedelta = timedelta(0)) -> Timeline:
    """The timeline of a run, looked at so long after its last event."""
    events = stored(run.log.events)
    return timeline_of(run.id, events, events[-1].at + after)


def row(of: Timeline, node: str) -> TimelineRow:
    [found] = [each for each in of.rows if each.node == node]
    return found


def seconds(moment: datetime | None) -> float | None:
    return None if moment is None else (moment - START).total_seconds()
