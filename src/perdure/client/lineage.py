"""The lineage of a run, with the values that its nodes used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perdure.client.access import Access
from perdure.client.results import decoded
from perdure.client.run_acts import RunActs
from perdure.engine.fold import check_contiguous, fold_stored
from perdure.errors import RunNotFound
from perdure.expr.path import MISSING, value_at
from perdure.model.event import StoredEvent, decode_event
from perdure.model.graph import Graph, inputs_of
from perdure.model.ids import RunId
from perdure.model.payload import Codec
from perdure.model.run import RunState
from perdure.operations.insight.lineage import Lineage, NodeLineage, Use, UseOrigin, trace
from perdure.store.contract import EventsAfter


async def lineage(access: Access, acts: RunActs, id: RunId) -> Lineage:
    store = await access.store.opened()
    namespace = await acts.namespace_of(id)
    [loaded] = await store.runs.load([EventsAfter(namespace=namespace, id=id, number=0)])
    if loaded is None:
        raise RunNotFound(run_id=id)
    state, events = RunState(), []
    for stored in loaded.events:
        check_contiguous(id, state.number + 1, stored.number)
        event = decode_event(id, stored.number, stored.data)
        state = fold_stored(id, state, event)
        events.append((stored.number, event))
    graph = await acts.graphs.load(store, namespace, f"{state.flow}@{state.version}")
    values = _Values(loaded.events, access.codec)
    return Lineage(
        run=id,
        flow=state.flow,
        version=state.version,
        nodes=tuple(_with_values(graph, each, values) for each in trace(graph, state, events)),
    )


class _Values:
    """The values of events, each decoded once, when it is asked for."""

    def __init__(self, events: Sequence[StoredEvent], codec: Codec) -> None:
        self._stored = {each.number: each.value for each in events}
        self._codec = codec
        self._decoded: dict[int, Any] = {}

    def of(self, number: int) -> Any:
        if number not in self._decoded:
            stored = self._stored.get(number)
            self._decoded[number] = None if stored is None else decoded(stored, self._codec)
        return self._decoded[number]


def _with_values(graph: Graph, node: NodeLineage, values: _Values) -> NodeLineage:
    defaults = {each.name: each.default for each in inputs_of(graph.nodes[node.id])}
    return replace(
        node,
        uses=tuple(_with_value(use, values, defaults) for use in node.uses),
        parts=tuple(
            replace(part, uses=tuple(_with_value(use, values, defaults) for use in part.uses))
            for part in node.parts
        ),
    )


def _with_value(use: Use, values: _Values, defaults: Mapping[str, Any]) -> Use:
    if use.origin is UseOrigin.SECRET:
        return use
    found = value_at(values.of(use.number), use.path) if use.number else MISSING
    if found is not MISSING:
        return replace(use, value=found)
    return replace(use, value=defaults.get(use.name), is_default=True)
