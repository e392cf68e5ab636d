"""Operations on schedules. Workers process their ticks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast, get_args

from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare, near
from perdure.engine.schedule import (
    changed_state,
    manual_run_id,
    new_state,
    paused,
    resumed,
    tick_run_id,
    triggered,
)
from perdure.engine.ticks import ScheduleTicker, Start, renewed
from perdure.engine.timetable import check_timetable
from perdure.errors import (
    InvalidInput,
    ScheduleAlreadyPaused,
    ScheduleNotFound,
    ScheduleNotPaused,
    ScheduleUnreadable,
)
from perdure.flows.built import BuiltFlow
from perdure.flows.settings import RunOptions
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.schedule import (
    CatchUp,
    FlowCall,
    Overlap,
    Schedule,
    ScheduleCommit,
    ScheduleCommitState,
    ScheduleDefinition,
    ScheduleState,
    TaskCall,
    Timetable,
    UnreadableSchedule,
)
from perdure.model.times import LATEST, Duration
from perdure.model.value import Value
from perdure.operations.backend import AnyFlow, AnyTask
from perdure.operations.jobs import checked_args, checked_kwargs, prepare_call, with_options
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import Page, page_of_all
from perdure.operations.records import ScheduleRecord, ScheduleStarted, schedule_record
from perdure.operations.submit import Submission, new_run, new_run_id, prepare_submission
from perdure.store.contract import Store
from perdure.tasks.options import CallOptions
from perdure.tasks.task import Task

AnyTarget = AnyFlow | AnyTask

JOB_OPTIONS = ("queue", "priority", "retries", "timeout", "tags")
"""Task options that a schedule may set."""
RUN_OPTIONS = (
    "priority",
    "delay",
    "queue",
    "tags",
    "timeout",
    "timeout_counts_waiting",
    "max_attempts",
    "max_running",
    "sticky",
)
"""Options of runs that a schedule may set: none that names one moment."""
UNIQUE_LENGTH = 12
"""Length of the random suffix of a manually triggered run or job."""

AMBIGUOUS_TARGET = declare(
    "schedule.ambiguous_target",
    "{name!r} is both a flow and a task here",
    "Pass the flow or the task instead of its name",
)
UNKNOWN_TARGET = declare(
    "schedule.unknown_target",
    "unknown flow or task {name!r}[; did you mean {nearest:or}?]",
    "Pass it instead of its name, or add it to the client's `flows` or `tasks`",
)
TASK_OPTIONS = declare(
    "schedule.task_options", "flow {flow!r} does not take {options:or}", "Pass `input`"
)
JOB_OPTION = declare(
    "schedule.job_option", "a schedule does not take {options:or}[; it takes {known:or}]"
)
FLOW_OPTION = declare(
    "schedule.flow_option", "task {task!r} does not take 'input'", "Pass `args` or `kwargs`"
)


class ScheduleRequest(Value):
    """A schedule that passed all checks."""

    name: str
    definition: ScheduleDefinition
    submission: Submission | None
    """Of a flow, whose definition is stored with the schedule."""
    paused: bool


class Schedules(Group):
    """Operations on schedules."""

    @operation("schedules.save", role=Role.OPERATOR, writes=True, one_namespace=True)
    def save(
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
        options: CallOptions | RunOptions | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "one",
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        paused: bool = False,
    ) -> Coroutine[Any, Any, ScheduleRecord]:
        """Start a flow or a task on a schedule.

        By ``cron`` in a time zone, or at the interval ``every``. A flow gets ``input``, a task
        ``args`` and ``kwargs``. ``options`` of a task are ``queue``, ``priority``, ``retries``,
        ``timeout`` and ``tags``; of a flow those of ``runs.submit``, except ``run_at`` and
        ``deadline``. ``overlap`` controls a tick that comes due while the previous
        one is still running: it is skipped, it waits ("queue"), or it replaces the other
        ("cancel"). ``catch_up`` controls ticks missed while no worker was running: the latest
        one starts ("one"), all of them, or none.

        An existing schedule of this name is updated. It keeps its history, its next tick if its
        times are unchanged, and its pause, which ``schedules.resume`` ends.
        """
        checked = check.name(name, "schedule")
        new_run_id(tick_run_id(checked, LATEST + timedelta(microseconds=1)))
        timetable = _timetable(cron, every, timezone, start_at, end_at)
        meant = self._target(target)
        call: FlowCall | TaskCall
        submission: Submission | None = None
        if isinstance(meant, BuiltFlow):
            given = {"args": args, "kwargs": kwargs}
            if unusable := tuple(each for each, value in given.items() if value):
                raise InvalidInput(TASK_OPTIONS.fault(flow=meant.name, options=unusable))
            of_run = check.optional(check.mapping, options, "options", "options to values") or {}
            if refused := tuple(each for each in of_run if each in ("run_at", "deadline")):
                raise InvalidInput(JOB_OPTION.fault(options=refused, known=RUN_OPTIONS))
            submission = prepare_submission(self._backend, meant, input, options=of_run)
            call = FlowCall(
                flow=meant.name,
                version=meant.version,
                input=self._backend.codec.encode(submission.input),
                aging_ms=round(self._backend.aging / timedelta(milliseconds=1)),
                settings=submission.settings,
            )
        else:
            if input is not None:
                raise InvalidInput(FLOW_OPTION.fault(("input",), task=meant.name))
            meant = with_options(self._backend, meant, cast("CallOptions | None", options))
            if refused := tuple(each for each in meant.given if each not in JOB_OPTIONS):
                raise InvalidInput(JOB_OPTION.fault(options=refused, known=JOB_OPTIONS))
            made = prepare_call(self._backend, meant, checked_args(args), checked_kwargs(kwargs))
            [job] = made.jobs
            call = TaskCall(job=replace(job, id=JobId("")))
        request = ScheduleRequest(
            name=checked,
            definition=ScheduleDefinition(
                timetable=timetable,
                call=call,
                overlap=check.choice(overlap, "overlap", get_args(Overlap)),
                catch_up=check.choice(catch_up, "catch_up", get_args(CatchUp)),
            ),
            submission=submission,
            paused=check.flag(paused, "paused"),
        )
        return self._save(request)

    def _target(self, target: AnyTarget) -> BuiltFlow | Task[..., Any]:
        """The flow or task; a name must be registered with the client."""
        if isinstance(target, Task):
            return self._backend.task(target)
        if not isinstance(target, str):
            return self._backend.flow(target)
        flows, tasks = self._backend.flows, self._backend.tasks
        if target in flows and target in tasks:
            raise InvalidInput(AMBIGUOUS_TARGET.fault(("target",), name=target))
        if target in flows:
            return self._backend.flow(target)
        if target in tasks:
            return self._backend.task(target)
        nearest = near(target, [*flows, *tasks])
        raise InvalidInput(UNKNOWN_TARGET.fault(("target",), name=target, nearest=nearest))

    async def _save(self, request: ScheduleRequest) -> ScheduleRecord:
        if request.submission is not None:
            await new_run(self._backend, request.submission)  # refuses what no tick could start
        namespace, store = self._backend.namespace, await self._backend.store()
        if request.submission is not None:
            graphs = request.submission.flow.graphs
            await self._backend.graphs.save(store, namespace, graphs, again=True)
        while True:
            before = await _find(store, namespace, request.name)
            # Read only now: a time read before an outage would make past ticks due again.
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

    @operation("schedules.list", role=Role.VIEWER)
    async def list(
        self, *, limit: int = 1_000, cursor: str | None = None
    ) -> Page[ScheduleRecord | UnreadableSchedule]:
        """List schedules by name.

        Schedules that only a newer version can read are marked as unreadable.
        """
        store = await self._backend.store()
        found = [
            each if isinstance(each, UnreadableSchedule) else schedule_record(each)
            for each in await store.schedules.list(self._backend.visible)
        ]
        return page_of_all(
            "schedules.list", found, limit, cursor, lambda each: (each.namespace, each.name)
        )

    @operation("schedules.get", role=Role.VIEWER, one_namespace=True)
    async def get(self, name: str) -> ScheduleRecord:
        """Get a schedule with its recent ticks."""
        return schedule_record(await self._named(name))

    @operation("schedules.pause", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def pause(self, name: str, *, by: str | None = None) -> ScheduleRecord:
        """Pause a schedule until it is resumed."""
        who = check.optional(check.person, by, "by")

        def pause(before: Schedule, now: datetime) -> ScheduleState:
            if before.state.paused_at is None:
                return paused(before.state, now, who)
            at, holder = before.state.paused_at, before.state.paused_by
            raise ScheduleAlreadyPaused(name=before.name, paused_at=at, paused_by=holder)

        return await self._change(name, pause)

    @operation("schedules.resume", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def resume(self, name: str) -> ScheduleRecord:
        """Resume a paused schedule at its next tick.

        Ticks during the pause are not caught up.
        """

        def resume(before: Schedule, now: datetime) -> ScheduleState:
            if before.state.paused_at is None:
                raise ScheduleNotPaused(name=before.name)
            return resumed(before.definition, before.state, now)

        return await self._change(name, resume)

    @operation("schedules.trigger", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def trigger(self, name: str, *, by: str | None = None) -> ScheduleStarted:
        """Start the run or job of a schedule now.

        Ignores its times, its overlap policy and a pause.
        """
        who = check.optional(check.person, by, "by")
        reason = "triggered" if who is None else f"triggered by {who}"
        store = await self._backend.store()
        ticking = ScheduleTicker(await self._backend.engine())
        while True:
            before = await self._named(name)
            id = manual_run_id(before.name, clock.new_id()[-UNIQUE_LENGTH:])
            start = await ticking.start(before, id)
            commit = _triggering(before, start, await store.now(), reason)
            answer = await store.schedules.commit(commit)
            if answer.state is ScheduleCommitState.DONE:
                return ScheduleStarted(
                    run=None if start.run is None else start.run.id,
                    job=None if start.job is None else start.job.id,
                )

    @operation("schedules.delete", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def delete(self, name: str) -> None:
        """Delete a schedule.

        Runs and jobs that it started continue.
        """
        store = await self._backend.store()
        namespace = self._backend.namespace
        if not await store.schedules.delete(namespace, check.stored_name(name, "schedule")):
            raise await _not_found(store, namespace, name)

    async def _change(
        self, name: str, change: Callable[[Schedule, datetime], ScheduleState]
    ) -> ScheduleRecord:
        store = await self._backend.store()
        while True:
            before = await self._named(name)
            state = change(before, await store.now())
            after = renewed(replace(before, state=state))
            commit = ScheduleCommit(schedule=after, expected=before.revision)
            answer = await store.schedules.commit(commit)
            if answer.state is ScheduleCommitState.DONE:
                return schedule_record(after)

    async def _named(self, name: str) -> Schedule:
        store, namespace = await self._backend.store(), self._backend.namespace
        found = await _find(store, namespace, check.stored_name(name, "schedule"))
        if found is None:
            raise await _not_found(store, namespace, name)
        return found


def _requested(
    namespace: str, request: ScheduleRequest, before: Schedule | None, now: datetime
) -> Schedule:
    """The requested schedule with the history of the existing one."""
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


async def _not_found(store: Store, namespace: str, name: str) -> ScheduleNotFound:
    known = [each.name for each in await store.schedules.list(namespace)]
    return ScheduleNotFound(name=name, nearest=near(name, known))


def _timetable(cron: Any, every: Any, timezone: Any, start_at: Any, end_at: Any) -> Timetable:
    if cron is not None and (not isinstance(cron, str) or not cron.strip()):
        raise check.wrong_type(cron, "cron", 'a cron expression such as "0 3 * * *"')
    span = check.optional(check.span, every, "every", is_positive=True)
    check.instance(timezone, "timezone", str, 'a name such as "Europe/Berlin" or "UTC"')
    timetable = Timetable(
        cron="" if cron is None else " ".join(cron.split()),
        every_ms=0 if span is None else max(1, round(span / timedelta(milliseconds=1))),
        timezone=timezone,
        start_at=check.optional(check.moment, start_at, "start_at"),
        end_at=check.optional(check.moment, end_at, "end_at"),
    )
    check_timetable(timetable)
    return timetable
