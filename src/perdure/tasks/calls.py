"""From a call to jobs that can be inserted: every option is checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, get_args

from msgspec.structs import replace

from perdure.diagnostics import declare, near, safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT, NewJob, OnConflict
from perdure.model.partition import Lane
from perdure.model.payload import (
    PAYLOAD_MAX_BYTES,
    Codec,
    PlainCodec,
    from_json,
    input_hash,
    to_json,
)
from perdure.model.retry import RETRIES_MAX, Retry, encode_policy, retry_of
from perdure.model.times import Duration
from perdure.model.value import Value
from perdure.store.admission import computed_keys
from perdure.tasks.task import Task

UNKNOWN_ARGUMENT = declare(
    "task.unknown_argument",
    "{name!r} is neither a parameter of task {task!r} nor an option of enqueue"
    "[; did you mean {nearest:or}?][; known: {known}]",
)
FUNCTION_FAILED = declare(
    "job.function_failed",
    "the {function} failed for this input: {error}",
    "It is called with the same arguments as the task",
)
DUE_AFTER_DEADLINE = declare(
    "job.due_after_deadline", "{deadline} is not later than the time the job is due ({due})"
)


class JobOptions(TypedDict, total=False):
    """How a job is queued."""

    fingerprint: str | Callable[..., str] | None
    on_conflict: OnConflict
    group: str | None
    delay: Duration | None
    run_at: datetime | None
    deadline: Duration | datetime | None
    max_attempts: int | None
    priority: int | None
    queue: str | None
    tags: Sequence[str] | None


class CallOptions(JobOptions, total=False):
    """How a call of a task is queued, and what it changes of the task's own settings."""

    retries: Retry | int | None
    timeout: Duration | None


class JobDefaults(Value):
    """What holds for a job where its options say nothing."""

    namespace: str
    aging: timedelta
    task: str
    queue: str = DEFAULT_QUEUE
    priority: int = PRIORITY_DEFAULT
    tags: tuple[str, ...] = ()
    max_attempts: int | None = None


class Storing(Value):
    """How payloads are stored."""

    codec: Codec = PlainCodec()
    payload_max_bytes: int = PAYLOAD_MAX_BYTES


class JobMaker:
    """Makes the jobs of one task that share their options, each from its own call."""

    def __init__(self, task: Task[..., Any], template: NewJob, options: CallOptions) -> None:
        self._task = task
        self._template = template
        self._fingerprint = options.get("fingerprint")
        self._keyed = [limit for limit in task.limits if callable(limit.key)]
        self._lanes: dict[tuple[str, ...], Lane] = {}

    def job(
        self, id: JobId, args: Sequence[Any], kwargs: dict[str, Any], storing: Storing
    ) -> NewJob:
        args, kwargs = canonical_call(self._task, args, kwargs)
        data = call_input(self._task, args, kwargs, storing)
        job = replace(
            self._template, id=id, input=data, input_hash=input_hash(self._task.name, data)
        )
        if self._keyed:
            job = replace(job, lane=self._lane(args, kwargs))
        if callable(self._fingerprint):
            made = _from_input("fingerprint function", self._fingerprint, args, kwargs)
            job = replace(job, fingerprint=check.name(made, "fingerprint"))
        return job

    def _lane(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Lane:
        """Jobs with the same limit keys share a lane."""
        values = [
            _from_input(f"key function of {type(limit).__name__}", limit.key, args, kwargs)
            for limit in self._keyed
        ]
        keys = computed_keys(self._keyed, values)
        lane = self._lanes.get(keys)
        if lane is None:
            for key in keys:
                check.name(key, "limits", label="limit key")
            lane = self._lanes[keys] = replace(self._template.lane, keys=keys)
        return lane


def defaults_of(task: Task[..., Any], namespace: str, aging: timedelta) -> JobDefaults:
    return JobDefaults(
        namespace=namespace,
        aging=aging,
        task=task.name,
        queue=task.queue,
        priority=task.priority,
        tags=task.tags,
    )


def job_template(defaults: JobDefaults, options: CallOptions) -> NewJob:
    """Everything that jobs with these options share; the id and the input are still to come."""
    check_option_names(options, CallOptions)
    delay = check.optional(check.span, options.get("delay"), "delay") or timedelta(0)
    run_at = check.optional(check.moment, options.get("run_at"), "run_at")
    check.at_most_one(delay=options.get("delay"), run_at=run_at)
    deadline, deadline_at = _deadline(options.get("deadline"))
    _check_order(delay, run_at, deadline, deadline_at)
    fingerprint = options.get("fingerprint")
    return NewJob(
        id=JobId(""),
        namespace=defaults.namespace,
        lane=_lane_of(defaults, options),
        priority=check.priority(_given(options.get("priority"), defaults.priority)),
        aging=defaults.aging,
        input=b"",
        input_hash=0,
        delay=delay,
        run_at=run_at,
        deadline=deadline,
        deadline_at=deadline_at,
        group=check.optional(check.name, options.get("group"), "group"),
        fingerprint=None
        if callable(fingerprint)
        else check.optional(check.name, fingerprint, "fingerprint"),
        on_conflict=check.choice(
            options.get("on_conflict", "return"), "on_conflict", get_args(OnConflict)
        ),
        max_attempts=check.optional(
            check.integer,
            _given(options.get("max_attempts"), defaults.max_attempts),
            "max_attempts",
            1,
            RETRIES_MAX,
        ),
        policy=_policy(options),
    )


def payload_job(
    id: JobId, defaults: JobDefaults, payload: Any, options: JobOptions, storing: Storing
) -> NewJob:
    """A job of a kind that needs no task here: its payload is the one argument."""
    check_option_names(options, JobOptions)
    if callable(options.get("fingerprint")):
        raise check.wrong_type(options["fingerprint"], "fingerprint", "a string")
    template = job_template(defaults, options)  # type: ignore[arg-type]  # CallOptions has more
    what = f"the payload of a job {defaults.task!r}"
    plain = to_json(((payload,), {}), what, storing.payload_max_bytes, is_input=True)
    data = storing.codec.encode(plain)
    return replace(template, id=id, input=data, input_hash=input_hash(defaults.task, data))


def may_be_refused(job: NewJob) -> bool:
    """Whether the store may refuse this job for reasons that its neighbours do not share."""
    return (
        (job.fingerprint is not None and job.on_conflict == "raise")
        or job.deadline is not None
        or job.deadline_at is not None
    )


def call_input(
    task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any], storing: Storing
) -> bytes:
    """A canonical call as it is stored. Refuses what the worker could not read back as typed."""
    what = f"the input of task {task.name!r}"
    data = to_json((args, kwargs), what, storing.payload_max_bytes, is_input=True)
    plain_args, plain_kwargs = from_json(data)
    task.check_types(plain_args, plain_kwargs)
    return storing.codec.encode(data)


