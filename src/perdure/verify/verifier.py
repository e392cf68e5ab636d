"""The check itself: goes through a store once, page by page, and asks every rule."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from perdure.errors import StoreError
from perdure.model.ids import JobId, RunId
from perdure.model.job import Job
from perdure.model.run import ENDED
from perdure.model.schedule import Schedule, TickResult
from perdure.store.contract import Store
from perdure.verify.finding import Counts, Finding
from perdure.verify.inside.reads import JobDetails
from perdure.verify.load import Reader
from perdure.verify.pages import (
    Unlisted,
    pages_of_jobs,
    pages_of_runs,
    pages_of_waits,
)
from perdure.verify.rules import (
    acts,
    approvals,
    decisions,
    family,
    fold,
    jobs,
    limits,
    live,
    log,
    outputs,
    progress,
    results,
    schedules,
    witnessed,
)
from perdure.verify.rules.accepting import Accepting
from perdure.verify.settings import CheckSettings
from perdure.verify.testimony import Testimony
from perdure.verify.view import RunView
from perdure.verify.witness import Line

RunRule = Callable[[RunView], Iterable[Finding]]

RUN_RULES: tuple[RunRule, ...] = (
    *log.RULES,
    *fold.RULES,
    *progress.RULES,
    *live.RULES,
    *family.RULES,
    *approvals.RULES,
    *outputs.RULES,
    *decisions.RULES,
    *acts.RULES,
    *results.RULES,
)
LEFTOVER_RULES: tuple[RunRule, ...] = (
    live.jobs_match,
    live.waits_match,
    live.waiting_holds_nothing,
    live.runs_in_time,
)
"""What an ended run may not have any more."""

DETAILS = 50
"""Jobs whose inputs are in memory at once."""

Place = tuple[str, RunId]


class Checker:
    """One check of one store. ``counts`` tells how much there was to look at."""

    def __init__(
        self,
        store: Store,
        witness: str | os.PathLike[str] | Iterable[Line] | None = None,
        settings: CheckSettings | None = None,
    ) -> None:
        self._store = store
        self._settings = settings or CheckSettings()
        self._testimony = Testimony.of(witness)
        self._reader = Reader(store, self._settings, self._testimony)
        self.counts = Counts()

    async def findings(self) -> AsyncIterator[Finding]:
        """Everything that is wrong, as it is found."""
        try:
            async for finding in self._findings():
                yield finding
        finally:
            self._testimony.close()

    async def _findings(self) -> AsyncIterator[Finding]:
        self._count(
            executions=self._testimony.count("executions"),
            accepted=self._testimony.count("accepted"),
            refused=self._testimony.count("refused"),
            acts=self._testimony.count("acts"),
            ends=self._testimony.count("end_seen"),
        )
        accepting = Accepting(self._store, self._settings, self._testimony)
        parts = (
            self._runs,
            self._jobs,
            self._waits,
            self._schedules,
            self._inside,
            accepting.findings,
            self._witnessed,
        )
        for part in parts:
            async for finding in _readable(part):
                yield finding

    async def _runs(self) -> AsyncIterator[Finding]:
        missing = set(self._settings.expected)
        async for page in pages_of_runs(self._store):
            missing -= {run.id for run in page}
            views, faults = await self._reader.views(page)
            for fault in faults:
                yield fault
            for view in views:
                self._count_run(view)
                for finding in asked(view, RUN_RULES):
                    yield finding
                # A store in memory answers at once: whoever works on this loop gets a turn here.
                await asyncio.sleep(0)
        for id in sorted(missing):
            if not self._settings.allows_pruned:
                text = "expected to be there, and it is not"
                yield Finding(invariant="I1", rule="expected_is_there", text=text, run=id)

    async def _jobs(self) -> AsyncIterator[Finding]:
        async for page in pages_of_jobs(self._store, self._reader.inside):
            if isinstance(page, Unlisted):
                text = f"it cannot be listed: {page.reason}"
                yield Finding(invariant="I7", rule="listable", text=text, job=page.job)
                continue
            self._count(jobs=len(page))
            async for finding in self._judged(page):
                yield finding
            async for finding in self._left_behind(_owners(page), "job"):
                yield finding

    async def _judged(self, page: list[Job]) -> AsyncIterator[Finding]:
        plain = [job.id for job in page if job.node is None]
        states = await self._store.job_states(plain) if plain else {}
        now = await self._store.now()
        for first in range(0, len(page), DETAILS):
            some = page[first : first + DETAILS]
            inside = self._reader.inside
            details = {} if inside is None else await inside.jobs([job.id for job in some])
            for job in some:
                self._testimony.see(job.namespace, job.id)
                view = jobs.JobView(job, states.get(job.id), self._settings, self._testimony)
                view.now, view.details = now, _unmoved(job, details.get(job.id))
                view.grace = await self._reader.grace_in(job.namespace)
                for finding in asked(view, jobs.RULES):
                    yield finding

    async def _waits(self) -> AsyncIterator[Finding]:
        async for page in pages_of_waits(self._store):
            self._count(waits=len(page))
            owners = dict.fromkeys((wait.namespace, wait.run) for wait in page)
            async for finding in self._left_behind(list(owners), "wait"):
                yield finding

    async def _left_behind(self, owners: list[Place], what: str) -> AsyncIterator[Finding]:
        """Jobs and waits of runs that are over, or are not there."""
        runs = await self._store.run_states(owners) if owners else []
        for (namespace, id), run in zip(owners, runs, strict=True):
            if run is None:
                if await self._is_stray(namespace, id, what):
                    text = f"a {what} of a run that is not there"
                    yield Finding(
                        invariant="I7", rule="has_run", text=text, namespace=namespace, run=id
                    )
            elif run.status in ENDED:
                view = await self._reader.leftovers(run)
                for finding in () if view is None else asked(view, LEFTOVER_RULES):
                    yield finding

    async def _is_stray(self, namespace: str, id: RunId, what: str) -> bool:
        """Whether it is still there, without its run: it may have gone with it meanwhile."""
        if what == "job":
            found: list[object] = [*await self._store.run_jobs(namespace, id)]
        else:
            found = [*await self._store.run_waits(namespace, id)]
        [run] = await self._store.run_states([(namespace, id)])
        return bool(found) and run is None

    async def _schedules(self) -> AsyncIterator[Finding]:
        for broken in await self._store.unreadable_schedules(None):
            text = f"schedule: it cannot be read, so it starts nothing: {broken.reason}"
            yield Finding(
                invariant="I7",
                rule="schedules_are_readable",
                text=text,
                namespace=broken.namespace,
                key=broken.name,
            )
        before = await self._schedule_times()
        found = await self._store.list_schedules(None)
        after = await self._schedule_times()
        for schedule in found:
            self._count(schedules=1)
            grace = await self._reader.grace_in(schedule.namespace)
            view = schedules.ScheduleView(schedule, await self._store.now(), grace)
            place = (schedule.namespace, schedule.name)
            if place in before and before[place] == after.get(place):  # else it ticked meanwhile
                view.looked_for_at = before[place]
            if not self._settings.allows_pruned:
                view.is_there = await self._started_by(schedule)
            for finding in asked(view, schedules.RULES):
                yield finding

    async def _schedule_times(self) -> dict[tuple[str, str], datetime | None]:
        inside = self._reader.inside
        return {} if inside is None else await inside.schedule_times()

    async def _started_by(self, schedule: Schedule) -> dict[str, bool]:
        started = [r for r in schedule.state.history if r.result is TickResult.STARTED]
        runs = [(schedule.namespace, record.run) for record in started if record.run is not None]
        found = await self._store.run_states(runs) if runs else []
        there = {str(id): run is not None for (_, id), run in zip(runs, found, strict=True)}
        ids = [JobId(record.job) for record in started if record.job is not None]
        states = await self._store.job_states(ids) if ids else {}
        return there | {str(id): id in states for id in ids}

    async def _inside(self) -> AsyncIterator[Finding]:
        """What only the inside of a store shows."""
        inside = self._reader.inside
        if inside is None:
            return
        for text in await inside.strays():
            yield Finding(invariant="I8", rule="strays", text=f"left behind: {text}")
        for namespace, queue, fingerprint, count in await inside.twins():
            text = f"{count} unfinished jobs of queue {queue!r} share fingerprint {fingerprint!r}"
            yield Finding(invariant="I2", rule="twins", text=text, namespace=namespace)
        now = await self._store.now()
        for limit in await inside.limits():
            view = limits.LimitView(limit, now, self._settings.closed_max)
            for finding in asked(view, limits.RULES):
                yield finding

    async def _witnessed(self) -> AsyncIterator[Finding]:
        self._count(committed=self._testimony.count("committed"))
        for rule in witnessed.RULES:
            ask = partial(rule, self._testimony, self._settings)
            for finding in _asked(ask, rule.__name__, _finding):
                yield finding
        keys = dict.fromkeys(rule.key for rule in self._settings.limits)
        found = {key: witnessed.judged(self._testimony, self._settings, key) for key in keys}
        self.counts = replace(self.counts, limits=found)

    def _count_run(self, view: RunView) -> None:
        self._count(
            runs=1,
            ended_runs=int(view.state.is_ended),
            events=len(view.events),
            snapshots=int(view.snapshot is not None),
        )

    def _count(self, **more: int) -> None:
        fields = {name: getattr(self.counts, name) + count for name, count in more.items()}
        self.counts = replace(self.counts, **fields)


async def check(
    store: Store,
    witness: str | os.PathLike[str] | Iterable[Line] | None = None,
    settings: CheckSettings | None = None,
) -> list[Finding]:
    """Everything that is wrong in a store, which must be open; an empty list if all is well.

    ``witness`` is the path of a witness log, or its lines. Workers may go on meanwhile.
    """
    return [finding async for finding in Checker(store, witness, settings).findings()]


class View(Protocol):
    """What a rule may look at, and by which it says what it found."""

    def finding(self, invariant: str, rule: str, text: str) -> Finding: ...


V = TypeVar("V", bound=View)


def asked(view: V, rules: Iterable[Callable[[V], Iterable[Finding]]]) -> Iterator[Finding]:
    """What the rules say. One that raises is a finding, and does not hide the others."""
    for rule in rules:
        yield from _asked(partial(rule, view), getattr(rule, "__name__", repr(rule)), view.finding)


def _asked(
    ask: Callable[[], Iterable[Finding]], name: str, finding: Callable[[str, str, str], Finding]
) -> Iterator[Finding]:
    try:
        yield from ask()
    except Exception as error:
        yield finding("log", name, f"the rule could not be asked: {type(error).__name__}: {error}")


def _finding(invariant: str, rule: str, text: str) -> Finding:
    return Finding(invariant=invariant, rule=rule, text=text)


async def _readable(part: Callable[[], AsyncIterator[Finding]]) -> AsyncIterator[Finding]:
    """What one part of a check finds. What it cannot read does not hide the other parts."""
    try:
        async for finding in part():
            yield finding
    except StoreError:
        raise  # nobody answers: that is no fault of what is kept
    except Exception as error:
        name = getattr(part, "__name__", "").strip("_")
        text = f"the rest of the {name} could not be read: {type(error).__name__}: {error}"
        yield Finding(invariant="log", rule="readable_parts", text=text)


def _unmoved(job: Job, details: JobDetails | None) -> JobDetails | None:
    """The details of a job, if they are of the moment at which it was listed."""
    if details is None or (details.status, details.epoch) != (job.status, job.epoch):
        return None
    return details


def _owners(page: Iterable[Job]) -> list[Place]:
    """The runs that jobs belong to, each once."""
    return list(
        dict.fromkeys((job.namespace, job.node.run) for job in page if job.node is not None)
    )
