"""The log of a run, read from its end, without values: what happened last is all that is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure.model.event import Event, StoredEvent, decode_event
from perdure.model.ids import RunId
from perdure.store.contract import EventsBefore, Store

LOG_PAGE = 200
"""How many events are read at once."""

Read = tuple[StoredEvent, Event]


async def latest_first(store: Store, namespace: str, run: RunId) -> AsyncIterator[Read]:
    """The events of a run, as far back as whoever reads them goes."""
    before: int | None = None
    while before is None or before > 1:
        [page] = await store.runs.latest_events(
            [EventsBefore(namespace=namespace, id=run, number=before)], LOG_PAGE
        )
        for stored in page:
            yield stored, decode_event(run, stored.number, stored.data)
        if not page:
            return
        before = page[-1].number
