"""Child processes for tasks with ``isolation="process"``, which a stop can kill.

Parent and child exchange JSON over a pipe; nothing is unpickled. A child runs one body at a time
and is reused. It ends with its parent, because its pipe closes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, MissingSecret, ProcessCrashed
from perdure.model.job import ClaimedJob, Progress
from perdure.model.outcome import NodeOutcome
from perdure.model.payload import from_json
from perdure.model.value import Value
from perdure.model.wait import Resumption
from perdure.tasks.context import AbortSignal, StepKeeper
from perdure.tasks.task import Task
from perdure.worker.call import NOTHING_BEFORE, stored_arguments
from perdure.worker.executors import StartsLate, Threads, call_on_loop, seconds_to_start
from perdure.worker.outcome import checked_outcome
from perdure.worker.resources import ProcessResources, is_main_importable, uses_resources

if TYPE_CHECKING:
    from perdure.worker.attempt import Attempt

NOT_IMPORTABLE = declare(
    "task.not_importable",
    'task {task!r} has isolation="process" and must be defined at module level, by name',
    "A child process has to import it",
)
IN_MAIN_MODULE = declare(
    "task.in_main_module",
    'task {task!r} has isolation="process" and is defined in the main module, which a child '
    "process cannot import",
    "Move it into a separate module",
)


IDLE_MAX = 32
"""Idle child processes kept for reuse."""
CLOSE_SECONDS_MAX = 10.0
"""How long a child may take to close its resources before it is killed."""
SIGNAL_SPREAD_SECONDS = 0.5
"""How long a signal to a process group may take to reach all of its processes."""


class RunBody(Value, tag=True):
    """Parent to child: run this body."""

    module: str
    name: str
    job: ClaimedJob
    args: list[object]
    kwargs: dict[str, object]
    worker_id: str
    hold_off_ms: float
    payload_max_bytes: int
    allows_scripts: bool
    resumption: Resumption
    inputs: dict[str, object]
    masked: tuple[str, ...]
    """Secrets in the arguments."""
    asks_to_start: bool
    """Whether a limit counts its start."""
    resources: ProcessResources | None
    """How to get the worker's resources; None if the task uses none."""


class StopBody(Value, tag=True):
    """Parent to child: the abort signal fires."""

    reason: str


class BodyStarted(Value, tag=True):
    """Child to parent: the task is imported and its body starts."""


class ProgressReported(Value, tag=True):
    """Child to parent: progress."""

    progress: Progress


class StepRequest(Value, tag=True):
    """Child to parent: find the result of a step, or store it if there is one, as JSON."""

    name: str
    json: str | None = None


class StepReply(Value, tag=True):
    """Parent to child: the stored result, if there is one; or the error."""

    json: str | None = None
    error: str | None = None


class SecretRequest(Value, tag=True):
    """Child to parent: a secret is needed."""

    name: str


class SecretReply(Value, tag=True):
    """Parent to child: the secret; or the error."""

    secret: str | None = None
    advice: str | None = None
    """There is no such secret."""
    error: str = ""


class StartRequest(Value, tag=True):
    """Child to parent: the body is ready to start, under a limit that counts starts."""


class StartReply(Value, tag=True):
    """Parent to child: how soon after the request the body has to start; None: not any more."""

    seconds: float | None = None


class BodyEnded(Value, tag=True):
    """Child to parent: how the body ended. Payloads are plain JSON: the parent has the codec."""

    outcome: NodeOutcome


FromChild = BodyStarted | ProgressReported | StepRequest | SecretRequest | StartRequest | BodyEnded


_pipes: set[Connection] = set()


def _close_pipes() -> None:
    """Leave the pipes to this process alone: a child ends when its pipe does."""
    for pipe in _pipes:
        pipe.close()
    _pipes.clear()


os.register_at_fork(after_in_child=_close_pipes)


class _TaskProcess:
    def __init__(self) -> None:
        # Late, because a child loads this module too, and needs neither to start.
        from perdure.worker.log_setup import current_setup
        from perdure.worker.process_child import main

        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=main, args=(theirs, current_setup()), name="perdure task", daemon=True
        )
        self.process.start()
        theirs.close()
        _pipes.add(self.pipe)
        self._sending = threading.Lock()
        self.has_resources = False
        """It may have opened resources, which it closes before it ends."""

    def send(self, message: Value) -> None:
        with self._sending:
            self.pipe.send_bytes(msgspec.json.encode(message))

    def receive(self) -> FromChild:
        data = self.pipe.recv_bytes()
        message: FromChild = msgspec.json.decode(data, type=FromChild)
        return message

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        _pipes.discard(self.pipe)
        self.pipe.close()

    def let_close(self) -> None:
        """Let an idle child close its resources, if it has any."""
        if self.has_resources:
            self.pipe.close()

    def close(self) -> None:
        """End an idle child, after it has closed its resources."""
        if self.has_resources:
            self.let_close()
            self.process.join(CLOSE_SECONDS_MAX)
        self.end()


