"""Child processes for tasks with ``isolation="process"``: a stop really kills them.

Parent and child speak JSON over a pipe; nothing is unpickled from it. A child runs one body at a
time and is reused. It ends when its parent does, because its pipe does.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, ClassVar

import msgspec

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, MissingSecret, ProcessDied
from perdure.model.job import ClaimedJob, Progress
from perdure.model.outcome import Completed, NodeOutcome, Paused, Skipped
from perdure.model.payload import from_json
from perdure.model.value import Value
from perdure.model.wait import Resumption
from perdure.tasks.context import AbortSignal, StepKeeper
from perdure.tasks.task import Task
from perdure.worker.attempt import Attempt, Crew
from perdure.worker.executors import Threads, tell
from perdure.worker.judging import judged

NOT_IMPORTABLE = declare(
    "task.not_importable",
    'task {task!r} has isolation="process" and must be defined at module level, by name',
    "A child process has to import it",
)
IN_MAIN_MODULE = declare(
    "task.in_main_module",
    'task {task!r} has isolation="process" and is defined in the main module, which a child '
    "process cannot import",
    "Move it into a module of its own",
)


IDLE_MAX = 32
"""Idle children that are kept for the next job."""
RUMOUR_SECONDS = 0.5
"""How long a signal to a whole group of processes may take to reach all of them."""


class Errand(Value, tag=True):
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
    """Secrets that are among the arguments."""


class StopAsked(Value, tag=True):
    """Parent to child: the abort signal fires."""

    reason: str


class Begun(Value, tag=True):
    """Child to parent: the task is imported and its body begins."""


class Reported(Value, tag=True):
    """Child to parent: progress."""

    progress: Progress


class StepAsked(Value, tag=True):
    """Child to parent: find the result of a step, or store it if there is one, as JSON."""

    name: str
    json: str | None = None


class StepAnswered(Value, tag=True):
    """Parent to child: the stored result, if there is one; or why it could not be had."""

    json: str | None = None
    error: str | None = None


class SecretAsked(Value, tag=True):
    """Child to parent: a secret is needed."""

    name: str


class SecretAnswered(Value, tag=True):
    """Parent to child: the secret; or why it could not be had."""

    secret: str | None = None
    advice: str | None = None
    """There is no such secret."""
    error: str = ""


class Ended(Value, tag=True):
    """Child to parent: how the body ended. Payloads are plain JSON: the codec stays with us."""

    outcome: NodeOutcome


FromChild = Begun | Reported | StepAsked | SecretAsked | Ended


class _Child:
    def __init__(self) -> None:
        from perdure.worker.process_child import main

        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=main, args=(theirs,), name="perdure task", daemon=True
        )
        self.process.start()
        theirs.close()
        self._sending = threading.Lock()

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
        self.pipe.close()


class Processes:
    """The children of one worker, started when needed."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._is_closed = False

    def launch(self, attempt: Attempt, crew: Crew, loop: asyncio.AbstractEventLoop) -> ProcessBody:
        body = ProcessBody(attempt.abort)
        self._threads.run(partial(self._converse, body, attempt, crew, loop))
        return body

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def _converse(
        self, body: ProcessBody, attempt: Attempt, crew: Crew, loop: asyncio.AbstractEventLoop
    ) -> None:
        try:
            errand = _errand(attempt, crew)
            steps = crew.steps_of(attempt)
            child = self._take()
        except Exception as error:
            tell(loop, attempt.raised, error)
            return
        body.attach(child)
        try:
            child.send(errand)
            body.open()
            while not isinstance(message := child.receive(), Ended):
                if isinstance(message, Reported):
                    attempt.report(message.progress)
                elif isinstance(message, StepAsked):
                    child.send(_answer(message, steps))
                elif isinstance(message, SecretAsked):
                    child.send(_secret(message, attempt))
                else:
                    tell(loop, attempt.begun)
        except (EOFError, OSError):
            body.detach()
            child.end()
            if child.process.exitcode == -signal.SIGTERM:
                # Service managers signal children too: we may be about to hear of a stop.
                time.sleep(RUMOUR_SECONDS)
            died = f"the process of task {errand.job.lane.task!r} ended"
            tell(loop, attempt.raised, ProcessDied(f"{died} (exit code {child.process.exitcode})"))
        else:
            if body.detach():
                child.end()
            else:
                self._put_back(child)
            _conclude(attempt, message.outcome, loop)

    def _take(self) -> _Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.process.is_alive():
                    return child
        return _Child()

    def _put_back(self, child: _Child) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < IDLE_MAX:
                self._idle.append(child)
                return
        child.end()