def canonical_call(
    task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The call with its arguments by position; a name that nobody knows is refused."""
    if kwargs:
        parameters = task.input_signature.parameters.values()
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            for name in kwargs:
                if name not in task.input_signature.parameters:
                    raise _unknown_argument(task, name)
    return task.canonical(args, kwargs)


def split_options(
    keywords: Mapping[str, Any],
) -> tuple[CallOptions, dict[str, Any]]:
    """Tell the options of a call from the task's own arguments: options are reserved names."""
    names = CallOptions.__optional_keys__
    options = {name: value for name, value in keywords.items() if name in names}
    arguments = {name: value for name, value in keywords.items() if name not in names}
    return options, arguments  # type: ignore[return-value]  # only names of CallOptions


def check_option_names(options: Mapping[str, Any], known: Any) -> None:
    for name in options:
        check.known(name, "option", known.__optional_keys__)


def _unknown_argument(task: Task[..., Any], name: str) -> InvalidInput:
    known = {*task.input_signature.parameters, *CallOptions.__optional_keys__}
    nearest = near(name, known)
    return InvalidInput(
        UNKNOWN_ARGUMENT.fault(
            (name,),
            name=name,
            task=task.name,
            nearest=nearest,
            known=() if nearest else tuple(sorted(known)),
        )
    )


def _from_input(what: str, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        fault = FUNCTION_FAILED.fault(function=what, error=safe_repr(error))
        raise InvalidInput(fault) from error


def _lane_of(defaults: JobDefaults, options: CallOptions) -> Lane:
    tags = options.get("tags")
    return Lane(
        queue=check.name(_given(options.get("queue"), defaults.queue), "queue"),
        task=defaults.task,
        tags=defaults.tags if tags is None else check.tags(tags),
    )


def _policy(options: CallOptions) -> bytes | None:
    timeout = check.optional(check.span, options.get("timeout"), "timeout", is_positive=True)
    return encode_policy(retry_of(options.get("retries")), timeout)


def _deadline(deadline: Any) -> tuple[timedelta | None, datetime | None]:
    if isinstance(deadline, datetime):
        # Whether it has passed is for the store's clock to say, which is the one that counts.
        return None, check.moment(deadline, "deadline")
    return check.optional(check.span, deadline, "deadline", is_positive=True), None


def _check_order(
    delay: timedelta,
    run_at: datetime | None,
    deadline: timedelta | None,
    deadline_at: datetime | None,
) -> None:
    if deadline is not None and delay >= deadline:
        raise InvalidInput(DUE_AFTER_DEADLINE.fault(("deadline",), due=delay, deadline=deadline))
    if run_at is not None and deadline_at is not None and run_at >= deadline_at:
        raise InvalidInput(
            DUE_AFTER_DEADLINE.fault(("deadline",), due=run_at, deadline=deadline_at)
        )


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value
