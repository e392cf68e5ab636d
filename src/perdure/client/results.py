"""What a waiter gets of a finished job: its result as the task declares it, or a typed error."""

from __future__ import annotations

from typing import Any

from perdure.diagnostics import declare
from perdure.errors import (
    JobCancelled,
    JobDead,
    JobDisabled,
    JobEnded,
    JobFailed,
    PerdureError,
)
from perdure.model.failure import Failure
from perdure.model.job import JobState, Status
from perdure.model.payload import Codec, from_json
from perdure.tasks.task import Task

UNREADABLE = declare(
    "payload.unreadable",
    "a stored payload cannot be read: {reason}",
    "Pass the `codec` that it was written with",
)


def ended_badly(state: JobState) -> JobEnded | None:
    """The error for a job that has ended without a result, or None if it may still have one."""
    id, failure = state.id, state.failure
    why = _told(failure) if failure is not None else ""
    match state.status:
        case Status.FAILED:
            return JobFailed(job_id=id, reason=why, failure=failure)
        case Status.DEAD:
            return JobDead(job_id=id, reason=why, failure=failure, attempt=state.attempt)
        case Status.CANCELLED:
            return JobCancelled(job_id=id, reason=why, failure=failure)
        case Status.DISABLED:
            return JobDisabled(job_id=id)
        case _:
            return None


def decoded_result(output: bytes, codec: Codec, task: Task[..., Any] | None) -> Any:
    """A result as the task's return annotation says, or as plain values where it does not fit."""
    value = decoded(output, codec)
    if task is None or task.result_converter is None:
        return value
    try:
        return task.result_converter(value)
    except (ValueError, TypeError):
        return value


def decoded(data: bytes, codec: Codec) -> Any:
    """A stored payload as plain values."""
    try:
        return from_json(codec.decode(data))
    except Exception as error:  # a codec may raise anything
        raise PerdureError(UNREADABLE.fault(reason=str(error))) from error


def _told(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}" if failure.message else failure.type
