"""The verifier: reads a store once, page by page, and applies every rule."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec.structs import asdict, replace

from perdure.diagnostics import Code, Finding, declare
from perdure.errors import StoreError
from perdure.model.ids import JobId, RunId
from perdure.model.job import Job, JobFilter
from perdure.model.run import ENDED, Run, RunFilter, Wait, WaitFilter
from perdure.model.schedule import Schedule, TickResult, UnreadableSchedule
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.store.contract.audit import AuditedJob, AuditedPlace
from perdure.verify.finding import Counts, VerifySettings, contradiction
from perdure.verify.load import AuditedRun, Loader
from perdure.verify.rules import approvals, decisions, family, fold, jobs, live, log, progress
from perdure.verify.rules import schedules_limits as limits

RunRule = Callable[[AuditedRun], Iterable[Finding]]
JobRule = Callable[[jobs.JobView], Iterable[Finding]]
StoreRule = Callable[[Store], AsyncIterator[Finding]]

RUN_RULES: tuple[RunRule, ...] = (
    *log.RULES,
    *fold.RULES,
    *progress.RULES,
    *live.RULES,
    *family.RULES,
    *approvals.RULES,
    *decisions.RULES,
)
LEFTOVER_RULES: tuple[RunRule, ...] = (
    live.live_jobs,
    live.live_waits,
    live.idle_run_holds_no_job,
    live.run_overdue,
)
"""Rows that an ended run must not have."""

RUNS = 50
"""Runs whose logs are in memory at once."""
JOBS = 500
WAITS = 2_000
DETAILS = 50
"""Jobs whose inputs are in memory at once."""
_SAME_ID = 10_000
"""Maximum namespaces with a run of the same id."""

JOB_LISTABLE = declare("verify.job_listable", "cannot be listed: {reason}")
RUN_EXISTS = declare("verify.run_exists", "a {what} of a run that does not exist")
SCHEDULE_READABLE = declare(
    "verify.schedule_readable", "cannot be read, so it starts nothing: {reason}"
)
ORPHANS = declare("verify.orphans", "rows of {owner} in {table} were left behind")
SHARED_FINGERPRINTS = declare(
    "verify.shared_fingerprints",
    "{count:unfinished job|unfinished jobs} of queue {queue!r} share fingerprint {fingerprint!r}",
)
RULE_FAILED = declare("verify.rule_failed", "rule {rule} failed: {reason}")
STORE_READABLE = declare(
    "verify.store_readable", "the remaining {part} could not be read: {reason}"
)

Place = tuple[str, RunId]


@dataclass(frozen=True)
class ExtraRules:
    """Additional rules, applied after the verifier's own; rules on the whole store come last."""

    runs: tuple[RunRule, ...] = ()
    jobs: tuple[JobRule, ...] = ()
    store: tuple[StoreRule, ...] = ()


