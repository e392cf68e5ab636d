"""Logs of a worker and its supervisor: one line per event.

A line is a fixed message with fields, as text or JSON. Lines go to stderr through Python's logging,
so that logs of tasks and libraries have the same format.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from perdure.model.failure import Failure
from perdure.model.text import visible, visible_json, visible_lines
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
_COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}

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


def set_up_logs(*, as_json: bool, level: int, stream: TextIO | None = None) -> None:
    """Send all logs of this process at or above this level to stderr."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    is_coloured = stream.isatty() and not os.environ.get("NO_COLOR")
    handler.setFormatter(JsonLines() if as_json else PlainLines(is_coloured=is_coloured))
    # Debug logs of other libraries would drown out those about jobs.
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler], force=True)
    logging.getLogger("perdure").setLevel(level)


def format_warnings() -> None:
    """Format the warnings and errors that Python prints without logging set up."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(PlainLines(is_coloured=False))


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


class PlainLines(logging.Formatter):
    """``12:00:01 info    job completed  job=… task=… attempt=1 seconds=0.012``"""

    def __init__(self, *, is_coloured: bool) -> None:
        super().__init__()
        self._is_coloured = is_coloured

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        fields: Fields = getattr(record, "fields", {})
        pairs = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        at = datetime.fromtimestamp(record.created, UTC).astimezone()
        said = visible_lines(record.getMessage())  # a library may log several lines
        line = f"{at:%H:%M:%S} {self._painted(f'{level:7}', level)} {said}"
        line = f"{line}  {pairs}" if pairs else line
        trace = visible_lines(self.formatException(record.exc_info)) if record.exc_info else ""
        return f"{line}\n{trace}" if trace else line

    def _painted(self, text: str, level: str) -> str:
        return f"\x1b[{_COLOURS[level]}m{text}\x1b[0m" if self._is_coloured else text


class JsonLines(logging.Formatter):
    """One JSON object a line: ``at``, ``level``, ``message``, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(line, default=str, ensure_ascii=False))


def _logger(level: int, message: str, more: Fields) -> Callable[[WorkerEvent], None]:
    def log(event: WorkerEvent) -> None:
        _log.log(level, message, extra={"fields": {**fields_of(event), **more}})

    return log


def _seconds(duration: timedelta) -> float:
    return round(duration.total_seconds(), 4)


def _one_line(failure: Failure) -> str:
    return " ".join(f"{failure.type}: {failure.message}".split())


def _shown(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    # Quoted if it could be mistaken for several fields; as JSON, for unambiguous escapes.
    is_plain = text and " " not in text and '"' not in text
    return visible(text if is_plain else json.dumps(text, ensure_ascii=False))
