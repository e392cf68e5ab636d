"""The client: asks for work, waits for it, and does what operators do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar, overload

from perdure.client.access import Access
from perdure.client.enqueueing import AnyTask, Calls, Enqueueing, checked_kwargs
from perdure.client.handles import AsyncJobHandle
from perdure.client.insight import AsyncInsight
from perdure.client.records import (
    AbortOutcome,
    Depth,
    GroupAbort,
    JobRecord,
    changed_by,
    group_abort,
    one_of,
    record_of,
)
from perdure.client.results import decoded_result
from perdure.client.run_ids import run_id
from perdure.client.run_records import RunMoved
from perdure.client.schedules import AsyncSchedules
from perdure.diagnostics import declare
from perdure.errors import JobNotFound, NoResult, RunNotFound
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.job import (
    DEFAULT_NAMESPACE,
    FailedAttempt,
    Inserted,
    Job,
    JobFilter,
    QueueInfo,
    Status,
    StatusChange,
)
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec
from perdure.model.run import OnExisting
from perdure.model.times import Duration
from perdure.model.worker import WorkerState
from perdure.store.contract import Store
from perdure.store.lifecycle import Operation
from perdure.tasks.node_type import TaskRegistry, without_options
from perdure.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")

JOBS_PAGE_MAX = 1_000
_RAISE: Any = object()
NO_STORED_RESULT = declare("task.no_result", "no result of task {task!r} is stored for this input")


class AsyncClient(AsyncSchedules, AsyncInsight):
    """Asks for work and watches it. Opens its store on first use, or with ``async with``.

    Belongs to one event loop. ``tasks`` are those that may be enqueued by name, ``flows`` those
    that may be submitted by name, and ``on_conflict`` is what ``submit`` does when a run of that
    id is there. ``namespace="*"`` is an operator's client: it sees the jobs and runs of all
    namespaces and acts on them by id. ``aging`` is the waiting time that makes up for one step of
    priority.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        tasks: Iterable[Task[..., Any]] = (),
        flows: Iterable[BuiltFlow] = (),
        on_conflict: OnExisting = "fail",
        aging: Duration = "5m",
        payload_max_bytes: int = PAYLOAD_MAX_BYTES,
        codec: Codec | None = None,
    ) -> None:
        interval = check.span(aging, "aging", is_positive=True)
        access = Access(store, namespace, codec, payload_max_bytes)
        super().__init__(access, flows, on_conflict, interval)
        self._enqueueing = Enqueueing(self._access, TaskRegistry(tasks), interval)

    async def close(self) -> None:
        """Let go of everything. What was enqueued is written; whoever waits is told."""
        await self._enqueueing.close()
        await super().close()

    def task(self, name: str) -> Task[..., Any]:
        """The task of this name among the client's ``tasks``, for instance to give it options."""
        return self._enqueueing.task_named(check.name(name, "name", label="task name"))

    def using(self, connection: Any) -> AsyncTransactionClient:
        """A view of this client that takes part in your own transaction, open on ``connection``.

        What it enqueues is there when you commit, and never was if you roll back.
        """
        return AsyncTransactionClient(self, connection)

    @overload
    async def enqueue(
        self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobHandle[R]: ...
    @overload
    async def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> AsyncJobHandle[Any]: ...
    async def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> AsyncJobHandle[Any]:
        """Enqueue one call of a task. When this returns, the job is durable.

        It takes the task's own arguments. Options are the task's:
        ``enqueue(fetch.options(delay="5m"), url)``.
        """
        calls = self._enqueueing.one_call(task, args, kwargs)
        return self._handles(calls, await self._enqueueing.insert(calls.jobs))[0]

    @overload
    async def enqueue_many(
        self,
        task: Task[..., R],
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[AsyncJobHandle[R]]: ...
    @overload
    async def enqueue_many(
        self,
        task: str,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[AsyncJobHandle[Any]]: ...
    async def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[AsyncJobHandle[Any]]:
        """Enqueue a call for each input, in one transaction: all or none.

        If an input cannot be used, even one in the middle, the error has a note that says which,
        and nothing is written.

        An input is the task's one argument; a tuple holds several, by position. ``kwargs`` go to
        every call. Options are the task's, as with ``enqueue``.
        """
        calls = self._enqueueing.many_calls(task, inputs, checked_kwargs(kwargs))
        return self._handles(calls, await self._enqueueing.insert(calls.jobs))

    @overload
    def handle(self, id: str, task: Task[..., R]) -> AsyncJobHandle[R]: ...
    @overload
    def handle(self, id: str, task: AnyTask | None = None) -> AsyncJobHandle[Any]: ...
    def handle(self, id: str, task: AnyTask | None = None) -> AsyncJobHandle[Any]:
        """A handle on a job that was enqueued elsewhere; ``task`` lets it give typed results."""
        meant = None if task is None else self._enqueueing.task_named(task).base
        return AsyncJobHandle(self, self._access, _id(id), meant)

    @overload
    async def results(
        self,
        jobs: Iterable[AsyncJobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: Literal[False] = False,
    ) -> list[R]: ...
    @overload
    async def results(
        self,
        jobs: Iterable[AsyncJobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: bool,
    ) -> list[R | BaseException]: ...
    async def results(
        self,
        jobs: Iterable[AsyncJobHandle[Any]],
        *,
        timeout: Duration | None = None,
        return_errors: bool = False,
    ) -> list[Any]:
        """Wait for several jobs together; their results in the order given.

        The first that ends without one raises its error, unless ``return_errors`` puts errors
        into the list instead.
        """
        waits = [asyncio.ensure_future(job.result(timeout)) for job in jobs]
        try:
            return await asyncio.gather(*waits, return_exceptions=return_errors)
        finally:
            for wait in waits:
                wait.cancel()

    async def result_of(
        self,
        task: AnyTask,
        /,
        *args: Any,
        default: Any = _RAISE,
        kwargs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """The latest kept result of the task for this very input, without running anything.

        Raises ``NoResult`` if there is none, or returns ``default`` where that is given.
        """
        namespace = self._access.own("jobs.find_result")
        meant = without_options(self._enqueueing.task_named(task))
        hash, data = self._enqueueing.stored_call(meant, args, checked_kwargs(kwargs) | more)
        store = await self._access.store.opened()
        output = await store.queries.find_result(namespace, meant.name, hash, data)
        if output is not None:
            return decoded_result(output, self._access.codec, meant)
        if default is _RAISE:
            raise NoResult(NO_STORED_RESULT.fault(task=meant.name))
        return default

    async def job(self, id: str) -> JobRecord:
        """The record of one job, with its values."""
        store = await self._access.store.opened()
        job = await store.queries.get_job(self._access.visible, _id(id))
        if job is None:
            raise JobNotFound(job_id=id)
        return record_of(job, self._access.codec)

    async def jobs(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        task: AnyTask | None = None,
        group: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Job]:
        """Matching jobs, newest first, without their values; ``before`` an id is the next page."""
        wanted = self._filter(status, queue, task, group, before)
        store = await self._access.store.opened()
        return await store.queries.list_jobs(
            wanted, check.integer(limit, "limit", 1, JOBS_PAGE_MAX)
        )

    async def count(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        task: AnyTask | None = None,
        group: str | None = None,
    ) -> int:
        """How many jobs match."""
        wanted = self._filter(status, queue, task, group, None)
        store = await self._access.store.opened()
        return await store.queries.count_jobs(wanted)

    async def depth(self) -> Depth:
        """How many jobs are in each status, by queue and in total."""
        store = await self._access.store.opened()
        return Depth(entries=tuple(await store.admin.queue_stats(self._access.visible)))

    async def failures(self, id: str) -> list[FailedAttempt]:
        """What the failed attempts of a job left behind, oldest first."""
        await self.job(id)
        store = await self._access.store.opened()
        return await store.queries.failed_attempts(_id(id))

    async def workers(self) -> list[WorkerState]:
        """The workers: where, since when, last seen when, and what they run.

        One that was killed is listed until housekeeping drops its row, within minutes.
        """
        store = await self._access.store.opened()
        return await store.queries.workers(self._access.visible)

    async def now(self) -> datetime:
        """The store's time, in which it tells when workers were seen and jobs are due."""
        store = await self._access.store.opened()
        return await store.now()

    async def abort(self, id: str) -> AbortOutcome:
        """Stop a job: cancelled at once, or told to stop if it runs. Says so if it was finished."""
        store = await self._access.store.opened()
        moved = one_of(
            _id(id), await store.admin.change_jobs(Operation.ABORT, self._access.visible, [_id(id)])
        )
        return AbortOutcome(id=moved.id, before=moved.before, after=moved.after)

    async def abort_group(self, group: str) -> GroupAbort:
        """Stop every unfinished job of one group, and of no other."""
        namespace = self._access.own("jobs.cancel_group")
        check.name(group, "group")
        store = await self._access.store.opened()
        return group_abort(
            group, await store.admin.change_jobs(Operation.ABORT, namespace, group=group)
        )

    async def disable(self, id: str) -> StatusChange:
        """Keep a job from running until it is enabled; a running one is taken from its worker."""
        store = await self._access.store.opened()
        moved = await store.admin.change_jobs(Operation.DISABLE, self._access.visible, [_id(id)])
        return changed_by(Operation.DISABLE, _id(id), moved)

    async def enable(self, id: str) -> StatusChange:
        """Let a disabled job run again."""
        store = await self._access.store.opened()
        moved = await store.admin.change_jobs(Operation.ENABLE, self._access.visible, [_id(id)])
        return changed_by(Operation.ENABLE, _id(id), moved)

    async def retry(self, id: str, *, by: str | None = None) -> StatusChange | RunMoved:
        """Start a failed, dead or cancelled job anew, with a fresh budget of tries.

        If there is no job of this id, the run of this id: it goes on from the nodes that failed
        or were stopped, keeping what is completed. ``by`` is kept in the
        log of the run.
        """
        store = await self._access.store.opened()
        job = JobId(run_id(id))  # which may be longer than that of a job
        if moved := await store.admin.change_jobs(Operation.RETRY, self._access.visible, [job]):
            return changed_by(Operation.RETRY, job, moved)
        try:
            return await self._retry_run(id, by)
        except RunNotFound:
            raise JobNotFound(job_id=id, what="job or run") from None

    async def _retry_job(self, id: str) -> StatusChange:
        store = await self._access.store.opened()
        moved = await store.admin.change_jobs(Operation.RETRY, self._access.visible, [_id(id)])
        return changed_by(Operation.RETRY, _id(id), moved)

    async def resume(self, id: str) -> StatusChange:
        """Put a paused (released) job back into the queue."""
        store = await self._access.store.opened()
        moved = await store.admin.change_jobs(Operation.RESUME, self._access.visible, [_id(id)])
        return changed_by(Operation.RESUME, _id(id), moved)

    async def pause_queue(self, queue: str, by: str | None = None) -> None:
        """Let no job of the queue start until it is resumed; what runs goes on."""
        namespace = self._access.own("queues.pause")
        check.name(queue, "queue")
        store = await self._access.store.opened()
        await store.admin.pause_queue(namespace, queue, check.optional(check.name, by, "by"))

    async def resume_queue(self, queue: str) -> None:
        namespace = self._access.own("queues.resume")
        check.name(queue, "queue")
        store = await self._access.store.opened()
        await store.admin.resume_queue(namespace, queue)

    async def paused_queues(self) -> list[QueueInfo]:
        store = await self._access.store.opened()
        return await store.admin.paused_queues(self._access.visible)

    def _handles(self, calls: Calls, inserted: Iterable[Inserted]) -> list[AsyncJobHandle[Any]]:
        return [
            AsyncJobHandle(
                self, self._access, each.id, calls.task, is_new=each.is_new, is_ours=True
            )
            for each in inserted
        ]

    def _filter(
        self,
        status: str | None,
        queue: str | None,
        task: AnyTask | None,
        group: str | None,
        before: str | None,
    ) -> JobFilter:
        return JobFilter(
            namespace=self._access.visible,
            status=check.optional(check.choice, status, "status", Status),
            queue=check.optional(check.name, queue, "queue"),
            task=task.name if isinstance(task, Task) else check.optional(check.name, task, "task"),
            group=check.optional(check.name, group, "group"),
            before=None if before is None else _id(before),
        )


class AsyncTransactionClient:
    """An :class:`AsyncClient` within a transaction of yours: see ``using``."""

    __slots__ = ("_client", "_connection")

    def __init__(self, client: AsyncClient, connection: Any) -> None:
        self._client = client
        self._connection = connection

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    @overload
    async def enqueue(
        self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobHandle[R]: ...
    @overload
    async def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> AsyncJobHandle[Any]: ...
    async def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> AsyncJobHandle[Any]:
        """Enqueue one call of a task; the job is there when you commit."""
        calls = self._client._enqueueing.one_call(task, args, kwargs)
        return (await self._inserted(calls))[0]

    @overload
    async def enqueue_many(
        self,
        task: Task[..., R],
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[AsyncJobHandle[R]]: ...
    @overload
    async def enqueue_many(
        self,
        task: str,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[AsyncJobHandle[Any]]: ...
    async def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[AsyncJobHandle[Any]]:
        """Enqueue a call for each input; the jobs are there when you commit."""
        calls = self._client._enqueueing.many_calls(task, inputs, checked_kwargs(kwargs))
        return await self._inserted(calls)

    async def _inserted(self, calls: Calls) -> list[AsyncJobHandle[Any]]:
        store = await self._client._access.store.opened()
        inserted = await store.insert_in_transaction(self._connection, list(calls.jobs))
        return self._client._handles(calls, inserted)


def _id(id: Any) -> JobId:
    return JobId(check.name(id, "id", label="job id"))