class Verifier:
    """One verification of one store. ``counts`` says how much was checked."""

    def __init__(
        self,
        store: Store,
        settings: VerifySettings | None = None,
        *,
        extra_rules: ExtraRules | None = None,
        on_progress: Callable[[Counts], None] = lambda counts: None,
    ) -> None:
        self._store = store
        self._settings = settings or VerifySettings()
        extra = extra_rules or ExtraRules()
        self._run_rules = (*RUN_RULES, *extra.runs)
        self._job_rules = (*jobs.RULES, *extra.jobs)
        self._store_rules = extra.store
        self._loader = Loader(store, self._settings)
        self._on_progress = on_progress
        self.counts = Counts()

    async def findings(self) -> AsyncIterator[Finding]:
        """Yield findings as they are found."""
        for part in (self._runs, self._jobs, self._waits, self._schedules, self._rest):
            async for finding in _readable(part.__name__.strip("_"), part()):
                yield finding
        for rule in self._store_rules:
            async for finding in _readable(rule.__name__, rule(self._store)):
                yield finding

    async def _runs(self) -> AsyncIterator[Finding]:
        async for page in pages_of_runs(self._store, self._settings.namespace):
            views, faults = await self._loader.views(page)
            for fault in faults:
                yield fault
            for view in views:
                self._count(
                    runs=1,
                    ended_runs=int(view.state.is_ended),
                    events=len(view.events),
                    snapshots=int(view.snapshot is not None),
                )
                for finding in asked(view, self._run_rules):
                    yield finding
                # The in-memory store never suspends: let other tasks of the event loop run.
                await asyncio.sleep(0)

    async def _jobs(self) -> AsyncIterator[Finding]:
        async for page in self._pages_of_jobs():
            if isinstance(page, Unlisted):
                yield contradiction("I7", JOB_LISTABLE, job=page.job, reason=page.reason)
                continue
            self._count(jobs=len(page))
            runs = await self._owners(
                (job.namespace, job.node.run) for job in page if job.node is not None
            )
            async for finding in self._judged(page, runs):
                yield finding
            async for finding in self._left_behind(runs, "job"):
                yield finding

    async def _pages_of_jobs(self) -> AsyncIterator[list[Job] | Unlisted]:
        """Newest first, then hidden jobs, if the store can be audited.

        A job that cannot be listed does not hide the others, if the store can be audited.
        """
        namespace, audit = self._settings.namespace, self._store.audit

        async def listed(before: JobId | None, limit: int) -> list[Job]:
            return await self._store.queries.list_jobs(
                JobFilter(namespace=namespace, before=before), limit
            )

        if audit is None:
            async for page in _pages(listed, None):
                yield page
            return
        async for page in _pages(listed, partial(audit.job_before, namespace)):
            yield page
        async for page in _pages(partial(audit.hidden_jobs, namespace), None):
            yield page

    async def _judged(
        self, page: list[Job], runs: Mapping[Place, Run | None]
    ) -> AsyncIterator[Finding]:
        plain = [job.id for job in page if job.node is None]
        states = await self._store.queries.job_states(plain) if plain else {}
        is_any_live = any(job.finished_at is None for job in page)
        found = await self._store.queries.workers(None) if is_any_live else []
        workers = {each.info.id: each for each in found}
        now = await self._store.now()
        for first in range(0, len(page), DETAILS):
            some = page[first : first + DETAILS]
            audit = self._store.audit
            details = {} if audit is None else await audit.jobs([job.id for job in some])
            for job in some:
                view = jobs.JobView(job, states.get(job.id), self._settings)
                view.now, view.details = now, _unmoved(job, details.get(job.id))
                view.run = None if job.node is None else runs[job.namespace, job.node.run]
                view.workers = workers
                view.grace = await self._loader.grace_in(job.namespace)
                for finding in asked(view, self._job_rules):
                    yield finding

    async def _waits(self) -> AsyncIterator[Finding]:
        async for page in pages_of_waits(self._store, self._settings.namespace):
            self._count(waits=len(page))
            runs = await self._owners((wait.namespace, wait.run) for wait in page)
            async for finding in self._left_behind(runs, "wait"):
                yield finding

    async def _owners(self, places: Iterable[Place]) -> dict[Place, Run | None]:
        """The runs that jobs or waits belong to; None for those that do not exist."""
        owners = list(dict.fromkeys(places))
        runs = await self._store.queries.get_runs(owners) if owners else []
        return dict(zip(owners, runs, strict=True))

    async def _left_behind(
        self, runs: Mapping[Place, Run | None], what: str
    ) -> AsyncIterator[Finding]:
        """Jobs and waits of runs that have ended or do not exist."""
        for (namespace, id), run in runs.items():
            if run is None:
                if await self._is_orphaned(namespace, id, what):
                    yield contradiction("I7", RUN_EXISTS, namespace=namespace, run=id, what=what)
            elif run.status in ENDED:
                view = await self._loader.leftovers(run)
                for finding in () if view is None else asked(view, LEFTOVER_RULES):
                    yield finding

    async def _is_orphaned(self, namespace: str, id: RunId, what: str) -> bool:
        """Whether it still exists without its run: both may have been removed meanwhile."""
        if what == "job":
            found: list[object] = [*await self._store.queries.run_jobs(namespace, id)]
        else:
            found = [*await self._store.queries.run_waits(namespace, id)]
        [run] = await self._store.queries.get_runs([(namespace, id)])
        return bool(found) and run is None

    async def _schedules(self) -> AsyncIterator[Finding]:
        before = await self._schedule_times()
        found = await self._store.schedules.list(self._settings.namespace)
        after = await self._schedule_times()
        for schedule in found:
            if isinstance(schedule, UnreadableSchedule):
                yield contradiction(
                    "I7",
                    SCHEDULE_READABLE,
                    namespace=schedule.namespace,
                    schedule=schedule.name,
                    reason=schedule.reason,
                )
                continue
            self._count(schedules=1)
            grace = await self._loader.grace_in(schedule.namespace)
            view = limits.ScheduleView(schedule, await self._store.now(), grace)
            place = (schedule.namespace, schedule.name)
            # Otherwise it ticked meanwhile.
            if place in before and before[place] == after.get(place):
                view.looked_for_at = before[place]
            if not self._settings.allows_pruned:
                view.is_there = await self._started_by(schedule)
            for finding in asked(view, limits.SCHEDULE_RULES):
                yield finding

    async def _schedule_times(self) -> Mapping[tuple[str, str], datetime | None]:
        audit = self._store.audit
        return {} if audit is None else await audit.schedule_times(self._settings.namespace)

    async def _started_by(self, schedule: Schedule) -> dict[str, bool]:
        started = [r for r in schedule.state.history if r.result is TickResult.STARTED]
        runs = [(schedule.namespace, record.run) for record in started if record.run is not None]
        found = await self._store.queries.get_runs(runs) if runs else []
        there = {str(id): run is not None for (_, id), run in zip(runs, found, strict=True)}
        ids = [JobId(record.job) for record in started if record.job is not None]
        states = await self._store.queries.job_states(ids) if ids else {}
        return there | {str(id): id in states for id in ids}

    async def _rest(self) -> AsyncIterator[Finding]:
        """Rows that belong to no run, job, wait or schedule."""
        audit, namespace = self._store.audit, self._settings.namespace
        if audit is None:
            return
        for orphan in (
            await audit.orphans() if namespace is None else ()
        ):  # orphans have no namespace
            yield contradiction("I8", ORPHANS, table=orphan.table, owner=orphan.owner)
        for shared in await audit.shared_fingerprints(namespace):
            yield contradiction("I2", SHARED_FINGERPRINTS, **asdict(shared))
        now = await self._store.now()
        for limit in await audit.limits(namespace):
            view = limits.LimitView(limit, now, self._settings.closed_max)
            for finding in asked(view, limits.LIMIT_RULES):
                yield finding
        runs: dict[tuple[str, str], list[AuditedPlace]] = {}
        for each in await audit.places(namespace):
            runs.setdefault((each.namespace, each.key), []).append(each)
        for (place, key), found in runs.items():
            for finding in asked(limits.PlaceView(place, key, found), limits.PLACE_RULES):
                yield finding

    def _count(self, **more: int) -> None:
        fields = {name: getattr(self.counts, name) + count for name, count in more.items()}
        self.counts = replace(self.counts, **fields)
        self._on_progress(self.counts)


