"""What a body's result counts as: masked, checked against its node, refused where it cannot be."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, Permanent
from perdure.model.ids import Key
from perdure.model.outcome import Completed, NodeOutcome, Paused, Skipped
from perdure.worker.attempt import Attempt
from perdure.worker.calls import refuse_pause
from perdure.worker.results import outcome_of

PORT_OF_JOB = declare(
    "job.no_ports",
    "the result chose port {port!r}, but a plain job has none: ports are ways through a flow",
)
NO_PORTS = declare(
    "node.no_ports",
    "the result of {key!r} chose port {port!r}, but it has no ports; declare them on a task node",
)


def concluded(attempt: Attempt, value: Any, payload_max_bytes: int) -> NodeOutcome:
    """The outcome of a body that returned; its payload is plain JSON. In any thread."""
    if attempt.call is not None and attempt.call.asked is not None:
        return judged(attempt, attempt.call.asked)
    outcome = outcome_of(value, attempt.task.name, payload_max_bytes, attempt.masker)
    return judged(attempt, outcome)


def judged(attempt: Attempt, outcome: NodeOutcome) -> NodeOutcome:
    """The same outcome as it may be kept; raises what makes it a failure. In any thread."""
    if (masker := attempt.masker) is not None:
        outcome = masker.outcome(outcome)
    if isinstance(outcome, Paused):
        try:
            refuse_pause(attempt.job, outcome, masker)
        except InvalidInput as error:
            raise Permanent(*error.faults) from error
    if attempt.job.node is None:
        return _of_plain_job(outcome)
    return _of_node(attempt, outcome, Key.parse(attempt.job.node.key))


def _of_plain_job(outcome: NodeOutcome) -> NodeOutcome:
    if isinstance(outcome, Skipped):
        return Completed(output=b"null")
    if isinstance(outcome, Completed) and outcome.port:
        raise Permanent(PORT_OF_JOB.fault(port=outcome.port))
    return outcome


def _of_node(attempt: Attempt, outcome: NodeOutcome, key: Key) -> NodeOutcome:
    if not isinstance(outcome, Completed):
        return outcome
    rules = None if key.part else attempt.rules
    if rules is None:
        if outcome.port:
            raise Permanent(NO_PORTS.fault(key=key.text, port=outcome.port))
        return outcome
    rules.refuse_port(outcome.port)
    warnings = rules.warnings(outcome.output)
    return replace(outcome, warnings=warnings) if warnings else outcome
