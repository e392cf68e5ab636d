"""Handles on a job or a run: wait for its result, follow it, act on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, cast

from perdure.client.events import AsyncSubscription, call
from perdure.errors import JobNotFound, ResultTimeout, RunNotFound, RunTimeout
from perdure.flows.built import BuiltFlow, O_co
from perdure.model import check
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, FailedAttempt, JobState, Progress, Status
from perdure.model.run import ENDED, Run, RunStatus
from perdure.model.times import Duration
from perdure.operations.approvals import Approvals
from perdure.operations.backend import AnyFlow, Backend
from perdure.operations.insight.explain import Explanation
from perdure.operations.insight.lineage import Lineage
from perdure.operations.jobs import Jobs
from perdure.operations.page import PAGE_MAX
from perdure.operations.records import (
    ApprovalRecord,
    ChildRun,
    EventRecord,
    JobChange,
    JobRecord,
    JobUpdate,
    NodeRecord,
    RunChange,
    RunDetail,
    RunRecord,
    RunSnapshot,
    RunStarted,
    run_record,
)
from perdure.operations.results import job_error, job_result, run_error, run_result
from perdure.operations.runs import Runs
from perdure.render.diagram import Diagram
from perdure.render.timeline import Timeline
from perdure.tasks.task import Task

if TYPE_CHECKING:
    # Type checkers resolve it even if it is not installed.
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)

JOB_ENDED = FINISHED | {Status.DISABLED}
"""Nothing more happens unless an operator intervenes."""

LAST_LOOK_SECONDS = 1.0
"""Time for one last read after a timeout, which may still find the result."""
NOT_RESPONDING = "unknown (store not responding)"


class AsyncJobHandle(Generic[R_co]):
    """A handle on a job. ``is_new`` is False if a live job with the same fingerprint was found."""

    __slots__ = ("_backend", "_is_ours", "_jobs", "_task", "id", "is_new")

    def __init__(
        self,
        backend: Backend,
        id: JobId,
        task: Task[..., R_co] | None = None,
        *,
        is_new: bool = False,
        is_ours: bool = False,
    ) -> None:
        self._backend = backend
        self._jobs = Jobs(backend)
        self._task = task
        # An id passed in by the caller may belong to another namespace, which we must not read.
        self._is_ours = is_ours
        self.id = id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job is finished, and return its result in the type the task declares.

        Raises ``JobFailed``, ``JobDead``, ``JobCancelled`` or ``JobDisabled`` if it ended without
        one, with the failure of the last attempt, and ``ResultTimeout`` after ``timeout``.
        """
        seconds = None if timeout is None else check.span(timeout, "timeout").total_seconds()
        with self._backend.job_waits.watch(self.id) as watch:
            try:
                async with asyncio.timeout(seconds):
                    await self._check_ours()
                    while True:
                        state = self._found(await watch.next())
                        if state.status in JOB_ENDED:
                            return self._outcome(state)
            except TimeoutError:
                if seconds is None:
                    raise
        last = await self._last_look() or (watch.latest if self._is_ours else None)
        if last is not None and last.status in JOB_ENDED:
            return self._outcome(last)
        status = NOT_RESPONDING if last is None else last.status
        raise ResultTimeout(job_id=self.id, timeout=seconds, status=status)

    async def status(self) -> Status:
        return (await self._state()).status

    async def progress(self) -> Progress:
        return (await self._state()).progress

    async def record(self) -> JobRecord:
        """Return the job with its arguments and its result."""
        return await self._jobs.get(self.id)

    async def attempts(self) -> list[FailedAttempt]:
        """Return its failed attempts, oldest first."""
        return list(await self._jobs.attempts(self.id))

    async def explain(self) -> Explanation:
        """Explain its current state, and suggest what would help."""
        return await self._jobs.explain(self.id)

    async def cancel(self) -> JobChange:
        """Cancel it now, or request a running job to stop."""
        return await self._jobs.cancel(self.id)

    async def retry(self) -> JobChange:
        """Retry it after it failed, died or was cancelled."""
        return await self._jobs.retry(self.id)

    def watch(self) -> AsyncGenerator[JobUpdate, None]:
        """Stream its current state, then each change, until it finishes.

        Changes that arrive faster than they are read are merged.
        """
        return self._jobs.watch(self.id)

    def on_progress(self, callback: Callable[[Progress], object]) -> Callable[[], None]:
        """Call a function with its current progress, and with each change until it finishes.

        Returns a function that unsubscribes. Changes that arrive faster than they are read are
        merged.
        """
        if not callable(callback):
            raise check.wrong_type(callback, "callback", "a function that takes progress")
        return self._follow_progress(callback).unsubscribe

    def _follow_progress(self, callback: Callable[[Progress], object]) -> AsyncSubscription:
        async def follow(subscription: AsyncSubscription) -> None:
            last = Progress(percent=0)
            async for update in self.watch():
                if update.progress != last:
                    last = update.progress
                    await call(callback, last)
                if not subscription.is_active:
                    return

        return AsyncSubscription(self._backend, follow)

    async def _check_ours(self) -> None:
        if not self._is_ours:
            await self._jobs.get(self.id)
            self._is_ours = True

    async def _state(self) -> JobState:
        await self._check_ours()
        store = await self._backend.store()
        return self._found((await store.queries.job_states([self.id])).get(self.id))

    async def _last_look(self) -> JobState | None:
        """The current state, or None if the store is slow: the caller's timeout has passed."""
        try:
            async with asyncio.timeout(LAST_LOOK_SECONDS):
                return await self._state()
        except TimeoutError:
            return None

    def _found(self, state: JobState | None) -> JobState:
        if state is None:
            raise JobNotFound(job_id=self.id)
        return state

    def _outcome(self, state: JobState) -> R_co:
        if (error := job_error(state)) is not None:
            raise error
        return cast(R_co, job_result(state.output or b"", self._backend.codec, self._task))


