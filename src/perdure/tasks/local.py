"""The context of a task that is called directly, without a worker and a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from perdure import clock
from perdure.diagnostics import declare
from perdure.errors import InvalidInput, MissingSecret
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.job import DEFAULT_NAMESPACE, Claim, ClaimedJob, Progress
from perdure.model.partition import Partition
from perdure.model.payload import from_json, to_json
from perdure.model.wait import Resumption
from perdure.tasks.context import AbortSignal, BaseContext
from perdure.tasks.resource import Resources
from perdure.tasks.result import Pause
from perdure.tasks.secret import variable_of

if TYPE_CHECKING:
    from perdure.tasks.task import Task

WORKER = "local"

LOCAL_PAUSE = declare(
    "task.local_pause",
    "task {task!r} was called directly and cannot pause: it has no run to report to",
    "Enqueue the task, or use perdure.testing.Kit",
)


class LocalCall:
    """How to call a task directly: its progress callback, resources and secrets."""

    def __init__(
        self,
        on_progress: Callable[[Progress], object] | None = None,
        resources: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        given: object = on_progress  # untyped callers may pass anything
        if given is not None and (not callable(given) or iscoroutinefunction(given)):
            raise check.wrong_type(on_progress, "on_progress", "a sync function")
        self._on_progress = on_progress
        self._resources = Resources(
            check.mapping({} if resources is None else resources, "resources", "names to resources")
        )
        self._secrets = check.optional(check.mapping, secrets, "secrets", "names to secrets")

    def arguments(
        self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """The keyword arguments with the context, and the resources that it has."""
        given = task.signature.bind_partial(*args, **kwargs).arguments
        made = dict(kwargs)
        for name, declared in task.injected.items():
            if name in given and given[name] is not task.signature.parameters[name].default:
                continue  # the caller's own
            if declared is None:
                inputs = {each: given[each] for each in given if each not in task.injected}
                made[name] = self._context(task, inputs)
            elif self._resources:
                made[name] = self._resources.take(declared, task.name)
        return made

    def _context(self, task: Task[..., Any], inputs: Mapping[str, Any]) -> BaseContext:
        job = ClaimedJob(
            claim=Claim(id=JobId(clock.new_id()), epoch=1),
            namespace=DEFAULT_NAMESPACE,
            partition=Partition(queue=task.queue, task=task.name, tags=task.tags),
            input=b"",
            attempt=1,
            failures=0,
            snoozes=0,
            max_attempts=None,
            policy=None,
            group=None,
            deadline_at=None,
            created_at=clock.system_clock(),
        )

        def pause(pause: Pause) -> None:
            raise InvalidInput(LOCAL_PAUSE.fault(task=task.name))

        return task.context_type(
            job,
            WORKER,
            self._report,
            AbortSignal(),
            _LocalSteps(),
            secret=self._secret,
            mask=lambda data: data,  # nothing is stored
            pause=pause,
            inputs={},
            resumption=Resumption(),
            allows_scripts=False,
            resources=self._resources,
            arguments=lambda: inputs,
        )

    def _report(self, progress: Progress) -> None:
        if self._on_progress is not None:
            self._on_progress(progress)

    def _secret(self, name: str) -> str:
        if self._secrets is None:
            value, advice = os.environ.get(variable_of(name)), f"set {variable_of(name)}"
        else:
            value, advice = self._secrets.get(name), "secrets=... do not have it"
        if value is None:
            raise MissingSecret(name=name, advice=advice)
        return value


class _LocalSteps:
    """Keeps steps as JSON for one call, so that they have the types that they would have."""

    def __init__(self) -> None:
        self._found: dict[str, bytes] = {}

    async def find(self, name: str) -> tuple[Any, ...]:
        return (from_json(self._found[name]),) if name in self._found else ()

    async def save(self, name: str, value: Any) -> Any:
        self._found[name] = to_json(value, f"the result of step {name!r}")
        return from_json(self._found[name])

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            coroutine.send(None)
        except StopIteration as ended:  # none of these waits for anything
            return ended.value
        raise AssertionError("a step waits")
