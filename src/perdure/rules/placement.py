"""Where the plain functions of a flow run: beside the tasks that they stand between.

They have no settings of their own. In some default queue a key function would wait for a worker
that serves it, or behind less urgent work, though all tasks of its flow have a place elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from msgspec.structs import replace

from perdure.model.graph import Call, Definition, Graph
from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT

Place = tuple[int, str]
"""Priority and queue: the least is the most urgent."""


def place_functions(definition: Definition, functions: Mapping[str, Set[str]]) -> Definition:
    """Give functions the queue and priority of what comes before them, or of their own node.

    ``functions`` are the settings that were given for each, by its name in calls. The nodes stand
    in the order of the work. Where several come before, the most urgent counts.
    """
    if not functions:
        return definition
    graph = Graph(definition)
    places: dict[str, Place] = {}
    nodes = []
    for id, node in graph.nodes.items():
        before = (places[edge.source] for edge in graph.incoming[id])
        place = min(before, default=(PRIORITY_DEFAULT, DEFAULT_QUEUE))
        changes: dict[str, Any] = {}
        for part in ("call", "body", "check", "undo", "notify"):
            call = getattr(node, part, None)
            if not isinstance(call, Call):
                continue
            if call.task in functions:
                call = changes[part] = _moved(call, place, functions[call.task])
            if part in ("call", "body"):
                place = (call.priority, call.queue)
        places[id] = place
        nodes.append(replace(node, **changes) if changes else node)
    return replace(definition, nodes=tuple(nodes))


def places_before(graph: Graph) -> dict[str, Place]:
    """Where a function would run at each node of a flow that is built, by the node's id."""
    found: dict[str, Place] = {}
    places: dict[str, Place] = {}
    for id, node in graph.nodes.items():
        before = (places[edge.source] for edge in graph.incoming[id])
        found[id] = min(before, default=(PRIORITY_DEFAULT, DEFAULT_QUEUE))
        calls = (getattr(node, part, None) for part in ("call", "body"))
        own = [(call.priority, call.queue) for call in calls if isinstance(call, Call)]
        places[id] = own[0] if own else found[id]
    return found


def _moved(call: Call, place: Place, given: Set[str]) -> Call:
    priority, queue = place
    return replace(
        call,
        priority=call.priority if "priority" in given else priority,
        queue=call.queue if "queue" in given else queue,
    )
