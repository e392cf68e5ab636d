"""Group commit of outcomes: of plain jobs, and of nodes, whose jobs may continue in place.

Outcomes that arrive while a write is under way travel together in the next one. The worker caches
the runs that it works on, so a step costs one commit and no read. When another worker wrote to a
run in the meantime, its events are read and the outcome is decided again.

While the store is down, commits are retried; a repeated commit counts once, by its token. An
outcome that the store refuses is written alone, so that the others are not lost with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from perdure import clock
from perdure.engine.cached_run import CachedRun
from perdure.engine.decider import NodeJob
from perdure.engine.failures import describe
from perdure.engine.plan import Plan
from perdure.engine.runs import Graphs, RunCache, RunEngine, RunKey
from perdure.errors import ClaimLost, LongEvaluation, PerdureError, RunNotFound, UnknownEvent
from perdure.model.graph import Graph
from perdure.model.ids import Key, WorkerId
from perdure.model.job import NewJob, Status
from perdure.model.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Failed,
    NodeOutcome,
    Parked,
    Paused,
    Requeued,
    Retried,
    Settlement,
    Skipped,
)
from perdure.model.partition import Partition
from perdure.model.payload import from_json
from perdure.model.run import CommitAnswer, CommitState
from perdure.model.settings import effective_priority, placed
from perdure.model.trigger import JobEnded
from perdure.model.worker import WorkerInfo, can_run, has_code, is_live
from perdure.store.batching import Batches
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt
from perdure.worker.steps import save_checkpoint, until_answered

if TYPE_CHECKING:
    from perdure.worker.runner import JobRunner

JOBS_MAX = 500
STEPS_MAX = 64
WRITERS = 2
"""Steps are decided before they are committed: while the store works on one batch of them, the
next is decided. Of one run there is never more than one commit under way: it would conflict."""
PEERS_SECONDS = 1.0
"""How old the list of other workers may be: while attempts fail, it is read this often."""
LEAVE_FOR = timedelta(seconds=10)
"""How long a worker leaves jobs to newer workers when it is too old to read their run."""
STATUS_AFTER = {
    Completed: Status.COMPLETED,
    Skipped: Status.COMPLETED,
    Paused: Status.PAUSED,
    Retried: Status.SCHEDULED,
    Failed: Status.FAILED,
    DeadLettered: Status.DEAD,
}
"""The status under which outcomes of node jobs count; their rows are not kept."""
_log = logging.getLogger("perdure.worker")

Item = tuple[Attempt, NodeOutcome]


class Settled(NamedTuple):
    """The store's answer to one outcome."""

    attempt: Attempt
    outcome: NodeOutcome
    status: Status | None = None
    """None: the claim is stale or the outcome is late, and nothing was written. Nor was anything
    for a job that is disabled."""
    next_job: NewJob | None = None
    """The same job as it continues in place with the next node."""
    answer: CommitAnswer | None = None


