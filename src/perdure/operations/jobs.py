"""Operations on jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from perdure.clock import new_id
from perdure.diagnostics import declare
from perdure.errors import (
    IllegalTransition,
    InvalidInput,
    JobBelongsToRun,
    JobNotFound,
    NoResult,
)
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.job import (
    CLAIMED,
    Claim,
    FailedAttempt,
    Inserted,
    Job,
    JobFilter,
    NewJob,
    Status,
)
from perdure.model.payload import input_hash
from perdure.model.run import StoredStep
from perdure.model.value import Value
from perdure.model.wait import answer_step
from perdure.operations.backend import AnyTask, Backend
from perdure.operations.explain import explain_job
from perdure.operations.insight.explain import Explanation
from perdure.operations.live import publish_change
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import Page, decode_cursor, page_of, page_size
from perdure.operations.records import (
    Enqueued,
    GroupChange,
    JobChange,
    JobRecord,
    JobUpdate,
    job_record,
    job_update,
)
from perdure.operations.results import job_result
from perdure.store.contract import Store
from perdure.store.lifecycle import Transition
from perdure.tasks.calls import (
    JobMaker,
    call_input,
    canonical_call,
    defaults_of,
    job_template,
    may_be_refused,
)
from perdure.tasks.node_type import without_options
from perdure.tasks.options import CallOptions
from perdure.tasks.task import Task

SHARED_INPUT_MAX_BYTES = 16 * 1024
"""Larger inputs get their own insert, which bounds the size of a shared one."""

REPLACING = {"options.on_conflict": {"replace": Role.OPERATOR}}
"""It cancels the job with the same fingerprint, regardless of who enqueued it."""

NO_STORED_RESULT = declare("task.no_result", "no result of task {task!r} is stored for this input")
SHARED_FINGERPRINT = declare(
    "job.shared_fingerprint",
    "one fingerprint for several inputs would make them one job",
    "Pass a function of the input: options(fingerprint=lambda text: ...)",
)


class Jobs(Group):
    """Calls of tasks in queues."""

    @operation(
        "jobs.enqueue",
        role=Role.SUBMITTER,
        writes=True,
        one_namespace=True,
        role_by_value=REPLACING,
    )
    def enqueue(
        self,
        task: AnyTask,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> Coroutine[Any, Any, Enqueued]:
        """Enqueue a call of a task.

        When this returns, the job is durable.
        """
        meant = with_options(self._backend, task, options)
        call = prepare_call(self._backend, meant, checked_args(args), checked_kwargs(kwargs))
        return self._insert(call)

    async def _insert(self, call: Calls) -> Enqueued:
        [inserted] = await insert_jobs(self._backend, call.jobs)
        return Enqueued(id=inserted.id, is_new=inserted.is_new)

    @operation(
        "jobs.enqueue_many",
        role=Role.SUBMITTER,
        writes=True,
        one_namespace=True,
        role_by_value=REPLACING,
    )
    async def enqueue_many(
        self,
        task: AnyTask,
        inputs: Iterable[Any],
        kwargs: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> Sequence[Enqueued]:
        """Enqueue a call for each input, all or none.

        All are inserted in one transaction.
        """
        meant = with_options(self._backend, task, options)
        calls = prepare_calls(self._backend, meant, inputs, checked_kwargs(kwargs))
        found = await insert_jobs(self._backend, calls.jobs)
        return [Enqueued(id=each.id, is_new=each.is_new) for each in found]

    @operation("jobs.list", role=Role.VIEWER)
    async def list(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        task: AnyTask | None = None,
        group: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Job]:
        """List jobs, newest first.

        They come without their values.
        """
        size = page_size(limit)
        before = None
        if cursor is not None:
            [before] = decode_cursor("jobs.list", cursor, tuple[JobId])
        store = await self._backend.store()
        found = await store.queries.list_jobs(
            self._filter(status, queue, task, group, before), size + 1
        )
        return page_of("jobs.list", found, size, lambda job: (job.id,))

    @operation("jobs.count", role=Role.VIEWER)
    async def count(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        task: AnyTask | None = None,
        group: str | None = None,
    ) -> int:
        """Count jobs."""
        store = await self._backend.store()
        return await store.queries.count_jobs(self._filter(status, queue, task, group, None))

    def _filter(
        self,
        status: str | None,
        queue: str | None,
        task: AnyTask | None,
        group: str | None,
        before: JobId | None,
    ) -> JobFilter:
        return JobFilter(
            namespace=self._backend.visible,
            status=check.optional(check.choice, status, "status", Status),
            queue=check.optional(check.stored_name, queue, "queue"),
            task=task.name
            if isinstance(task, Task)
            else check.optional(check.stored_name, task, "task"),
            group=check.optional(check.stored_name, group, "group"),
            before=before,
        )

    @operation("jobs.get", role=Role.VIEWER)
    async def get(self, id: str) -> JobRecord:
        """Get a job with its arguments and result."""
        store = await self._backend.store()
        job = await store.queries.get_job(self._backend.visible, job_id(id))
        if job is None:
            raise JobNotFound(job_id=id)
        return job_record(job, self._backend.codec)

    @operation("jobs.attempts", role=Role.VIEWER)
    async def attempts(self, id: str) -> Sequence[FailedAttempt]:
        """List the failed attempts of a job, oldest first."""
        await self.get(id)
        store = await self._backend.store()
        return await store.queries.failed_attempts(job_id(id))

    @operation("jobs.find_result", role=Role.VIEWER, one_namespace=True)
    def find_result(
        self,
        task: AnyTask,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        default: Any = UNSET,
    ) -> Coroutine[Any, Any, Any]:
        """Find the latest stored result for an input.

        Nothing is executed. Raises ``NoResult`` if there is none, or returns ``default`` if that is
        given.
        """
        meant = without_options(self._backend.task(task))
        positional, named = canonical_call(meant, checked_args(args), checked_kwargs(kwargs))
        data = call_input(meant, positional, named, self._backend.storing)
        return self._find_result(meant, data, default)

    async def _find_result(self, task: Task[..., Any], input: bytes, default: Any) -> Any:
        store = await self._backend.store()
        output = await store.queries.find_result(
            self._backend.namespace, task.name, input_hash(task.name, input), input
        )
        if output is not None:
            return job_result(output, self._backend.codec, task)
        if default is UNSET:
            raise NoResult(NO_STORED_RESULT.fault(task=task.name))
        return default

    @operation("jobs.explain", role=Role.VIEWER)
    async def explain(self, id: str) -> Explanation:
        """Explain the state of a job.

        The findings include suggested actions.
        """
        return await explain_job(self._backend, job_id(id))

    @operation("jobs.watch", role=Role.VIEWER, streams=True)
    async def watch(self, id: str) -> AsyncGenerator[JobUpdate, None]:
        """Follow a job until it finishes.

        Streams its state now and after each change. Changes that follow each other faster than they
        are read are merged.
        """
        await self.get(id)
        checked = job_id(id)
        last: JobUpdate | None = None
        with self._backend.job_waits.watch(checked, is_close=True) as watch:
            while last is None or not last.is_final:
                state = await watch.next()
                if state is None:
                    raise JobNotFound(job_id=checked)
                update = job_update(state)
                if update != last:
                    last = update
                    yield update

    @operation("jobs.cancel", role=Role.OPERATOR, writes=True)
    async def cancel(self, id: str) -> JobChange:
        """Cancel a waiting job, or stop a running one.

        Cancelling a finished job changes nothing, and ``was_finished`` of the result is true.
        """
        return await self._change(Transition.ABORT, id)

    @operation("jobs.cancel_group", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def cancel_group(self, group: str) -> GroupChange:
        """Cancel every unfinished job of a group."""
        check.stored_name(group, "group")
        store = await self._backend.store()
        changes = await store.admin.change_jobs(
            Transition.ABORT, self._backend.namespace, group=group
        )
        return GroupChange(
            group=group,
            cancelled=sum(each.after is Status.CANCELLED for each in changes),
            aborting=sum(each.after is Status.ABORTING for each in changes),
        )

    @operation("jobs.retry", role=Role.OPERATOR, writes=True)
    async def retry(self, id: str) -> JobChange:
        """Retry a failed, dead or cancelled job.

        Its attempts are counted from zero again.
        """
        return await self._change(Transition.RETRY, id)

    @operation("jobs.resume", role=Role.OPERATOR, writes=True)
    def resume(self, id: str, *, data: Any = None) -> Coroutine[Any, Any, JobChange]:
        """Requeue a parked job.

        Its ``ctx.pause`` returns ``data`` as the result of the report.
        """
        answer = None
        if data is not None:
            answer = self._backend.codec.encode(self._backend.json(data, f"the data for job {id}"))
        return self._resume(job_id(id), answer)

    async def _resume(self, id: JobId, answer: bytes | None) -> JobChange:
        if answer is None:
            return await self._change(Transition.RESUME, id)
        store = await self._backend.store()
        while True:
            job = await parked_job(store, self._backend.visible, id, Transition.RESUME)
            step = StoredStep(name=answer_step(job.epoch), value=answer)
            if await store.jobs.resume_parked(Claim(id=id, epoch=job.epoch), step):
                await publish_change(self._backend, _ANNOUNCED[Transition.RESUME], id)
                return JobChange(id=id, before=Status.PAUSED, after=Status.WAITING)

    @operation("jobs.disable", role=Role.OPERATOR, writes=True)
    async def disable(self, id: str) -> JobChange:
        """Keep a job from running until it is enabled.

        A running one is taken from its worker.
        """
        return await self._change(Transition.DISABLE, id)

    @operation("jobs.enable", role=Role.OPERATOR, writes=True)
    async def enable(self, id: str) -> JobChange:
        """Let a disabled job run again."""
        return await self._change(Transition.ENABLE, id)

    async def _change(self, operation: Transition, id: str) -> JobChange:
        store = await self._backend.store()
        change = await change_job(store, operation, self._backend.visible, job_id(id))
        if operation in _ANNOUNCED:
            await publish_change(self._backend, _ANNOUNCED[operation], change.id)
        return change


_ANNOUNCED = {
    Transition.DISABLE: "job.disabled",
    Transition.ENABLE: "job.enabled",
    Transition.RESUME: "job.resumed",
}
"""Live events of commands; those of other commands come from a row or from a worker."""


def job_id(id: Any) -> JobId:
    return JobId(check.stored_name(id, "id", label="job id"))


async def change_job(
    store: Store, operation: Transition, namespace: str | None, id: JobId
) -> JobChange:
    """Change one job. Except for a cancel, the transition must be allowed in its status."""
    for change in await store.admin.change_jobs(operation, namespace, [id]):
        if change.before is change.after and operation is not Transition.ABORT:
            raise IllegalTransition(job_id=id, operation=operation, status=change.before)
        return JobChange(id=change.id, before=change.before, after=change.after)
    raise JobNotFound(job_id=id)


async def parked_job(
    store: Store, namespace: str | None, id: JobId, operation: Transition = Transition.ACCEPT
) -> Job:
    """A parked job without a run; raises if it is anything else."""
    job = await store.queries.get_job(namespace, id)
    if job is None:
        raise JobNotFound(job_id=id)
    if job.node is not None:
        raise JobBelongsToRun(job_id=id, run_id=job.node.run)
    if job.status is not Status.PAUSED:
        is_claimed = operation is Transition.ACCEPT and job.status in CLAIMED
        advice = "Pass the job that dequeue() returned" if is_claimed else ""
        raise IllegalTransition(job_id=id, operation=operation, status=job.status, advice=advice)
    return job


# From calls to inserted jobs.


class Calls(Value):
    """Calls of one task. ``enqueue_many`` checks and encodes them lazily, during the insert."""

    task: Task[..., Any]
    """Without options."""
    jobs: Iterable[NewJob]


def checked_args(args: Any) -> tuple[Any, ...]:
    return check.listed(args, "args", "arguments")


def checked_kwargs(kwargs: Any) -> dict[str, Any]:
    return check.optional(check.mapping, kwargs, "kwargs", "parameter names to values") or {}


def with_options(
    backend: Backend, task: AnyTask, options: Mapping[str, Any] | None
) -> Task[..., Any]:
    """The task with options given separately, as in a JSON request."""
    given = check.optional(check.mapping, options, "options", "names of options to values")
    return backend.task(task).options(**given or {})


def prepare_call(
    backend: Backend, task: AnyTask, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Calls:
    """Make the job of one call. Runs on the caller's thread: encoding runs the caller's code."""
    meant = backend.task(task)
    job = _maker(backend, meant).job(JobId(new_id()), args, kwargs, backend.storing)
    return Calls(task=meant.base, jobs=[job])


def prepare_calls(
    backend: Backend, task: AnyTask, inputs: Iterable[Any], kwargs: dict[str, Any]
) -> Calls:
    """Make a job for each input, lazily; an error names the input."""
    check.iterable(inputs, "inputs", "inputs, one for each job")
    meant = backend.task(task)
    maker = _maker(backend, meant)

    def make() -> Iterator[NewJob]:
        for number, given in enumerate(inputs):
            if number and maker.shares_fingerprint:
                raise InvalidInput(SHARED_FINGERPRINT.fault(("fingerprint",)))
            args = given if isinstance(given, tuple) else (given,)
            try:
                yield maker.job(JobId(new_id()), args, kwargs, backend.storing)
            except InvalidInput as error:
                error.add_place("inputs", number)
                raise

    return Calls(task=meant.base, jobs=make())


def _maker(backend: Backend, task: Task[..., Any]) -> JobMaker:
    namespace = backend.require_namespace("jobs.enqueue")
    template = job_template(defaults_of(task, namespace, backend.aging), task.settings)
    return JobMaker(task, template)


async def insert_jobs(backend: Backend, jobs: Iterable[NewJob]) -> list[Inserted]:
    """Insert jobs, all or none.

    Single jobs of concurrent callers share an insert, except those that the store may refuse,
    which must not fail the others.
    """
    store = await backend.store()
    if isinstance(jobs, list) and len(jobs) == 1:
        [job] = jobs
        if len(job.input) <= SHARED_INPUT_MAX_BYTES and not may_be_refused(job):
            return [await backend.inserts.add(job)]
    return await store.jobs.insert(jobs)
