"""The code that a flow as data may name: tasks, kinds and other flows, each by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from perdure.errors import InvalidInput
from perdure.flows.built import BuiltFlow
from perdure.flows.check import nearest
from perdure.model import check
from perdure.nodes.registry import Kinds
from perdure.tasks.node_type import Kind, without_options
from perdure.tasks.task import PlainFunction, Task, task

AnyTask = Task[..., Any]
AnyKinds = Kinds | Iterable[Kind | type[Kind]]
Tasks = Iterable[AnyTask | BuiltFlow]
LoadFile = Callable[[str], BuiltFlow]

FILE_ENDINGS = (".yaml", ".yml", ".json")


class Library:
    """``tasks`` may have flows among them: those give all tasks and flows that they use.

    ``is_open``: a task or flow that is not there is made up, and noted, instead of refused.
    """

    def __init__(
        self,
        tasks: Tasks = (),
        kinds: AnyKinds = (),
        flows: Iterable[BuiltFlow] = (),
        *,
        is_open: bool = False,
    ) -> None:
        self.kinds = kinds if isinstance(kinds, Kinds) else Kinds(kinds)
        self.made_up: dict[str, AnyTask] = {}
        """Tasks that are not there, by name."""
        self.made_up_flows: set[str] = set()
        self.missing: set[str] = set()
        """What was asked for by name, is not there, and was refused."""
        self._is_open = is_open
        self._tasks: dict[str, AnyTask] = {}
        self._flows: dict[str, BuiltFlow] = {}
        self._ambiguous: set[str] = set()
        for each in check.listed(tasks, "tasks", "tasks"):
            self._add(each)
        for flow in check.listed(flows, "flows", "flows"):
            if not isinstance(flow, BuiltFlow):
                raise InvalidInput(f"flows=[{flow!r}] is not a flow that was built")
            self._flows.setdefault(flow.graph.text, flow)

    def task(self, name: str) -> AnyTask:
        if name in self._ambiguous:
            raise InvalidInput(f"two different tasks among tasks=[...] are named {name!r}")
        if name in self._tasks:
            return self._tasks[name]
        if not self._is_open:
            self.missing.add(name)
            near = nearest(name, self._tasks) or _known(self._tasks)
            raise InvalidInput(f"there is no task {name!r}{near}")
        return self.made_up.setdefault(name, task(name=name)(_any_call))

    def body(self, name: str, own_name: str) -> Any:
        """What a node calls: a task, or the plain function that ``own_name`` stands for."""
        task = self.task(name)
        return task.function if isinstance(task, PlainFunction) and name == own_name else task

    def flow(self, name: str, load: LoadFile | None) -> BuiltFlow:
        """The flow of a name, ``name@version`` or file name."""
        found = self._flows.get(name)
        if found is not None:
            return found
        versions = [text for text in self._flows if text.startswith(f"{name}@")]
        if len(versions) == 1:
            return self._flows[versions[0]]
        if versions:
            raise InvalidInput(f"which version of flow {name!r}? Write {' or '.join(versions)}")
        if name.endswith(FILE_ENDINGS):
            if load is None:
                raise InvalidInput(f"{name!r} is a file, but this flow is not from a file itself")
            return load(name)
        if self._is_open:
            self.made_up_flows.add(name)
            return _made_up_flow(name)
        self.missing.add(name)
        near = nearest(name, self._names()) or _known(self._names())
        raise InvalidInput(f"there is no flow {name!r}{near}")

    def _names(self) -> list[str]:
        return [flow.name for flow in self._flows.values()]

    def _add(self, given: Any) -> None:
        if isinstance(given, BuiltFlow):
            for task in given.tasks.values():
                self._add(task)
            for flow in given.flows.values():
                self._flows.setdefault(flow.graph.text, flow)
            return
        if not isinstance(given, Task):
            raise InvalidInput(f"tasks=[{given!r}] is neither a task nor a flow that was built")
        if self._tasks.setdefault(without_options(given).name, given) is not given:
            self._ambiguous.add(given.name)


def kinds_among(values: Iterable[object], module: str) -> list[Kind | type[Kind]]:
    """The kinds that a module offers: instances, and classes of its own that have none."""
    instances = {each.name: each for each in values if isinstance(each, Kind)}
    classes = {
        each.name: each
        for each in values
        if isinstance(each, type)
        and issubclass(each, Kind)
        and each.__module__ == module
        and isinstance(getattr(each, "name", None), str)
    }
    return [*instances.values(), *(made for name, made in classes.items() if name not in instances)]


def _known(names: Iterable[str]) -> str:
    some = ", ".join(sorted(names)[:12])
    return f"; there are {some}" if some else "; there are none"


def _any_call(*args: Any, **kwargs: Any) -> None:
    """Stands in for a task that is not at hand."""


def _made_up_flow(name: str) -> BuiltFlow:
    from perdure.flows.builder import Flow

    plain = name.partition("@")[0] or "flow"
    return Flow(plain).then(task(name="any")(_any_call)).build()
