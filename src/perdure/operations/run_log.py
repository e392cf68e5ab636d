"""The log of a run, read as event records, from its start or from its end."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from perdure.engine import snapshot
from perdure.engine.fold import check_complete, check_contiguous, fold_stored
from perdure.errors import RunNotFound
from perdure.model.event import Event, StoredEvent, decode_event
from perdure.model.graph import Node, type_of
from perdure.model.ids import Key, RunId
from perdure.model.payload import Codec
from perdure.model.run import NodeStatus, Run, RunState, Snapshot
from perdure.operations.records import EventRecord, NodeRecord, decoded
from perdure.store.contract import EventsAfter, EventsBefore, Store

LOG_PAGE = 200
"""Events per read from the end of a log."""

_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_OWN_FIELDS = frozenset({"type", "node", "key", "failure"})
"""Event fields that an event record has fields for."""
_PUBLIC_NAMES = {"then": "effects", "arrived": "edge_counts"}
"""Current names of fields that logs store under an older name."""

NOTHING_YET = RunState()

PACKED_MAX_BYTES = 2_200
"""Maximum size of a state in a cursor, so that the cursor fits into a URL."""
UNPACKED_MAX_BYTES = 256 * 1024

ReadEvent = tuple[StoredEvent, Event]


class RunLog:
    """Folds the events of a run as they arrive, from the first one or from a state."""

    def __init__(self, run: RunId, codec: Codec, state: RunState = NOTHING_YET) -> None:
        self.state = state
        self.values: dict[int, bytes] = {}
        """By event number, as stored."""
        self._run = run
        self._codec = codec

    def take(self, events: Iterable[StoredEvent]) -> list[EventRecord]:
        """Return the next events; raises ``EventLogCorrupt`` if they leave a gap."""
        return [self._record(stored) for stored in events]

    async def read(self, store: Store, namespace: str, last: int) -> list[EventRecord]:
        """Return the next events up to number ``last``, and read nothing else of the log."""
        count = last - self.state.number
        before = EventsBefore(namespace=namespace, id=self._run, number=last + 1)
        [latest] = await store.runs.latest_events([before], count)
        if not latest:  # pruned concurrently
            raise RunNotFound(run_id=self._run)
        events = (decode_event(self._run, each.number, each.data) for each in latest)
        numbers = {
            getattr(event, "ref", 0) or stored.number
            for stored, event in zip(latest, events, strict=True)
        }
        self.values |= await store.runs.event_values(namespace, self._run, sorted(numbers))
        check_complete(self._run, last, latest[0].number)
        return self.take(reversed(latest))

    def _record(self, stored: StoredEvent) -> EventRecord:
        check_contiguous(self._run, self.state.number + 1, stored.number)
        event = decode_event(self._run, stored.number, stored.data)
        self.state = fold_stored(self._run, self.state, event)
        if stored.value is not None:
            self.values[stored.number] = stored.value
        key: str | None = getattr(event, "key", None) or getattr(event, "node", None) or None
        stored_fields: dict[str, Any] = msgspec.to_builtins(event)
        details = _public({k: v for k, v in stored_fields.items() if k not in _OWN_FIELDS})
        if "effects" in details:
            details["effects"] = _public(details["effects"])
        # The event's own value, or that of the event it refers to: a route passes its input on.
        return EventRecord(
            number=stored.number,
            at=stored.at,
            type=event_type(event),
            status=self.state.status,
            node=None if key is None else Key.parse(key).node,
            key=key,
            value=self.value(getattr(event, "ref", 0) or stored.number),
            failure=getattr(event, "failure", None),
            details=details,
        )

    def value(self, number: int) -> Any:
        """The value of a folded event, as plain values; None if it has none."""
        value = self.values.get(number)
        return None if value is None else decoded(value, self._codec)


def _public(fields: dict[str, Any]) -> dict[str, Any]:
    return {_PUBLIC_NAMES.get(name, name): value for name, value in fields.items()}


def pack_state(state: RunState) -> bytes:
    """A state packed for a cursor; empty if too large: the next page then folds the log again."""
    packed = zlib.compress(snapshot.take(state).data)
    return packed if len(packed) <= PACKED_MAX_BYTES else b""


def unpack_state(packed: bytes, number: int) -> RunState | None:
    """The state packed in a cursor; None if it is missing or cannot be trusted."""
    if not number:
        return NOTHING_YET
    try:
        data = zlib.decompressobj().decompress(packed, UNPACKED_MAX_BYTES)
        return snapshot.restore(Snapshot(number=number, data=data))
    except (zlib.error, TypeError, AttributeError, RecursionError):  # cursors come from callers
        return None


async def state_at(store: Store, run: Run, number: int) -> RunState:
    """Fold the log of a run up to an event."""
    [loaded] = await store.runs.load([EventsAfter(namespace=run.namespace, id=run.id, number=0)])
    if loaded is None:
        raise RunNotFound(run_id=run.id)
    state = NOTHING_YET
    for stored in loaded.events[:number]:
        check_contiguous(run.id, state.number + 1, stored.number)
        state = fold_stored(run.id, state, decode_event(run.id, stored.number, stored.data))
    return state


def node_record(log: RunLog, node: Node) -> NodeRecord:
    """The record of a node, as of the folded events."""
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
    """The type of an event: ``node_completed`` for ``NodeCompleted``."""
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
