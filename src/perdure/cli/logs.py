"""Logs of a worker and its supervisor: one line per event, a fixed message with fields."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from perdure.model.failure import Failure
from perdure.worker.events import (
    AttemptAborting,
    AttemptCancelled,
    AttemptCompleted,
    AttemptDeadLettered,
    AttemptFailed,
    AttemptLost,
    AttemptParked,
    AttemptRequeued,
    AttemptRetried,
    AttemptStarted,
    JobEvent,
    JobTakenOver,
    WorkerEvent,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from perdure.worker.supervisor import (
    ProcessEnded,
    ProcessKilled,
    ProcessNotStarted,
    ProcessStarted,
    StopRequested,
    SupervisorEvent,
)
from perdure.worker.worker import Worker

_log = logging.getLogger("perdure.cli")

Fields = Mapping[str, Any]

_LEVELS: dict[type[WorkerEvent | SupervisorEvent], tuple[int, str]] = {
    WorkerStarted: (logging.INFO, "worker started"),
    WorkerStopping: (logging.INFO, "worker stopping"),
    WorkerStopped: (logging.INFO, "worker stopped"),
    AttemptStarted: (logging.DEBUG, "job started"),
    AttemptCompleted: (logging.INFO, "job completed"),
    AttemptRequeued: (logging.INFO, "job requeued"),
    AttemptParked: (logging.INFO, "job parked"),
    AttemptAborting: (logging.INFO, "job aborting"),
    AttemptCancelled: (logging.INFO, "job cancelled"),
    AttemptRetried: (logging.WARNING, "job retried"),
    AttemptFailed: (logging.ERROR, "job failed"),
    AttemptDeadLettered: (logging.ERROR, "job dead"),
    JobTakenOver: (logging.WARNING, "job taken over"),
    AttemptLost: (logging.WARNING, "claim lost"),
    StopRequested: (logging.INFO, "stop requested"),
    ProcessStarted: (logging.INFO, "process started"),
    ProcessEnded: (logging.WARNING, "process ended"),
    ProcessNotStarted: (logging.ERROR, "process not started"),
    ProcessKilled: (logging.ERROR, "process killed"),
}
"""The level and message of every logged event."""


def log_worker(worker: Worker, **started: Any) -> None:
    """Log the worker's events at enabled levels; ``started`` has extra fields for its start."""
    for event_type, (level, message) in _LEVELS.items():
        if issubclass(event_type, WorkerEvent) and _log.isEnabledFor(level):
            more = started if event_type is WorkerStarted else {}
            worker.on(event_type, _logger(level, message, more))


def log_supervisor(event: SupervisorEvent) -> None:
    """Log a supervisor's events."""
    level, message = _LEVELS[type(event)]
    if isinstance(event, ProcessEnded) and event.restart_in is None and event.exit_code == 0:
        level = logging.INFO
    _log.log(level, message, extra={"fields": fields_of(event)})


def fields_of(event: WorkerEvent | SupervisorEvent) -> dict[str, Any]:
    """The fields of an event, in the order of a line."""
    fields: dict[str, Any] = {"worker": event.worker} if isinstance(event, WorkerEvent) else {}
    if isinstance(event, JobEvent):
        fields = {"job": event.job_id, "task": event.task, "attempt": event.attempt}
        if event.run_id is not None:
            fields = {"run": event.run_id, "node": event.node, **fields}
        if event.attempt_id is not None:
            fields["attempt_id"] = event.attempt_id
    match event:
        case AttemptCompleted():
            fields["seconds"] = _seconds(event.duration)
        case AttemptFailed() | AttemptRetried() | AttemptDeadLettered():
            fields["error"] = _one_line(event.failure)
        case JobTakenOver():
            fields["holder"] = event.holder
        case WorkerStopping():
            fields |= {"running": event.running, "grace": _seconds(event.grace)}
        case StopRequested():
            fields["grace"] = _seconds(event.grace)
        case ProcessStarted() | ProcessKilled():
            fields |= {"process": event.number, "pid": event.pid}
        case ProcessNotStarted():
            fields |= {"process": event.number, "error": event.reason}
            fields["restart_in"] = _seconds(event.restart_in)
        case ProcessEnded():
            fields |= {"process": event.number, "pid": event.pid, "exit": event.exit_code}
            if event.restart_in is not None:
                fields["restart_in"] = _seconds(event.restart_in)
    return fields


def _logger(level: int, message: str, more: Fields) -> Callable[[WorkerEvent], None]:
    def log(event: WorkerEvent) -> None:
        _log.log(level, message, extra={"fields": {**fields_of(event), **more}})

    return log


def _seconds(duration: timedelta) -> float:
    return round(duration.total_seconds(), 4)


def _one_line(failure: Failure) -> str:
    return " ".join(f"{failure.type}: {failure.message}".split())