class ProcessBody:
    """A body in a child process, which is killed to stop it."""

    begins_later: ClassVar[bool] = True

    def __init__(self, abort: AbortSignal) -> None:
        self._lock = threading.Lock()
        self._abort = abort
        self._child: _Child | None = None
        self._is_open = False
        self._is_stopped = False
        abort.on_fire(self._ask)

    def attach(self, child: _Child) -> None:
        """From now on a stop kills the child."""
        with self._lock:
            self._child = child
            if self._is_stopped:
                child.process.kill()

    def open(self) -> None:
        """The errand is sent: from now on the abort signal may follow it."""
        with self._lock:
            self._is_open = True
        if self._abort.reason is not None:
            self._ask(self._abort.reason)

    def detach(self) -> bool:
        """The child is no longer this body's. True if it was killed."""
        with self._lock:
            self._child = None
            return self._is_stopped

    def _ask(self, reason: str) -> None:
        """Fire the abort signal inside the child too."""
        with self._lock:
            if self._child is not None and self._is_open:
                with suppress(OSError):  # it is ending by itself
                    self._child.send(StopAsked(reason=reason))

    def stop(self) -> bool:
        with self._lock:
            self._is_stopped = True
            if self._child is not None:
                self._child.process.kill()
        return True


def _conclude(attempt: Attempt, outcome: NodeOutcome, loop: asyncio.AbstractEventLoop) -> None:
    try:
        outcome = judged(attempt, outcome)
    except BaseException as error:
        tell(loop, attempt.raised, error)
    else:
        has_payload = isinstance(outcome, Completed | Paused | Skipped)
        tell(loop, attempt.returned if has_payload else attempt.ended, outcome)


def _secret(asked: SecretAsked, attempt: Attempt) -> SecretAnswered:
    """Resolve a secret for a child, so that what comes back from it can be masked here."""
    assert attempt.call is not None
    try:
        return SecretAnswered(secret=attempt.call.secret(asked.name))
    except MissingSecret as error:
        return SecretAnswered(advice=error.advice)
    except Exception as error:
        return SecretAnswered(error=f"secret {asked.name!r}: {type(error).__name__}: {error}")


def _answer(asked: StepAsked, steps: StepKeeper) -> StepAnswered:
    """Look a step up, or store it, for a child that has no store."""
    try:
        if asked.json is None:
            found = steps.wait(steps.find(asked.name))
        else:
            found = (steps.wait(steps.save(asked.name, from_json(asked.json.encode()))),)
    except Exception as error:
        return StepAnswered(error=f"{type(error).__name__}: {error}")
    return StepAnswered(json=msgspec.json.encode(found[0]).decode() if found else None)


def _errand(attempt: Attempt, crew: Crew) -> Errand:
    function = attempt.task.function
    args, kwargs = attempt.stored_values()
    call = attempt.call
    return Errand(
        module=function.__module__,
        name=function.__qualname__,
        job=attempt.counted_job,
        args=args,
        kwargs=kwargs,
        worker_id=crew.worker_id,
        hold_off_ms=crew.hold_off.total_seconds() * 1000,
        payload_max_bytes=crew.payload_max_bytes,
        allows_scripts=crew.allows_scripts,
        resumption=Resumption() if call is None else call.resumption,
        inputs={} if call is None else dict(call.inputs),
        masked=() if call is None else call.secret_values,
    )


def check_importable(tasks: Iterable[Task[..., Any]]) -> None:
    """A child finds its task by module and name, so both must be there to be found."""
    for task in tasks:
        if task.isolation != "process":
            continue
        # A function within another, or one without a name.
        if "<" in getattr(task.function, "__qualname__", "<"):
            raise InvalidInput(NOT_IMPORTABLE.fault(("tasks",), task=task.name))
        if task.function.__module__ == "__main__" and not _is_main_importable():
            raise InvalidInput(IN_MAIN_MODULE.fault(("tasks",), task=task.name))


def _is_main_importable() -> bool:
    """Whether a child that is spawned can run the main module again, as multiprocessing does."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        # It does not run the __main__ of a package again.
        return bool(spec.name.rpartition(".")[2] != "__main__")
    return os.path.isfile(getattr(main, "__file__", ""))
