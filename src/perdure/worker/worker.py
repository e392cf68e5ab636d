"""The worker as users see it: make one, run it, stop it, ask it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from perdure.model.job import ALL_NAMESPACES, DEFAULT_NAMESPACE
from perdure.model.limit import Limit, info_of
from perdure.model.payload import PAYLOAD_MAX_BYTES, Codec, PlainCodec
from perdure.model.times import Duration
from perdure.model.worker import TaskLimits, WorkerInfo, WorkerSettings
from perdure.store.admission import check_worker_limits
from perdure.store.contract import Store
from perdure.store.opening import store_at
from perdure.tasks.node_type import TaskRegistry
from perdure.tasks.task import Task
from perdure.worker.code import FlowCode, TaskCode
from perdure.worker.events import WorkerEvent, WorkerEvents, WorkerStats
from perdure.worker.processes import check_importable
from perdure.worker.secrets import Provider, Secrets
from perdure.worker.service import Service

E = TypeVar("E", bound=WorkerEvent)

CONCURRENCY_MAX = 10_000

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
SEVERAL_NAMESPACES = declare(
    "worker.several_namespaces",
    "a worker needs a single namespace (got {namespace!r})",
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

    ``secrets`` resolves the names that tasks and templates ask for: a mapping, or a plain function
    that takes a name and returns the value, or None. The function is called where the body runs, so
    it should be quick in async tasks. Without it, secrets come from the environment:
    ``PERDURE_SECRET_NAME``. ``allow_scripts`` lets nodes of the type ``script`` execute commands on
    this machine.

    Without ``id`` it generates one. An ``id`` of your own must be unique among the running workers
    of a store: two workers of one id would requeue each other's jobs.
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
        max_crashes: int = 3,
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
        if not self._tasks and not self._flows:
            raise InvalidInput(WITHOUT_CODE.fault())
        check_importable([*self._tasks.values(), *self._flows.tasks])
        made = f"{socket.gethostname()}-{os.getpid()}-{clock.new_id()[-6:]}"
        self._settings = WorkerSettings(
            **self._checked(
                {
                    "namespace": namespace,
                    "queues": queues,
                    "tags": tags,
                    "limits": limits,
                    "concurrency": concurrency,
                    "lease": lease,
                    "poll": poll,
                    "grace": grace,
                    "abort_grace": abort_grace,
                    "hold_off": hold_off,
                    "max_crashes": max_crashes,
                    "keep_completed": keep_completed,
                    "keep_failed": keep_failed,
                    "keep_dead": keep_dead,
                    "payload_max_bytes": payload_max_bytes,
                    "allow_scripts": allow_scripts,
                }
            )
        )
        self.id = WorkerId(check.name(made if id is None else id, "id", label="worker id"))
        self._store = store_at(store)
        self._codec = codec or PlainCodec()
        self._events = WorkerEvents(self.id)
        self._service: Service | None = None

    def _checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of :class:`WorkerSettings` from the arguments that set them."""
        settings: dict[str, Any] = {}
        for name, value in given.items():
            match name:
                case "namespace":
                    if value == ALL_NAMESPACES:
                        raise InvalidInput(SEVERAL_NAMESPACES.fault((name,), namespace=value))
                    settings[name] = check.name(value, name)
                case "queues":
                    settings[name] = self._checked_queues(value)
                case "tags":
                    settings[name] = None if value is None else check.tags(value)
                case "limits":
                    settings[name] = check.listed(value, name, "limits")
                case "concurrency":
                    settings[name] = checked_concurrency(value)
                case "lease" | "poll":
                    settings[name] = check.span(value, name, is_positive=True)
                case "grace" | "abort_grace" | "hold_off":
                    settings[name] = check.span(value, name)
                case "max_crashes" | "payload_max_bytes":
                    settings[name] = check.integer(value, name, 1)
                case "keep_completed" | "keep_failed" | "keep_dead":
                    settings[name] = check.optional(check.span, value, name)
                case "allow_scripts":
                    settings["allows_scripts"] = check.flag(value, name)
                case _:
                    raise AssertionError(f"no setting {name!r}")
        if "queues" in settings:  # limits are of queues or tasks that it serves
            limits = settings["limits"] if "limits" in given else self._settings.limits
            settings["limits"] = check_worker_limits(limits, settings["queues"], self._tasks)
        return settings

    def _checked_queues(self, queues: Any) -> tuple[str, ...]:
        if queues is None:
            own = [*(task.queue for task in self._tasks.values()), *self._flows.queues]
            return tuple(dict.fromkeys(own))
        names = check.listed(queues, "queues", "names")
        if not names:
            raise InvalidInput(WITHOUT_QUEUES.fault(("queues",)))
        return tuple(dict.fromkeys(check.name(name, "queue") for name in names))

    def __repr__(self) -> str:
        service = self._service
        state = "not running" if service is None else f"{service.runner.running} jobs running"
        return (
            f"<Worker {self.id!r} on {self.store_url}, queues {', '.join(self._settings.queues)}, "
            f"concurrency {self._settings.concurrency}: {state}>"
        )

    @property
    def tasks(self) -> tuple[Task[..., Any], ...]:
        return tuple(self._tasks.values())

    @property
    def flows(self) -> tuple[BuiltFlow, ...]:
        """The flows it has code for, with those that they start."""
        return tuple(self._flows.values())

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
        given = {
            "queues": queues,
            "concurrency": concurrency,
            "tags": tags,
            "namespace": namespace,
            "grace": grace,
            "allow_scripts": allow_scripts,
        }
        wanted = {name: value for name, value in given.items() if value is not None}
        self._settings = replace(self._settings, **self._checked(wanted))
        if store is not None:
            self._store = store_at(store)
        if id is not None:
            self.id = self._events.worker = WorkerId(check.name(id, "id", label="worker id"))

    async def serve(self, *, started: Callable[[], None] | None = None) -> None:
        """Work on the running event loop until ``shutdown()``.

        ``started`` is called once the store is open and the worker is in its list.
        """
        if self._service is not None:
            raise InvalidInput(RUNNING.fault(worker=self.id))
        # A handle of its own: a store that was passed in stays its owner's to close.
        store = self._store.clone()
        # Known before the store answers, so that a stop asked for meanwhile is not lost.
        self._service = Service(
            store,
            TaskCode(self._tasks, self._flows, self._secrets),
            self._settings,
            self._info(),
            self._codec,
            self._events,
        )
        try:
            await store.open()
            try:
                await self._service.run(started)
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
        """Work in a thread of its own; returns once it has started, or raises why it could not."""
        return WorkerHandle(self)

    def shutdown(self, grace: Duration | None = None) -> None:
        """Stop claiming, let running jobs finish for the grace period, requeue the rest.

        Returns at once, from any thread. Asking again with a shorter grace period shortens it.
        """
        wanted = None if grace is None else check.span(grace, "grace")
        if (service := self._service) is not None:
            service.call(service.ask_to_stop, wanted)

    def scale(self, concurrency: int) -> None:
        """Run up to this many jobs at once from now on; running jobs continue."""
        concurrency = checked_concurrency(concurrency)
        self._settings = replace(self._settings, concurrency=concurrency)
        if (service := self._service) is not None:
            service.call(service.runner.scale, concurrency)

    def stats(self) -> WorkerStats:
        running = 0 if self._service is None else self._service.runner.running
        return self._events.stats(running, self._settings.concurrency)

    def on(self, event_type: type[E], listener: Callable[[E], object]) -> Callable[[], None]:
        """Call ``listener`` for events of a type; returns a function that stops it.

        The types are in ``perdure.worker.events``. Listeners are plain functions that run on the
        worker's event loop and should be quick.
        """
        return self._events.listen(event_type, listener)

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
            concurrency=self._settings.concurrency,
            lease=self._settings.lease,
            flows=tuple(self._flows),
            limits=tuple(map(info_of, self._settings.limits)),
            task_limits=tuple(_task_limits(self._tasks, self._flows)),
        )


def _task_limits(tasks: TaskRegistry, flows: FlowCode) -> Iterator[TaskLimits]:
    """The limits of its tasks, so that ``explain`` can tell why a job waits."""
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


def checked_concurrency(concurrency: object) -> int:
    return check.integer(concurrency, "concurrency", 1, CONCURRENCY_MAX)
