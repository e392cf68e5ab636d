"""The blocking client: the same names as the async one, for code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from perdure.client.client import AsyncClient
from perdure.client.enqueueing import AnyTask, Calls, checked_kwargs
from perdure.client.face import Face, OpenableFace, mirrors, waits_for
from perdure.client.handles import AsyncJobHandle
from perdure.client.portal import Portal
from perdure.client.records import JobUpdate
from perdure.client.run_handles import AsyncRunHandle
from perdure.client.run_records import EventRecord
from perdure.client.run_sights import RunSight
from perdure.client.schedule_records import ScheduleRecord
from perdure.client.scheduling import AnyTarget
from perdure.client.submitting import AnyFlow
from perdure.model.ids import JobId, RunId
from perdure.model.job import Progress, Status
from perdure.model.run import OnExisting, RunStatus
from perdure.model.times import Duration
from perdure.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
U = TypeVar("U")
AnyHandle = TypeVar("AnyHandle", bound=AsyncJobHandle[Any] | AsyncRunHandle)


class _Handle(Face[AnyHandle]):
    """What handles on jobs and on runs have in common."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, twin: AnyHandle) -> None:
        self._client = client  # which would close itself if only its handles were left
        self._portal = client._portal
        self._twin = twin

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def is_new(self) -> bool:
        return self._twin.is_new


class JobHandle(_Handle[AsyncJobHandle[R_co]], Generic[R_co]):
    """One job, as a :class:`Client` knows it."""

    __slots__ = ()

    @property
    def id(self) -> JobId:
        return self._twin.id

    @property
    def status(self) -> Status:
        """Its status now; each use asks the store."""
        return self._portal.run(self._twin.status())

    @property
    def progress(self) -> Progress:
        """Its progress now; each use asks the store."""
        return self._portal.run(self._twin.progress())

    @mirrors(AsyncJobHandle.result)
    def result(self, timeout: Duration | None = None) -> R_co:
        return self._portal.run(self._twin.result(timeout))

    record = waits_for(AsyncJobHandle.record)
    failures = waits_for(AsyncJobHandle.failures)
    explain = waits_for(AsyncJobHandle.explain)
    abort = waits_for(AsyncJobHandle.abort)
    retry = waits_for(AsyncJobHandle.retry)

    @mirrors(AsyncJobHandle.watch)
    def watch(self) -> Iterator[JobUpdate]:
        return _followed(self._portal, self._twin.watch())


class RunHandle(_Handle[AsyncRunHandle]):
    """One run, as a :class:`Client` knows it."""

    __slots__ = ()

    @property
    def id(self) -> RunId:
        return self._twin.id

    @property
    def status(self) -> RunStatus:
        """Its status now; each use asks the store."""
        return self._portal.run(self._twin.status())

    result = waits_for(AsyncRunHandle.result)
    record = waits_for(AsyncRunHandle.record)
    events = waits_for(AsyncRunHandle.events)
    outputs = waits_for(AsyncRunHandle.outputs)
    nodes = waits_for(AsyncRunHandle.nodes)
    children = waits_for(AsyncRunHandle.children)
    approvals = waits_for(AsyncRunHandle.approvals)
    lineage = waits_for(AsyncRunHandle.lineage)
    picture = waits_for(AsyncRunHandle.picture)
    timeline = waits_for(AsyncRunHandle.timeline)
    signal = waits_for(AsyncRunHandle.signal)
    pause = waits_for(AsyncRunHandle.pause)
    unpause = waits_for(AsyncRunHandle.unpause)
    cancel = waits_for(AsyncRunHandle.cancel)
    retry = waits_for(AsyncRunHandle.retry)

    @mirrors(AsyncRunHandle.watch)
    def watch(self) -> Iterator[EventRecord]:
        return _followed(self._portal, self._twin.watch())

    @mirrors(AsyncRunHandle.sights)
    def sights(self) -> Iterator[RunSight]:
        return _followed(self._portal, self._twin.sights())


