"""Validate a file, and list what its flow needs of workers: tasks by name, and secrets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from perdure.errors import InvalidFlow
from perdure.expr.template import template_names
from perdure.flows.built import BuiltFlow
from perdure.flows.check import SECRET
from perdure.flows.yaml.library import Library
from perdure.flows.yaml.parse import FlowFault
from perdure.flows.yaml.sources import load_with
from perdure.model.graph import Call, Node, TaskNode, inputs_of
from perdure.model.value import Value
from perdure.tasks.secret import variable_of
from perdure.tasks.task import PlainFunction

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


class FileReport(Value, gc=True):
    """What was found in one file. Without errors it has the flow's name, and what it needs."""

    file: str
    errors: tuple[FlowFault, ...] = ()
    warnings: tuple[str, ...] = ()
    flow: str = ""
    version: str | None = None
    """None where tasks or flows that it names are not at hand: their settings are part of it."""
    nodes: int = 0
    tasks: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    """Tasks and flows that are named, and taken to be there."""
    secrets: tuple[str, ...] = ()


class Expectations(Value, gc=True):
    """What is known of the world in which the flow is to run."""

    environment: Mapping[str, str]
    registered: Collection[str] | None = None
    """The tasks that live workers have; None: nobody was asked."""
    versions: Collection[str] = ()
    """The versions of flows that live workers have, as ``name@version``."""
    is_strict: bool = False


def validate_file(
    path: Path, make_library: Callable[[], Library], expected: Expectations
) -> FileReport:
    """Read one file, and say what is wrong with it."""
    library = make_library()
    try:
        flow = load_with(path, library)
    except InvalidFlow as error:
        return FileReport(file=str(path), errors=tuple(map(_fault, error.errors)))
    tasks, secrets = tasks_of(flow), secrets_of(flow)
    unchecked = sorted({*library.made_up, *library.made_up_flows})
    warnings: list[str] = []
    errors: list[FlowFault] = []
    if unchecked and any(text.startswith(f"{flow.name}@") for text in expected.versions):
        warnings.append(
            f"workers have flow {flow.name!r}; with --app it is said if in this version"
        )
    elif expected.registered is not None and flow.graph.text not in expected.versions:
        lacking = [task for task in tasks if task not in expected.registered]
        errors += [_at(path, f"no live worker registers task {task!r}") for task in lacking]
    missing = [
        f"secret {name!r} is not in this environment: {variable_of(name)}"
        for name in secrets
        if not expected.environment.get(variable_of(name))
    ]
    if expected.is_strict:
        errors += [_at(path, each) for each in missing]
    else:
        warnings += missing
    return FileReport(
        file=str(path),
        errors=tuple(errors),
        warnings=tuple(warnings),
        flow=flow.name,
        version=None if unchecked else flow.version,
        nodes=len(flow.graph.nodes),
        tasks=tuple(tasks),
        unchecked=tuple(unchecked),
        secrets=tuple(secrets),
    )


def _fault(text: str) -> FlowFault:
    return text if isinstance(text, FlowFault) else FlowFault(text, mark=None)


def _at(path: Path, message: str) -> FlowFault:
    return FlowFault(message, file=str(path), mark=None)
