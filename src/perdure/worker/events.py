"""What a worker tells in-process listeners. A listener that fails is logged and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.failure import Failure
from perdure.model.job import Progress
from perdure.model.value import Value

UNKNOWN_EVENT = declare(
    "worker.unknown_event",
    "{value!r} is not a worker event",
    "They are in perdure.worker.events, where JobFailed is not the error of that name",
)
ASYNC_LISTENER = declare(
    "worker.async_listener",
    "{listener!r} is async and would never be awaited",
    "Use a plain function, which may start a task: asyncio.ensure_future(...)",
)


_log = logging.getLogger("perdure.worker")


class WorkerEvent(Value):
    worker: str


class WorkerStarted(WorkerEvent):
    pass


class WorkerStopping(WorkerEvent):
    """It starts nothing more, and lets what runs finish within the grace."""

    running: int
    grace: timedelta


class WorkerStopped(WorkerEvent):
    pass


class JobEvent(WorkerEvent):
    job_id: str
    task: str
    queue: str
    attempt: int
    run_id: str | None
    """Of a node's job: the run it belongs to."""
    node: str | None
    """Of a node's job: the node, with its iteration or item."""


class JobStarted(JobEvent):
    """The body is about to run."""


class JobCompleted(JobEvent):
    """The result is in the record."""

    duration: timedelta


class JobFailed(JobEvent):
    """It failed for good."""

    failure: Failure


class JobRetried(JobEvent):
    """The attempt failed, and another one is scheduled."""

    failure: Failure


class JobDead(JobEvent):
    """It went to the dead letter."""

    failure: Failure


class JobProgressed(JobEvent):
    """Progress was written."""

    progress: Progress


class JobAborting(JobEvent):
    """It was asked to stop, and its signal fired."""


class JobCancelled(JobEvent):
    """It ended after an abort."""


class JobReleased(JobEvent):
    """It went back to the queue unfinished, without costing an attempt."""


class JobTakenOver(JobEvent):
    """The lease of its worker, ``holder``, had run out, and this one saw to the job.

    It waits again, unless another event tells of its end.
    """

    holder: str | None
    failure: Failure


class ClaimLost(JobEvent):
    """Another worker has it, or it was taken away; this worker wrote nothing."""


E = TypeVar("E", bound=WorkerEvent)
Listener = Callable[[Any], object]


class Listeners:
    """Who listens to which events."""

    def __init__(self) -> None:
        self._listeners: list[tuple[type[WorkerEvent], Listener]] = []

    def add(self, kind: type[E], listener: Callable[[E], object]) -> Callable[[], None]:
        """Call ``listener`` for each event of ``kind``; returns how to stop it."""
        _check(kind, listener)
        entry = (kind, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry) if entry in self._listeners else None

    def wants(self, kind: type[WorkerEvent]) -> bool:
        """Whether anybody would hear it: saves making events for nobody."""
        if not self._listeners:  # as nearly always
            return False
        return any(issubclass(kind, wanted) for wanted, _ in self._listeners)

    def emit(self, event: WorkerEvent) -> None:
        for wanted, listener in list(self._listeners):
            if isinstance(event, wanted):
                try:
                    listener(event)
                except KeyboardInterrupt:
                    raise  # from whoever sits before the worker
                # Called from within the worker's own tasks, which must not take a listener's
                # exit or cancellation for theirs.
                except BaseException:
                    _log.exception("a listener for worker events failed")


def _check(kind: object, listener: object) -> None:
    if not (isinstance(kind, type) and issubclass(kind, WorkerEvent)):
        raise InvalidInput(UNKNOWN_EVENT.fault(("kind",), value=kind))
    if not callable(listener):
        raise check.wrong_type(listener, "listener", "a function that takes an event")
    if iscoroutinefunction(listener) or iscoroutinefunction(type(listener).__call__):
        raise InvalidInput(ASYNC_LISTENER.fault(("listener",), listener=listener))
