"""Files of flows, and the tasks, node types and child flows that they may name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from perdure.diagnostics import Fault, declare, near, safe_repr
from perdure.errors import DuplicateTask, InvalidFlow, InvalidInput
from perdure.flows.builder import Flow
from perdure.flows.built import NOT_BUILT, BuiltFlow
from perdure.flows.yaml.parse import (
    TEXT_MAX,
    TOO_LONG,
    Document,
    invalid,
    located,
    read_json,
    read_yaml,
)
from perdure.model import check
from perdure.nodes.registry import NodeTypes
from perdure.tasks.node_type import NodeType, without_options
from perdure.tasks.task import PlainFunction, Task, task

AnyTask = Task[..., Any]
AnyNodeTypes = NodeTypes | Iterable[NodeType | type[NodeType]]
Tasks = Iterable[AnyTask | BuiltFlow]
LoadFile = Callable[[str], BuiltFlow]
Compile = Callable[["Document", "Library", LoadFile], BuiltFlow]

FILE_ENDINGS = (".yaml", ".yml", ".json")
_BYTES_MAX = 4 * TEXT_MAX
_FILES_DEEP_MAX = 50
_KNOWN_MAX = 12
"""Most names listed in a message."""

NEITHER_TASK_NOR_FLOW = declare(
    "flow.neither_task_nor_flow", "tasks has {value}, which is neither a task nor a built flow"
)
UNKNOWN_TASK = declare(
    "flow.unknown_task", "unknown task {name!r}[; did you mean {nearest:or}?][; known: {known}]"
)
UNKNOWN_CHILD = declare(
    "flow.unknown_child", "unknown flow {name!r}[; did you mean {nearest:or}?][; known: {known}]"
)
WHICH_VERSION = declare(
    "flow.which_version", "flow {name!r} has several versions", "Name one: {versions:or}"
)
NO_FILE = declare("flow.no_file", "{name!r} is a file, but this flow was not loaded from a file")
OUTSIDE_FOLDER = declare("flow.outside_folder", "file {name!r} is outside the folder of this flow")
FILE_CYCLE = declare("flow.file_cycle", "child flows form a cycle: {chain}")
FILES_TOO_DEEP = declare(
    "flow.files_too_deep", "child flows are nested more than {most} files deep"
)
UNREADABLE = declare("flow.unreadable", "cannot be read: {reason}")
ENCODING = declare("yaml.encoding", "is not UTF-8: {reason} at byte {at}")


class Library:
    """The tasks, node types and flows that a flow in YAML or as data may name.

    A flow in ``tasks`` adds its tasks and child flows. With ``is_open``, unknown tasks and flows
    get placeholders instead of being faults.
    """

    def __init__(
        self,
        tasks: Tasks = (),
        node_types: AnyNodeTypes = (),
        flows: Iterable[BuiltFlow] = (),
        *,
        is_open: bool = False,
    ) -> None:
        self.node_types = node_types if isinstance(node_types, NodeTypes) else NodeTypes(node_types)
        self.placeholders: dict[str, AnyTask] = {}
        """Placeholders for unknown tasks, by name."""
        self.placeholder_flows: set[str] = set()
        self.missing: set[str] = set()
        """Unknown names that were faults."""
        self._is_open = is_open
        self._tasks: dict[str, AnyTask] = {}
        self._flows: dict[str, BuiltFlow] = {}
        self._ambiguous: set[str] = set()
        for each in check.listed(tasks, "tasks", "tasks"):
            self._add(each)
        for flow in check.listed(flows, "flows", "flows"):
            if not isinstance(flow, BuiltFlow):
                raise InvalidInput(NOT_BUILT.fault(("flows",), value=safe_repr(flow)))
            self._flows.setdefault(flow.graph.text, flow)

    def _add(self, given: Any) -> None:
        if isinstance(given, BuiltFlow):
            for task in given.tasks.values():
                self._add(task)
            for flow in given.flows.values():
                self._flows.setdefault(flow.graph.text, flow)
            return
        if not isinstance(given, Task):
            raise InvalidInput(NEITHER_TASK_NOR_FLOW.fault(("tasks",), value=safe_repr(given)))
        if self._tasks.setdefault(without_options(given).name, given) is not given:
            self._ambiguous.add(given.name)

    def body(self, name: str, own_name: str) -> Any:
        """The task of this name, or the function itself if it is the node's own plain function."""
        if name in self._ambiguous:
            raise DuplicateTask(name=name)
        if name in self._tasks:
            found = self._tasks[name]
            is_own = isinstance(found, PlainFunction) and name == own_name
            return found.function if is_own else found
        if not self._is_open:
            self.missing.add(name)
            raise InvalidInput(UNKNOWN_TASK.fault(name=name, **_known(name, self._tasks)))
        return self.placeholders.setdefault(name, task(name=name)(_any_call))

    def flow(self, name: str, load: LoadFile | None) -> BuiltFlow:
        """The flow with this name, ``name@version`` or file name."""
        found = self._flows.get(name)
        if found is not None:
            return found
        versions = tuple(text for text in self._flows if text.startswith(f"{name}@"))
        if len(versions) == 1:
            return self._flows[versions[0]]
        if versions:
            raise InvalidInput(WHICH_VERSION.fault(name=name, versions=versions))
        if name.endswith(FILE_ENDINGS):
            if load is None:
                raise InvalidInput(NO_FILE.fault(name=name))
            return load(name)
        if self._is_open:
            self.placeholder_flows.add(name)
            plain = name.partition("@")[0] or "flow"
            return Flow(plain).then(task(name="any")(_any_call)).build()
        self.missing.add(name)
        names = [flow.name for flow in self._flows.values()]
        raise InvalidInput(UNKNOWN_CHILD.fault(name=name, **_known(name, names)))


