"""The part of a client that is about schedules: make them, read them, and act on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from perdure import clock
from perdure.client.enqueueing import AnyTask, Enqueueing
from perdure.client.handles import AsyncJobHandle
from perdure.client.run_handles import AsyncRunHandle
from perdure.client.runs import AsyncRuns
from perdure.client.schedule_records import ScheduleRecord, schedule_record
from perdure.client.scheduling import AnyTarget, ScheduleOptions, ScheduleRequest, Scheduling
from perdure.diagnostics import near
from perdure.engine.schedule import (
    changed_state,
    manual_run_id,
    new_state,
    paused,
    resumed,
    triggered,
)
from perdure.engine.ticks import ScheduleTicker, Start, renewed
from perdure.errors import ScheduleNotFound, ScheduleUnreadable
from perdure.model import check
from perdure.model.schedule import (
    CatchUp,
    Overlap,
    Schedule,
    ScheduleCommit,
    ScheduleCommitState,
    ScheduleState,
    UnreadableSchedule,
)
from perdure.model.times import Duration
from perdure.store.contract import Store

UNIQUE_LENGTH = 12
"""Characters that tell one manual start from the others."""


class AsyncSchedules(AsyncRuns):
    """What a client does with schedules. Workers see to it that they tick."""

    if TYPE_CHECKING:  # what a client has besides
        _enqueueing: Enqueueing

        def handle(self, id: str, task: AnyTask | None = None) -> AsyncJobHandle[Any]: ...

    async def schedule(
        self,
        name: str,
        target: AnyTarget,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str = "UTC",
        input: Any = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "one",
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        paused: bool = False,
    ) -> ScheduleRecord:
        """Start a flow or a task at certain times: by ``cron`` in a time zone, or ``every``.

        A flow gets ``input``, a task ``args`` and ``kwargs``; a task may have the options
        ``queue``, ``priority``, ``retries``, ``timeout`` and ``tags``.
        ``overlap`` says what becomes of a tick while the last one goes on: it is skipped, it waits
        ("queue"), or it takes its place ("cancel"). ``catch_up`` says what becomes of ticks that no
        worker was there for: the latest of them is started ("one"), each is, or none.

        A schedule of this name is changed to this one. It keeps its past, its next time if its
        times are the same, and its pause, which ``resume_schedule`` ends.
        """
        options: ScheduleOptions = {
            "cron": cron,
            "every": every,
            "timezone": timezone,
            "input": input,
            "args": args,
            "kwargs": kwargs,
            "overlap": overlap,
            "catch_up": catch_up,
            "start_at": start_at,
            "end_at": end_at,
            "paused": paused,
        }
        return await self._save_schedule(self._prepared_schedule(name, target, options))

    async def schedules(self) -> list[ScheduleRecord | UnreadableSchedule]:
        """All schedules, by name. Those that only a newer version can read say so."""
        store, visible = await self._access.store.opened(), self._access.visible
        return [
            each if isinstance(each, UnreadableSchedule) else schedule_record(each)
            for each in await store.schedules.list(visible)
        ]

    async def schedule_record(self, name: str) -> ScheduleRecord:
        """The record of one schedule: its times, and what became of its last ticks."""
        return schedule_record(await self._schedule_named(name, "schedules.get"))

    async def pause_schedule(self, name: str, *, by: str | None = None) -> ScheduleRecord:
        """Let a schedule start nothing until it is resumed. Pausing twice keeps the first."""
        who = check.optional(check.name, by, "by")
        return await self._change_schedule(
            name, "schedules.pause", lambda before, now: paused(before.state, now, who)
        )

    async def resume_schedule(self, name: str) -> ScheduleRecord:
        """Let a paused schedule go on with its next tick; those of the pause are left out."""
        return await self._change_schedule(
            name,
            "schedules.resume",
            lambda before, now: resumed(before.definition, before.state, now),
        )

    async def delete_schedule(self, name: str) -> None:
        """Remove a schedule. What it started goes on."""
        namespace = self._access.own("schedules.delete")
        store = await self._access.store.opened()
        if not await store.schedules.delete(namespace, check.name(name, "schedule")):
            raise await self._no_schedule(namespace, name)

    async def trigger(
        self, name: str, *, by: str | None = None
    ) -> AsyncRunHandle | AsyncJobHandle[Any]:
        """Start what a schedule starts now, whatever its times, and even if it is paused.

        Nothing that goes on is waited for or cancelled.
        """
        who = check.optional(check.name, by, "by")
        reason = "triggered" if who is None else f"triggered by {who}"
        store = await self._access.store.opened()
        ticking = ScheduleTicker(await self._acts.runs())
        while True:
            before = await self._schedule_named(name, "schedules.trigger")
            id = manual_run_id(before.name, clock.new_id()[-UNIQUE_LENGTH:])
            start = await ticking.start(before, id)
            commit = _triggering(before, start, await store.now(), reason)
            answer = await store.schedules.commit(commit)
            if answer.state is ScheduleCommitState.DONE:
                return self._started(start)

    def _prepared_schedule(
        self, name: str, target: AnyTarget, options: Mapping[str, Any]
    ) -> ScheduleRequest:
        scheduling = Scheduling(self._access, self._submitting, self._enqueueing)
        return scheduling.prepared(name, target, options)

    async def _save_schedule(self, request: ScheduleRequest) -> ScheduleRecord:
        namespace = self._access.own("schedules.save")
        store = await self._access.store.opened()
        if request.flow is not None:
            await self._acts.graphs.save(store, namespace, request.flow.graphs)
        while True:
            before = await _find(store, namespace, request.name)
            # Not asked before: a time from before an outage would make ticks due that have been.
            now = await store.now()
            after = _requested(namespace, request, before, now)
            if before is not None and after == before:
                return schedule_record(before)
            commit = ScheduleCommit(
                schedule=renewed(after), expected=None if before is None else before.revision
            )
            answer = await store.schedules.commit(commit)
            if answer.state is ScheduleCommitState.DONE:
                return schedule_record(commit.schedule)

    async def _change_schedule(
        self, name: str, operation: str, change: Callable[[Schedule, datetime], ScheduleState]
    ) -> ScheduleRecord:
        store = await self._access.store.opened()
        while True:
            before = await self._schedule_named(name, operation)
            state = change(before, await store.now())
            if state == before.state:
                return schedule_record(before)
            after = renewed(replace(before, state=state))
            commit = ScheduleCommit(schedule=after, expected=before.revision)
            answer = await store.schedules.commit(commit)
            if answer.state is ScheduleCommitState.DONE:
                return schedule_record(after)

    async def _schedule_named(self, name: str, operation: str) -> Schedule:
        namespace = self._access.own(operation)
        store = await self._access.store.opened()
        found = await _find(store, namespace, check.name(name, "schedule"))
        if found is None:
            raise await self._no_schedule(namespace, name)
        return found

    async def _no_schedule(self, namespace: str, name: str) -> ScheduleNotFound:
        store = await self._access.store.opened()
        known = [each.name for each in await store.schedules.list(namespace)]
        return ScheduleNotFound(name=name, nearest=near(name, known))

    def _started(self, start: Start) -> AsyncRunHandle | AsyncJobHandle[Any]:
        if start.run is not None:
            return AsyncRunHandle(self, self._access, start.run.id, is_new=True)
        assert start.job is not None
        return self.handle(start.job.id)


def _requested(
    namespace: str, request: ScheduleRequest, before: Schedule | None, now: datetime
) -> Schedule:
    """The schedule as it is asked for, with the past that it has."""
    definition = request.definition
    if before is None:
        state = new_state(definition, now)
    else:
        state = changed_state(before, definition, now)
    if request.paused:
        state = paused(state, now, None)
    return Schedule(
        namespace=namespace,
        name=request.name,
        revision=0 if before is None else before.revision,
        definition=definition,
        state=state,
    )


def _triggering(before: Schedule, start: Start, now: datetime, reason: str) -> ScheduleCommit:
    after = renewed(triggered(before, start.record(now, reason)))
    if_skipped = None
    if start.run is not None:
        skipped = triggered(before, start.if_skipped(now))
        if_skipped = replace(skipped, revision=after.revision)
    return ScheduleCommit(
        schedule=after,
        expected=before.revision,
        run=start.run,
        job=start.job,
        if_skipped=if_skipped,
    )


async def _find(store: Store, namespace: str, name: str) -> Schedule | None:
    for found in await store.schedules.list(namespace, name):
        if isinstance(found, UnreadableSchedule):
            raise ScheduleUnreadable(name=name, reason=found.reason)
        return found
    return None
