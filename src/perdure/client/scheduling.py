"""From what is asked of a schedule to what is stored: all is checked before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast, get_args

from msgspec.structs import replace

from perdure.client.access import Access
from perdure.client.enqueueing import AnyTask, Enqueueing, checked_kwargs
from perdure.client.run_ids import new_run_id
from perdure.client.submitting import AnyFlow, Submitting
from perdure.diagnostics import declare, near
from perdure.engine.schedule import check_timetable, tick_run_id
from perdure.errors import InvalidInput
from perdure.flows.built import BuiltFlow
from perdure.model import check
from perdure.model.ids import JobId
from perdure.model.schedule import (
    CatchUp,
    FlowCall,
    Overlap,
    ScheduleDefinition,
    TaskCall,
    Timetable,
)
from perdure.model.times import LATEST, Duration
from perdure.model.value import Value
from perdure.tasks.options import check_option_names
from perdure.tasks.task import Task

AnyTarget = AnyFlow | AnyTask
JOB_OPTIONS = ("queue", "priority", "retries", "timeout", "tags")
"""Options of a task that the jobs of each tick can have."""

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
    "schedule.job_option", "the jobs of a schedule do not take {options:or}[; they take {known:or}]"
)
FLOW_OPTION = declare(
    "schedule.flow_option", "task {task!r} does not take 'input'", "Pass `args` or `kwargs`"
)


class ScheduleOptions(TypedDict, total=False):
    """When a schedule ticks, what it starts then, and what it does about others."""

    cron: str | None
    every: Duration | None
    timezone: str
    input: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    overlap: Overlap
    catch_up: CatchUp
    start_at: datetime | None
    end_at: datetime | None
    paused: bool


class ScheduleRequest(Value):
    """A schedule that may be written: everything about it was checked."""

    name: str
    definition: ScheduleDefinition
    flow: BuiltFlow | None
    """Whose definition has to be stored with it."""
    paused: bool


class Scheduling:
    """The part of a client that says what schedules are."""

    def __init__(self, access: Access, submitting: Submitting, enqueueing: Enqueueing) -> None:
        self._access = access
        self._submitting = submitting
        self._enqueueing = enqueueing

    def prepared(self, name: str, target: AnyTarget, given: Mapping[str, Any]) -> ScheduleRequest:
        self._access.own("schedules.save")
        check_option_names(given, ScheduleOptions)
        options = cast(ScheduleOptions, given)
        checked = _schedule_name(name)
        timetable = _timetable(options)
        meant = self._meant(target)
        call: FlowCall | TaskCall
        if isinstance(meant, BuiltFlow):
            call = self._flow_call(meant, options)
        else:
            call = self._task_call(meant, options)
        return ScheduleRequest(
            name=checked,
            definition=ScheduleDefinition(
                timetable=timetable,
                call=call,
                overlap=check.choice(options.get("overlap", "skip"), "overlap", get_args(Overlap)),
                catch_up=check.choice(
                    options.get("catch_up", "one"), "catch_up", get_args(CatchUp)
                ),
            ),
            flow=meant if isinstance(meant, BuiltFlow) else None,
            paused=check.flag(options.get("paused", False), "paused"),
        )

    def _meant(self, target: AnyTarget) -> BuiltFlow | Task[..., Any]:
        """The flow or task: passing it is enough, a name needs it to be known here."""
        if isinstance(target, Task):
            return self._enqueueing.task_named(target)
        if not isinstance(target, str):
            return self._submitting.flow_named(target)
        flows, tasks = self._submitting.flow_names, self._enqueueing.task_names
        if target in flows and target in tasks:
            raise InvalidInput(AMBIGUOUS_TARGET.fault(("target",), name=target))
        if target in flows:
            return self._submitting.flow_named(target)
        if target in tasks:
            return self._enqueueing.task_named(target)
        nearest = near(target, [*flows, *tasks])
        raise InvalidInput(UNKNOWN_TARGET.fault(("target",), name=target, nearest=nearest))

    def _flow_call(self, flow: BuiltFlow, options: ScheduleOptions) -> FlowCall:
        given = [name for name in ("args", "kwargs") if options.get(name)]
        if given:
            raise InvalidInput(TASK_OPTIONS.fault(flow=flow.name, options=tuple(given)))
        submission = self._submitting.prepared(flow, options.get("input"), None, None)
        return FlowCall(
            flow=flow.name,
            version=flow.version,
            input=self._access.codec.encode(submission.input),
            aging_ms=self._submitting.aging_ms,
        )

    def _task_call(self, task: Task[..., Any], options: ScheduleOptions) -> TaskCall:
        if options.get("input") is not None:
            raise InvalidInput(FLOW_OPTION.fault(("input",), task=task.name))
        args = check.listed(options.get("args", ()), "args", "arguments")
        keywords = checked_kwargs(options.get("kwargs"))
        if refused := tuple(name for name in task.given if name not in JOB_OPTIONS):
            raise InvalidInput(JOB_OPTION.fault(options=refused, known=JOB_OPTIONS))
        calls = self._enqueueing.one_call(task, tuple(args), keywords)
        [job] = calls.jobs
        return TaskCall(job=replace(job, id=JobId("")))


def _timetable(options: ScheduleOptions) -> Timetable:
    cron: Any = options.get("cron")
    if cron is not None and (not isinstance(cron, str) or not cron.strip()):
        raise check.wrong_type(cron, "cron", 'a cron expression such as "0 3 * * *"')
    span = check.optional(check.span, options.get("every"), "every", is_positive=True)
    zone: Any = options.get("timezone", "UTC")
    check.instance(zone, "timezone", str, 'a name such as "Europe/Berlin" or "UTC"')
    timetable = Timetable(
        cron="" if cron is None else " ".join(cron.split()),
        every_ms=0 if span is None else max(1, round(span / timedelta(milliseconds=1))),
        timezone=zone,
        start_at=check.optional(check.moment, options.get("start_at"), "start_at"),
        end_at=check.optional(check.moment, options.get("end_at"), "end_at"),
    )
    check_timetable(timetable)
    return timetable


def _schedule_name(name: Any) -> str:
    """A name from which the ids of its runs can be made."""
    checked = check.name(name, "schedule")
    new_run_id(tick_run_id(checked, LATEST + timedelta(microseconds=1)))
    return checked
