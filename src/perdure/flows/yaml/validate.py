"""Validate a file, and list the tasks and secrets that its flow needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidFlow
from perdure.expr.template import template_names
from perdure.flows.built import BuiltFlow
from perdure.flows.check import SECRET
from perdure.flows.yaml.library import Library
from perdure.flows.yaml.load import load_with
from perdure.flows.yaml.parse import located
from perdure.model.graph import Call, Node, TaskNode, inputs_of
from perdure.model.value import Value
from perdure.tasks.secret import variable_of
from perdure.tasks.task import PlainFunction

VERSION_UNCHECKED = declare(
    "flow.version_unchecked",
    "workers serve flow {flow!r}, but its version cannot be compared without the code it names",
)
NOT_REGISTERED = declare("flow.not_registered", "no live worker registers task {task!r}")
NO_SECRET = declare("flow.no_secret", "secret {secret!r} is not in this environment: {variable}")

_CALLS = ("call", "body", "check", "undo", "notify")


def tasks_of(flow: BuiltFlow) -> list[str]:
    """The registered tasks of the flow and its child flows, without plain functions."""
    found = {
        call.task
        for each in flow.with_children().values()
        for node in each.graph.nodes.values()
        for call in _calls(node)
        if not isinstance(each.tasks[call.task], PlainFunction)
    }
    return sorted(found)


def secrets_of(flow: BuiltFlow) -> list[str]:
    """The secrets of the flow and its child flows."""
    graphs = [each.graph for each in flow.with_children().values()]
    return sorted(
        {name for graph in graphs for node in graph.nodes.values() for name in _secrets(node)}
    )


def _calls(node: Node) -> Iterator[Call]:
    for part in _CALLS:
        call = getattr(node, part, None)
        is_own = part == "call" and isinstance(node, TaskNode) and bool(node.type)
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
    """The result for one file. Without faults, it describes the flow and its requirements."""

    file: str
    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()
    flow: str = ""
    version: str | None = None
    """None if tasks or flows are unknown, since the version depends on their settings."""
    nodes: int = 0
    tasks: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    """Unknown tasks and flows, assumed to exist."""
    secrets: tuple[str, ...] = ()


class Expectations(Value, gc=True):
    """The environment and workers to validate against."""

    environment: Mapping[str, str]
    registered: Collection[str] | None = None
    """The tasks of live workers; None if unknown."""
    versions: Collection[str] = ()
    """The flows of live workers, as ``name@version``."""
    is_strict: bool = False


def validate_file(
    path: Path, make_library: Callable[[], Library], expected: Expectations
) -> FileReport:
    """Validate one file."""
    library = make_library()
    try:
        flow = load_with(path, library)
    except InvalidFlow as error:
        return FileReport(file=str(path), faults=error.faults)
    tasks, secrets = tasks_of(flow), secrets_of(flow)
    unchecked = sorted({*library.placeholders, *library.placeholder_flows})
    faults: list[Fault] = []
    warnings: list[Fault] = []
    if unchecked and any(text.startswith(f"{flow.name}@") for text in expected.versions):
        warnings.append(VERSION_UNCHECKED.fault(flow=flow.name))
    elif expected.registered is not None and flow.graph.text not in expected.versions:
        lacking = [task for task in tasks if task not in expected.registered]
        faults += (NOT_REGISTERED.fault(task=task) for task in lacking)
    missing = [
        NO_SECRET.fault(secret=name, variable=variable_of(name))
        for name in secrets
        if not expected.environment.get(variable_of(name))
    ]
    (faults if expected.is_strict else warnings).extend(missing)
    return FileReport(
        file=str(path),
        faults=tuple(located(each, str(path)) for each in faults),
        warnings=tuple(located(each, str(path)) for each in warnings),
        flow=flow.name,
        version=None if unchecked else flow.version,
        nodes=len(flow.graph.nodes),
        tasks=tuple(tasks),
        unchecked=tuple(unchecked),
        secrets=tuple(secrets),
    )
