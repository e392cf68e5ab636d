"""The log of a run, read as event records, from its start or from its end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from perdure.engine.fold import check_contiguous, fold_stored
from perdure.model.event import Event, StoredEvent, decode_event
from perdure.model.graph import Node, type_of
from perdure.model.ids import Key, RunId
from perdure.model.payload import Codec
from perdure.model.run import NodeStatus, RunState
from perdure.operations.records import EventRecord, NodeRecord, decoded
from perdure.store.contract import EventsBefore, Store

LOG_PAGE = 200
"""Events that are read at once from the end of a log."""

_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_OWN_FIELDS = frozenset({"type", "node", "key", "failure"})
"""What an event record has its own fields for."""

ReadEvent = tuple[StoredEvent, Event]


class RunLog:
    """Takes the events of a run from the first one on, as they come."""

    def __init__(self, run: RunId, codec: Codec) -> None:
        self.state = RunState()
        self.values: dict[int, bytes] = {}
        """By event number, as stored."""
        self._run = run
        self._codec = codec

    def take(self, events: Iterable[StoredEvent]) -> list[EventRecord]:
        """Return the next events; raises ``EventLogCorrupt`` if they leave a gap."""
        return [self._record(stored) for stored in events]

    def _record(self, stored: StoredEvent) -> EventRecord:
        check_contiguous(self._run, self.state.number + 1, stored.number)
        event = decode_event(self._run, stored.number, stored.data)
        self.state = fold_stored(self._run, self.state, event)
        if stored.value is not None:
            self.values[stored.number] = stored.value
        key: str | None = getattr(event, "key", None) or getattr(event, "node", None) or None
        plain: dict[str, Any] = msgspec.to_builtins(event)
        # The event's own value, or that of the one it refers to: a route hands on what it got.
        return EventRecord(
            number=stored.number,
            at=stored.at,
            type=event_type(event),
            status=self.state.status,
            node=None if key is None else Key.parse(key).node,
            key=key,
            value=self.value(getattr(event, "ref", 0) or stored.number),
            failure=getattr(event, "failure", None),
            details={name: value for name, value in plain.items() if name not in _OWN_FIELDS},
        )

    def value(self, number: int) -> Any:
        """The value of an event that was taken, as plain values; None if it has none."""
        value = self.values.get(number)
        return None if value is None else decoded(value, self._codec)


def node_record(log: RunLog, node: Node) -> NodeRecord:
    """How far the run is with a node, as of the events that were taken."""
    found_type = type_of(node)
    state = log.state.nodes.get(node.id)
    if state is None:
        return NodeRecord(id=node.id, type=found_type)
    progress = log.state.maps.get(node.id)
    return NodeRecord(
        id=node.id,
        type=found_type,
        status=state.status,
        output=log.value(state.ref) if state.status is NodeStatus.COMPLETED else None,
        port=state.port,
        iteration=state.iteration,
        items=None if progress is None else progress.count,
        items_completed=None if progress is None else len(progress.refs),
        has_failed=state.has_failed,
    )


def event_type(event: Event) -> str:
    """``NodeCompleted`` is a ``node_completed``."""
    return _INNER_CAPITAL.sub("_", type(event).__name__).lower()


async def latest_first(store: Store, namespace: str, run: RunId) -> AsyncIterator[ReadEvent]:
    """Yield the events of a run without values, the latest first; reads only as far as needed."""
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