class Commits:
    """Commits outcomes in batches and passes the store's answers to the runner."""

    def __init__(self, store: Store, runner: JobRunner) -> None:
        self._store = store
        self._runner = runner
        graphs = Graphs(flow.graph for flow in runner.code.flows.values())
        self.runs = RunEngine(store, graphs, runner.codec, runner.worker_id)
        self._run_commits = RunCommits(self.runs, runner)
        settings, now = runner.settings, timedelta(0)
        hidden: list[type] = []
        hidden += [Completed, Cancelled] if settings.keep_completed == now else []
        hidden += [Failed] if settings.keep_failed == now else []
        hidden += [DeadLettered] if settings.keep_dead == now else []
        self._hidden_at_once = tuple(hidden)
        self._peers = Peers(store, settings.namespace, runner.worker_id)
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
        items = await self._without_idle_hold_offs(items)
        try:
            await self._run_commits.write(items)
        except Exception as error:
            if left := [item for item in items if not item[0].is_settled]:
                await self._write_each_alone(left, error)
            else:
                fields = {"attempt_ids": [attempt.job.attempt_id for attempt, _ in items]}
                _log.error("processing a commit failed", exc_info=error, extra={"fields": fields})

    async def _write_jobs(self, items: list[Item]) -> None:
        items = await self._without_idle_hold_offs(items)
        try:
            for attempt, outcome in items:
                if isinstance(outcome, Paused):
                    # Before the job is parked: from then on it may be resumed.
                    codec = self._runner.codec
                    save = partial(save_checkpoint, self._store, attempt.job, codec, outcome)
                    with suppress(ClaimLost):  # the settlement reports it
                        await until_answered(save, "writing a checkpoint failed")
            settle = partial(self._store.jobs.settle, [self._settlement(*item) for item in items])
            statuses = await until_answered(settle, "writing outcomes failed")
        except Exception as error:
            await self._write_each_alone(items, error)
        else:
            if None in statuses:
                statuses = await self._with_disabled(items, statuses)
            for (attempt, outcome), status in zip(items, statuses, strict=True):
                self._runner.settled(Settled(attempt, outcome, status))

    async def _with_disabled(
        self, items: list[Item], statuses: list[Status | None]
    ) -> list[Status | None]:
        """The statuses, with that of jobs whose claims were lost because they were disabled."""
        answers = list(zip(items, statuses, strict=True))
        lost = [attempt.claim for (attempt, _), status in answers if status is None]
        check = partial(self._store.jobs.check, lost)
        disabled = (await until_answered(check, "looking up lost claims failed")).disabled
        return [
            Status.DISABLED if attempt.claim.id in disabled else status
            for (attempt, _), status in answers
        ]

    async def _without_idle_hold_offs(self, items: list[Item]) -> list[Item]:
        """Let this worker retry at once what no other live worker could take meanwhile."""
        if not any(type(outcome) is Retried and outcome.hold_off for _, outcome in items):
            return items  # nearly always
        await self._peers.refresh()
        return [
            (attempt, replace(outcome, hold_off=timedelta(0)))
            if isinstance(outcome, Retried) and not self._peers.serve(attempt.job.partition)
            else (attempt, outcome)
            for attempt, outcome in items
        ]

    def _settlement(self, attempt: Attempt, outcome: NodeOutcome) -> Settlement:
        assert not isinstance(outcome, Skipped), "only nodes are skipped"
        return Settlement(
            claim=attempt.claim,
            outcome=Parked() if isinstance(outcome, Paused) else outcome,
            progress=attempt.progress,
            is_hidden=isinstance(outcome, self._hidden_at_once),
        )

    async def _write_each_alone(self, items: list[Item], error: Exception) -> None:
        """Write each outcome alone, so that a refused one does not block the others."""
        if len(items) != 1:
            for item in items:
                await self._write(item)
            return
        [(attempt, outcome)] = items
        fields = {"attempt_id": attempt.job.attempt_id}
        _log.error("outcome refused", exc_info=error, extra={"fields": fields})
        if attempt.progress is not None:  # it may be what was refused
            attempt.progress = None
            await self._write((attempt, outcome))
        elif isinstance(outcome, Completed | DeadLettered | Cancelled | Paused | Skipped):
            await self._write((attempt, Failed(failure=describe(error))))
        else:
            self._runner.settled(Settled(attempt, outcome))

    async def _write(self, item: Item) -> None:
        await (self._write_nodes if moves_run(*item) else self._write_jobs)([item])


class Peers:
    """The other workers, as last read. Only failures that will be retried ask for them."""

    def __init__(self, store: Store, namespace: str, worker: WorkerId) -> None:
        self._store = store
        self._namespace = namespace
        self._worker = worker
        self._live: list[WorkerInfo] | None = None
        """None: they could not be read."""
        self._read_at = -math.inf

    async def refresh(self) -> None:
        if clock.monotonic() - self._read_at < PEERS_SECONDS:
            return
        try:
            found = await self._store.queries.workers(self._namespace)
        except Exception:
            _log.warning("reading the other workers failed", exc_info=True)
            self._live = None
        else:
            # Our own heartbeat is recent, so this is about the store's time.
            now = max((each.seen_at for each in found), default=None)
            self._live = [
                each.info
                for each in found
                if each.info.id != self._worker and now is not None and is_live(each, now)
            ]
        self._read_at = clock.monotonic()

    def serve(self, partition: Partition) -> bool:
        """Whether another live worker could take jobs of this partition."""
        return self._live is None or any(
            has_code(each, task=partition.task, flow=partition.flow)
            and can_run(partition, queues=each.queues, tags=each.tags)
            for each in self._live
        )


