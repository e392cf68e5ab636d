"""The graphs of the flows that runs are of: from code at hand, else from the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from perdure.errors import InvalidInput, UnknownFlow
from perdure.model.flow import BuiltFlow
from perdure.model.graph import Graph
from perdure.store.contract import Store


class Graphs:
    """Graphs by ``name@version``. A version is its content, so what is known stays right."""

    def __init__(self, flows: Iterable[BuiltFlow] = ()) -> None:
        self._known: dict[str, Graph] = {}
        self._saved: set[tuple[str, str]] = set()
        for flow in flows:
            self.add(flow)

    def add(self, flow: BuiltFlow) -> None:
        for text, each in flow.with_children().items():
            self._known.setdefault(text, each.graph)

    def __getitem__(self, text: str) -> Graph:
        """A graph that was loaded before."""
        try:
            return self._known[text]
        except KeyError:
            raise UnknownFlow(flow=text, known=tuple(sorted(self._known))) from None

    async def load(self, store: Store, namespace: str, text: str) -> Graph:
        """A graph, with those of the flows that its nodes start."""
        graph = self._known.get(text)
        if graph is None:
            name, _, version = text.rpartition("@")
            data = await store.runs.get_definition(namespace, name, version)
            if data is None:
                raise UnknownFlow(flow=text, known=tuple(sorted(self._known)))
            try:
                graph = Graph.parse(data)
            except (msgspec.DecodeError, RecursionError, InvalidInput) as error:
                raise UnknownFlow(flow=text, known=tuple(sorted(self._known))) from error
            for child in graph.children:
                await self.load(store, namespace, child.text)
            self._known[text] = graph
        return graph

    async def save(self, store: Store, namespace: str, flow: BuiltFlow) -> None:
        """See to it that the store has a flow's definitions: a run keeps the version it has."""
        unsaved: Mapping[str, BuiltFlow] = {
            text: each
            for text, each in flow.with_children().items()
            if (namespace, text) not in self._saved
        }
        for text, each in unsaved.items():
            await store.runs.save_definition(namespace, each.name, each.version, each.graph.data)
            self._saved.add((namespace, text))
        self.add(flow)
