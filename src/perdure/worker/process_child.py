"""The child's side of ``isolation="process"``: receive a body to run, run it, report how it ended.

It has neither store nor codec: the parent stores steps, resolves secrets and encodes outcomes.
Every module that it imports delays the first body, so it imports no engine beyond retry policies.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from functools import partial, reduce
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from perdure import clock
from perdure.diagnostics import declare
from perdure.errors import MissingSecret, PerdureError, StoreError
from perdure.model.job import Progress
from perdure.model.outcome import NodeOutcome, Requeued
from perdure.model.payload import from_json, to_json
from perdure.model.value import Value
from perdure.tasks.context import AbortSignal, BaseContext
from perdure.tasks.task import Task
from perdure.tasks.task import task as as_task
from perdure.worker.call import Arguments, CallScope, typed_arguments
from perdure.worker.executors import StartsLate
from perdure.worker.outcome import failed_outcome, outcome_of
from perdure.worker.processes import (
    BodyEnded,
    BodyStarted,
    ProgressReported,
    RunBody,
    SecretReply,
    SecretRequest,
    StartReply,
    StartRequest,
    StepReply,
    StepRequest,
    StopBody,
)
from perdure.worker.resources import (
    NO_SOURCES,
    ProcessResources,
    WorkerResources,
    held_on,
    opened,
)
from perdure.worker.secrets import Secrets

if TYPE_CHECKING:
    from perdure.worker.log_setup import LogSetup

_log = logging.getLogger("perdure.worker")

STEP_FAILED = declare("worker.step_failed", "step {step!r}: {reason}")
SECRET_UNAVAILABLE = declare("worker.secret_unavailable", "{reason}")

Reply = StepReply | SecretReply | StartReply


def main(pipe: Connection, logs: LogSetup | None) -> None:
    """Serve requests until the parent is gone."""
    if logs is not None:
        logs.apply_in_child()
    # Ctrl-C reaches the whole process group; the parent decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Should this process crash, the parent learns of it by the end of the pipe, which a process
    # that a body forked must not keep open.
    os.register_at_fork(after_in_child=pipe.close)
    _Server(pipe).serve()


class _Server:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._requests: SimpleQueue[RunBody | None] = SimpleQueue()
        self._request: RunBody | None = None
        self._abort = AbortSignal()
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        self._asking = threading.Lock()
        self._resources = _ChildResources()

    def ask(self, message: StepRequest | SecretRequest | StartRequest) -> Any:
        """Ask the parent for a step, a secret or permission to start; one question at a time."""
        with self._asking:
            with self._sending:
                self._send(message)
            return self._replies.get()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while (request := self._requests.get()) is not None:
            outcome = self._run(request)
            with self._sending:
                self._request = None
                self._send(BodyEnded(outcome=outcome))
        self._resources.close()
        os._exit(0)

    def _listen(self) -> None:
        try:
            while True:
                data = self._pipe.recv_bytes()
                message = msgspec.json.decode(data, type=RunBody | StopBody | Reply)
                if isinstance(message, RunBody):
                    self._abort = AbortSignal()
                    self._request = message
                    self._requests.put(message)
                elif isinstance(message, Reply):
                    self._replies.put(message)
                else:
                    self._abort.fire(message.reason)
        except (EOFError, OSError):
            if self._request is not None:
                # The parent is gone and cannot record the outcome, so stop immediately.
                os._exit(0)
            self._requests.put(None)
        except BaseException:
            # An unreadable message: the parent must not wait for an outcome.
            os._exit(1)

    def _run(self, request: RunBody) -> NodeOutcome:
        task: Task[..., Any] | None = None
        limit = request.payload_max_bytes
        scope = CallScope(
            request.job,
            Secrets(self._secret),
            limit,
            allows_scripts=request.allows_scripts,
            resumption=request.resumption,
            given_secrets=request.masked,
        )
        scope.inputs = request.inputs
        try:
            found: Any = reduce(getattr, request.name.split("."), import_module(request.module))
            task = found if isinstance(found, Task) else as_task(found)
            report = partial(self._report, request)
            steps = _ParentSteps(self, limit)
            args, kwargs = list(request.args), request.kwargs
            typed_arguments(task, args, kwargs)
            sources = self._resources.open(request.resources)
            context = scope.context(
                task,
                request.worker_id,
                report,
                self._abort,
                steps,
                sources.opened,
                (args, kwargs),
            )
            with self._sending:
                self._send(BodyStarted())

            name = task.name

            def start() -> None:
                """Just before the body, after its resources are built."""
                if request.asks_to_start and not self._may_start():
                    raise StartsLate

            def finish(value: Any) -> NodeOutcome:
                # Masked here too: the parent only gets truncated texts.
                return scope.requested_outcome or outcome_of(value, name, limit, scope.masker)

            if sources is NO_SOURCES:
                task.inject(args, kwargs, context, sources.opened)
                start()
                value = task.function(*args, **kwargs)
                return finish(asyncio.run(value) if task.is_async else value)
            return self._resources.call(sources, task, (args, kwargs), context, start, finish)
        except StartsLate:
            return Requeued()
        except BaseException as error:
            if scope.requested_outcome is not None:
                return scope.requested_outcome
            if task is None:  # it could not be imported
                task = Task(_nothing, name=request.job.partition.task)
            hold_off = timedelta(milliseconds=request.hold_off_ms)
            return failed_outcome(request.job, task, error, hold_off, scope.masker)

    def _may_start(self) -> bool:
        """Whether the body may start now, under a limit that counts starts."""
        while True:
            asked_at = clock.monotonic()
            reply: StartReply = self.ask(StartRequest())
            if reply.seconds is None:
                return False
            if clock.monotonic() - asked_at <= reply.seconds:
                return True

    def _report(self, request: RunBody, progress: Progress) -> None:
        with self._sending:
            # A thread that a body left behind must not report into the next request.
            if self._request is request:
                self._send(ProgressReported(progress=progress))

    def _secret(self, name: str) -> str:
        reply: SecretReply = self.ask(SecretRequest(name=name))
        if reply.advice is not None:
            raise MissingSecret(name=name, advice=reply.advice)
        if reply.secret is None:
            raise PerdureError(SECRET_UNAVAILABLE.fault(name=name, reason=reply.error))
        return reply.secret

    def _send(self, message: Value) -> None:
        self._pipe.send_bytes(msgspec.json.encode(message))


class _ChildResources:
    """The worker's resources in this process, opened when a body first needs them.

    They belong to an event loop that runs in a thread of its own, as long as this process: async
    bodies that may use them run there, and sync ones in the main thread.
    """

    def __init__(self) -> None:
        self._sources: WorkerResources | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held = ExitStack()

    def open(self, wanted: ProcessResources | None) -> WorkerResources:
        if wanted is None:
            return NO_SOURCES
        if self._sources is None:
            lifespan, provide = (
                None if each is None else each.load() for each in (wanted.lifespan, wanted.provide)
            )
            sources = WorkerResources(lifespan, provide, wanted.provides)
            made = None if lifespan is None else lifespan()
            sources.use(self._held.enter_context(held_on(self._running_loop(), opened(made))))
            self._sources = sources
        return self._sources

    def call(
        self,
        sources: WorkerResources,
        task: Task[..., Any],
        arguments: Arguments,
        context: BaseContext,
        start: Callable[[], None],
        finish: Callable[[Any], NodeOutcome],
    ) -> NodeOutcome:
        args, kwargs = arguments
        loop = self._running_loop()
        is_provided = sources.provides_for(task)

        async def call_async() -> NodeOutcome | BaseException:
            try:
                made = sources.of_job(context) if is_provided else nullcontext(sources.opened)
                async with made as resources:
                    task.inject(args, kwargs, context, resources)
                    await asyncio.to_thread(start)
                    return finish(await task.function(*args, **kwargs))
            except BaseException as error:  # SystemExit would end the loop
                return error

        if task.is_async:
            ended = asyncio.run_coroutine_threadsafe(call_async(), loop).result()
            if isinstance(ended, BaseException):
                raise ended
            return ended
        made = (
            sources.of_job_in_thread(context, loop) if is_provided else nullcontext(sources.opened)
        )
        with made as resources:
            task.inject(args, kwargs, context, resources)
            start()
            return finish(task.function(*args, **kwargs))

    def close(self) -> None:
        try:
            self._held.close()
        except Exception:
            _log.exception("closing the lifespan in a child process failed")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        return self._loop


class _ParentSteps:
    """Steps, looked up and stored by the parent, which has the store."""

    def __init__(self, server: _Server, payload_max_bytes: int) -> None:
        self._server = server
        self._payload_max_bytes = payload_max_bytes

    async def find(self, name: str) -> tuple[Any, ...]:
        reply = await self._ask(StepRequest(name=name))
        return () if reply.json is None else (from_json(reply.json.encode()),)

    async def save(self, name: str, value: Any) -> Any:
        data = to_json(value, f"the result of step {name!r}", self._payload_max_bytes)
        reply = await self._ask(StepRequest(name=name, json=data.decode()))
        assert reply.json is not None
        return from_json(reply.json.encode())

    def wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(coroutine)

    async def _ask(self, message: StepRequest) -> StepReply:
        reply: StepReply = await asyncio.to_thread(self._server.ask, message)
        if reply.error is not None:
            raise StoreError(STEP_FAILED.fault(step=message.name, reason=reply.error))
        return reply


def _nothing() -> None:
    """Stands in for a task that could not be imported, so that its failure can be reported."""
