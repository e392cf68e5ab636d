"""The async client: groups of operations, and ``enqueue``, ``submit`` and ``run`` on top."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from perdure.client.events import AsyncEvents
from perdure.client.handles import AsyncJobHandle, AsyncRunHandle
from perdure.errors import UnknownFlow
from perdure.flows.built import BuiltFlow
from perdure.flows.settings import RunOptions, StartOptions
from perdure.model import check
from perdure.model.job import DEFAULT_NAMESPACE, Inserted
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec
from perdure.model.run import OnExisting, Submitted
from perdure.model.times import Duration
from perdure.operations.approvals import Approvals
from perdure.operations.backend import UNREAD_SIGNALS_MAX, AnyFlow, AnyTask, Backend
from perdure.operations.external import Waits
from perdure.operations.flows import Flows
from perdure.operations.jobs import (
    Calls,
    Jobs,
    checked_kwargs,
    insert_jobs,
    job_id,
    prepare_call,
    prepare_calls,
)
from perdure.operations.queues import Queues, Workers
from perdure.operations.records import ClusterStats
from perdure.operations.runs import Runs
from perdure.operations.schedules import Schedules
from perdure.operations.store import StoreOperations
from perdure.operations.submit import (
    Submission,
    definitions_within,
    prepare_submission,
    refuse_other_flow,
    run_id,
    submit_run,
    transactional_run,
)
from perdure.store.contract import Store
from perdure.tasks.task import Task

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
P = ParamSpec("P")
R = TypeVar("R")


class AsyncJobs(Jobs):
    """Operations on jobs, with handles."""

    @overload
    def handle(self, id: str, task: Task[..., R]) -> AsyncJobHandle[R]: ...
    @overload
    def handle(self, id: str, task: AnyTask | None = None) -> AsyncJobHandle[Any]: ...
    def handle(self, id: str, task: AnyTask | None = None) -> AsyncJobHandle[Any]:
        """Return a handle on a job; ``task`` gives its result the declared type."""
        meant = None if task is None else self._backend.task(task).base
        return AsyncJobHandle(self._backend, job_id(id), meant)

    @overload
    async def results(
        self,
        jobs: Iterable[AsyncJobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: Literal[False] = False,
    ) -> Sequence[R]: ...
    @overload
    async def results(
        self,
        jobs: Iterable[AsyncJobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: bool,
    ) -> Sequence[R | BaseException]: ...
    async def results(
        self,
        jobs: Iterable[AsyncJobHandle[Any]],
        *,
        timeout: Duration | None = None,
        return_errors: bool = False,
    ) -> Sequence[Any]:
        """Wait for several jobs together, and return their results in the order given.

        The first that ends without one raises its error, unless ``return_errors`` puts errors
        into the list instead.
        """
        waits = [asyncio.ensure_future(job.result(timeout)) for job in jobs]
        try:
            return await asyncio.gather(*waits, return_exceptions=return_errors)
        finally:
            for wait in waits:
                wait.cancel()


class AsyncRuns(Runs):
    """Operations on runs, with handles."""

    @overload
    def handle(self, id: str, flow: BuiltFlow[Any, O]) -> AsyncRunHandle[O]: ...
    @overload
    def handle(self, id: str, flow: AnyFlow | None = None) -> AsyncRunHandle[Any]: ...
    def handle(self, id: str, flow: AnyFlow | None = None) -> AsyncRunHandle[Any]:
        """Return a handle on a run; ``flow`` gives its result the declared type."""
        meant = None if flow is None else self._backend.flow(flow)
        return AsyncRunHandle(self._backend, run_id(id), meant)


class AsyncClient:
    """Enqueues jobs, submits runs, and operates on them. Opens its store on first use.

    Belongs to one event loop. ``tasks`` may be enqueued by name, and ``flows`` submitted by name.
    ``on_conflict`` is the default of ``submit`` for an id that exists already. A client with
    ``namespace="*"`` is for operators: it sees the jobs and runs of all namespaces and operates on
    them by id. A job that has waited for ``aging`` ranks like a fresh one of the next priority.
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
        unread_signals_max: int = UNREAD_SIGNALS_MAX,
        codec: Codec | None = None,
    ) -> None:
        backend = self._backend = Backend(
            store,
            namespace=namespace,
            tasks=tasks,
            flows=flows,
            on_conflict=on_conflict,
            aging=check.span(aging, "aging", is_positive=True),
            payload_max_bytes=payload_max_bytes,
            unread_signals_max=unread_signals_max,
            codec=codec,
        )
        self.jobs = AsyncJobs(backend)
        self.runs = AsyncRuns(backend)
        self.approvals = Approvals(backend)
        self.events = AsyncEvents(backend)
        self.waits = Waits(backend)
        self.schedules = Schedules(backend)
        self.queues = Queues(backend)
        self.workers = Workers(backend)
        self.flows = Flows(backend)
        self.store = StoreOperations(backend)

    def __repr__(self) -> str:
        return f"<AsyncClient at {self.store_url}, {self.namespace!r}>"

    @property
    def namespace(self) -> str:
        return self._backend.namespace

    @property
    def store_url(self) -> str:
        """The store's URL, without the password."""
        return self._backend.place.url

    async def open(self) -> Self:
        """Connect now instead of on first use, and create or upgrade the tables."""
        await self._backend.store()
        return self

    async def close(self) -> None:
        """Flush pending enqueues, fail waiters, close connections."""
        await self._backend.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        found_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def stats(self) -> ClusterStats:
        """Count the work of all workers, past and present, in total, per task and per queue.

        The same as ``store.stats()``.
        """
        return await self.store.stats()

    def task(self, name: str) -> Task[..., Any]:
        """Return the task of this name among the client's ``tasks``, to give it options."""
        return self._backend.task(check.name(name, "name", label="task name"))

    def using(self, connection: Any) -> AsyncTransactionClient:
        """Return a view of this client that takes part in your transaction on ``connection``.

        Its jobs and runs exist once you commit, and never if you roll back.
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

        Takes the task's own arguments. Set options on the task:
        ``enqueue(fetch.options(delay="5m"), url)``.
        """
        call = prepare_call(self._backend, task, args, kwargs)
        return self._handles(call, await insert_jobs(self._backend, call.jobs))[0]

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
        """Enqueue a call for each input in one transaction, all or none.

        If any input is invalid, nothing is written; the path of the fault names the input.

        An input is the task's only argument, or a tuple of positional arguments. ``kwargs`` are
        passed to every call. Set options on the task, as for ``enqueue``.
        """
        calls = prepare_calls(self._backend, task, inputs, checked_kwargs(kwargs))
        return self._handles(calls, await insert_jobs(self._backend, calls.jobs))

    @overload
    async def submit(
        self,
        flow: BuiltFlow[I, O],
        input: I | None = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncRunHandle[O]: ...
    @overload
    async def submit(
        self,
        flow: str,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncRunHandle[Any]: ...
    async def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncRunHandle[Any]:
        """Start a run of a flow. When this returns, the run is durable.

        ``flow`` is a built flow, or the name of one of the client's ``flows``. ``id`` is your own
        id for the run. ``on_conflict`` applies if a run with that id exists, finished or not:
        ``"fail"`` raises ``RunExists``, ``"use_existing"`` returns that run,
        ``"replace"`` cancels it and takes its place.

        ``options`` override the defaults of the flow: ``priority`` (1 to 5, or ``"critical"`` to
        ``"minimal"``) shifts that of all its jobs; ``delay`` or ``run_at`` starts it later;
        ``queue`` and ``tags`` are for nodes that have none; ``timeout`` or ``deadline`` ends it as
        failed; ``max_attempts`` is how many attempts of its nodes may fail; ``max_running`` is
        how many runs of the flow may be in progress when it starts.
        """
        submission = prepare_submission(self._backend, flow, input, id, on_conflict, options)
        return self._run_handle(submission, await submit_run(self._backend, submission))

    @overload
    async def run(
        self,
        flow: BuiltFlow[I, O],
        input: I | None = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        timeout: Duration | None = None,
        **options: Unpack[StartOptions],
    ) -> O: ...
    @overload
    async def run(
        self,
        flow: str,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        timeout: Duration | None = None,
        **options: Unpack[StartOptions],
    ) -> Any: ...
    async def run(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        timeout: Duration | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        """Submit a run of a flow, wait until it has ended, and return its result.

        Raises ``RunFailed`` or ``RunCancelled`` if it ended without one, and ``RunTimeout`` after
        ``timeout``; the run then continues. Options are those of ``submit``; a timeout of the run
        itself is set in its flow.
        """
        run = await self.submit(flow, input, id=id, on_conflict=on_conflict, **options)
        return await run.result(timeout)

    def _handles(self, calls: Calls, inserted: Iterable[Inserted]) -> list[AsyncJobHandle[Any]]:
        return [
            AsyncJobHandle(self._backend, each.id, calls.task, is_new=each.is_new, is_ours=True)
            for each in inserted
        ]

    def _run_handle(self, submission: Submission, submitted: Submitted) -> AsyncRunHandle[Any]:
        id, is_new = submitted.run.id, submitted.is_new
        return AsyncRunHandle(self._backend, id, submission.flow, is_new=is_new)


class AsyncTransactionClient:
    """An :class:`AsyncClient` that takes part in your transaction; see ``using``."""

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
        """Enqueue one call of a task; the job exists when you commit."""
        call = prepare_call(self._client._backend, task, args, kwargs)
        return (await self._insert(call))[0]

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
        """Enqueue a call for each input; the jobs exist when you commit."""
        calls = prepare_calls(self._client._backend, task, inputs, checked_kwargs(kwargs))
        return await self._insert(calls)

    @overload
    async def submit(
        self,
        flow: BuiltFlow[I, O],
        input: I | None = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncRunHandle[O]: ...
    @overload
    async def submit(
        self,
        flow: str,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncRunHandle[Any]: ...
    async def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncRunHandle[Any]:
        """Start a run of a flow; it exists, and starts, when you commit.

        A run with the same ``id`` cannot be replaced here: ``on_conflict`` is ``"fail"`` or
        ``"use_existing"``.
        """
        backend = self._client._backend
        submission = prepare_submission(backend, flow, input, id, on_conflict, options)
        run, store = await transactional_run(backend, submission), await backend.store()
        submit = partial(store.submit_in_transaction, self._connection, run)
        try:
            submitted = await submit(await definitions_within(backend, submission))
        except UnknownFlow:  # pruned since this client saved it
            submitted = await submit(await definitions_within(backend, submission, again=True))
        refuse_other_flow(submission, submitted)
        return self._client._run_handle(submission, submitted)

    async def _insert(self, calls: Calls) -> list[AsyncJobHandle[Any]]:
        store = await self._client._backend.store()
        inserted = await store.insert_in_transaction(self._connection, list(calls.jobs))
        return self._client._handles(calls, inserted)
