"""The sync client: the same operations for code without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from perdure.client.client import AsyncClient, AsyncJobs, AsyncRuns, AsyncTransactionClient
from perdure.client.events import AsyncEvents, AsyncSubscription
from perdure.client.facade import (
    Facade,
    OpenableFacade,
    documented_by,
    mirrors,
    sync,
    sync_stream,
)
from perdure.client.handles import AsyncJobHandle, AsyncRunHandle, R_co
from perdure.client.portal import Portal
from perdure.errors import UnknownFlow
from perdure.flows.built import BuiltFlow, O_co
from perdure.flows.settings import RunOptions, StartOptions
from perdure.model import check
from perdure.model.client_event import ClientEvent
from perdure.model.ids import JobId, RunId
from perdure.model.job import DEFAULT_NAMESPACE, Progress, Status
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec
from perdure.model.run import OnExisting, RunStatus
from perdure.model.times import Duration
from perdure.operations.approvals import Approvals
from perdure.operations.backend import UNREAD_SIGNALS_MAX, AnyFlow, AnyTask
from perdure.operations.events import Events
from perdure.operations.external import Waits
from perdure.operations.flows import Flows
from perdure.operations.jobs import (
    Calls,
    Jobs,
    checked_kwargs,
    insert_jobs,
    prepare_call,
    prepare_calls,
    with_options,
)
from perdure.operations.queues import Queues, Workers
from perdure.operations.records import Enqueued
from perdure.operations.runs import Runs
from perdure.operations.schedules import Schedules
from perdure.operations.store import StoreOperations
from perdure.operations.submit import (
    definitions_within,
    prepare_submission,
    refuse_other_flow,
    submit_run,
    transactional_run,
)
from perdure.store.contract import Store
from perdure.tasks.options import CallOptions
from perdure.tasks.task import Task

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", covariant=True)


class _OfClient(Facade[T]):
    """A group or handle. References the client, which closes itself when garbage-collected."""

    __slots__ = ("_client",)

    def __init__(self, client: Client, target: T) -> None:
        self._client = client
        self._portal = client._portal
        self._target = target

    def __repr__(self) -> str:
        return repr(self._target)


class JobHandle(_OfClient[AsyncJobHandle[R_co]], Generic[R_co]):
    """A handle on a job. ``is_new`` is False if a live job with the same fingerprint was found."""

    __slots__ = ()

    @property
    def id(self) -> JobId:
        return self._target.id

    @property
    def is_new(self) -> bool:
        return self._target.is_new

    @property
    def status(self) -> Status:
        """Its current status, read from the store on each access."""
        return self._portal.run(self._target.status())

    @property
    def progress(self) -> Progress:
        """Its current progress, read from the store on each access."""
        return self._portal.run(self._target.progress())

    @documented_by(AsyncJobHandle.result)
    def result(self, timeout: Duration | None = None) -> R_co:
        return self._portal.run(self._target.result(timeout))

    record = sync(AsyncJobHandle.record)
    attempts = sync(AsyncJobHandle.attempts)
    explain = sync(AsyncJobHandle.explain)
    cancel = sync(AsyncJobHandle.cancel)
    retry = sync(AsyncJobHandle.retry)
    watch = sync_stream(AsyncJobHandle.watch)

    @documented_by(AsyncJobHandle.on_progress)
    def on_progress(self, callback: Callable[[Progress], object]) -> Callable[[], None]:
        subscribing = _called(self._target._follow_progress, _in_thread(self._portal, callback))
        return Subscription(self._client, self._portal.run(subscribing)).unsubscribe


class RunHandle(_OfClient[AsyncRunHandle[O_co]], Generic[O_co]):
    """A handle on a run. ``is_new`` is False if a run with this id already existed."""

    __slots__ = ()

    @property
    def id(self) -> RunId:
        return self._target.id

    @property
    def is_new(self) -> bool:
        return self._target.is_new

    @property
    def status(self) -> RunStatus:
        """Its current status, read from the store on each access."""
        return self._portal.run(self._target.status())

    @documented_by(AsyncRunHandle.result)
    def result(self, timeout: Duration | None = None) -> O_co:
        return self._portal.run(self._target.result(timeout))

    record = sync(AsyncRunHandle.record)
    detail = sync(AsyncRunHandle.detail)
    events = sync(AsyncRunHandle.events)
    outputs = sync(AsyncRunHandle.outputs)
    nodes = sync(AsyncRunHandle.nodes)
    children = sync(AsyncRunHandle.children)
    approvals = sync(AsyncRunHandle.approvals)
    lineage = sync(AsyncRunHandle.lineage)
    diagram = sync(AsyncRunHandle.diagram)
    timeline = sync(AsyncRunHandle.timeline)
    explain = sync(AsyncRunHandle.explain)
    watch = sync_stream(AsyncRunHandle.watch)
    observe = sync_stream(AsyncRunHandle.observe)
    signal = sync(AsyncRunHandle.signal)
    pause = sync(AsyncRunHandle.pause)
    resume = sync(AsyncRunHandle.resume)
    cancel = sync(AsyncRunHandle.cancel)
    retry = sync(AsyncRunHandle.retry)
    migrate = sync(AsyncRunHandle.migrate)

    @documented_by(AsyncRunHandle.fork)
    def fork(
        self,
        *,
        after: int | str | None = None,
        patch: Mapping[str, Any] | None = None,
        new_id: str | None = None,
        by: str | None = None,
    ) -> RunHandle[O_co]:
        runs = self._client.runs
        forked = runs.fork(self.id, after=after, patch=patch, new_id=new_id, by=by)
        return RunHandle(self._client, self._target._forked(forked))


class SyncJobs(_OfClient[AsyncJobs]):
    """Operations on jobs, with handles."""

    __slots__ = ()

    enqueue = sync(Jobs.enqueue)

    @documented_by(Jobs.enqueue_many)
    def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        kwargs: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> Sequence[Enqueued]:
        meant = with_options(self._target._backend, task, options)
        handles = self._client.enqueue_many(meant, inputs, kwargs=kwargs)
        return [Enqueued(id=each.id, is_new=each.is_new) for each in handles]

    list = sync(Jobs.list)
    count = sync(Jobs.count)
    get = sync(Jobs.get)
    attempts = sync(Jobs.attempts)
    find_result = sync(Jobs.find_result)
    explain = sync(Jobs.explain)
    watch = sync_stream(Jobs.watch)
    cancel = sync(Jobs.cancel)
    cancel_group = sync(Jobs.cancel_group)
    retry = sync(Jobs.retry)
    resume = sync(Jobs.resume)
    disable = sync(Jobs.disable)
    enable = sync(Jobs.enable)

    @overload
    def handle(self, id: str, task: Task[..., R]) -> JobHandle[R]: ...
    @overload
    def handle(self, id: str, task: AnyTask | None = None) -> JobHandle[Any]: ...
    @documented_by(AsyncJobs.handle)
    def handle(self, id: str, task: AnyTask | None = None) -> JobHandle[Any]:
        return JobHandle(self._client, self._target.handle(id, task))

    @overload
    def results(
        self,
        jobs: Iterable[JobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: Literal[False] = False,
    ) -> Sequence[R]: ...
    @overload
    def results(
        self,
        jobs: Iterable[JobHandle[R]],
        *,
        timeout: Duration | None = None,
        return_errors: bool,
    ) -> Sequence[R | BaseException]: ...
    @documented_by(AsyncJobs.results)
    def results(
        self,
        jobs: Iterable[JobHandle[Any]],
        *,
        timeout: Duration | None = None,
        return_errors: bool = False,
    ) -> Sequence[Any]:
        handles = [job._target for job in jobs]
        return self._portal.run(
            self._target.results(handles, timeout=timeout, return_errors=return_errors)
        )


class Subscription(_OfClient[AsyncSubscription]):
    """A handler of events, called until ``unsubscribe``, or until its client is closed."""

    __slots__ = ()

    @property
    def is_active(self) -> bool:
        return self._target.is_active

    @documented_by(AsyncSubscription.unsubscribe)
    def unsubscribe(self) -> None:
        if not self._portal.is_closed:
            self._portal.run(_called(self._target.unsubscribe))


class SyncEvents(_OfClient[AsyncEvents]):
    """Events of jobs and runs, as a stream or for handlers.

    A handler is called in a thread of its own, so it may use the client, and one event at a time.
    """

    __slots__ = ()

    stream = sync_stream(Events.stream)

    @mirrors(AsyncEvents.subscribe)
    def subscribe(self, handler: Callable[[ClientEvent], object], **filter: Any) -> Subscription:
        subscribing = self._target.subscribe(_in_thread(self._portal, handler), **filter)
        return Subscription(self._client, self._portal.run(subscribing))

    @mirrors(AsyncEvents.once)
    def once(self, handler: Callable[[ClientEvent], object], **filter: Any) -> Subscription:
        subscribing = self._target.once(_in_thread(self._portal, handler), **filter)
        return Subscription(self._client, self._portal.run(subscribing))


class SyncRuns(_OfClient[AsyncRuns]):
    """Operations on runs, with handles."""

    __slots__ = ()
    submit = sync(Runs.submit)
    set_priority = sync(Runs.set_priority)
    list = sync(Runs.list)
    count = sync(Runs.count)
    get = sync(Runs.get)
    events = sync(Runs.events)
    timeline = sync(Runs.timeline)
    lineage = sync(Runs.lineage)
    diagram = sync(Runs.diagram)
    explain = sync(Runs.explain)
    watch = sync_stream(Runs.watch)
    observe = sync_stream(Runs.observe)
    signal = sync(Runs.signal)
    broadcast = sync(Runs.broadcast)
    report = sync(Runs.report)
    pause = sync(Runs.pause)
    resume = sync(Runs.resume)
    cancel = sync(Runs.cancel)
    retry = sync(Runs.retry)
    fork = sync(Runs.fork)
    migrate = sync(Runs.migrate)

    @overload
    def handle(self, id: str, flow: BuiltFlow[Any, O]) -> RunHandle[O]: ...
    @overload
    def handle(self, id: str, flow: AnyFlow | None = None) -> RunHandle[Any]: ...
    @documented_by(AsyncRuns.handle)
    def handle(self, id: str, flow: AnyFlow | None = None) -> RunHandle[Any]:
        return RunHandle(self._client, self._target.handle(id, flow))


class SyncApprovals(_OfClient[Approvals]):
    """Operations on approvals. An approval's id is ``<run>:<node>``."""

    __slots__ = ()
    list = sync(Approvals.list)
    get = sync(Approvals.get)
    decide = sync(Approvals.decide)