class RunCommits:
    """Commits outcomes of node jobs, many runs in one write, each under its own fence."""

    def __init__(self, runs: RunEngine, runner: JobRunner) -> None:
        self._runs = runs
        self._cache = RunCache(runs)
        self._runner = runner

    async def write(self, items: Sequence[Item]) -> None:
        """Commit these outcomes, retrying conflicts; calls ``runner.settled`` once for each.

        Raises what the store refused, when the others are written.
        """
        runner = self._runner
        pending = list(items)
        refusal: PerdureError | None = None
        while pending:
            groups: dict[RunKey, list[Item]] = {}
            for item in pending:
                groups.setdefault(run_of(item), []).append(item)
            newest_jobs = {
                key: max(attempt.job.created_at for attempt, _ in group)
                for key, group in groups.items()
            }
            runs = await until_answered(partial(self._cache.current, newest_jobs), LOADING)
            planned: list[tuple[Plan, list[Item]]] = []
            for key, run in runs.items():
                if isinstance(run, CachedRun):
                    decide = partial(self._settle, groups[key])
                    plan = await until_answered(partial(self._runs.plan, run, decide), LOADING)
                    planned.append((plan, groups[key]))
                else:
                    await self._park_or_requeue(groups[key], run)
            if not planned:
                break
            # With a free slot, no job waits that this chain would have to yield to.
            has_free_slot = runner.running < runner.concurrency
            rivals = [] if has_free_slot else runner.partitions.texts()
            commits = [plan.commit for plan, _ in planned]
            answer = await until_answered(
                partial(self._runs.store.runs.commit, commits, rivals),
                "writing outcomes of runs failed",
            )
            pending, conflicts = [], []
            for (plan, group), result in zip(planned, answer.results, strict=True):
                if result.state is CommitState.DONE:
                    self._cache.committed(plan, answer.now)
                    for attempt, outcome in group:
                        is_written = plan.settles(attempt.claim)  # otherwise it came too late
                        if (
                            is_written
                            and isinstance(outcome, Retried)
                            and not plan.retries(attempt.claim)
                        ):
                            outcome = Failed(failure=outcome.failure)  # of the whole run
                        status = STATUS_AFTER.get(type(outcome)) if is_written else None
                        next_job = plan.next_jobs.get(attempt.claim)
                        runner.settled(Settled(attempt, outcome, status, next_job, answer))
                elif result.state is CommitState.STALE:
                    stale = set(result.stale)
                    for item in group:
                        if item[0].claim in stale:
                            runner.settled(Settled(*item))
                        else:
                            pending.append(item)
                elif result.refusal is not None:
                    refusal = result.refusal
                else:
                    pending += group
                    conflicts.append(plan.run)
            if conflicts:
                await until_answered(partial(self._cache.catch_up, conflicts), LOADING)
        if refusal is not None:
            raise refusal

    def _settle(self, items: list[Item], plan: Plan) -> None:
        """Plan the outcomes of one run."""
        graph = plan.run.graph
        for attempt, outcome in items:
            ended = self._job_ended(attempt, outcome, graph)
            plan.settle(attempt.claim, ended, partial(self._may_continue, attempt, plan))

    def _may_continue(self, attempt: Attempt, plan: Plan, schedule: NodeJob) -> bool:
        state, call = plan.state, schedule.call
        priority = effective_priority(state.priority, call.priority)
        node = schedule.key.node
        partition = placed(plan.run.graph.partition_of(call), state.settings, node)
        return self._runner.may_continue(attempt, priority, partition)

    def _job_ended(self, attempt: Attempt, outcome: NodeOutcome, graph: Graph) -> JobEnded:
        """The trigger for the end of a node's job: payloads decoded, a loop checked."""
        assert attempt.job.node is not None
        key = Key.parse(attempt.job.node.key)
        number = attempt.job.attempt + attempt.attempts_before
        decode, is_done = self._runner.codec.decode, None
        match outcome:
            case Completed():
                output = decode(outcome.output)
                if output is not outcome.output:
                    outcome = replace(outcome, output=output)
                check = self._runner.code.flows.inline_check(graph, key)
                if check is not None:
                    try:
                        args: list[object] = [from_json(output)]
                        check.convert(args, {})
                        is_done = bool(check.function(*args))
                    except LongEvaluation:
                        is_done = None  # a job of its own checks it, in a thread
                    except BaseException as error:  # the user's code must not end the worker
                        outcome = Failed(failure=describe(error))
            case Paused():
                outcome = replace(outcome, checkpoint=decode(outcome.checkpoint))
                scope = attempt.scope
                if scope is not None and scope.has_returned_again:
                    number += 1
            case Requeued() | Parked():
                raise AssertionError(f"{outcome!r} leaves the node as it is")
        return JobEnded(key=key, attempt=number, outcome=outcome, is_done=is_done)

    async def _park_or_requeue(self, items: list[Item], error: Exception) -> None:
        """Take jobs of a run with an unusable log out of the queue, so that they do not loop.

        If a newer version wrote the log, workers of that version get them; otherwise they are
        parked.
        """
        fields = {
            "attempt_ids": [attempt.job.attempt_id for attempt, _ in items],
            "error": str(error),
        }
        if isinstance(error, RunNotFound):  # it was replaced, and its jobs were removed with it
            _log.info("run not found; outcomes discarded", extra={"fields": fields})
        else:
            _log.error("run log unusable; jobs parked or requeued", extra={"fields": fields})
        left: Parked | Retried = Parked()
        if isinstance(error, UnknownEvent):
            left = Retried(
                failure=describe(error), delay=LEAVE_FOR, hold_off=LEAVE_FOR, is_snoozed=True
            )
        settlements = [Settlement(claim=attempt.claim, outcome=left) for attempt, _ in items]
        settle = partial(self._runs.store.jobs.settle, settlements)
        await until_answered(settle, "parking jobs failed")
        for item in items:
            self._runner.settled(Settled(*item))


LOADING = "loading runs failed"


def moves_run(attempt: Attempt, outcome: NodeOutcome) -> bool:
    """Whether an outcome is decided by its run, rather than for the job alone."""
    return attempt.job.node is not None and not isinstance(outcome, Requeued | Parked)


def run_of(item: Item) -> RunKey:
    job = item[0].job
    assert job.node is not None
    return job.namespace, job.node.run
