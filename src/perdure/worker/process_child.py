"""The child's side of a task with ``isolation="process"``: receive an errand, run it, answer."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import threading
from collections.abc import Coroutine
from datetime import timedelta
from functools import partial, reduce
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import msgspec

from perdure.diagnostics import declare
from perdure.errors import MissingSecret, PerdureError, Permanent, StoreError
from perdure.model.job import Progress
from perdure.model.outcome import NodeOutcome
from perdure.model.payload import from_json, to_json
from perdure.model.value import Value
from perdure.tasks.context import AbortSignal, Context
from perdure.tasks.task import Task
from perdure.tasks.task import task as as_task
from perdure.worker.attempt import failed_outcome
from perdure.worker.calls import INVALID_STORED_INPUT, BodyCall
from perdure.worker.processes import (
    Begun,
    Ended,
    Errand,
    Reported,
    SecretAnswered,
    SecretAsked,
    StepAnswered,
    StepAsked,
    StopAsked,
)
from perdure.worker.results import outcome_of
from perdure.worker.secrets import Masker, Secrets

STEP_FAILED = declare("worker.step_failed", "step {step!r}: {reason}")
SECRET_UNAVAILABLE = declare("worker.secret_unavailable", "{reason}")


Question = StepAsked | SecretAsked
Answer = StepAnswered | SecretAnswered


def main(pipe: Connection) -> None:
    """Serve one errand after the other until the parent is gone."""
    # Ctrl-C goes to the whole group; when to stop is the parent's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Server(pipe).serve()


class _Server:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()
        self._errands: SimpleQueue[Errand] = SimpleQueue()
        self._errand: Errand | None = None
        self._abort = AbortSignal()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._asking = threading.Lock()

    def ask(self, message: Question) -> Any:
        """Ask the parent for a step or a secret; one question at a time."""
        with self._asking:
            with self._sending:
                self._send(message)
            return self._answers.get()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            errand = self._errand = self._errands.get()
            outcome = self._run(errand)
            with self._sending:
                self._errand = None
                self._send(Ended(outcome=outcome))

    def _listen(self) -> None:
        try:
            while True:
                data = self._pipe.recv_bytes()
                message = msgspec.json.decode(data, type=Errand | StopAsked | Answer)
                if isinstance(message, Errand):
                    self._abort = AbortSignal()
                    self._errands.put(message)
                elif isinstance(message, StepAnswered | SecretAnswered):
                    self._answers.put(message)
                else:
                    self._abort.fire(message.reason)
        except (EOFError, OSError):
            # The parent is gone: nobody is left to count the outcome, so stop at once.
            os._exit(0)
        except BaseException:
            # An errand that cannot be read: the parent must not wait for its outcome.
            os._exit(1)

    def _run(self, errand: Errand) -> NodeOutcome:
        task = None
        call = BodyCall(errand.job, _ChildSettings(self, errand), errand.resumption)
        call.inputs = errand.inputs
        try:
            task = _find(errand.module, errand.name)
            report = partial(self._report, errand)
            steps = _ParentSteps(self, errand.payload_max_bytes)
            context = Context(errand.job, errand.worker_id, report, self._abort, steps, call)
            args, kwargs = _arguments(task, errand, context)
            with self._sending:
                self._send(Begun())
            value = task.function(*args, **kwargs)
            if task.is_async:
                value = asyncio.run(value)
            masker = _masker(errand, call)
            return call.asked or outcome_of(value, task.name, errand.payload_max_bytes, masker)
        except BaseException as error:
            if call.asked is not None:
                return call.asked
            hold_off = timedelta(milliseconds=errand.hold_off_ms)
            masker = _masker(errand, call)
            return failed_outcome(errand.job, task or _unfound(errand), error, hold_off, masker)

    def _report(self, errand: Errand, progress: Progress) -> None:
        with self._sending:
            # A thread that a body left behind must not report into the next errand.
            if self._errand is errand:
                self._send(Reported(progress=progress))

    def _send(self, message: Value) -> None:
        self._pipe.send_bytes(msgspec.json.encode(message))


class _ChildSettings:
    """What a call in a child needs to know of its worker; secrets are asked of it."""

    def __init__(self, server: _Server, errand: Errand) -> None:
        self._server = server
        self.payload_max_bytes = errand.payload_max_bytes
        self.allows_scripts = errand.allows_scripts
        self.secrets = Secrets(self._find)

    def _find(self, name: str) -> str:
        answer: SecretAnswered = self._server.ask(SecretAsked(name=name))
        if answer.advice is not None:
            raise MissingSecret(name=name, advice=answer.advice)
        if answer.secret is None:
            raise PerdureError(SECRET_UNAVAILABLE.fault(name=name, reason=answer.error))
        return answer.secret


class _ParentSteps:
    """Steps that the parent looks up and stores, which has the store."""

    def __init__(self, server: _Server, payload_max_bytes: int) -> None:
        self._server = server
        self._payload_max_bytes = payload_max_bytes

    async def find(self, name: str) -> tuple[Any, ...]:
        answer = await self._ask(StepAsked(name=name))
        return () if answer.json is None else (from_json(answer.json.encode()),)

    async def save(self, name: str, value: Any) -> Any:
        data = to_json(value, f"the result of step {name!r}", self._payload_max_bytes)
        answer = await self._ask(StepAsked(name=name, json=data.decode()))
        assert answer.json is not None
        return from_json(answer.json.encode())

    def wait(self, act: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(act)

    async def _ask(self, message: StepAsked) -> StepAnswered:
        answer: StepAnswered = await asyncio.to_thread(self._server.ask, message)
        if answer.error is not None:
            raise StoreError(STEP_FAILED.fault(step=message.name, reason=answer.error))
        return answer


def _masker(errand: Errand, call: BodyCall) -> Masker | None:
    """Of every secret that this child was told: the parent masks too, but after texts are cut."""
    known = (*errand.masked, *call.secret_values)
    return Masker(known) if known else None


def _arguments(
    task: Task[..., Any], errand: Errand, context: Context
) -> tuple[list[Any], dict[str, Any]]:
    try:
        return task.arguments(list(errand.args), errand.kwargs, context)
    except (ValueError, TypeError) as error:
        raise Permanent(INVALID_STORED_INPUT.fault(reason=str(error))) from error


def _find(module: str, name: str) -> Task[..., Any]:
    found = reduce(getattr, name.split("."), importlib.import_module(module))
    return found if isinstance(found, Task) else as_task(found)  # type: ignore[call-overload]


def _unfound(errand: Errand) -> Task[..., Any]:
    """Stands in for a task that could not be imported, so that the failure can be told."""
    return as_task(name=errand.job.lane.task)(lambda: None)
