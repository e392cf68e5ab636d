"""The arguments of a task call, and ``CallScope``, which implements the body's ``Context``.

A job stores its call as plain JSON. The worker resolves the node's inputs, templates and secrets
here, right before it calls the body.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, Permanent, TemplateMissing
from perdure.model.ids import Key, Part, RunId
from perdure.model.job import ClaimedJob, Progress
from perdure.model.outcome import Completed, Paused
from perdure.model.partition import with_suspicion
from perdure.model.payload import Codec, from_json
from perdure.model.wait import ReportStatus, Resumption
from perdure.tasks.context import AbortSignal, BaseContext, StepKeeper
from perdure.tasks.resource import Resources
from perdure.tasks.result import Pause
from perdure.tasks.task import Task
from perdure.worker.outcome import paused_outcome, refuse_pause
from perdure.worker.secrets import Masker, ResolvedSecrets, Secrets

if TYPE_CHECKING:
    from perdure.worker.attempt import Attempt

NOTHING_BEFORE = Resumption()

Arguments = tuple[list[Any], dict[str, Any]]

INVALID_STORED_INPUT = declare("job.invalid_input", "the stored input cannot be used: {reason}")


class CallScope:
    """The secrets, inputs and pauses of one call, and the outcome that the body requested."""

    __slots__ = (
        "_allows_scripts",
        "_job",
        "_payload_max_bytes",
        "_resolved",
        "_secrets",
        "body_context",
        "inputs",
        "requested_outcome",
        "resumption",
    )

    def __init__(
        self,
        job: ClaimedJob,
        secrets: Secrets,
        payload_max_bytes: int,
        *,
        allows_scripts: bool,
        resumption: Resumption = NOTHING_BEFORE,
        given_secrets: tuple[str, ...] = (),
    ) -> None:
        self._job = job
        self._secrets = secrets
        self._payload_max_bytes = payload_max_bytes
        self._resolved = ResolvedSecrets(secrets, given_secrets) if given_secrets else None
        self._allows_scripts = allows_scripts
        self.resumption = resumption
        self.inputs: Mapping[str, Any] = {}
        self.body_context: BaseContext | None = None
        self.requested_outcome: Paused | Completed | None = None
        """The outcome requested by a pause. It counts even if the body continued after that."""

    @property
    def run_id(self) -> RunId | None:
        return None if self._job.node is None else self._job.node.run

    @property
    def part(self) -> Part:
        return "" if self._job.node is None else Key.parse(self._job.node.key).part

    @property
    def has_returned_again(self) -> bool:
        """For a pause: whether the body returned it after it was resumed, to start over."""
        return bool(self.resumption.pauses) and self.requested_outcome is None

    @property
    def masker(self) -> Masker | None:
        """None as long as there is nothing to mask."""
        return None if self._resolved is None else self._resolved.masker

    @property
    def secret_values(self) -> tuple[str, ...]:
        return () if self._resolved is None else self._resolved.values

    def context(
        self,
        task: Task[..., Any],
        worker: str,
        report: Callable[[Progress], None],
        abort: AbortSignal,
        steps: StepKeeper,
        resources: Resources,
        arguments: Arguments,
    ) -> BaseContext:
        args, kwargs = arguments
        self.body_context = task.context_type(
            self._job,
            worker,
            report,
            abort,
            steps,
            secret=self.secret,
            mask=self.mask,
            pause=self.pause,
            inputs=self.inputs,
            resumption=self.resumption,
            allows_scripts=self._allows_scripts,
            resources=resources,
            arguments=partial(task.named, tuple(args), dict(kwargs)),
        )
        return self.body_context

    def secret(self, name: str) -> str:
        if self._resolved is None:
            self._resolved = ResolvedSecrets(self._secrets)
        return self._resolved.find(name)

    def mask(self, data: str | bytes) -> str | bytes:
        masker = self.masker
        if masker is None:
            return data
        # As bytes, a secret in Latin-1 may match half a character of a string.
        return masker.text(data) if isinstance(data, str) else masker.raw(data)

    def pause(self, pause: Pause) -> None:
        if self.part == "poll":  # a poll that reaches the pause found nothing new
            self.requested_outcome = Completed(output=b"null")
            return
        outcome = paused_outcome(pause, self._payload_max_bytes)
        refuse_pause(self._job, outcome, self.masker)
        if self.requested_outcome is None:
            self.requested_outcome = outcome


def prepare(attempt: Attempt) -> Arguments:
    """The arguments of the function; see :func:`stored_arguments` for the threads it may run in.

    If values are built for this job, context and resources are injected after that.
    """
    args, kwargs = stored_arguments(attempt)
    task, runner, context = attempt.task, attempt.runner, None
    typed_arguments(task, args, kwargs)
    resources = runner.code.resources.opened
    if attempt.scope is not None and attempt.takes_context:
        context = attempt.scope.context(
            task,
            runner.worker_id,
            attempt.report,
            attempt.abort,
            attempt.steps(),
            resources,
            (args, kwargs),
        )
    if task.injected and not attempt.is_provided:
        task.inject(args, kwargs, context, resources)
    return args, kwargs


def stored_arguments(attempt: Attempt) -> Arguments:
    """The stored call as plain values, with its node's inputs and templates resolved.

    Raises ``HasLimitKeys`` for a job without them: only a claim under its keys counts it. The
    process that enqueued a node may not have had the functions that compute them.

    Runs in any thread, but not on the event loop if ``attempt.prepares_in_thread``.
    """
    args, kwargs = _stored_arguments(attempt)
    partition, task = attempt.job.partition, attempt.task
    if task.computed_limits and not partition.keys:
        given = list(args), dict(kwargs)
        typed_arguments(task, *given)
        try:
            keys = task.limit_keys(*given)
        except (InvalidInput, TemplateMissing) as error:
            raise Permanent(*error.faults) from error
        moved = replace(partition, keys=keys).text
        raise HasLimitKeys(with_suspicion(moved, attempt.job.suspicion))
    return args, kwargs


class HasLimitKeys(Exception):
    """The job is to be claimed under its limit keys: it moves to their partition."""

    def __init__(self, partition_key: str) -> None:
        super().__init__(partition_key)
        self.partition_key = partition_key


def _stored_arguments(attempt: Attempt) -> Arguments:
    job, runner = attempt.job, attempt.runner
    args, kwargs, before = stored_call(job, runner.codec)
    attempt.attempts_before = before.attempt - 1
    if attempt.rules is None and not attempt.takes_context:
        return args, kwargs  # the common case
    if attempt.may_be_resumed:
        steps = attempt.steps()
        before = steps.wait(steps.past_pauses())
    elif before.pauses and (job.node is None or not Key.parse(job.node.key).part):
        before = before_retry(before, job.failures)
    scope = attempt.scope = CallScope(
        job,
        runner.code.secrets,
        runner.settings.payload_max_bytes,
        allows_scripts=runner.settings.allows_scripts,
        resumption=before,
    )
    if attempt.rules is None:
        return args, kwargs
    return attempt.rules.arguments(args, kwargs, scope, runner.code.grants)


def typed_arguments(task: Task[..., Any], args: list[Any], kwargs: dict[str, Any]) -> None:
    """Convert the arguments in place to the types the function declares; raises ``Permanent``."""
    try:
        task.convert(args, kwargs)
    except (ValueError, TypeError) as error:
        raise Permanent(INVALID_STORED_INPUT.fault(reason=str(error))) from error


def stored_call(job: ClaimedJob, codec: Codec) -> tuple[list[Any], dict[str, Any], Resumption]:
    """Decode a stored call and its past pauses; raises ``Permanent`` if it is unreadable."""
    data = codec.decode(job.input)
    try:
        args, kwargs, *more = from_json(data)
        before = msgspec.convert(more[0], Resumption) if more else NOTHING_BEFORE
    except (ValueError, TypeError, RecursionError) as error:
        raise Permanent(INVALID_STORED_INPUT.fault(reason=str(error))) from error
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise Permanent(INVALID_STORED_INPUT.fault(reason="it is not [[...], {...}]"))
    return args, kwargs, before


def before_retry(before: Resumption, failures: int) -> Resumption:
    """The past pauses of a job that failed ``failures`` times since it was enqueued.

    Drops the last pause if its report was a failure, so that the retry restarts the external work.
    """
    if not failures or not before.pauses:
        return before
    *earlier, last = before.pauses
    if last.report.status is not ReportStatus.FAILED:
        return before
    return replace(before, pauses=tuple(earlier))
