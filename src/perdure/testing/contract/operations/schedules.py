"""Random operations on schedules and on flows with a cooldown.

They join those on runs. The revision that a commit expects is read when it is applied for the first
time; the same commit is then applied to the other store.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from msgspec.structs import replace

from perdure.clock import new_id
from perdure.model.event import NewEvent, RunSubmitted, encode_event
from perdure.model.ids import JobId, RunId
from perdure.model.job import NewJob
from perdure.model.run import NewRun, RunStatus
from perdure.model.schedule import Schedule, ScheduleCommit, UnreadableSchedule
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.testing.contract.builders import SECOND, new_job, new_schedule
from perdure.testing.contract.operations.runs import RUNS, Starts, drawn_starts, random_run
from perdure.testing.contract.operations.workload import LIMIT, NAMESPACES, Do, Draw, Workload

NAMES = ("nightly", "hourly", "Ünlucky 'one'")
TICKS = (*RUNS, RunId("nightly@1"), RunId("nightly@2"), RunId("hourly@1"))
"""Few, so that some are taken; and some of them are those of other runs."""
COOLDOWNS = (None, 10, 40)


class Tick(Value):
    """One write of a schedule."""

    place: int
    expects: str
    """``current``: what is there; ``stale``: something else; ``none``: that nothing is."""
    due_in: int | None
    """Seconds."""
    run: RunId | None = None
    starts: Starts = Starts()
    cooldown: int | None = None
    job: NewJob | None = None
    has_alternative: bool = True
    """It says what is written if its run is skipped."""


def _save(workload: Workload, tick: Tick) -> Do:
    namespace, name = _schedule_at(tick.place)
    now = workload.clock()
    due_at = None if tick.due_in is None else now + tick.due_in * SECOND
    written = replace(
        new_schedule(name, due_at=due_at, changed_at=now),
        namespace=namespace,
        revision=_new(workload),
    )
    skipped = replace(written.state, skipped=99, due_at=now + 5 * SECOND)
    draft = ScheduleCommit(
        schedule=written,
        expected=None,
        run=_cooling(workload, namespace, tick) if tick.run is not None else None,
        job=_job(workload, namespace, tick.job),
        if_skipped=replace(written, state=skipped) if tick.has_alternative else None,
    )
    commits: list[ScheduleCommit] = []

    async def save(store: Store) -> Any:
        if not commits:
            found = next(iter(await store.schedules.list(namespace, name)), None)
            commits.append(replace(draft, expected=_expected(tick.expects, found)))
        return await store.schedules.commit(commits[0])

    return save


def _expected(expects: str, found: Schedule | UnreadableSchedule | None) -> int | None:
    if expects == "none" or (expects == "current" and found is None):
        return None
    return found.revision if found is not None and expects == "current" else -1


def _submit_cooling(workload: Workload, tick: Tick, on_existing: Any) -> Do:
    namespace, _ = _schedule_at(tick.place)
    run = replace(_cooling(workload, namespace, tick), on_existing=on_existing)
    return lambda store: store.runs.submit(run)


def _cooling(workload: Workload, namespace: str, tick: Tick) -> NewRun:
    assert tick.run is not None
    run = random_run(workload, namespace, tick.run, tick.starts, RunStatus.RUNNING)
    submitted = RunSubmitted(flow=run.flow, version=run.version, aging_ms=len(new_id()))
    return replace(
        run,
        events=(NewEvent(data=encode_event(submitted), value=b"input"),),
        cooldown=None if tick.cooldown is None else timedelta(seconds=tick.cooldown),
    )


def _job(workload: Workload, namespace: str, drawn: NewJob | None) -> NewJob | None:
    if drawn is None:
        return None
    job = replace(drawn, id=JobId(new_id()), namespace=namespace)
    workload.jobs.append(job)
    return job


def _due(workload: Workload, namespace: str, limit: int) -> Do:
    async def due(store: Store) -> list[Any]:
        """Their times, since of those that are due at the same time any may be first."""
        return [
            each.state.due_at for each in await store.maintenance.due_schedules(namespace, limit)
        ]

    return due


def _delete(workload: Workload, place: int) -> Do:
    namespace, name = _schedule_at(place)
    return lambda store: store.schedules.delete(namespace, name)


SCHEDULE_PREPARE: dict[str, Callable[..., Do]] = {
    "save schedule": _save,
    "submit cooling": _submit_cooling,
    "due schedules": _due,
    "delete schedule": _delete,
}


def _schedule_at(number: int) -> tuple[str, str]:
    return NAMESPACES[number % 4 == 3], NAMES[number % len(NAMES)]


def _new(workload: Workload) -> int:
    return next(workload.tokens)


# How they are drawn


def _tick(random: Random) -> Tick:
    starts = random.choice(["nothing", "run", "run", "job"])
    job = new_job(
        fingerprint=random.choice([None, "once"]),
        on_conflict=random.choice(["return", "raise", "replace"]),
        delay=random.choice([0, 15]) * SECOND,
    )
    return Tick(
        place=random.randint(0, 11),
        expects=random.choice(["current"] * 6 + ["stale", "none"]),
        due_in=random.choice([None, -5, 0, 3, 10, 30]),
        run=random.choice(TICKS) if starts == "run" else None,
        starts=drawn_starts(random),
        cooldown=random.choice(COOLDOWNS),
        job=job if starts == "job" else None,
        has_alternative=random.random() < 0.8,
    )


def _submission(random: Random) -> tuple[Tick, str]:
    tick = replace(_tick(random), run=random.choice(TICKS), job=None)
    return tick, random.choice(["fail", "use_existing", "replace"])


SCHEDULE_OFTEN: tuple[Draw, ...] = (
    lambda random: ("save schedule", _tick(random)),
    lambda random: ("save schedule", _tick(random)),
    lambda random: ("submit cooling", *_submission(random)),
)
SCHEDULE_SELDOM: tuple[Draw, ...] = (
    lambda random: (
        "due schedules",
        random.choice(NAMESPACES),
        random.choice([1, 2, LIMIT]),
    ),
    lambda random: ("call", "schedules.list", random.choice([None, *NAMESPACES])),
    lambda random: ("delete schedule", random.randint(0, 11)),
    lambda random: ("call", "schedules.list", *_schedule_at(random.randint(0, 11))),
    lambda random: ("call", "maintenance.poll", random.choice(NAMESPACES)),
)


async def contents_of_schedules(store: Store) -> dict[str, Any]:
    contents: dict[str, Any] = {"schedules": await store.schedules.list(None)}
    for namespace in NAMESPACES:
        due = await store.maintenance.due_schedules(namespace, LIMIT)
        contents[f"{namespace} schedules due"] = sorted(due, key=lambda each: each.name)
    return contents


async def clear_schedules(store: Store) -> None:
    for each in await store.schedules.list(None):
        await store.schedules.delete(each.namespace, each.name)