class AsyncRunHandle(Generic[O_co]):
    """A handle on a run. ``is_new`` is False if a run with this id already existed."""

    __slots__ = ("_backend", "_flow", "_runs", "id", "is_new")

    def __init__(
        self,
        backend: Backend,
        id: RunId,
        flow: BuiltFlow[Any, O_co] | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        self._backend = backend
        self._runs = Runs(backend)
        self._flow = flow
        self.id = id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def result(self, timeout: Duration | None = None) -> O_co:
        """Wait until the run has ended, and return its result in the type its last task declares.

        Raises ``RunFailed`` or ``RunCancelled`` if it ended without one, and ``RunTimeout`` after
        ``timeout``. A handle without a flow returns plain values.
        """
        seconds = None if timeout is None else check.span(timeout, "timeout").total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._outcome(await self._ended())
        except TimeoutError:
            if seconds is None:
                raise
        last = await self._last_look()
        if last is not None and last.status in ENDED:
            return await self._outcome(last)
        status = NOT_RESPONDING if last is None else last.status
        raise RunTimeout(run_id=self.id, timeout=seconds, status=status)

    async def status(self) -> RunStatus:
        return (await self._backend.find_run(self.id)).status

    async def record(self) -> RunRecord:
        """Return the run without its events: flow, version, status, times and reason."""
        return run_record(await self._backend.find_run(self.id))

    async def detail(self) -> RunDetail:
        """Return the run with its events, nodes, child runs and result."""
        return await self._runs.get(self.id)

    async def events(self) -> list[EventRecord]:
        """Return all its events, in order."""
        return list((await self.detail()).events)

    async def outputs(self) -> dict[str, Any]:
        """Return the outputs of its completed nodes in the order of the flow, as plain values."""
        return (await self.detail()).outputs

    async def nodes(self) -> list[NodeRecord]:
        """Return every node of its flow with its status and output."""
        return list((await self.detail()).nodes)

    async def children(self) -> list[ChildRun]:
        """Return its child runs; for a retried node, only the latest."""
        return list((await self.detail()).children)

    async def approvals(self) -> list[ApprovalRecord]:
        """Return its open approvals."""
        return list(await Approvals(self._backend).list(run=self.id, limit=PAGE_MAX))

    async def lineage(self) -> Lineage:
        """Return which upstream values each of its nodes used."""
        return await self._runs.lineage(self.id)

    async def diagram(self) -> Diagram:
        """Return its graph with the status of each node, ready to render."""
        return await self._runs.diagram(self.id)

    async def timeline(self) -> Timeline:
        """Return when each node was queued or running and when it waited, up to now."""
        return await self._runs.timeline(self.id)

    async def explain(self) -> Explanation:
        """Explain its current state, and suggest what would help."""
        return await self._runs.explain(self.id)

    def watch(self) -> AsyncGenerator[EventRecord, None]:
        """Stream its events from the first one until it ends.

        Raises ``RunNotFound`` if it is pruned, or replaced by another run.
        """
        return self._runs.watch(self.id)

    def observe(self) -> AsyncGenerator[RunSnapshot, None]:
        """Stream snapshots of its state, jobs, workers and waits until it ends.

        The first comes immediately, others after events and, for task progress, in between. Each
        has the events since the previous one.
        """
        return self._runs.observe(self.id)

    def signal(
        self, name: str, payload: Any = None, *, by: str | None = None
    ) -> Coroutine[Any, Any, RunChange]:
        """Send it a signal, stored until a node receives it."""
        return self._runs.signal(self.id, name, payload, by=by)

    async def pause(self, *, reason: str | None = None, by: str | None = None) -> RunChange:
        """Pause it until it is resumed; running jobs are requeued."""
        return await self._runs.pause(self.id, reason=reason, by=by)

    async def resume(self, *, by: str | None = None) -> RunChange:
        """Resume it after a pause."""
        return await self._runs.resume(self.id, by=by)

    async def cancel(
        self, *, reason: str | None = None, by: str | None = None, compensate: bool = False
    ) -> RunChange:
        """Cancel it and its child runs; with ``compensate``, after undoing what it completed."""
        return await self._runs.cancel(self.id, reason=reason, by=by, compensate=compensate)

    async def retry(self, *, by: str | None = None) -> RunChange:
        """Retry it from the nodes that did not complete."""
        return await self._runs.retry(self.id, by=by)

    async def fork(
        self,
        *,
        after: int | str | None = None,
        patch: Mapping[str, Any] | None = None,
        new_id: str | None = None,
        by: str | None = None,
    ) -> AsyncRunHandle[O_co]:
        """Start a new run from its history up to a point, and return a handle on it."""
        started = await self._runs.fork(self.id, after=after, patch=patch, new_id=new_id, by=by)
        return self._forked(started)

    def _forked(self, started: RunStarted) -> AsyncRunHandle[O_co]:
        return AsyncRunHandle(self._backend, started.id, self._flow, is_new=started.is_new)

    async def migrate(self, *, to: AnyFlow, by: str | None = None) -> RunChange:
        """Continue it in another version of its flow."""
        return await self._runs.migrate(self.id, to=to, by=by)

    async def _ended(self) -> Run:
        key = (await self._backend.namespace_of(self.id), self.id)
        with self._backend.run_waits.watch(key) as watch:
            while True:
                run = await watch.next()
                if run is None:
                    raise RunNotFound(run_id=self.id)
                if run.status in ENDED:
                    return run

    async def _outcome(self, run: Run) -> O_co:
        if (error := run_error(run)) is not None:
            raise error
        store = await self._backend.store()
        return cast(O_co, await run_result(store, run, self._backend.codec, self._flow))

    async def _last_look(self) -> Run | None:
        """The current run, or None if the store is slow: the caller's timeout has passed."""
        try:
            async with asyncio.timeout(LAST_LOOK_SECONDS):
                return await self._backend.find_run(self.id)
        except TimeoutError:
            return None
