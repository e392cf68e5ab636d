"""Group commit of outcomes: of plain jobs, and of nodes, whose jobs may continue in place.

Outcomes that arrive while a write is under way travel together in the next one. The worker caches
the runs that it works on, so a step costs one commit and no read. When another worker wrote to a
run in the meantime, its events are read and the outcome is decided again.

A store that is down is asked again until it answers; a repeated commit counts once, by its token.
An outcome that the store refuses is written alone, so that it cannot take others with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from perdure.diagnostics import declare
from perdure.engine.cached_run import CachedRun, Graphs
from perdure.engine.decision import Schedule
from perdure.engine.failures import describe
from perdure.engine.plan import Place, Plan
from perdure.engine.runs import Loader
from perdure.errors import (
    EventLogCorrupt,
    Permanent,
    StaleClaim,
    StoreError,
    UnknownEvent,
    UnknownFlow,
    ValueMissing,
)
from perdure.model import trigger
from perdure.model.graph import Graph
from perdure.model.ids import Key, RunId
from perdure.model.job import Claim, NewJob, Status
from perdure.model.outcome import (
    Buried,
    Cancelled,
    Completed,
    Failed,
    GivenBack,
    NodeOutcome,
    Paused,
    Released,
    Retried,
    Settlement,
    Skipped,
)
from perdure.model.payload import from_json
from perdure.model.run import CommitAnswer, CommitState, RunCommit
from perdure.model.trigger import AttemptFailed, FailedForGood, Finished, Happening
from perdure.store.batching import Batches
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.steps import save_checkpoint

if TYPE_CHECKING:
    from perdure.worker.runner import JobRunner

JOBS_MAX = 500
STEPS_MAX = 64
WRITERS = 2
"""Steps are decided before they are committed: while the store works on one batch of them, the
next is decided. Of one run there is never more than one commit under way: it would conflict."""
RETRY_SECONDS = 1.0
LEAVE_FOR = timedelta(seconds=10)
"""How long a worker leaves jobs of a run that it is too old for to newer workers."""
CACHED_RUNS_MAX = 20_000
CACHED_BYTES_MAX = 256 * 1024 * 1024
STATUS_AFTER = {
    Completed: Status.COMPLETED,
    Skipped: Status.COMPLETED,
    Paused: Status.PAUSED,
    Retried: Status.SCHEDULED,
    Failed: Status.FAILED,
    Buried: Status.DEAD,
}
"""How the outcome of a node's job counts. The store has no status of it: its row does not stay."""
ATTEMPT_ABORTED = declare("node.attempt_aborted", "the attempt was aborted")
_log = logging.getLogger("perdure.worker")

Item = tuple[Attempt, NodeOutcome]
RunKey = tuple[str, RunId]
T = TypeVar("T")


class Settled(NamedTuple):
    """What the store made of one outcome."""

    attempt: Attempt
    outcome: NodeOutcome
    status: Status | None = None
    """None: the claim is stale or the outcome is late, and nothing was written."""
    next_job: NewJob | None = None
    """The same job as it continues in place with the next node."""
    answer: CommitAnswer | None = None


