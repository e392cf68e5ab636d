"""One run in memory: its graph, its state, and the values at hand."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.engine.run_values import RunValues
from perdure.model.event import StoredEvent, decode_event
from perdure.model.graph import Graph
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.run import LoadedRun, Run, RunState
from perdure.rules.fold import check_contiguous, fold_stored
from perdure.rules.snapshot import restore


class CachedRun:
    """Always a state that the store had at some time; a commit tells whether it still has it."""

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
        """By it a run is told from another that took its id."""
        self.as_of = run.updated_at
        """The store's time of the last write that is known of."""
        self.graph = graph
        self.state = state
        self.values = values
        self.values.trim()
        self.snapshot_number = 0

    def catch_up(self, events: Iterable[StoredEvent]) -> None:
        """Take in what others wrote."""
        self.state = folded(self.id, self.state, events, self.values)
        self.values.trim()


def folded(
    run: RunId, state: RunState, events: Iterable[StoredEvent], values: RunValues
) -> RunState:
    """The state after these events, which must follow on without a gap."""
    for event in events:
        check_contiguous(run, state.number + 1, event.number)
        if event.value is not None:
            values.put_stored(event.number, event.value)
        state = fold_stored(run, state, decode_event(run, event.number, event.data))
    return state


def restored(loaded: LoadedRun, codec: Codec) -> tuple[RunState, RunValues, int] | None:
    """State, values, and the snapshot's number; None if the snapshot is not to be trusted."""
    values = RunValues(codec)
    state, number = RunState(), 0
    if loaded.snapshot is not None:
        kept = restore(loaded.snapshot)
        if kept is None or kept.number > loaded.run.number:
            return None
        state, number = kept, kept.number
    return folded(loaded.run.id, state, loaded.events, values), values, number
