"""The worker as users see it: make one, run it, stop it, ask it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.ids import WorkerId
from perdure.model.job import DEFAULT_NAMESPACE
from perdure.model.limit import Limit, info_of
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec, PlainCodec
from perdure.model.times import Duration
from perdure.model.worker import TaskLimits, WorkerInfo
from perdure.store.admission import check_worker_limits
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.tasks.node_type import TaskRegistry
from perdure.tasks.task import Task
from perdure.worker.events import Report, WorkerEvent, WorkerStats
from perdure.worker.nodes import Code, FlowCode
from perdure.worker.processes import check_importable
from perdure.worker.secrets import Provider, Secrets
from perdure.worker.service import Service
from perdure.worker.settings import (
    WorkerSettings,
    checked_concurrency,
    kept,
    one_namespace,
)

E = TypeVar("E", bound=WorkerEvent)


WITHOUT_CODE = declare(
    "worker.without_code",
    "a worker needs tasks or flows: it runs only what it has code for",
    "Pass `tasks` or `flows`",
)
WITHOUT_QUEUES = declare(
    "worker.without_queues",
    "an empty list of queues serves nothing",
    "Leave out `queues` to serve the tasks' own queues",
)
RUNNING = declare("worker.running", "worker {worker} is running already", "[{remedy}]")
NOT_MAIN_THREAD = declare(
    "worker.not_main_thread",
    "run() handles signals, which only the main thread can do",
    "Elsewhere use start(), or await serve()",
)


class Worker:
    """Claims jobs of the given tasks and queues, and runs them.

    It runs plain jobs of its ``tasks``, and nodes of its ``flows`` in the versions it was given.
    ``run()`` blocks and handles signals; ``start()`` runs it in a thread; ``await serve()`` runs
    it on your own event loop. Without ``queues`` it serves those of its tasks. Without ``tags`` it
    takes any job; with them, jobs whose tags it has. Limits hold across the whole cluster.

    ``secrets`` has what tasks and templates ask for by name: a mapping, or a plain function that
    is called with the name where the body runs, so it should be quick in async tasks; it returns
    None for what it does not have. Without it, the environment has them: ``PERDURE_SECRET_NAME``.
    ``allow_scripts`` lets nodes of the kind ``script`` execute commands on this machine.

    Without ``id`` it makes one up. An ``id`` of yours must not be that of another worker at work
    on the same store: two of one name would give back each other's jobs.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        tasks: Sequence[Task[..., Any]] = (),
        flows: Sequence[BuiltFlow] = (),
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        limits: Sequence[Limit] = (),
        tags: Sequence[str] | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        id: str | None = None,
        lease: Duration = "30s",
        poll: Duration = "5s",
        grace: Duration = "30s",
        abort_grace: Duration = "1s",
        hold_off: Duration = "1s",
        deaths_max: int = 3,
        keep_completed: Duration | None = "7d",
        keep_failed: Duration | None = "30d",
        keep_dead: Duration | None = None,
        payload_max_bytes: int = PAYLOAD_MAX_BYTES,
        codec: Codec | None = None,
        secrets: Provider | None = None,
        allow_scripts: bool = False,
    ) -> None:
        self._tasks = TaskRegistry(tasks)
        self._flows = FlowCode(check.listed(flows, "flows", "flows"))
        self._secrets = Secrets(secrets)
        self._check_code()
        names = _checked_queues(queues, self._own_queues)
        self._settings = WorkerSettings(
            namespace=one_namespace(namespace),
            queues=names,
            tags=None if tags is None else check.tags(tags),
            limits=check_worker_limits(
                check.listed(limits, "limits", "limits"), names, self._tasks
            ),
            concurrency=checked_concurrency(concurrency),
            lease=check.span(lease, "lease", is_positive=True),
            poll=check.span(poll, "poll", is_positive=True),
            grace=check.span(grace, "grace"),
            abort_grace=check.span(abort_grace, "abort_grace"),
            hold_off=check.span(hold_off, "hold_off"),
            deaths_max=check.integer(deaths_max, "deaths_max", 1),
            keep_completed=kept(keep_completed, "keep_completed"),
            keep_failed=kept(keep_failed, "keep_failed"),
            keep_dead=kept(keep_dead, "keep_dead"),
            payload_max_bytes=check.integer(payload_max_bytes, "payload_max_bytes", 1),
            allows_scripts=check.flag(allow_scripts, "allow_scripts"),
        )
        made = f"{socket.gethostname()}-{os.getpid()}-{clock.new_id()[-6:]}"
        self.id = WorkerId(check.name(made if id is None else id, "id", label="worker id"))
        self._store = store_at(store)
        self._codec = codec or PlainCodec()
        self._report = Report(self.id)
        self._service: Service | None = None
        self._concurrency = self._settings.concurrency

    def _check_code(self) -> None:
        if not self._tasks and not self._flows:
            raise InvalidInput(WITHOUT_CODE.fault())
        check_importable([*self._tasks.values(), *self._flows.tasks])

    def __repr__(self) -> str:
        service = self._service
        state = "not running" if service is None else f"{service.running} jobs running"
        return (
            f"<Worker {self.id!r} on {self.store_url}, queues {', '.join(self._settings.queues)}, "
            f"concurrency {self._concurrency}: {state}>"
        )

    @property
    def tasks(self) -> tuple[Task[..., Any], ...]:
        return tuple(self._tasks.values())

    @property
    def flows(self) -> tuple[BuiltFlow, ...]:
        """The flows it has code for, with those that they start."""
        return tuple(self._flows.values())

    @property
    def _own_queues(self) -> list[str]:
        return [*(task.queue for task in self._tasks.values()), *self._flows.queues]

    @property
    def settings(self) -> WorkerSettings:
        return self._settings

    @property
    def store_url(self) -> str:
        """Where its jobs are kept, without the password."""
        return self._store.url

    def adjust(
        self,
        *,
        store: str | Store | None = None,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        tags: Sequence[str] | None = None,
        namespace: str | None = None,
        grace: Duration | None = None,
        allow_scripts: bool | None = None,
        id: str | None = None,
    ) -> None:
        """Change a worker that does not run yet, as the command line does; None changes nothing."""
        if self._service is not None:
            raise InvalidInput(RUNNING.fault(worker=self.id, remedy="Use scale() to resize it"))
        changes: dict[str, Any] = {}
        if queues is not None:
            names = _checked_queues(queues, self._own_queues)
            limits = check_worker_limits(self._settings.limits, names, self._tasks)
            changes |= {"queues": names, "limits": limits}
        if concurrency is not None:
            self._concurrency = changes["concurrency"] = checked_concurrency(concurrency)
        if tags is not None:
            changes["tags"] = check.tags(tags)
        if namespace is not None:
            changes["namespace"] = one_namespace(namespace)
        if grace is not None:
            changes["grace"] = check.span(grace, "grace")
        if allow_scripts is not None:
            changes["allows_scripts"] = check.flag(allow_scripts, "allow_scripts")
        self._settings = replace(self._settings, **changes)
        if store is not None:
            self._store = store_at(store)
        if id is not None:
            self.id = self._report.worker = WorkerId(check.name(id, "id", label="worker id"))

    async def serve(self, *, started: Callable[[], None] | None = None) -> None:
        """Work on the running event loop until ``shutdown()``."""
        if self._service is not None:
            raise InvalidInput(RUNNING.fault(worker=self.id))
        # A handle of its own: a store that was passed in stays its owner's to close.
        store = self._store.clone()
        # Known before the store answers, so that a stop asked for meanwhile is not lost.
        self._service = Service(
            store,
            Code(self._tasks, self._flows, self._secrets),
            self._settings,
            self._info(),
            self._codec,
            self._report,
        )
        self._service.scale(self._concurrency)
        try:
            await store.open()
            try:
                if started is not None:
                    started()
                await self._service.run()
            finally:
                await store.close()
        finally:
            self._service = None

    def run(self) -> None:
        """Work until SIGTERM or SIGINT. The first stops gracefully, the second at once."""
        if threading.current_thread() is not threading.main_thread():
            raise InvalidInput(NOT_MAIN_THREAD.fault())
        asyncio.run(self._serve_with_signals())

    def start(self) -> WorkerHandle:
        """Work in a thread of its own; returns once it works, or raises what kept it from it."""
        return WorkerHandle(self)

    def shutdown(self, grace: Duration | None = None) -> None:
        """Stop claiming, let running jobs finish for the grace period, give back the rest.

        Returns at once, from any thread. Asking again with a shorter grace period shortens it.
        """
        wanted = None if grace is None else check.span(grace, "grace")
        if (service := self._service) is not None:
            service.call(service.ask_to_stop, wanted)

    def scale(self, concurrency: int) -> None:
        """Run up to this many jobs at once from now on; what runs already goes on."""
        self._concurrency = checked_concurrency(concurrency)
        if (service := self._service) is not None:
            service.call(service.scale, self._concurrency)

    def stats(self) -> WorkerStats:
        running = self._service.running if self._service is not None else 0
        return self._report.tally.stats(running, self._concurrency)

    def on(self, kind: type[E], listener: Callable[[E], object]) -> Callable[[], None]:
        """Hear events of a kind (see ``perdure.worker.events``); returns how to stop hearing them.

        Listeners are plain functions that run on the worker's event loop and should be quick.
        """
        return self._report.listeners.add(kind, listener)

    async def _serve_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        asked = False

        def on_signal() -> None:
            nonlocal asked
            self.shutdown(timedelta(0) if asked else None)
            asked = True

        def install() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, on_signal)

        await self.serve(started=install)

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            namespace=self._settings.namespace,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=self._settings.queues,
            tasks=tuple(self._tasks),
            tags=self._settings.tags,
            concurrency=self._concurrency,
            lease=self._settings.lease,
            flows=tuple(self._flows),
            limits=tuple(map(info_of, self._settings.limits)),
            task_limits=tuple(_task_limits(self._tasks, self._flows)),
        )


