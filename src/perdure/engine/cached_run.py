"""``CachedRun``: a run in memory, with its state, its graph and the values read so far."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.engine.fold import check_contiguous, fold_stored
from perdure.engine.snapshot import restore
from perdure.errors import ValueMissing
from perdure.model.event import StoredEvent, decode_event
from perdure.model.graph import Graph
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.run import LoadedRun, Run, RunState

VALUES_MAX_BYTES = 16 * 1024 * 1024
"""Values cached per run between two steps; older ones are read again when needed."""


class RunValues:
    """JSON by event number. Missing values are read when a decision needs them."""

    __slots__ = ("_codec", "_json", "_list_bytes", "lists", "size_bytes")

    def __init__(self, codec: Codec) -> None:
        self.lists: dict[str, list[bytes]] = {}
        self.size_bytes = 0
        self._codec = codec
        self._json: dict[int, bytes] = {}
        self._list_bytes: dict[str, int] = {}

    def json(self, number: int) -> bytes:
        try:
            return self._json[number]
        except KeyError:
            raise ValueMissing(numbers=(number,)) from None

    def __contains__(self, number: int) -> bool:
        return number in self._json

    def put(self, number: int, json: bytes) -> None:
        self.size_bytes += len(json) - len(self._json.get(number, b""))
        self._json[number] = json

    def trim(self) -> None:
        """Drop the oldest values if there are too many; only between two decisions."""
        for node in self.lists.keys() - self._list_bytes.keys():
            self._list_bytes[node] = sum(map(len, self.lists[node]))
            self.size_bytes += self._list_bytes[node]
        if self.size_bytes <= VALUES_MAX_BYTES:
            return
        for number in list(self._json):
            self.size_bytes -= len(self._json.pop(number))
            if self.size_bytes <= VALUES_MAX_BYTES:
                return
        self.lists.clear()
        self._list_bytes.clear()
        self.size_bytes = 0

    def put_stored(self, number: int, value: bytes) -> None:
        """Decode and add a value as stored."""
        self.put(number, self._codec.decode(value))

    def missing(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if number and number not in self._json]


class CachedRun:
    """A state that the store had at some time; a commit checks whether it is still current."""

    __slots__ = (
        "as_of",
        "created_at",
        "graph",
        "id",
        "namespace",
        "snapshot_number",
        "state",
        "values",
    )

    def __init__(self, run: Run, graph: Graph, state: RunState, values: RunValues) -> None:
        self.namespace = run.namespace
        self.id = run.id
        self.created_at = run.created_at
        """Distinguishes the run from a later one with the same id."""
        self.as_of = run.updated_at
        """The store's time of the latest known write."""
        self.graph = graph
        self.state = state
        self.values = values
        self.values.trim()
        self.snapshot_number = 0

    def catch_up(self, events: Iterable[StoredEvent]) -> None:
        """Fold events that others wrote."""
        self.state = folded(self.id, self.state, events, self.values)
        self.values.trim()


def folded(
    run: RunId, state: RunState, events: Iterable[StoredEvent], values: RunValues
) -> RunState:
    """The state after these events; raises if there is a gap."""
    for event in events:
        check_contiguous(run, state.number + 1, event.number)
        if event.value is not None:
            values.put_stored(event.number, event.value)
        state = fold_stored(run, state, decode_event(run, event.number, event.data))
    return state


def restored(loaded: LoadedRun, codec: Codec) -> tuple[RunState, RunValues, int] | None:
    """State, values, and the snapshot's number; None if the snapshot cannot be trusted."""
    values = RunValues(codec)
    state, number = RunState(), 0
    if loaded.snapshot is not None:
        kept = restore(loaded.snapshot)
        if kept is None or kept.number > loaded.run.number:
            return None
        state, number = kept, kept.number
    return folded(loaded.run.id, state, loaded.events, values), values, number