class Client(OpenableFace[AsyncClient]):
    """The client for blocking code, usable from many threads at once.

    Opens its store on first use, or with ``with``; without either it is closed when it is
    garbage or when the program ends. Takes what :class:`AsyncClient` takes.
    """

    @mirrors(AsyncClient.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncClient(*args, **kwargs))

    def task(self, name: str) -> Task[..., Any]:
        """The task of this name among the client's ``tasks``, for instance to give it options."""
        return self._twin.task(name)

    def using(self, connection: Any) -> TransactionClient:
        """A view of this client that takes part in your own transaction, open on ``connection``.

        What it enqueues is there when you commit, and never was if you roll back.
        """
        return TransactionClient(self, connection)

    @overload
    def enqueue(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...
    @overload
    def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...
    def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue one call of a task. When this returns, the job is durable.

        It takes the task's own arguments. Options are the task's:
        ``enqueue(fetch.options(delay="5m"), url)``.
        """
        return self._insert(self._twin._enqueueing.one_call(task, args, kwargs))[0]

    @overload
    def enqueue_many(
        self,
        task: Task[..., R],
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[R]]: ...
    @overload
    def enqueue_many(
        self,
        task: str,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[Any]]: ...
    def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[Any]]:
        """Enqueue a call for each input, in one transaction: all or none.

        If an input cannot be used, even one in the middle, the error has a note that says which,
        and nothing is written.

        An input is the task's one argument; a tuple holds several, by position. ``kwargs`` go to
        every call. Options are the task's, as with ``enqueue``.
        """
        keywords = checked_kwargs(kwargs)
        return self._insert(self._twin._enqueueing.many_calls(task, inputs, keywords))

    @overload
    def handle(self, id: str, task: Task[..., R]) -> JobHandle[R]: ...
    @overload
    def handle(self, id: str, task: AnyTask | None = None) -> JobHandle[Any]: ...
    def handle(self, id: str, task: AnyTask | None = None) -> JobHandle[Any]:
        """A handle on a job that was enqueued elsewhere; ``task`` lets it give typed results."""
        return JobHandle(self, self._twin.handle(id, task))

    @overload
    def results(
        self,
        jobs: Iterable[JobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: Literal[False] = False,
    ) -> list[R]: ...
    @overload
    def results(
        self,
        jobs: Iterable[JobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: bool,
    ) -> list[R | BaseException]: ...
    def results(
        self,
        jobs: Iterable[JobHandle[Any]],
        *,
        timeout: Duration | None = None,
        return_errors: bool = False,
    ) -> list[Any]:
        """Wait for several jobs together; their results in the order given.

        The first that ends without one raises its error, unless ``return_errors`` puts errors
        into the list instead.
        """
        twins = [job._twin for job in jobs]
        results = self._twin.results(twins, timeout=timeout, return_errors=return_errors)
        return self._portal.run(results)

    result_of = waits_for(AsyncClient.result_of)
    job = waits_for(AsyncClient.job)
    jobs = waits_for(AsyncClient.jobs)
    count = waits_for(AsyncClient.count)
    depth = waits_for(AsyncClient.depth)
    failures = waits_for(AsyncClient.failures)
    workers = waits_for(AsyncClient.workers)
    now = waits_for(AsyncClient.now)
    abort = waits_for(AsyncClient.abort)
    abort_group = waits_for(AsyncClient.abort_group)
    disable = waits_for(AsyncClient.disable)
    enable = waits_for(AsyncClient.enable)
    retry = waits_for(AsyncClient.retry)
    resume = waits_for(AsyncClient.resume)
    pause_queue = waits_for(AsyncClient.pause_queue)
    resume_queue = waits_for(AsyncClient.resume_queue)
    paused_queues = waits_for(AsyncClient.paused_queues)

    @mirrors(AsyncClient.submit)
    def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
    ) -> RunHandle:
        # Prepared here: what writes the input as JSON is the caller's.
        submission = self._twin._submitting.prepared(flow, input, id, on_conflict)
        return RunHandle(self, self._portal.run(self._twin._submit(submission)))

    def run_handle(self, id: str, flow: AnyFlow | None = None) -> RunHandle:
        """A handle on a run that was submitted elsewhere; ``flow`` lets it give typed results."""
        return RunHandle(self, self._twin.run_handle(id, flow))

    @mirrors(AsyncClient.fork)
    def fork(self, id: str, **options: Any) -> RunHandle:
        return RunHandle(self, self._portal.run(self._twin.fork(id, **options)))

    run = waits_for(AsyncClient.run)
    runs = waits_for(AsyncClient.runs)
    count_runs = waits_for(AsyncClient.count_runs)
    signal = waits_for(AsyncClient.signal)
    broadcast = waits_for(AsyncClient.broadcast)
    inbox = waits_for(AsyncClient.inbox)
    approval = waits_for(AsyncClient.approval)
    decide = waits_for(AsyncClient.decide)
    report = waits_for(AsyncClient.report)
    waits = waits_for(AsyncClient.waits)
    lineage = waits_for(AsyncClient.lineage)
    pause = waits_for(AsyncClient.pause)
    unpause = waits_for(AsyncClient.unpause)
    cancel = waits_for(AsyncClient.cancel)
    migrate = waits_for(AsyncClient.migrate)
    explain = waits_for(AsyncClient.explain)
    stranded = waits_for(AsyncClient.stranded)
    flows = waits_for(AsyncClient.flows)
    health = waits_for(AsyncClient.health)
    count_ended = waits_for(AsyncClient.count_ended)
    prune = waits_for(AsyncClient.prune)

    @mirrors(AsyncClient.schedule)
    def schedule(self, name: str, target: AnyTarget, **options: Any) -> ScheduleRecord:
        # Prepared here: what writes the input as JSON is the caller's.
        request = self._twin._prepared_schedule(name, target, options)
        return self._portal.run(self._twin._save_schedule(request))

    schedules = waits_for(AsyncClient.schedules)
    schedule_record = waits_for(AsyncClient.schedule_record)
    pause_schedule = waits_for(AsyncClient.pause_schedule)
    resume_schedule = waits_for(AsyncClient.resume_schedule)
    delete_schedule = waits_for(AsyncClient.delete_schedule)

    @mirrors(AsyncClient.trigger)
    def trigger(self, name: str, *, by: str | None = None) -> RunHandle | JobHandle[Any]:
        started = self._portal.run(self._twin.trigger(name, by=by))
        if isinstance(started, AsyncRunHandle):
            return RunHandle(self, started)
        return JobHandle(self, started)

    def _insert(self, calls: Calls) -> list[JobHandle[Any]]:
        # Made here: inputs, and functions of them, may belong to the caller's thread.
        jobs = list(calls.jobs)
        inserted = self._portal.run(self._twin._enqueueing.insert(jobs))
        return [JobHandle(self, each) for each in self._twin._handles(calls, inserted)]


class TransactionClient:
    """A :class:`Client` within a transaction of yours: see ``using``."""

    __slots__ = ("_client", "_connection")

    def __init__(self, client: Client, connection: Any) -> None:
        self._client = client
        self._connection = connection

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    @overload
    def enqueue(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...
    @overload
    def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...
    def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """Enqueue one call of a task; the job is there when you commit."""
        return self._inserted(self._client._twin._enqueueing.one_call(task, args, kwargs))[0]

    @overload
    def enqueue_many(
        self,
        task: Task[..., R],
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[R]]: ...
    @overload
    def enqueue_many(
        self,
        task: str,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[Any]]: ...
    def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[Any]]:
        """Enqueue a call for each input; the jobs are there when you commit."""
        keywords = checked_kwargs(kwargs)
        return self._inserted(self._client._twin._enqueueing.many_calls(task, inputs, keywords))

    def _inserted(self, calls: Calls) -> list[JobHandle[Any]]:
        client, twin = self._client, self._client._twin
        store = client._portal.run(twin._access.store.opened())
        # On the caller's thread, to which the connection belongs.
        inserted = store.insert_in_blocking_transaction(self._connection, list(calls.jobs))
        return [JobHandle(client, each) for each in twin._handles(calls, inserted)]


def _followed(portal: Portal, updates: AsyncGenerator[U, None]) -> Iterator[U]:
    """What an async generator yields, each waited for in the portal."""
    # Whoever is interrupted leaves before what was waited for has ended, and closes it meanwhile.
    at_work = asyncio.Lock()

    async def following() -> U | None:
        async with at_work:
            return await anext(updates, None)

    async def closing() -> None:
        async with at_work:
            await updates.aclose()

    try:
        while (update := portal.run(following())) is not None:
            yield update
    finally:
        if not portal.is_closed:
            portal.run(closing())
