"""What a flow needs of the workers that execute it: tasks by name, and secrets."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.model.flow import BuiltFlow
from perdure.model.graph import Call, Node, TaskNode, inputs_of
from perdure.model.task import PlainFunction
from perdure.rules.input_check import SECRET
from perdure.rules.template import template_names

_CALLS = ("call", "body", "check", "undo", "notify")


def tasks_of(flow: BuiltFlow) -> list[str]:
    """The registered tasks that its nodes call; what comes with the flow itself is not among them.

    Those of its children are.
    """
    found = {
        call.task
        for each in flow.with_children().values()
        for node in each.graph.nodes.values()
        for call in _calls(node)
        if not isinstance(each.tasks[call.task], PlainFunction)
    }
    return sorted(found)


def secrets_of(flow: BuiltFlow) -> list[str]:
    """The secrets that its nodes ask for, and those of its children."""
    graphs = [each.graph for each in flow.with_children().values()]
    return sorted(
        {name for graph in graphs for node in graph.nodes.values() for name in _secrets(node)}
    )


def _calls(node: Node) -> Iterator[Call]:
    for part in _CALLS:
        call = getattr(node, part, None)
        is_own = part == "call" and isinstance(node, TaskNode) and bool(node.kind)
        if isinstance(call, Call) and not is_own:
            yield call


def _secrets(node: Node) -> Iterator[str]:
    for each in inputs_of(node):
        if each.secret:
            yield each.secret
    if isinstance(node, TaskNode):
        for use in template_names(node.config):
            if use.name == SECRET and use.path:
                yield use.path[0]
