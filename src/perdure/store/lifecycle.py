"""The transition table: every way in which the status of a job may change.

``docs/concepts/lifecycle.md`` draws it. Stores guard each write with the ``before`` side of a row;
any other transition is refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import assert_never

from perdure.model.job import Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    Outcome,
    Parked,
    Requeued,
    Retried,
)
from perdure.model.partition import suspicion_in, with_suspicion

S = Status


class Transition(StrEnum):
    """Every transition of a job's status."""

    PROMOTE = "promote"
    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY_LATER = "retry later"
    FAIL = "fail"
    DEAD_LETTER = "dead letter"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    PARK = "park"
    RESUME = "resume"
    ACCEPT = "accept"
    TAKE_OVER = "take over"
    EXPIRE = "expire"
    ABORT = "abort"
    DISABLE = "disable"
    ENABLE = "enable"
    RETRY = "retry"
    REPLACE = "replace"


_ABORTED = {S.ABORTING: frozenset({S.CANCELLED})}
_READY = frozenset({S.WAITING, S.SCHEDULED})

TRANSITIONS: Mapping[Transition, Mapping[Status, frozenset[Status]]] = MappingProxyType(
    {
        Transition.PROMOTE: {S.SCHEDULED: frozenset({S.WAITING})},
        Transition.CLAIM: {S.WAITING: frozenset({S.ACTIVE})},
        # A worker's outcome counts while the job is active; an aborting job ends cancelled.
        Transition.COMPLETE: {S.ACTIVE: frozenset({S.COMPLETED}), **_ABORTED},
        Transition.RETRY_LATER: {S.ACTIVE: _READY, **_ABORTED},
        Transition.FAIL: {S.ACTIVE: frozenset({S.FAILED}), **_ABORTED},
        Transition.DEAD_LETTER: {S.ACTIVE: frozenset({S.DEAD}), **_ABORTED},
        Transition.CANCEL: {S.ACTIVE: frozenset({S.CANCELLED}), **_ABORTED},
        Transition.REQUEUE: {S.ACTIVE: _READY, **_ABORTED},
        Transition.PARK: {S.ACTIVE: frozenset({S.PAUSED}), **_ABORTED},
        Transition.RESUME: {S.PAUSED: frozenset({S.WAITING})},
        # The outcome of a parked job: claimed and settled in one transaction.
        Transition.ACCEPT: {S.PAUSED: frozenset({S.ACTIVE})},
        # The lease expired. Who crashed the worker is unknown, so a takeover condemns no job.
        Transition.TAKE_OVER: {S.ACTIVE: frozenset({S.WAITING}), **_ABORTED},
        Transition.EXPIRE: {
            S.WAITING: frozenset({S.FAILED}),
            S.SCHEDULED: frozenset({S.FAILED}),
            S.PAUSED: frozenset({S.FAILED}),
        },
        Transition.ABORT: {
            S.ACTIVE: frozenset({S.ABORTING}),
            S.WAITING: frozenset({S.CANCELLED}),
            S.SCHEDULED: frozenset({S.CANCELLED}),
            S.PAUSED: frozenset({S.CANCELLED}),
            S.DISABLED: frozenset({S.CANCELLED}),
        },
        # Disabling or replacing a claimed job revokes the claim immediately.
        Transition.DISABLE: {
            S.WAITING: frozenset({S.DISABLED}),
            S.SCHEDULED: frozenset({S.DISABLED}),
            S.PAUSED: frozenset({S.DISABLED}),
            S.ACTIVE: frozenset({S.DISABLED}),
        },
        Transition.ENABLE: {S.DISABLED: _READY},
        Transition.RETRY: {
            S.FAILED: frozenset({S.WAITING}),
            S.DEAD: frozenset({S.WAITING}),
            S.CANCELLED: frozenset({S.WAITING}),
        },
        Transition.REPLACE: {
            S.WAITING: frozenset({S.CANCELLED}),
            S.SCHEDULED: frozenset({S.CANCELLED}),
            S.PAUSED: frozenset({S.CANCELLED}),
            S.DISABLED: frozenset({S.CANCELLED}),
            S.ACTIVE: frozenset({S.CANCELLED}),
            S.ABORTING: frozenset({S.CANCELLED}),
        },
    }
)


def allows(operation: Transition, before: Status, after: Status) -> bool:
    return after in TRANSITIONS[operation].get(before, frozenset())


def starts_from(operation: Transition) -> frozenset[Status]:
    """The statuses in which ``operation`` applies."""
    return frozenset(TRANSITIONS[operation])


def after_settling(
    before: Status, outcome: Outcome, *, is_due: bool, is_node: bool
) -> Status | None:
    """The status an outcome leads to, or None if a job in ``before`` takes no outcome.

    ``is_due``: whether a retried job is ready immediately. ``is_node``: whether the job executes a
    node, which only a commit of its run ends.
    """
    if is_node and (before is S.ABORTING or not isinstance(outcome, Retried | Requeued | Parked)):
        return None
    if before is S.ABORTING:
        return S.CANCELLED
    if before is not S.ACTIVE:
        return None
    match outcome:
        case Completed():
            return S.COMPLETED
        case Retried():
            return S.WAITING if is_due else S.SCHEDULED
        case Failed():
            return S.FAILED
        case DeadLettered():
            return S.DEAD
        case Cancelled():
            return S.CANCELLED
        case Requeued(delay=delay):
            return S.SCHEDULED if delay and not is_due else S.WAITING
        case Parked():
            return S.PAUSED
        case _:
            assert_never(outcome)


def after_take_over(before: Status, partition_key: str, *, was_alone: bool) -> tuple[Status, str]:
    """Status and stored partition key of a claimed job after its lease expired.

    ``was_alone``: whether its worker had no other job.
    """
    if before is S.ABORTING:
        return S.CANCELLED, partition_key
    suspicion = suspicion_in(partition_key).after_crash(was_alone=was_alone)
    return S.WAITING, with_suspicion(partition_key, suspicion)