class SyncWaits(_OfClient[Waits]):
    """Open waits of runs."""

    __slots__ = ()
    list = sync(Waits.list)


class SyncSchedules(_OfClient[Schedules]):
    """Operations on schedules."""

    __slots__ = ()
    save = sync(Schedules.save)
    list = sync(Schedules.list)
    get = sync(Schedules.get)
    pause = sync(Schedules.pause)
    resume = sync(Schedules.resume)
    trigger = sync(Schedules.trigger)
    delete = sync(Schedules.delete)


class SyncQueues(_OfClient[Queues]):
    """Job counts by queue; pause and resume."""

    __slots__ = ()
    list = sync(Queues.list)
    peek = sync(Queues.peek)
    pause = sync(Queues.pause)
    resume = sync(Queues.resume)


class SyncWorkers(_OfClient[Workers]):
    """Registered workers."""

    __slots__ = ()
    list = sync(Workers.list)


class SyncFlows(_OfClient[Flows]):
    """Flow versions with runs."""

    __slots__ = ()
    list = sync(Flows.list)
    unserved = sync(Flows.unserved)


class SyncStore(_OfClient[StoreOperations]):
    """The store as a whole."""

    __slots__ = ()
    health = sync(StoreOperations.health)
    stats = sync(StoreOperations.stats)
    now = sync(StoreOperations.now)
    count_finished = sync(StoreOperations.count_finished)
    prune = sync(StoreOperations.prune)


