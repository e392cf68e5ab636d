"""From calls to inserted jobs: which task is meant, what is stored, and who shares an insert."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from perdure.client.access import Access
from perdure.clock import new_id
from perdure.diagnostics import declare
from perdure.errors import DuplicateTask, InvalidInput
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.job import Inserted, NewJob
from perdure.model.payload import input_hash
from perdure.model.value import Value
from perdure.store.batching import Batcher
from perdure.tasks.calls import (
    JobMaker,
    call_input,
    canonical_call,
    defaults_of,
    job_template,
    may_be_refused,
)
from perdure.tasks.node_type import TaskRegistry, as_task
from perdure.tasks.task import Task

INSERT_BATCH_MAX = 1_000
"""Single enqueues that share one insert."""
SHARED_INPUT_MAX_BYTES = 16 * 1024
"""Larger inputs are inserted on their own, which bounds what one insert carries."""

AnyTask = Task[..., Any] | str

SHARED_FINGERPRINT = declare(
    "job.shared_fingerprint",
    "one fingerprint for several inputs would make them one job",
    "Pass a function of the input: options(fingerprint=lambda text: ...)",
)


class Calls(Value):
    """Calls of one task. Many of them are checked and made as they are inserted."""

    task: Task[..., Any]
    jobs: Iterable[NewJob]


class Enqueueing:
    """The writing half of a client: makes jobs of calls, and inserts them all or none."""

    def __init__(self, access: Access, tasks: TaskRegistry, aging: timedelta) -> None:
        self._access = access
        self._tasks = tasks
        self._aging = aging
        self._gathering: Batcher[NewJob, Inserted] = Batcher(
            self._insert_batch, batch_max=INSERT_BATCH_MAX
        )

    @property
    def task_names(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def task_named(self, task: AnyTask) -> Task[..., Any]:
        """The task that is meant; passing it is enough, its name needs it to be registered."""
        if isinstance(task, str):
            return self._tasks[task]
        base = as_task(task).base
        if base.name in self._tasks and self._tasks[base.name] is not base:
            raise DuplicateTask(name=base.name)
        return task

    def one_call(self, task: AnyTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Calls:
        meant = self.task_named(task)
        job = self._maker(meant).job(JobId(new_id()), args, kwargs, self._access.storing)
        return Calls(task=meant.base, jobs=[job])

    def many_calls(self, task: AnyTask, inputs: Iterable[Any], kwargs: dict[str, Any]) -> Calls:
        check.iterable(inputs, "inputs", "inputs, one for each job")
        meant = self.task_named(task)
        maker = self._maker(meant)
        return Calls(task=meant.base, jobs=self._make_many(maker, inputs, kwargs))

    def _make_many(
        self, maker: JobMaker, inputs: Iterable[Any], kwargs: dict[str, Any]
    ) -> Iterator[NewJob]:
        storing = self._access.storing
        for number, given in enumerate(inputs):
            if number and maker.shares_fingerprint:
                raise InvalidInput(SHARED_FINGERPRINT.fault(("fingerprint",)))
            args = given if isinstance(given, tuple) else (given,)
            try:
                yield maker.job(JobId(new_id()), args, kwargs, storing)
            except InvalidInput as error:
                error.add_note(f"This is about inputs[{number}]. Nothing was enqueued.")
                raise

    def stored_call(
        self, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, bytes]:
        """The hash and the bytes under which a call of the task is stored."""
        args_by_position, rest = canonical_call(task, args, kwargs)
        data = call_input(task, args_by_position, rest, self._access.storing)
        return input_hash(task.name, data), data

    async def insert(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        store = await self._access.store.opened()
        if isinstance(jobs, list) and len(jobs) == 1 and _may_share(jobs[0]):
            return [await self._gathering.add(jobs[0])]
        return await store.jobs.insert(jobs)

    async def close(self) -> None:
        await self._gathering.flush()

    async def _insert_batch(self, jobs: list[NewJob]) -> list[Inserted]:
        store = await self._access.store.opened()
        return await store.jobs.insert(jobs)

    def _maker(self, task: Task[..., Any]) -> JobMaker:
        namespace = self._access.own("jobs.enqueue")
        template = job_template(defaults_of(task, namespace, self._aging), task.settings)
        return JobMaker(task, template)


def _may_share(job: NewJob) -> bool:
    """What may be refused must not fail the neighbours that would share its insert."""
    return len(job.input) <= SHARED_INPUT_MAX_BYTES and not may_be_refused(job)


def checked_kwargs(kwargs: Any) -> dict[str, Any]:
    return check.optional(check.mapping, kwargs, "kwargs", "parameter names to values") or {}