def _known(name: str, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    nearest = near(name, names)
    return {"nearest": nearest, "known": () if nearest else tuple(sorted(names)[:_KNOWN_MAX])}


def _any_call(*args: Any, **kwargs: Any) -> None:
    """Placeholder for an unknown task."""


def node_types_among(values: Iterable[object], module: str) -> list[NodeType | type[NodeType]]:
    """The node types of a module: instances, and its own classes without an instance."""
    instances = {each.name: each for each in values if isinstance(each, NodeType)}
    classes = {
        each.name: each
        for each in values
        if isinstance(each, type)
        and issubclass(each, NodeType)
        and each.__module__ == module
        and isinstance(getattr(each, "name", None), str)
    }
    return [*instances.values(), *(made for name, made in classes.items() if name not in instances)]


class Files:
    """A file and the files of its child flows, each read once."""

    def __init__(self, file: Path, library: Library, compile: Compile) -> None:
        self._folder = _resolved(file).parent
        self._library = library
        self._compile = compile
        self._flows: dict[Path, BuiltFlow] = {}

    def flow(self, file: Path, parents: tuple[Path, ...] = ()) -> BuiltFlow:
        resolved = _resolved(file)
        if resolved not in self._flows:
            document = _read(file)
            child = partial(self._child, file, (*parents, resolved))
            self._flows[resolved] = self._compile(document, self._library, child)
        return self._flows[resolved]

    def _child(self, parent: Path, parents: tuple[Path, ...], name: str) -> BuiltFlow:
        file = parent.parent / name
        resolved = _resolved(file)
        if not resolved.is_relative_to(self._folder):
            raise InvalidInput(OUTSIDE_FOLDER.fault(name=name))
        if resolved in parents:
            chain = " → ".join(each.name for each in (*parents, resolved))
            raise InvalidInput(FILE_CYCLE.fault(chain=chain))
        if len(parents) >= _FILES_DEEP_MAX:
            raise InvalidInput(FILES_TOO_DEEP.fault(most=_FILES_DEEP_MAX))
        return self.flow(file, parents)


def _resolved(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a symlink loop is a RuntimeError
        raise _refused(file, _unreadable(error)) from None


def _unreadable(error: Exception) -> Fault:
    return UNREADABLE.fault(reason=getattr(error, "strerror", None) or str(error))


def _refused(file: Path, fault: Fault) -> InvalidFlow:
    return invalid(str(file), [located(fault, str(file))])


def _read(file: Path) -> Document:
    try:
        with file.open("rb") as opened:
            content = opened.read(_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise _refused(file, _unreadable(error)) from None
    if len(content) > _BYTES_MAX:
        raise _refused(file, TOO_LONG.fault(most=TEXT_MAX))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(file, ENCODING.fault(reason=error.reason, at=error.start)) from None
    return read_json(text, str(file)) if file.suffix == ".json" else read_yaml(text, str(file))
