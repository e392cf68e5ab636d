"""Convert a body's result or exception into the outcome of its attempt: masked, checked, encoded.

Payloads of outcomes are plain JSON here. The codec encodes them when the attempt ends, on the
worker's event loop, because a child process has no codec.
"""

from __future__ import annotations

import logging
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.engine.failures import describe
from perdure.engine.retry import Budget, after_error
from perdure.errors import InvalidInput, Permanent, TemplateMissing
from perdure.model.ids import Key
from perdure.model.job import ClaimedJob
from perdure.model.outcome import Completed, Failed, NodeOutcome, Outcome, Paused, Skipped
from perdure.model.payload import storable_text, to_json
from perdure.model.retry import CallPolicy, decode_policy
from perdure.model.wait import CANNOT_PAUSE
from perdure.tasks.result import Complete, Fail, Pause, Skip
from perdure.tasks.task import Task
from perdure.worker.secrets import SECRET_IN_NAME, Masker

if TYPE_CHECKING:
    from perdure.worker.attempt import Attempt

RESULTS = frozenset({Complete, Pause, Skip, Fail})
"""Result types that carry more than an output."""
_log = logging.getLogger("perdure.worker")

PORT_OF_JOB = declare(
    "job.no_ports",
    "the result chose port {port!r}, but only nodes of flows have ports",
)
NO_PORTS = declare(
    "node.no_ports",
    "the result of {key!r} chose port {port!r}, but it has no ports; declare them on a task node",
)
PAUSE_OF_JOB = declare(
    "job.pause_deadline",
    "a plain job that pauses is parked until it is resumed: it has no deadline and no poll",
    "Put the task into a flow, or leave them out",
)
INVALID_STORED_POLICY = declare("job.invalid_policy", "the stored policy cannot be used: {reason}")


def from_result(attempt: Attempt, value: Any) -> bytes | NodeOutcome:
    """The body's output as JSON, or an outcome; raises if it cannot be stored. In any thread."""
    scope, name = attempt.scope, attempt.task.name
    if scope is not None and scope.requested_outcome is not None:
        return checked_outcome(attempt, scope.requested_outcome)
    limit, masker = attempt.runner.settings.payload_max_bytes, attempt.masker
    if type(value) in RESULTS or attempt.rules is not None or masker is not None:
        return checked_outcome(attempt, outcome_of(value, name, limit, masker))
    return encoded_result(value, name, limit)  # the common case


def outcome_of(
    value: Any, task: str, payload_max_bytes: int, masker: Masker | None = None
) -> NodeOutcome:
    match value:
        case Complete():
            output = encoded_result(value.output, task, payload_max_bytes)
            return Completed(output=output, port=value.port)
        case Pause():
            try:
                return paused_outcome(value, payload_max_bytes)
            except InvalidInput as refusal:
                raise Permanent(*refusal.faults) from refusal
        case Skip():
            return Skipped(reason=storable_text(value.reason))
        case Fail():
            # Masked before truncation, which could leave an unmasked part of a secret.
            error = value.error if masker is None else masker.text(value.error)
            return Failed(failure=describe(Permanent(error)))
        case _:
            return Completed(output=encoded_result(value, task, payload_max_bytes))


def checked_outcome(attempt: Attempt, outcome: NodeOutcome) -> NodeOutcome:
    """Mask and check an outcome; raises if the job or node does not allow it. In any thread."""
    job, masker = attempt.job, attempt.masker
    if masker is not None:
        outcome = masker.outcome(outcome)
    if isinstance(outcome, Paused):
        try:
            refuse_pause(job, outcome, masker)
        except InvalidInput as error:
            raise Permanent(*error.faults) from error
    if job.node is None:
        if isinstance(outcome, Skipped):
            return Completed(output=b"null")
        if isinstance(outcome, Completed) and outcome.port:
            raise Permanent(PORT_OF_JOB.fault(port=outcome.port))
        return outcome
    if not isinstance(outcome, Completed):
        return outcome
    key = Key.parse(job.node.key)
    if attempt.rules is None or key.part:
        if outcome.port:
            raise Permanent(NO_PORTS.fault(key=key.text, port=outcome.port))
        return outcome
    attempt.rules.refuse_port(outcome.port)
    warnings = attempt.rules.warnings(outcome.output)
    return replace(outcome, warnings=warnings) if warnings else outcome


def paused_outcome(pause: Pause, payload_max_bytes: int) -> Paused:
    checkpoint = to_json(pause.checkpoint, "the checkpoint of a pause", payload_max_bytes)
    return Paused(
        checkpoint=checkpoint,
        name=pause.name,
        deadline=pause.deadline,
        poll=pause.poll,
        cancels=pause.cancels,
    )


def refuse_pause(job: ClaimedJob, paused: Paused, masker: Masker | None) -> None:
    """Raise if this job must not pause, or not with these options."""
    if masker is not None and masker.is_in(paused.name):
        raise InvalidInput(SECRET_IN_NAME.fault(("name",), what="pause"))
    if job.node is None:
        if paused.deadline is not None or paused.poll is not None:
            raise Permanent(PAUSE_OF_JOB.fault())
    elif Key.parse(job.node.key).part:
        raise Permanent(CANNOT_PAUSE.fault(key=job.node.key))


def encoded_result(value: Any, task: str, payload_max_bytes: int) -> bytes:
    """A result as JSON; raises ``Permanent``, because a retry would not make it storable."""
    try:
        return to_json(value, f"the result of task {task!r}", payload_max_bytes)
    except InvalidInput as error:
        raise Permanent(*error.faults) from error


def stored_policy(job: ClaimedJob) -> CallPolicy | None:
    """The retries and timeout stored with the job, if any; raises ``Permanent`` if unreadable."""
    try:
        return None if job.policy is None else decode_policy(job.policy)
    except ValueError as error:
        raise Permanent(INVALID_STORED_POLICY.fault(reason=str(error))) from error


def failed_outcome(
    job: ClaimedJob,
    task: Task[..., Any],
    error: BaseException,
    hold_off: timedelta,
    masker: Masker | None = None,
) -> Outcome:
    """The outcome of an exception under the job's own policy, else the task's. Never raises."""
    mask = None if masker is None else masker.text
    failure = describe(error, mask)
    try:
        if isinstance(error, Permanent | TemplateMissing):  # a retry would not help
            return Failed(failure=failure)
        policy = stored_policy(job)
        retry = policy.retry if policy is not None and policy.retry is not None else task.retry
        budget = Budget(policy=retry, hold_off=hold_off, max_snoozes=task.max_snoozes)
        return after_error(job, error, failure, budget, random.random())
    except BaseException as second_error:
        # The decision reads the exception, whose class is user code. The attempt must end, or it
        # would keep its slot and its lease forever.
        reason = describe(second_error, mask).message
        fields = {"attempt_id": job.attempt_id, "error": reason}
        _log.error("applying the retry policy failed", extra={"fields": fields})
        return Failed(failure=failure)
