"""Refusals that all backends share, each with its code."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model.check import check_times
from perdure.model.job import NewJob
from perdure.model.run import CommitResult, CommitState, Continues, NewRun, RunCommit

REFUSED = declare(
    "store.refused", "the store at {url} rejected the operation, and nothing was written: {reason}"
)
CLOSED = declare("store.closed", "the store at {url} is closed")
OUTCOME_UNKNOWN = declare(
    "store.outcome_unknown",
    "the connection to the store at {url} was lost before it answered: {reason}",
    "The operation may have taken effect",
)
LOST = declare("store.lost", "the connection to the store at {url} was lost: {reason}")
DEADLINE_PASSED = declare(
    "job.deadline_passed",
    "the deadline of job {job_id} must be in the future (got {deadline})[; it is {now}]",
)
UNUSABLE_CONNECTION = declare(
    "store.unusable_connection",
    "`connection` cannot be used here: it is {value}[, and {reason}]",
    "[Pass {accepted}]",
)
OTHER_DATABASE = declare(
    "store.other_database",
    "`connection` is not to the database of this store: {reason}",
    "Pass a connection to the same database, once the store was opened",
)
NO_TRANSACTION = declare(
    "store.no_transaction",
    "`connection` has no open transaction to take part in",
    "Begin one first, so that the jobs are enqueued when you commit[: {how}]",
)


def deadline_passed(job: str, deadline: Any, now: datetime | None = None) -> InvalidInput:
    """Refuse a deadline that has passed by the store's clock (``now``), which decides."""
    return InvalidInput(DEADLINE_PASSED.fault(job_id=job, deadline=deadline, now=now))


def unusable_connection(value: str, accepted: str = "", reason: str = "") -> InvalidInput:
    return InvalidInput(
        UNUSABLE_CONNECTION.fault(("connection",), value=value, accepted=accepted, reason=reason)
    )


def no_transaction(how: str = "") -> InvalidInput:
    return InvalidInput(NO_TRANSACTION.fault(("connection",), how=how))


def refused(commit: RunCommit) -> CommitResult | None:
    """The result of a commit that cannot be written, whatever the state of its run."""
    try:
        for settlement in commit.settlements:
            if type(settlement.job_outcome) is Continues:
                check_times(settlement.job_outcome.job)
        if commit.jobs or commit.children:
            _check_effects(commit.jobs, commit.children)
    except InvalidInput as error:
        return CommitResult(state=CommitState.REFUSED, refusal=error)
    return None


def _check_effects(jobs: Iterable[NewJob], children: Iterable[NewRun]) -> None:
    for job in jobs:
        check_times(job)
    for child in children:
        _check_effects(child.jobs, child.children)
