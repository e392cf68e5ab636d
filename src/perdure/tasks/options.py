"""Options of jobs: ``fetch.options(delay="5m", priority=2)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from perdure.diagnostics import declare
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model import job as model
from perdure.model.retry import RETRIES_MAX, Retry, encode_policy, retry_of
from perdure.model.times import Duration
from perdure.model.value import Value

DUE_AFTER_DEADLINE = declare(
    "job.due_after_deadline", "{deadline} is not later than the time the job is due ({due})"
)


OnConflict = Literal["use_existing", "fail", "replace"]
"""What to do if a live job has the fingerprint; same names as in ``submit``."""
# Schedules store jobs, so the stored form keeps its earlier names.
_STORED: Mapping[OnConflict, model.StoredOnConflict] = {
    "use_existing": "return",
    "fail": "raise",
    "replace": "replace",
}


class JobOptions(TypedDict, total=False):
    """Options of a job."""

    fingerprint: str | Callable[..., str] | None
    on_conflict: OnConflict
    group: str | None
    delay: Duration | None
    run_at: datetime | None
    deadline: Duration | datetime | None
    max_attempts: int | None
    priority: model.Priority | None
    queue: str | None
    tags: Sequence[str] | None


class CallOptions(JobOptions, total=False):
    """Options of a task call: those of its job, and overrides of the task's settings."""

    retries: Retry | int | None
    timeout: Duration | None


class JobSettings(Value, gc=True):  # a fingerprint function may form a reference cycle
    """Checked options. None means the task's setting."""

    queue: str | None = None
    priority: int | None = None
    tags: tuple[str, ...] | None = None
    delay: timedelta = timedelta(0)
    run_at: datetime | None = None
    deadline: timedelta | None = None
    deadline_at: datetime | None = None
    group: str | None = None
    fingerprint: str | Callable[..., str] | None = None
    on_conflict: model.StoredOnConflict = "return"
    max_attempts: int | None = None
    policy: bytes | None = None


NO_SETTINGS = JobSettings()


def job_settings(options: Mapping[str, Any], known: Any = CallOptions) -> JobSettings:
    """Check all options that do not depend on the arguments of a call."""
    check_option_names(options, known)
    tags = options.get("tags")
    timeout = check.optional(check.span, options.get("timeout"), "timeout", is_positive=True)
    delay = check.optional(check.span, options.get("delay"), "delay")
    run_at = check.optional(check.moment, options.get("run_at"), "run_at")
    check.at_most_one(delay=delay, run_at=run_at)
    deadline, deadline_at = options.get("deadline"), None
    if isinstance(deadline, datetime):
        # Whether it has passed is decided by the store's clock.
        deadline, deadline_at = None, check.moment(deadline, "deadline")
    deadline = check.optional(check.span, deadline, "deadline", is_positive=True)
    if deadline is not None and delay is not None and delay >= deadline:
        raise InvalidInput(DUE_AFTER_DEADLINE.fault(("deadline",), due=delay, deadline=deadline))
    if run_at is not None and deadline_at is not None and run_at >= deadline_at:
        raise InvalidInput(
            DUE_AFTER_DEADLINE.fault(("deadline",), due=run_at, deadline=deadline_at)
        )
    fingerprint = options.get("fingerprint")
    return JobSettings(
        queue=check.optional(check.name, options.get("queue"), "queue"),
        priority=check.optional(check.priority, options.get("priority"), "priority"),
        tags=None if tags is None else check.tags(tags),
        delay=delay or timedelta(0),
        run_at=run_at,
        deadline=deadline,
        deadline_at=deadline_at,
        group=check.optional(check.name, options.get("group"), "group"),
        fingerprint=fingerprint
        if callable(fingerprint)
        else check.optional(check.name, fingerprint, "fingerprint"),
        on_conflict=_STORED[
            check.choice(options.get("on_conflict", "use_existing"), "on_conflict", _STORED)
        ],
        max_attempts=check.optional(
            check.integer, options.get("max_attempts"), "max_attempts", 1, RETRIES_MAX
        ),
        policy=encode_policy(retry_of(options.get("retries")), timeout),
    )


def check_option_names(options: Mapping[str, Any], known: Any) -> None:
    """Raise ``InvalidInput`` for a name that is not in the TypedDict ``known``."""
    for name in options:
        check.known(name, "option", known.__optional_keys__)
