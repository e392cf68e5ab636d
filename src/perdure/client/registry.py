"""The tasks a client or worker knows, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perdure.diagnostics import declare, safe_repr
from perdure.errors import DuplicateTask, InvalidInput, UnknownTask
from perdure.model import check
from perdure.model.task import Task

NOT_A_TASK = declare("task.not_a_task", "{value} is not a task", "Decorate it with @task")


class TaskRegistry(Mapping[str, Task[..., Any]]):
    """Refuses two different tasks of one name, and names what is known when one is not."""

    def __init__(self, tasks: Iterable[Task[..., Any]] = ()) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        for task in check.listed(tasks, "tasks", "tasks"):
            self.add(task)

    def add(self, task: Task[..., Any]) -> None:
        if self._tasks.setdefault(as_task(task).name, task) is not task:
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
