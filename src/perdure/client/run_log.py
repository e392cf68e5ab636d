"""The log of a run, read: every event with its value and with the status that it led to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from perdure.client.results import decoded
from perdure.client.run_records import EventRecord
from perdure.engine.fold import check_contiguous, fold_stored
from perdure.model.event import Event, StoredEvent, decode_event
from perdure.model.ids import Key, RunId
from perdure.model.payload import Codec
from perdure.model.run import RunState

_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_TOLD_APART = frozenset({"type", "node", "key", "failure"})
"""What an event record has a place of its own for."""


class RunLog:
    """Takes the events of a run from the first one on, as they come."""

    def __init__(self, run: RunId, codec: Codec) -> None:
        self.state = RunState()
        self._run = run
        self._codec = codec
        self._values: dict[int, bytes] = {}

    def take(self, events: Iterable[StoredEvent]) -> list[EventRecord]:
        """The next events; ``EventLogCorrupt`` if they do not follow on."""
        return [self._record(stored) for stored in events]

    def _record(self, stored: StoredEvent) -> EventRecord:
        check_contiguous(self._run, self.state.number + 1, stored.number)
        event = decode_event(self._run, stored.number, stored.data)
        self.state = fold_stored(self._run, self.state, event)
        if stored.value is not None:
            self._values[stored.number] = stored.value
        key: str | None = getattr(event, "key", None) or getattr(event, "node", None) or None
        return EventRecord(
            number=stored.number,
            at=stored.at,
            kind=kind_of(event),
            status=self.state.status,
            node=None if key is None else Key.parse(key).node,
            key=key,
            value=self._value(stored.number, event),
            failure=getattr(event, "failure", None),
            details=_details(event),
        )

    def _value(self, number: int, event: Event) -> Any:
        """Its own value, or that of the event it refers to: a route hands on what it got."""
        value = self._values.get(getattr(event, "ref", 0) or number)
        return None if value is None else decoded(value, self._codec)


def kind_of(event: Event) -> str:
    """``NodeCompleted`` is a ``node_completed``."""
    return _INNER_CAPITAL.sub("_", type(event).__name__).lower()


def _details(event: Event) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return {name: value for name, value in plain.items() if name not in _TOLD_APART}