class Commits:
    """Takes outcomes, and tells the runner what the store made of each."""

    def __init__(self, store: Store, runner: JobRunner) -> None:
        self._store = store
        self._runner = runner
        self.graphs = Graphs(runner.code.flows.values())
        self._runs = RunCommits(store, runner, self.graphs)
        settings, now = runner.settings, timedelta(0)
        hidden: list[type] = []
        hidden += [Completed, Cancelled] if settings.keep_completed == now else []
        hidden += [Failed] if settings.keep_failed == now else []
        hidden += [Buried] if settings.keep_dead == now else []
        self._hidden_at_once = tuple(hidden)
        self._jobs = Batches(self._write_jobs, batch_max=JOBS_MAX)
        self._nodes = Batches(self._write_nodes, batch_max=STEPS_MAX, writers=WRITERS, key=run_of)

    def __len__(self) -> int:
        """Outcomes that wait for the next write."""
        return len(self._jobs) + len(self._nodes)

    def add(self, attempt: Attempt, outcome: NodeOutcome) -> None:
        batches = self._nodes if moves_run(attempt, outcome) else self._jobs
        batches.add((attempt, outcome), starts=not attempt.writes_itself)

    async def write_here(self) -> None:
        """Write what was added, within the caller's own task if no writer is at work."""
        await self._nodes.write_here()
        await self._jobs.write_here()

    async def flush(self) -> None:
        await self._nodes.flush()
        await self._jobs.flush()

    async def _write_nodes(self, items: list[Item]) -> None:
        try:
            await self._runs.write(items)
        except Exception as error:
            await self._write_alone([item for item in items if not item[0].is_settled], error)

    async def _write_jobs(self, items: list[Item]) -> None:
        try:
            for attempt, outcome in items:
                if isinstance(outcome, Paused):
                    # Before the job is parked: from then on it may be resumed.
                    codec = self._runner.codec
                    save = partial(save_checkpoint, self._store, attempt.job, codec, outcome)
                    with suppress(StaleClaim):  # as its settlement will tell
                        await until_answered(save, "checkpoint not written")
            settle = partial(self._store.jobs.settle, [self._settlement(*item) for item in items])
            statuses = await until_answered(settle, "outcomes of jobs not written")
        except Exception as error:
            await self._write_alone(items, error)
        else:
            for (attempt, outcome), status in zip(items, statuses, strict=True):
                self._runner.settled(Settled(attempt, outcome, status))

    def _settlement(self, attempt: Attempt, outcome: NodeOutcome) -> Settlement:
        assert not isinstance(outcome, Skipped), "only nodes are skipped"
        return Settlement(
            claim=attempt.claim,
            outcome=Released() if isinstance(outcome, Paused) else outcome,
            progress=attempt.progress,
            is_dropped=isinstance(outcome, self._hidden_at_once),
        )

    async def _write_alone(self, items: list[Item], error: Exception) -> None:
        """One outcome that the store refuses must not take the others with it."""
        if len(items) != 1:
            for item in items:
                await self._write(item)
            return
        [(attempt, outcome)] = items
        _log.error("the outcome of job %s was refused", attempt.claim.id, exc_info=error)
        if attempt.progress is not None:  # it may be what was refused
            attempt.progress = None
            await self._write((attempt, outcome))
        elif isinstance(outcome, Completed | Buried | Cancelled | Paused | Skipped):
            await self._write((attempt, Failed(failure=describe(error))))
        else:
            self._runner.settled(Settled(attempt, outcome))

    async def _write(self, item: Item) -> None:
        await (self._write_nodes if moves_run(*item) else self._write_jobs)([item])


class _Planned(NamedTuple):
    plan: Plan
    items: list[Item]
    commit: RunCommit
    next_jobs: dict[Claim, NewJob]