class Processes:
    """The children of one worker, started when needed."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._idle: list[_TaskProcess] = []
        self._is_closed = False

    def start(self, attempt: Attempt) -> ProcessBody:
        body = ProcessBody(attempt.abort)
        self._threads.run(partial(self._run, attempt, body))
        return body

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for child in idle:  # all at once
            child.let_close()
        for child in idle:
            child.close()

    def _run(self, attempt: Attempt, body: ProcessBody) -> None:
        """Run the body in a child, in a thread that ends with it: the attempt always ends."""
        loop = attempt.runner.loop
        try:
            outcome = self._converse(attempt, body)
            result = checked_outcome(attempt, outcome)
        except BaseException as error:
            call_on_loop(loop, attempt.raised, error)
        else:
            call_on_loop(loop, attempt.returned, result)

    def _converse(self, attempt: Attempt, body: ProcessBody) -> NodeOutcome:
        request = _request_of(attempt)
        steps = attempt.steps()
        child = self._take_idle() or _TaskProcess()
        child.has_resources |= request.resources is not None
        body.attach(child)
        try:
            child.send(request)
            body.open()
            while not isinstance(message := child.receive(), BodyEnded):
                match message:
                    case ProgressReported():
                        attempt.report(message.progress)
                    case StepRequest():
                        child.send(_step_reply(message, steps))
                    case SecretRequest():
                        child.send(_secret_reply(message, attempt))
                    case StartRequest():
                        child.send(_start_reply(attempt))
                    case BodyStarted():
                        call_on_loop(attempt.runner.loop, attempt.body_started)
        except BaseException as error:
            body.detach()
            child.end()  # after an error here, the body may still be running
            if not isinstance(error, EOFError | OSError):
                raise
            if child.process.exitcode == -signal.SIGTERM:
                # Service managers signal children too: a stop of this worker may be under way.
                time.sleep(SIGNAL_SPREAD_SECONDS)
            died = f"the process of task {request.job.partition.task!r} ended"
            raise ProcessCrashed(f"{died} (exit code {child.process.exitcode})") from None
        if body.detach():
            child.end()
        elif not self._keep_idle(child):
            child.close()
        return message.outcome

    def _take_idle(self) -> _TaskProcess | None:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.process.is_alive():
                    return child
        return None

    def _keep_idle(self, child: _TaskProcess) -> bool:
        with self._lock:
            has_room = not self._is_closed and len(self._idle) < IDLE_MAX
            if has_room:
                self._idle.append(child)
            return has_room


class ProcessBody:
    """A body in a child process, which is killed to stop it."""

    starts_later: ClassVar[bool] = True
    can_be_ended: ClassVar[bool] = True

    def __init__(self, abort: AbortSignal) -> None:
        self._lock = threading.Lock()
        self._abort = abort
        self._child: _TaskProcess | None = None
        self._is_open = False
        self._is_stopped = False
        abort.on_fire(self._send_stop)

    def attach(self, child: _TaskProcess) -> None:
        """Let a stop kill the child."""
        with self._lock:
            self._child = child
            if self._is_stopped:
                child.process.kill()

    def open(self) -> None:
        """The child has received the body: let the abort signal follow."""
        with self._lock:
            self._is_open = True
        if self._abort.reason is not None:
            self._send_stop(self._abort.reason)

    def detach(self) -> bool:
        """Detach the child from this body; True if it was killed."""
        with self._lock:
            self._child = None
            return self._is_stopped

    def _send_stop(self, reason: str) -> None:
        """Fire the abort signal inside the child too."""
        with self._lock:
            if self._child is not None and self._is_open:
                with suppress(OSError):  # it is ending by itself
                    self._child.send(StopBody(reason=reason))

    def stop(self) -> bool:
        with self._lock:
            self._is_stopped = True
            if self._child is not None:
                self._child.process.kill()
        return True


def _request_of(attempt: Attempt) -> RunBody:
    function, runner = attempt.task.function, attempt.runner
    args, kwargs = stored_arguments(attempt)
    scope = attempt.scope
    return RunBody(
        module=function.__module__,
        name=function.__qualname__,
        job=attempt.counted_job,
        args=args,
        kwargs=kwargs,
        worker_id=runner.worker_id,
        hold_off_ms=runner.settings.hold_off.total_seconds() * 1000,
        payload_max_bytes=runner.settings.payload_max_bytes,
        allows_scripts=runner.settings.allows_scripts,
        resumption=NOTHING_BEFORE if scope is None else scope.resumption,
        inputs={} if scope is None else dict(scope.inputs),
        masked=() if scope is None else scope.secret_values,
        asks_to_start=attempt.start_by is not None,
        resources=runner.code.process_resources if uses_resources(attempt.task) else None,
    )


def _secret_reply(request: SecretRequest, attempt: Attempt) -> SecretReply:
    """Resolve a secret for a child process, so that its output can be masked here."""
    assert attempt.scope is not None
    try:
        return SecretReply(secret=attempt.scope.secret(request.name))
    except MissingSecret as error:
        return SecretReply(advice=error.advice)
    except Exception as error:
        return SecretReply(error=f"secret {request.name!r}: {type(error).__name__}: {error}")


def _start_reply(attempt: Attempt) -> StartReply:
    try:
        return StartReply(seconds=min(seconds_to_start(attempt), 60.0))  # JSON has no infinity
    except StartsLate:
        return StartReply()


def _step_reply(request: StepRequest, steps: StepKeeper) -> StepReply:
    """Look up or store a step for a child, which has no store."""
    try:
        if request.json is None:
            found = steps.wait(steps.find(request.name))
        else:
            found = (steps.wait(steps.save(request.name, from_json(request.json.encode()))),)
    except Exception as error:
        return StepReply(error=f"{type(error).__name__}: {error}")
    return StepReply(json=msgspec.json.encode(found[0]).decode() if found else None)


def check_importable(tasks: Iterable[Task[..., Any]]) -> None:
    """A child imports its task by module and name, so both must exist."""
    for task in tasks:
        if task.isolation != "process":
            continue
        # A nested function or a lambda.
        if "<" in getattr(task.function, "__qualname__", "<"):
            raise InvalidInput(NOT_IMPORTABLE.fault(("tasks",), task=task.name))
        if task.function.__module__ == "__main__" and not is_main_importable():
            raise InvalidInput(IN_MAIN_MODULE.fault(("tasks",), task=task.name))
