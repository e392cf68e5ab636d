"""A handle on one job: wait for its result, watch it, stop it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from perdure.client.access import Access
from perdure.client.explaining import explained_job
from perdure.client.records import AbortOutcome, JobRecord, JobUpdate, update_of
from perdure.client.results import decoded_result, ended_badly
from perdure.errors import JobNotFound, ResultTimeout
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, FailedAttempt, JobState, Progress, Status, StatusChange
from perdure.model.times import Duration
from perdure.operations.insight.explain import Explanation
from perdure.tasks.task import Task

if TYPE_CHECKING:
    from perdure.client.client import AsyncClient

R_co = TypeVar("R_co", covariant=True)

ENDED = FINISHED | {Status.DISABLED}
"""There is nothing more to wait for, unless somebody intervenes."""

LAST_LOOK_SECONDS = 1.0
"""What a wait that timed out allows for one more read, which may find the result after all."""


class AsyncJobHandle(Generic[R_co]):
    """One job, as an :class:`AsyncClient` knows it. ``is_new`` is False when enqueueing found a
    live job of the same fingerprint and returned that."""

    __slots__ = ("_access", "_client", "_is_ours", "_task", "id", "is_new")

    def __init__(
        self,
        client: AsyncClient,
        access: Access,
        id: JobId,
        task: Task[..., R_co] | None = None,
        *,
        is_new: bool = False,
        is_ours: bool = False,
    ) -> None:
        self._client = client
        self._access = access
        self._task = task
        # An id that was given from outside may be of another namespace, where we must not look.
        self._is_ours = is_ours
        self.id = id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job is finished; its result, as the task's return annotation says.

        Raises ``JobFailed``, ``JobDead``, ``JobCancelled`` or ``JobDisabled`` if it ended without
        one, carrying what the last attempt left behind, and ``ResultTimeout`` after ``timeout``.
        """
        seconds = None if timeout is None else check.span(timeout, "timeout").total_seconds()
        with self._access.waiting.watch(self.id) as watch:
            try:
                async with asyncio.timeout(seconds):
                    await self._check_ours()
                    while True:
                        state = self._found(await watch.next())
                        if state.status in ENDED:
                            return self._outcome(state)
            except TimeoutError:
                if seconds is None:
                    raise
        last = await self._last_look() or (watch.latest if self._is_ours else None)
        if last is not None and last.status in ENDED:
            return self._outcome(last)
        status = "unknown, for the store does not answer" if last is None else last.status
        raise ResultTimeout(job_id=self.id, timeout=seconds, status=status)

    async def status(self) -> Status:
        return (await self._state()).status

    async def progress(self) -> Progress:
        return (await self._state()).progress

    async def record(self) -> JobRecord:
        """Everything the store knows of it."""
        return await self._client.job(self.id)

    async def failures(self) -> list[FailedAttempt]:
        """What its failed attempts left behind, oldest first."""
        return await self._client.failures(self.id)

    async def explain(self) -> Explanation:
        """Why it is where it is, and what would help."""
        return await explained_job(self._client._acts, self.id)

    async def abort(self) -> AbortOutcome:
        """Stop it: cancelled at once, or told to stop if it is running."""
        return await self._client.abort(self.id)

    async def retry(self) -> StatusChange:
        """Start it anew after it failed, died or was cancelled."""
        return await self._client._retry_job(self.id)

    async def watch(self) -> AsyncGenerator[JobUpdate, None]:
        """Its state now and after each change of status or progress; ends after the final one.

        Changes that follow each other faster than they are taken are told as one.
        """
        await self._check_ours()
        last: JobUpdate | None = None
        with self._access.waiting.watch(self.id, is_close=True) as watch:
            while last is None or not last.is_final:
                update = update_of(self._found(await watch.next()))
                if update != last:
                    last = update
                    yield update

    async def _check_ours(self) -> None:
        if not self._is_ours:
            await self._client.job(self.id)
            self._is_ours = True

    async def _state(self) -> JobState:
        await self._check_ours()
        store = await self._access.store.opened()
        return self._found((await store.queries.job_states([self.id])).get(self.id))

    async def _last_look(self) -> JobState | None:
        """The state now, unless the store takes its time: who gave a timeout means it."""
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
        if (error := ended_badly(state)) is not None:
            raise error
        return cast(R_co, decoded_result(state.output or b"", self._access.codec, self._task))
