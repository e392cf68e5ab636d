"""``ScheduleTicker``: start the run or job of a due tick and write it together with the tick."""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from perdure import clock
from perdure.diagnostics import declare
from perdure.engine.failures import describe
from perdure.engine.plan import PlanContext, start_run
from perdure.engine.runs import RunEngine
from perdure.engine.schedule import TickStep, cancelled, ended, next_step, tick_run_id
from perdure.errors import InvalidInput, RunEnded, RunNotFound, StoreError
from perdure.expr.budget import evaluate
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, NewJob
from perdure.model.payload import from_json
from perdure.model.run import ENDED, NewRun, RunStatus
from perdure.model.schedule import (
    FlowCall,
    Schedule,
    ScheduleAnswer,
    ScheduleCommit,
    ScheduleCommitState,
    Started,
    TickRecord,
    TickResult,
)
from perdure.model.trigger import CancelRun
from perdure.model.value import Value
from perdure.store.lifecycle import Transition

UNREADABLE_INPUT = declare(
    "schedule.unreadable_input",
    "the input of schedule {schedule!r} cannot be read here: it was stored with another codec",
)

REASON_MAX = 500
"""Characters stored of the reason why a tick started nothing."""
_log = logging.getLogger("perdure.schedule")


class Start(Value):
    """What a tick starts: a run or a job."""

    run: NewRun | None = None
    job: NewJob | None = None

    def record(self, at: datetime, reason: str = "") -> TickRecord:
        return TickRecord(
            at=at,
            result=TickResult.STARTED,
            run=None if self.run is None else self.run.id,
            job=None if self.job is None else self.job.id,
            reason=reason,
        )

    def if_skipped(self, at: datetime) -> TickRecord:
        assert self.run is not None
        reason = f"flow {self.run.flow!r} is cooling down"
        return TickRecord(at=at, result=TickResult.SKIPPED, run=self.run.id, reason=reason)


class ScheduleTicker:
    """Advances schedules step by step. Several workers may do so concurrently."""

    def __init__(self, runs: RunEngine) -> None:
        self._runs = runs
        self._store = runs.store

    async def advance(self, schedule: Schedule, now: datetime) -> Schedule | None:
        """Perform the next due step and return the schedule after it.

        None if nothing is due any more, or if another worker was faster.
        """
        if schedule.state.replaced is not None:
            await self._cancel(schedule, schedule.state.replaced)
            return await self._write(cancelled(schedule, now), schedule)
        step = next_step(schedule, now, await self._is_busy(schedule))
        if step is None:
            return None
        if step.start is None:
            return await self._write(step.schedule, schedule)
        try:
            start = await self.start(schedule, tick_run_id(schedule.name, step.start))
        except StoreError:
            raise
        except Exception as error:
            return await self._failed(step, schedule, describe(error).message)
        return await self._commit_start(step, schedule, start)

    async def start(self, schedule: Schedule, id: RunId) -> Start:
        """Prepare the job or run (with this id) of a tick; raises if it cannot be started."""
        call = schedule.definition.call
        if not isinstance(call, FlowCall):
            return Start(job=replace(call.job, id=JobId(clock.new_id())))
        namespace, input = schedule.namespace, self._runs.codec.decode(call.input)
        try:
            from_json(input)
        except (ValueError, UnicodeDecodeError):
            raise InvalidInput(UNREADABLE_INPUT.fault(("input",), schedule=schedule.name)) from None
        graph = await self._runs.graphs.load(self._store, namespace, f"{call.flow}@{call.version}")
        context = PlanContext(namespace, self._runs.graphs.known, self._runs.codec)
        start = partial(start_run, context, id, graph, input, aging_ms=call.aging_ms)
        return Start(run=await evaluate(partial(start, settings=call.settings)))

    async def _commit_start(
        self, step: TickStep, before: Schedule, start: Start
    ) -> Schedule | None:
        assert step.start is not None
        after = renewed(ended(step, start.record(step.start)))
        if_skipped = None
        if start.run is not None:
            skipped = ended(step, start.if_skipped(step.start))
            if_skipped = replace(skipped, revision=after.revision)
        answer = await self._store.schedules.commit(
            ScheduleCommit(
                schedule=after,
                expected=before.revision,
                run=start.run,
                job=start.job,
                if_skipped=if_skipped,
            )
        )
        if answer.state is ScheduleCommitState.TAKEN:
            assert start.run is not None
            return await self._failed(step, before, f"run {start.run.id!r} exists already")
        if answer.state is ScheduleCommitState.CONFLICT:
            return None
        return if_skipped if is_skipped(answer) else after

    async def _failed(self, step: TickStep, before: Schedule, reason: str) -> Schedule | None:
        """Record that a tick could not be started, and advance to the next one."""
        assert step.start is not None
        fields = {"schedule": before.name, "reason": reason}
        _log.error("starting a tick failed", extra={"fields": fields})
        record = TickRecord(at=step.start, result=TickResult.FAILED, reason=reason[:REASON_MAX])
        return await self._write(ended(step, record), before)

    async def _write(self, after: Schedule, before: Schedule) -> Schedule | None:
        written = renewed(after)
        answer = await self._store.schedules.commit(
            ScheduleCommit(schedule=written, expected=before.revision)
        )
        return written if answer.state is ScheduleCommitState.DONE else None

    async def _is_busy(self, schedule: Schedule) -> bool:
        """Whether the run or job of its last tick is unfinished."""
        state = schedule.state
        if state.last_run is not None:
            [run] = await self._store.queries.get_runs([(schedule.namespace, state.last_run)])
            return run is not None and run.status not in ENDED
        if state.last_job is not None:
            jobs = await self._store.queries.job_states([state.last_job])
            job = jobs.get(state.last_job)
            return job is not None and job.status not in FINISHED
        return False

    async def _cancel(self, schedule: Schedule, replaced: Started) -> None:
        """Cancel the replaced run or job. Idempotent: a crash before the write repeats it."""
        if replaced.run is not None:
            asked = CancelRun(reason=f"schedule {schedule.name!r} starts the next one")
            with suppress(RunEnded, RunNotFound):  # it ended first
                # Its child runs are cancelled by the worker that processes its waits.
                await self._runs.apply(schedule.namespace, replaced.run, asked)
        elif replaced.job is not None:
            await self._store.admin.change_jobs(
                Transition.ABORT, schedule.namespace, [replaced.job]
            )


def renewed(schedule: Schedule) -> Schedule:
    """The schedule with a new revision; each write needs one."""
    return replace(schedule, revision=random.getrandbits(62))


def is_skipped(answer: ScheduleAnswer) -> bool:
    submitted = answer.submitted
    return submitted is not None and submitted.run.status is RunStatus.SKIPPED
