"""Node types, and the registries of tasks and node types.

Define your own like the built-in ones::

    class Translate(NodeType):
        name = "translate"
        ports = ("unsure",)

        class Config(NodeConfig):
            text: str
            to: str = "en"

        async def execute(self, config: Config, ctx: AsyncContext) -> Any:
            found = await ask(config.text, config.to)
            return complete(found.text, port="" if found.is_sure else "unsure")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from perdure.diagnostics import Fault, declare, safe_repr
from perdure.errors import DuplicateTask, ExternalFailed, InvalidInput, UnknownTask
from perdure.expr.path import Path
from perdure.model import check
from perdure.model.wait import Report, ReportStatus
from perdure.tasks.result import complete
from perdure.tasks.task import Task

POLL_DEFAULT = timedelta(minutes=5)
"""How often external work is polled while no report arrives."""


class NodeConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The base for the ``Config`` of a node type: rejects unknown settings."""


class NoConfig(NodeConfig):
    """The config of a node type without settings."""


class NodeType:
    """The base of node types: set ``name`` and implement ``execute``.

    Async methods get an ``AsyncContext``; sync methods run in a thread and get a ``Context``. They
    return the node's output, or ``complete(...)``, ``paused(...)``, ``skipped()`` or
    ``failed(...)``.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Any]] = NoConfig
    """The type of ``config`` after rendering: a msgspec Struct."""
    ports: ClassVar[tuple[str, ...]] = ()
    """Ports that a result may choose, besides the ordinary one."""
    takes_ports: ClassVar[bool] = False
    """Whether a node has the ports that its ``next`` names, like a task."""
    resources: ClassVar[Sequence[Any]] = ()
    """The resources that it reads from ``ctx.resources``, as ``resource(...)`` declares them: a
    worker that lacks one does not start."""
    poll_every: ClassVar[timedelta] = POLL_DEFAULT
    destinations_of: Callable[[Any], Sequence[str]] | None = None
    """A method that returns the origins a node sends its rendered config to, such as
    ``https://api.example.com``. Grants of secrets then name these hosts instead of the node type.
    """

    def execute(self, config: Any, ctx: Any) -> Any:
        """Do the work, or start it and return ``paused(...)``."""
        raise NotImplementedError(f"node type {self.name!r} has no execute()")

    def resume(self, checkpoint: Any, report: Report, ctx: Any) -> Any:
        """Continue after a pause; by default, the report's result is the output."""
        return resumed(report)

    def poll(self, checkpoint: Any, ctx: Any) -> Any:
        """Ask for news: return a ``Report``, or None. Only called if overridden."""
        raise NotImplementedError(f"node type {self.name!r} has no poll()")

    def cancel(self, checkpoint: Any, ctx: Any) -> Any:
        """Stop external work that is no longer needed. Only called if overridden.

        The run was cancelled or failed, the deadline of the pause passed, or another item of a map
        failed. The work may have ended already, and this may be called more than once.
        """
        raise NotImplementedError(f"node type {self.name!r} has no cancel()")

    def ports_of(self, config: Any) -> tuple[str, ...]:
        """The ports of a node with this config, whose templates are not rendered yet."""
        return self.ports

    def followed_by(self, config: Any, ports: Sequence[str]) -> Any:
        """The config completed from the ports that the node's ``next`` names."""
        return config

    def faults_of(self, config: Any) -> Sequence[str | tuple[Path, str] | Fault]:
        """What is wrong with a config beyond its types, before templates are filled in.

        A fault with a code, or a sentence, with the path of the setting if it is about one.
        Settings of the wrong type are left out of it, and what is required may be missing.
        """
        return []

    def reads_of(self, config: Any) -> Sequence[tuple[str, ...]]:
        """The paths in ``ctx.inputs`` that it reads besides templates; ``()`` means all inputs."""
        return []

    @property
    def has_poll(self) -> bool:
        return type(self).poll is not NodeType.poll

    @property
    def has_cancel(self) -> bool:
        return type(self).cancel is not NodeType.cancel


def resumed(report: Report) -> Any:
    """The result of a node for a report, by default."""
    if report.status is ReportStatus.FAILED:
        raise ExternalFailed(report.error or "the external service reported a failure")
    return complete(report.result, report.port)


NOT_A_TASK = declare("task.not_a_task", "{value} is not a task", "Decorate it with @task")
HAS_OPTIONS = declare(
    "task.has_options",
    "task {task!r} has options ({options}), which only the jobs of a call can have",
    "Pass the task itself here, and the one with options to enqueue, enqueue_many or a schedule",
)


class TaskRegistry(Mapping[str, Task[..., Any]]):
    """Tasks by name; rejects different tasks with the same name."""

    def __init__(self, tasks: Iterable[Task[..., Any]] = ()) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        for task in check.listed(tasks, "tasks", "tasks"):
            self.add(task)

    def add(self, task: Task[..., Any]) -> None:
        if self._tasks.setdefault(without_options(as_task(task)).name, task) is not task:
            raise DuplicateTask(name=task.name)

    def __getitem__(self, name: str) -> Task[..., Any]:
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(name=name, known=tuple(self._tasks)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


def as_task(value: Any) -> Task[..., Any]:
    if not isinstance(value, Task):
        raise InvalidInput(NOT_A_TASK.fault(value=safe_repr(value)))
    return value


def without_options(task: Task[..., Any]) -> Task[..., Any]:
    """Reject a task with ``options`` where no job is enqueued."""
    if task.base is not task:
        raise InvalidInput(HAS_OPTIONS.fault(task=task.name, options=tuple(task.given)))
    return task
