"""What a backend does with a call that it tries again, not knowing whether the first try counted.

As the PostgreSQL backend does: by ids and tokens where the call has them, by looking for what the
first try wrote where it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from perdure.model.job import HELD, Claimed, Status
from perdure.model.outcome import Settlement
from perdure.model.run import NewRun, Submitted
from perdure.model.schedule import ScheduleAnswer, ScheduleCommit, ScheduleCommitState
from perdure.store.memory.state import State

Again = Callable[[], Any]


def repeated(state: State, name: str, args: tuple[Any, ...], first: Any, again: Again) -> Any:
    """The answer to a repeated call; ``first`` is the answer that was lost, if there was one."""
    if name == "runs.submit" and isinstance(first, Submitted) and first.is_new:
        found = _still_there(state, args[0], first)
        if found is not None:
            return found
    if name == "schedules.commit" and isinstance(first, ScheduleAnswer):
        written = _written(state, args[0], first)
        if written is not None:
            return written
    answer = again()
    if isinstance(answer, Claimed):
        return replace(answer, is_repeated=True)
    if name == "jobs.settle" and isinstance(answer, list):
        return [
            _settled_already(state, settlement) if status is None else status
            for settlement, status in zip(args[0], answer, strict=True)
        ]
    return answer


def is_undone_without_caller(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a try cannot count once the next one was answered.

    To put a run in the place of another takes several statements under locks that the next try
    waits for: whichever of them comes late, the last one of all was never sent.
    """
    return name == "runs.submit" and args[0].on_existing == "terminate_existing"


def _settled_already(state: State, settlement: Settlement) -> Status | None:
    """A job with our epoch that nobody holds was settled by us: who takes it away raises it."""
    job = state.jobs.get(settlement.claim.id)
    if job is None or job.epoch != settlement.claim.epoch or job.status in HELD:
        return None
    return job.status


def _still_there(state: State, new: NewRun, first: Submitted) -> Submitted | None:
    run = state.records.runs.get((new.namespace, new.id))
    if run is None or run.created_at != first.run.created_at:
        return None
    return Submitted(run=run.as_run(), is_new=True)


def _written(state: State, commit: ScheduleCommit, first: ScheduleAnswer) -> ScheduleAnswer | None:
    if first.state is not ScheduleCommitState.DONE:
        return None
    is_ours = False
    if commit.run is not None and first.submitted is not None:
        is_ours = _still_there(state, commit.run, first.submitted) is not None
    if commit.job is not None:
        is_ours |= commit.job.id in state.jobs
    if not is_ours:
        place = commit.schedule.namespace, commit.schedule.name
        kept = state.schedules.by_place.get(place)
        is_ours = kept is not None and kept.revision == commit.schedule.revision
    return first if is_ours else None