class RunCommits:
    """Commits outcomes of node jobs, many runs in one write, each under its own fence."""

    def __init__(self, store: Store, runner: JobRunner, graphs: Graphs) -> None:
        self._store = store
        self._runner = runner
        self._graphs = graphs
        self._loader = Loader(store, graphs, runner.codec)
        self._runs: OrderedDict[RunKey, CachedRun] = OrderedDict()
        self._cached_bytes = 0

    async def write(self, items: Sequence[Item]) -> None:
        """Commit these outcomes, however often other writers get in between.

        ``runner.settled`` hears of each once.
        """
        runner = self._runner
        pending = list(items)
        while pending:
            groups: dict[RunKey, list[Item]] = {}
            for item in pending:
                groups.setdefault(run_of(item), []).append(item)
            runs = await self._current(groups)
            planned = [await self._plan(run, groups[key]) for key, run in runs.items()]
            if not planned:
                return
            # With a free slot nothing waits for this worker that a chain would have to yield to.
            has_free_slot = runner.running < runner.concurrency
            rivals = [] if has_free_slot else runner.lanes.texts()
            commits = [each.commit for each in planned]
            answer = await until_answered(
                partial(self._store.runs.commit, commits, rivals), "outcomes of runs not written"
            )
            pending, conflicts = [], []
            for each, result in zip(planned, answer.results, strict=True):
                if result.state is CommitState.DONE:
                    self._written(each, answer)
                elif result.state is CommitState.STALE:
                    stale = set(result.stale)
                    for item in each.items:
                        if item[0].claim in stale:
                            runner.settled(Settled(*item))
                        else:
                            pending.append(item)
                else:
                    pending += each.items
                    conflicts.append(each.plan.run)
            if conflicts:
                await self._catch_up(conflicts)

    async def _current(self, groups: dict[RunKey, list[Item]]) -> dict[RunKey, CachedRun]:
        """The runs of all groups, but not those that cannot be read: their jobs are left."""
        outdated = []
        for key, items in groups.items():
            run = self._runs.get(key)
            # A job newer than the cached run: others wrote to it, or restarted it. Read first.
            if run is not None and any(item[0].job.created_at > run.as_of for item in items):
                outdated.append(run)
        if outdated:
            await self._catch_up(outdated)
        runs = {key: run for key in groups if (run := self._runs.get(key)) is not None}
        missing = [key for key in groups if key not in runs]
        if missing:
            load = partial(self._loader.load_many, missing)
            for key, found in zip(missing, await until_answered(load, LOADING), strict=True):
                if isinstance(found, CachedRun):
                    runs[key] = self._runs[key] = found
                    self._cached_bytes += found.values.size_bytes
                    self._evict()
                else:
                    await self._leave(groups[key], found)
        return runs

    async def _leave(self, items: list[Item], error: Exception) -> None:
        """Keep jobs of a run whose log cannot be used from being executed over and over.

        If a newer version wrote the log, they are left to workers of that version; else parked.
        """
        _log.error("outcomes are not written, and their jobs left: %s", error)
        left: Released | Retried = Released()
        if isinstance(error, UnknownEvent):
            left = Retried(
                failure=describe(error), delay=LEAVE_FOR, hold_off=LEAVE_FOR, is_postponed=True
            )
        settlements = [Settlement(claim=attempt.claim, outcome=left) for attempt, _ in items]
        settle = partial(self._store.jobs.settle, settlements)
        await until_answered(settle, "jobs of an unreadable run not left")
        for item in items:
            self._runner.settled(Settled(*item))

    async def _plan(self, run: CachedRun, items: list[Item]) -> _Planned:
        """Decide about all outcomes of one run. A plan leaves no trace until it is written."""
        while True:
            plan = Plan(run, Place(run.namespace, self._graphs, self._runner.codec))
            try:
                for attempt, outcome in items:
                    plan.settle(
                        attempt.claim,
                        self._trigger_of(attempt, outcome, run.graph),
                        repeats=outcome if isinstance(outcome, Retried) else None,
                        picks=partial(self._may_continue, attempt, run.graph),
                    )
                commit, next_jobs = plan.commit()
            except ValueMissing as error:
                await until_answered(partial(self._loader.read_values, run, error.numbers), LOADING)
            except (msgspec.DecodeError, RecursionError) as error:
                raise EventLogCorrupt(
                    run_id=run.id, reason=f"a value of it cannot be read: {error}"
                ) from error
            else:
                return _Planned(plan, items, commit, next_jobs)

    def _may_continue(self, attempt: Attempt, graph: Graph, schedule: Schedule) -> bool:
        call = schedule.call
        return self._runner.may_continue(attempt, call.priority, graph.lane_of(call))

    def _trigger_of(self, attempt: Attempt, outcome: NodeOutcome, graph: Graph) -> Happening:
        """What the outcome of a node's job means for its run."""
        assert attempt.job.node is not None
        key, decode = Key.parse(attempt.job.node.key), self._runner.codec.decode
        match outcome:
            case Completed():
                output = decode(outcome.output)
                check = self._runner.code.flows.inline_check(graph, key)
                if check is None:
                    return Finished(
                        key=key, output=output, port=outcome.port, warnings=outcome.warnings
                    )
                try:
                    args, kwargs = check.arguments([from_json(output)], {}, None)
                    is_done = bool(check.function(*args, **kwargs))
                except BaseException as error:  # the user's code must not end the worker
                    return FailedForGood(key=key, failure=describe(error))
                return Finished(key=key, output=output, is_done=is_done)
            case Skipped():
                return trigger.Skipped(key=key, reason=outcome.reason)
            case Paused():
                return trigger.Paused(
                    key=key,
                    checkpoint=decode(outcome.checkpoint),
                    name=outcome.name,
                    deadline_ms=_ms(outcome.deadline),
                    poll_ms=_ms(outcome.poll),
                )
            case Retried():
                return AttemptFailed(
                    key=key,
                    attempt=attempt.job.attempt,
                    failure=outcome.failure,
                    is_postponed=outcome.is_postponed,
                )
            case Failed() | Buried():
                return FailedForGood(key=key, failure=outcome.failure)
            case Cancelled():
                failure = outcome.failure or describe(Permanent(ATTEMPT_ABORTED.fault()))
                return FailedForGood(key=key, failure=failure)
            case _:
                raise AssertionError(f"{outcome!r} leaves the node as it is")

    def _written(self, planned: _Planned, answer: CommitAnswer) -> None:
        plan, run = planned.plan, planned.plan.run
        before = run.values.size_bytes
        plan.done()
        key = (run.namespace, run.id)
        if key in self._runs:
            self._cached_bytes += run.values.size_bytes - before
            self._evict()
        if answer.now is not None:
            run.as_of = answer.now
        if run.state.is_ended or not run.state.jobs:
            self._forget(key)  # no job of it is left that would bring it back here
        for attempt, outcome in planned.items:
            is_written = plan.settles(attempt.claim)  # else it came too late
            status = STATUS_AFTER.get(type(outcome)) if is_written else None
            next_job = planned.next_jobs.get(attempt.claim)
            self._runner.settled(Settled(attempt, outcome, status, next_job, answer))

    async def _catch_up(self, runs: list[CachedRun]) -> None:
        """Fold in what others wrote; a run that cannot be caught up with is loaded again."""
        found: list[CachedRun] = []
        with suppress(EventLogCorrupt, UnknownEvent, UnknownFlow):
            found = await until_answered(partial(self._loader.catch_up, runs), LOADING)
        for run in runs:
            if run not in found:
                self._forget((run.namespace, run.id))

    def _evict(self) -> None:
        """Forget the runs that were loaded first, if there are too many, or they are too large."""
        while len(self._runs) > CACHED_RUNS_MAX or (
            self._cached_bytes > CACHED_BYTES_MAX and len(self._runs) > 1
        ):
            self._forget(next(iter(self._runs)))

    def _forget(self, key: RunKey) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._cached_bytes -= run.values.size_bytes


LOADING = "runs not loaded"


async def until_answered(ask: Callable[[], Awaitable[T]], failure: str) -> T:
    """Ask the store until it answers. Repeated, a commit counts once."""
    while True:
        try:
            return await ask()
        except StoreError:
            _log.exception("%s; trying again", failure)
            await asyncio.sleep(RETRY_SECONDS)


def moves_run(attempt: Attempt, outcome: NodeOutcome) -> bool:
    """Whether an outcome is a matter of its run, rather than of the job alone."""
    return attempt.job.node is not None and not isinstance(outcome, GivenBack | Released)


def run_of(item: Item) -> RunKey:
    job = item[0].job
    assert job.node is not None
    return job.namespace, job.node.run


def _ms(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)
