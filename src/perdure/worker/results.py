"""From what a body returned to the outcome of its attempt, its payload still plain JSON."""

from __future__ import annotations

from typing import Any

from perdure.engine.failures import describe
from perdure.errors import InvalidInput, Permanent
from perdure.model.outcome import Completed, Failed, NodeOutcome, Paused, Skipped
from perdure.model.payload import storable_text, to_json
from perdure.tasks.result import Complete, Fail, Pause, Skip
from perdure.worker.secrets import Masker

RESULTS = frozenset({Complete, Pause, Skip, Fail})
"""The types of what a body returns to say more than its output."""


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
            # Before it is shortened, in which case a part of a secret might stay.
            error = value.error if masker is None else masker.text(value.error)
            return Failed(failure=describe(Permanent(error)))
        case _:
            return Completed(output=encoded_result(value, task, payload_max_bytes))


def paused_outcome(asked: Pause, payload_max_bytes: int) -> Paused:
    checkpoint = to_json(asked.checkpoint, "the checkpoint of a pause", payload_max_bytes)
    return Paused(checkpoint=checkpoint, name=asked.name, deadline=asked.deadline, poll=asked.poll)


def encoded_result(value: Any, task: str, payload_max_bytes: int) -> bytes:
    """A result that cannot be stored will not become storable by trying again."""
    try:
        return to_json(value, f"the result of task {task!r}", payload_max_bytes)
    except InvalidInput as error:
        raise Permanent(*error.faults) from error