class Client(OpenableFacade[AsyncClient]):
    """The client for code without an event loop. Thread-safe.

    Opens its store on first use or with ``with``, and closes it with ``with``, when
    garbage-collected, or at exit. Takes the arguments of :class:`AsyncClient`.
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
        super().__init__(
            AsyncClient(
                store,
                namespace=namespace,
                tasks=tasks,
                flows=flows,
                on_conflict=on_conflict,
                aging=aging,
                payload_max_bytes=payload_max_bytes,
                unread_signals_max=unread_signals_max,
                codec=codec,
            )
        )

    # Created on each access: a group references the client, and a reference cycle would delay
    # closing it when it becomes garbage.

    @property
    def jobs(self) -> SyncJobs:
        return SyncJobs(self, self._target.jobs)

    @property
    def runs(self) -> SyncRuns:
        return SyncRuns(self, self._target.runs)

    @property
    def approvals(self) -> SyncApprovals:
        return SyncApprovals(self, self._target.approvals)

    @property
    def events(self) -> SyncEvents:
        return SyncEvents(self, self._target.events)

    @property
    def waits(self) -> SyncWaits:
        return SyncWaits(self, self._target.waits)

    @property
    def schedules(self) -> SyncSchedules:
        return SyncSchedules(self, self._target.schedules)

    @property
    def queues(self) -> SyncQueues:
        return SyncQueues(self, self._target.queues)

    @property
    def workers(self) -> SyncWorkers:
        return SyncWorkers(self, self._target.workers)

    @property
    def flows(self) -> SyncFlows:
        return SyncFlows(self, self._target.flows)

    @property
    def store(self) -> SyncStore:
        return SyncStore(self, self._target.store)

    stats = sync(AsyncClient.stats)

    @documented_by(AsyncClient.task)
    def task(self, name: str) -> Task[..., Any]:
        return self._target.task(name)

    @documented_by(AsyncClient.using)
    def using(self, connection: Any) -> TransactionClient:
        return TransactionClient(self, connection)

    @overload
    def enqueue(self, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]: ...
    @overload
    def enqueue(self, task: str, /, *args: Any, **kwargs: Any) -> JobHandle[Any]: ...
    @documented_by(AsyncClient.enqueue)
    def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        return self._insert(prepare_call(self._target._backend, task, args, kwargs))[0]

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
    @documented_by(AsyncClient.enqueue_many)
    def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[Any]]:
        backend = self._target._backend
        return self._insert(prepare_calls(backend, task, inputs, checked_kwargs(kwargs)))

    def _insert(self, calls: Calls) -> list[JobHandle[Any]]:
        # On the caller's thread, to which inputs and functions of them may be bound.
        jobs = list(calls.jobs)
        inserted = self._portal.run(insert_jobs(self._target._backend, jobs))
        return [JobHandle(self, each) for each in self._target._handles(calls, inserted)]

    @overload
    def submit(
        self,
        flow: BuiltFlow[I, O],
        input: I | None = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> RunHandle[O]: ...
    @overload
    def submit(
        self,
        flow: str,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> RunHandle[Any]: ...
    @documented_by(AsyncClient.submit)
    def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> RunHandle[Any]:
        backend = self._target._backend
        # On the caller's thread: encoding the input runs the caller's code.
        submission = prepare_submission(backend, flow, input, id, on_conflict, options)
        submitted = self._portal.run(submit_run(backend, submission))
        return RunHandle(self, self._target._run_handle(submission, submitted))

    @overload
    def run(
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
    def run(
        self,
        flow: str,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        timeout: Duration | None = None,
        **options: Unpack[StartOptions],
    ) -> Any: ...
    @documented_by(AsyncClient.run)
    def run(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        timeout: Duration | None = None,
        **options: Unpack[StartOptions],
    ) -> Any:
        return self.submit(flow, input, id=id, on_conflict=on_conflict, **options).result(timeout)


class TransactionClient:
    """A :class:`Client` that takes part in your transaction; see ``using``."""

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
    @documented_by(AsyncTransactionClient.enqueue)
    def enqueue(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        return self._insert(prepare_call(self._client._target._backend, task, args, kwargs))[0]

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
    @documented_by(AsyncTransactionClient.enqueue_many)
    def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        *,
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[JobHandle[Any]]:
        backend = self._client._target._backend
        return self._insert(prepare_calls(backend, task, inputs, checked_kwargs(kwargs)))

    @overload
    def submit(
        self,
        flow: BuiltFlow[I, O],
        input: I | None = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> RunHandle[O]: ...
    @overload
    def submit(
        self,
        flow: str,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> RunHandle[Any]: ...
    @documented_by(AsyncTransactionClient.submit)
    def submit(
        self,
        flow: AnyFlow,
        input: Any = None,
        *,
        id: str | None = None,
        on_conflict: OnExisting | None = None,
        **options: Unpack[RunOptions],
    ) -> RunHandle[Any]:
        client, backend = self._client, self._client._target._backend
        submission = prepare_submission(backend, flow, input, id, on_conflict, options)
        run = client._portal.run(transactional_run(backend, submission))
        store = client._portal.run(backend.store())
        # On the caller's thread, to which the connection belongs.
        submit = partial(store.submit_in_blocking_transaction, self._connection, run)
        try:
            submitted = submit(client._portal.run(definitions_within(backend, submission)))
        except UnknownFlow:  # pruned since this client saved it
            again = definitions_within(backend, submission, again=True)
            submitted = submit(client._portal.run(again))
        refuse_other_flow(submission, submitted)
        return RunHandle(client, client._target._run_handle(submission, submitted))

    def _insert(self, calls: Calls) -> list[JobHandle[Any]]:
        client, target = self._client, self._client._target
        store = client._portal.run(target._backend.store())
        # On the caller's thread, to which the connection belongs.
        inserted = store.insert_in_blocking_transaction(self._connection, list(calls.jobs))
        return [JobHandle(client, each) for each in target._handles(calls, inserted)]


async def _called(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on the client's event loop."""
    return function(*args, **kwargs)


def _in_thread(
    portal: Portal, handler: Callable[[Any], object]
) -> Callable[[Any], Awaitable[object]]:
    if not callable(handler):
        raise check.wrong_type(handler, "handler", "a function that takes an event")
    return lambda subject: asyncio.to_thread(portal.handle, handler, subject)
