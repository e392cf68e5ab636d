"""Tasks for tests of workers: they do nothing, return their input, wait at a gate, or fail."""

from __future__ import annotations

from typing import Any

from perdure import Task, task
from tests.worker.harness import Gate


@task
async def nothing() -> None:
    pass


@task
async def echo(value: Any) -> Any:
    return value


def gated(**options: Any) -> tuple[Gate, Task[..., Any]]:
    """A task that waits at the gate, and the gate."""
    gate = Gate()

    @task(**options)
    async def wait() -> str:
        await gate.pass_through()
        return "done"

    return gate, wait


class Errors:
    """Those that are left to raise, and how often the task was called."""

    def __init__(self, *errors: BaseException) -> None:
        self.left = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            raise self.left.pop(0)
        return "done"


def flaky(*errors: BaseException, **options: Any) -> tuple[Errors, Task[..., Any]]:
    """A task that raises these errors, one per attempt, and then succeeds."""
    tries = Errors(*errors)

    @task(**options)
    async def work() -> str:
        return tries()

    return tries, work