def _task_limits(tasks: TaskRegistry, flows: FlowCode) -> Iterator[TaskLimits]:
    """The limits that whoever asks why a job waits has to know of."""
    named = [("", name, tasks[name]) for name in tasks]
    named += [(text, name, task) for text in flows for name, task in flows[text].tasks.items()]
    for flow, name, task in named:
        if task.limits:
            yield TaskLimits(task=name, limits=tuple(map(info_of, task.limits)), flow=flow)


class WorkerHandle:
    """A worker in a thread: stop it, and wait for it. Safe to use from any thread."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._started: Future[None] = Future()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="perdure worker", daemon=True)
        self._thread.start()
        self._started.result()

    def __repr__(self) -> str:
        return f"<WorkerHandle of {self._worker!r}>"

    def shutdown(self, grace: Duration | None = None) -> None:
        """Ask it to stop; ``join()`` waits until it has."""
        self._worker.shutdown(grace)

    def scale(self, concurrency: int) -> None:
        """Run up to this many jobs at once from now on."""
        self._worker.scale(concurrency)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has stopped; False when it has not by then. Raises what ended it badly."""
        # Not the thread's own join, which takes it for ended once it was interrupted in waiting.
        has_stopped = self._stopped.wait(timeout)
        if has_stopped:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return has_stopped

    def stats(self) -> WorkerStats:
        return self._worker.stats()

    def _main(self) -> None:
        try:
            asyncio.run(self._worker.serve(started=lambda: self._started.set_result(None)))
        except BaseException as error:
            if self._started.done():
                self._error = error
            else:
                self._started.set_exception(error)
        finally:
            self._stopped.set()


def _checked_queues(queues: Sequence[str] | None, own: Sequence[str]) -> tuple[str, ...]:
    if queues is None:
        return tuple(dict.fromkeys(own))
    names = check.listed(queues, "queues", "names")
    if not names:
        raise InvalidInput(WITHOUT_QUEUES.fault(("queues",)))
    return tuple(dict.fromkeys(check.name(name, "queue") for name in names))
