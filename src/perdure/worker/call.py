"""The arguments of one call, and the scope behind a body's ``Context``.

A job stores its call as plain JSON. Inputs, templates and secrets of its node are filled in here,
on the worker, right before the body is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from perdure.diagnostics import declare
from perdure.errors import Permanent
from perdure.model.ids import Key, RunId
from perdure.model.job import ClaimedJob, Progress
from perdure.model.outcome import Completed, Paused
from perdure.model.payload import Codec, from_json
from perdure.model.wait import ReportStatus, Resumption
from perdure.tasks.context import AbortSignal, BaseContext, StepKeeper
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
    """What a context offers besides the arguments, and what the attempt learns from its use."""

    __slots__ = (
        "_allows_scripts",
        "_job",
        "_payload_max_bytes",
        "_resolved",
        "_secrets",
        "asked",
        "inputs",
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
    ) -> None:
        self._job = job
        self._secrets = secrets
        self._payload_max_bytes = payload_max_bytes
        self._resolved: ResolvedSecrets | None = None
        self._allows_scripts = allows_scripts
        self.resumption = resumption
        self.inputs: Mapping[str, Any] = {}
        self.asked: Paused | Completed | None = None
        """How the body asked to end. It counts, even if the body continued after that."""

    @property
    def run_id(self) -> RunId | None:
        return None if self._job.node is None else self._job.node.run

    @property
    def is_poll(self) -> bool:
        return self._job.node is not None and Key.parse(self._job.node.key).part == "poll"

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
    ) -> BaseContext:
        return task.context_type(
            self._job,
            worker,
            report,
            abort,
            steps,
            secret=self.secret,
            pause=self.pause,
            inputs=self.inputs,
            resumption=self.resumption,
            allows_scripts=self._allows_scripts,
        )

    def secret(self, name: str) -> str:
        if self._resolved is None:
            self._resolved = ResolvedSecrets(self._secrets)
        return self._resolved.find(name)

    def pause(self, asked: Pause) -> None:
        if self.is_poll:  # it was asked for news, and has none but this pause
            self.asked = Completed(output=b"null")
            return
        outcome = paused_outcome(asked, self._payload_max_bytes)
        refuse_pause(self._job, outcome, self.masker)
        if self.asked is None:
            self.asked = outcome


def prepare(attempt: Attempt) -> Arguments:
    """The arguments of the function, in the same threads as :func:`stored_arguments`."""
    args, kwargs = stored_arguments(attempt)
    context, scope = None, attempt.scope
    if attempt.task.context_parameter is not None and scope is not None:
        worker_id, steps = attempt.runner.worker_id, attempt.steps()
        context = scope.context(attempt.task, worker_id, attempt.report, attempt.abort, steps)
    return typed_arguments(attempt.task, args, kwargs, context)


def stored_arguments(attempt: Attempt) -> Arguments:
    """The stored call as plain values, with its node's inputs and templates filled in.

    In any thread, but not that of the event loop if ``attempt.prepares_aside``.
    """
    job, runner = attempt.job, attempt.runner
    args, kwargs, before = stored_call(job, runner.codec)
    if attempt.task.context_parameter is None and attempt.rules is None:
        return args, kwargs  # as most tasks
    if attempt.may_be_resumed:
        steps = attempt.steps()
        before = steps.wait(steps.past_pauses())
    elif before.pauses:
        before = before_retry(before, job.failures)
    scope = attempt.scope = CallScope(
        job,
        runner.code.secrets,
        runner.settings.payload_max_bytes,
        allows_scripts=runner.settings.allows_scripts,
        resumption=before,
    )
    return (args, kwargs) if attempt.rules is None else attempt.rules.arguments(args, kwargs, scope)


def typed_arguments(
    task: Task[..., Any], args: list[Any], kwargs: dict[str, Any], context: BaseContext | None
) -> Arguments:
    """The arguments as the function declares them. What does not fit fails for good."""
    try:
        return task.arguments(args, kwargs, context)
    except (ValueError, TypeError) as error:
        raise Permanent(INVALID_STORED_INPUT.fault(reason=str(error))) from error


def stored_call(job: ClaimedJob, codec: Codec) -> tuple[list[Any], dict[str, Any], Resumption]:
    """A call as plain values, and the pauses before it. What cannot be read fails for good."""
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

    If it resumed from a report that the external work failed, that work is started again.
    """
    if not failures or not before.pauses:
        return before
    *kept, last = before.pauses
    if last.report.status is not ReportStatus.FAILED:
        return before
    return replace(before, pauses=tuple(kept))