async def verify_store(store: Store, settings: VerifySettings | None = None) -> list[Finding]:
    """Return all findings on an open store; empty if it is consistent.

    Workers may keep running.
    """
    return [finding async for finding in Verifier(store, settings).findings()]


class View(Protocol):
    """The context of a rule, with which it reports findings."""

    def finding(self, invariant: str, code: Code, **args: Any) -> Finding: ...


V = TypeVar("V", bound=View)


def asked(view: V, rules: Iterable[Callable[[V], Iterable[Finding]]]) -> Iterator[Finding]:
    """Apply the rules. One that raises is a finding, and does not hide the others."""
    for rule in rules:
        try:
            yield from rule(view)
        except Exception as error:
            name, reason = getattr(rule, "__name__", repr(rule)), f"{type(error).__name__}: {error}"
            yield view.finding("log", RULE_FAILED, rule=name, reason=reason)


async def _readable(name: str, part: AsyncIterator[Finding]) -> AsyncIterator[Finding]:
    """The findings of one part. A read error does not hide the other parts."""
    try:
        async for finding in part:
            yield finding
    except StoreError:
        raise  # the store does not respond: not a fault of its contents
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        yield contradiction("log", STORE_READABLE, part=name, reason=reason)


def _unmoved(job: Job, details: AuditedJob | None) -> AuditedJob | None:
    """The columns of a job, if it has not changed since it was listed."""
    if details is None or (details.status, details.epoch) != (job.status, job.epoch):
        return None
    return details


class Unlisted(Value):
    """A job that the store cannot list; without an id, it and all older jobs."""

    job: str
    reason: str


async def pages_of_runs(store: Store, namespace: str | None = None) -> AsyncIterator[list[Run]]:
    """All runs, newest first. A page includes every run that shares its last time and id.

    The next page starts after that time and id, which runs of several namespaces may share.
    """
    before = None
    while page := await store.queries.list_runs(
        RunFilter(namespace=namespace, before=before), RUNS
    ):
        last = page[-1]
        seen = {(run.namespace, run.id) for run in page}
        if len(page) == RUNS:
            alike = await store.queries.list_runs(
                RunFilter(namespace=namespace, id=last.id), _SAME_ID
            )
            page += [
                run
                for run in alike
                if run.created_at == last.created_at and (run.namespace, run.id) not in seen
            ]
        yield page
        before = (last.created_at, last.id)


async def pages_of_waits(store: Store, namespace: str | None = None) -> AsyncIterator[list[Wait]]:
    """All waits, longest open first. A page includes every wait that shares its last position."""
    after = None
    while page := await store.queries.list_waits(
        WaitFilter(namespace=namespace, after=after), WAITS
    ):
        last = page[-1]
        after = (last.opened_at, last.run, last.key)
        if len(page) == WAITS:
            seen = {(wait.namespace, wait.run, wait.key) for wait in page}
            alike = await store.queries.list_waits(
                WaitFilter(namespace=namespace, run=last.run), WAITS
            )
            page += [
                wait
                for wait in alike
                if (wait.opened_at, wait.run, wait.key) == after
                and (wait.namespace, wait.run, wait.key) not in seen
            ]
        yield page


async def _pages(
    listed: Callable[[JobId | None, int], Awaitable[Sequence[Job]]],
    job_before: Callable[[JobId | None], Awaitable[JobId | None]] | None,
) -> AsyncIterator[list[Job] | Unlisted]:
    before, limit = None, JOBS
    while True:
        try:
            page = await listed(before, limit)
        except Exception as error:  # a store may raise anything on corrupt rows
            if limit > 1:
                limit = 1
                continue
            before = None if job_before is None else await job_before(before)
            yield Unlisted(job=before or "", reason=f"{type(error).__name__}: {error}")
            if before is None:
                return
            limit = JOBS
            continue
        if not page:
            return
        yield list(page)
        before = page[-1].id
