"""The tasks a client or worker knows, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from perdure.diagnostics import safe_repr
from perdure.errors import DuplicateTask, InvalidInput, UnknownTask
from perdure.model import check
from perdure.model.task import Task


class TaskRegistry(Mapping[str, Task[..., Any]]):
    """Refuses two different tasks of one name, and names what is known when one is not."""

    def __init__(self, tasks: Iterable[Task[..., Any]] = ()) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        for task in check.listed(tasks, "tasks", "tasks"):
            self.add(task)

    def add(self, task: Task[..., Any]) -> None:
        if not isinstance(task, Task):
            raise InvalidInput(f"{safe_repr(task)} is not a task; decorate it with @task")
        if self._tasks.setdefault(task.name, task) is not task:
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
