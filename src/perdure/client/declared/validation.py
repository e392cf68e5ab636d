"""Everything that can be said about a flow in a file before it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from perdure.client.declared.document import FlowFault
from perdure.client.declared.library import Library
from perdure.client.declared.loading import load_with
from perdure.client.declared.needs import secrets_of, tasks_of
from perdure.errors import InvalidFlow
from perdure.model.secret import variable_of
from perdure.model.value import Value


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
