"""Create jobs from task calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from perdure.diagnostics import declare, near, safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.job import DEFAULT_QUEUE, PRIORITY_DEFAULT, NewJob
from perdure.model.partition import Partition
from perdure.model.payload import (
    PAYLOAD_MAX_BYTES,
    Codec,
    PlainCodec,
    from_json,
    input_hash,
    to_json,
)
from perdure.model.value import Value
from perdure.tasks.options import CallOptions, JobOptions, JobSettings, job_settings
from perdure.tasks.task import FUNCTION_FAILED, Task

UNKNOWN_ARGUMENT = declare(
    "task.unknown_argument",
    "{name!r} is not a parameter of task {task!r}[; did you mean {nearest:or}?][; known: {known}]",
)
OPTION_AS_ARGUMENT = declare(
    "task.option_as_argument",
    "{name!r} is not a parameter of task {task!r} but an option",
    "Pass {task}.options({name}=...) instead of the task",
)
CONTEXT_GIVEN = declare(
    "task.context_given", "{name!r} of task {task!r} is filled in by the worker", "Remove it"
)
RESOURCE_GIVEN = declare(
    "task.resource_given",
    "{name!r} of task {task!r} is a resource, which the worker fills in",
    "Remove it",
)


class JobDefaults(Value):
    """Defaults for options of a job."""

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
    """Creates jobs of one task with the same options, from different calls."""

    def __init__(self, task: Task[..., Any], template: NewJob) -> None:
        self._task = task.base
        self._template = template
        self._fingerprint = task.settings.fingerprint
        self._is_keyed = bool(task.computed_limits)
        self._partitions: dict[tuple[str, ...], Partition] = {}

    @property
    def shares_fingerprint(self) -> bool:
        """Whether all its jobs have the same fingerprint."""
        return isinstance(self._fingerprint, str)

    def job(
        self, id: JobId, args: Sequence[Any], kwargs: dict[str, Any], storing: Storing
    ) -> NewJob:
        args, kwargs = canonical_call(self._task, args, kwargs)
        data = call_input(self._task, args, kwargs, storing)
        job = replace(
            self._template, id=id, input=data, input_hash=input_hash(self._task.name, data)
        )
        if self._is_keyed:
            job = replace(job, partition=self._partition(args, kwargs))
        if callable(self._fingerprint):
            made = _from_input("fingerprint function", self._fingerprint, args, kwargs)
            job = replace(job, fingerprint=check.name(made, "fingerprint"))
        return job

    def _partition(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Partition:
        """Jobs with the same limit keys share a partition."""
        keys = self._task.limit_keys(args, kwargs)
        partition = self._partitions.get(keys)
        if partition is None:
            partition = self._partitions[keys] = replace(self._template.partition, keys=keys)
        return partition


def defaults_of(task: Task[..., Any], namespace: str, aging: timedelta) -> JobDefaults:
    return JobDefaults(
        namespace=namespace,
        aging=aging,
        task=task.name,
        queue=task.queue,
        priority=task.priority,
        tags=task.tags,
    )


def job_template(defaults: JobDefaults, settings: JobSettings) -> NewJob:
    """A job with these settings, without id and input."""
    given, fingerprint = settings, settings.fingerprint
    return NewJob(
        id=JobId(""),
        namespace=defaults.namespace,
        partition=Partition(
            queue=given.queue or defaults.queue,
            task=defaults.task,
            tags=defaults.tags if given.tags is None else given.tags,
        ),
        priority=defaults.priority if given.priority is None else given.priority,
        aging=defaults.aging,
        input=b"",
        input_hash=0,
        delay=given.delay,
        run_at=given.run_at,
        deadline=given.deadline,
        deadline_at=given.deadline_at,
        group=given.group,
        fingerprint=fingerprint if isinstance(fingerprint, str) else None,
        on_conflict=given.on_conflict,
        max_attempts=defaults.max_attempts if given.max_attempts is None else given.max_attempts,
        policy=given.policy,
    )


def payload_job(
    id: JobId, defaults: JobDefaults, payload: Any, options: JobOptions, storing: Storing
) -> NewJob:
    """A job whose task need not be registered here; the payload is its only argument."""
    if callable(options.get("fingerprint")):
        raise check.wrong_type(options["fingerprint"], "fingerprint", "a string")
    template = job_template(defaults, job_settings(options, JobOptions))
    what = f"the payload of a job {defaults.task!r}"
    plain = to_json(((payload,), {}), what, storing.payload_max_bytes, is_input=True)
    data = storing.codec.encode(plain)
    return replace(template, id=id, input=data, input_hash=input_hash(defaults.task, data))


def may_be_refused(job: NewJob) -> bool:
    """Whether the store may reject this job alone out of a batch."""
    return (
        (job.fingerprint is not None and job.on_conflict == "raise")
        or job.deadline is not None
        or job.deadline_at is not None
    )


def call_input(
    task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any], storing: Storing
) -> bytes:
    """Encode a canonical call; raises if the worker could not convert it to the declared types."""
    what = f"the input of task {task.name!r}"
    data = to_json((args, kwargs), what, storing.payload_max_bytes, is_input=True)
    plain_args, plain_kwargs = from_json(data)
    task.check_types(plain_args, plain_kwargs)
    return storing.codec.encode(data)


def canonical_call(
    task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The call with its arguments by position; raises for unknown names."""
    if kwargs:
        for name in task.injected.keys() & kwargs.keys():  # `**kwargs` would accept it
            code = CONTEXT_GIVEN if task.injected[name] is None else RESOURCE_GIVEN
            raise InvalidInput(code.fault((name,), name=name, task=task.name))
        parameters = task.input_signature.parameters.values()
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            for name in kwargs:
                if name not in task.input_signature.parameters:
                    raise _unknown_argument(task, name)
    return task.canonical(args, kwargs)


def _unknown_argument(task: Task[..., Any], name: str) -> InvalidInput:
    if name in CallOptions.__optional_keys__:
        return InvalidInput(OPTION_AS_ARGUMENT.fault((name,), name=name, task=task.name))
    known = task.input_signature.parameters
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
