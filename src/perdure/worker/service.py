"""One worker at work, from opening the store to the last commit.

Bodies run while the next claim and the last commit are under way. A job is held, and its lease
renewed, from its claim until its outcome is in the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from perdure.engine.cached_run import Graphs
from perdure.engine.runs import Acting
from perdure.engine.ticks import Ticking
from perdure.model.hint import Hint, HintKind
from perdure.model.ids import JobId
from perdure.model.job import Claim, Claimed, ClaimedJob, Progress, Status
from perdure.model.outcome import (
    Buried,
    Completed,
    Failed,
    GivenBack,
    NodeOutcome,
    Paused,
    Retried,
    Skipped,
)
from perdure.model.partition import Lane
from perdure.model.payload import Codec
from perdure.model.worker import Renewal, WorkerInfo
from perdure.store.contract import Store
from perdure.worker.attempt import Attempt, Body, Steps, Stop
from perdure.worker.claims import ClaimLoop, KnownLanes
from perdure.worker.commits import Commits, NodeSettled, RunCommits, moves_run
from perdure.worker.due_schedules import ScheduleDuty
from perdure.worker.due_waits import WaitDuty
from perdure.worker.events import (
    JobAborting,
    JobProgressed,
    JobStarted,
    Report,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from perdure.worker.executors import CoroutineBody, ThreadBody, Threads, tell
from perdure.worker.janitor import Housekeeper
from perdure.worker.leases import ClaimWatch, LeaseKeeper
from perdure.worker.node_calls import NodeRules
from perdure.worker.nodes import Code, continued, poison_pill, yields
from perdure.worker.poller import Scout
from perdure.worker.processes import Processes
from perdure.worker.progress import ProgressWriter
from perdure.worker.settings import WorkerSettings
from perdure.worker.slots import Slots
from perdure.worker.steps import AttemptSteps

UNCOMMITTED_MAX = 5_000
"""Outcomes that may wait for the store before no more jobs are claimed."""
FLUSH_SECONDS = 10.0
"""How long a stop waits for a store that does not answer."""
SIGN_OFF_SECONDS = 2.0
HEARD = frozenset({HintKind.READY, HintKind.SCHEDULED, HintKind.DUE, HintKind.ABORTING})
STATUS_AFTER = {
    Completed: Status.COMPLETED,
    Skipped: Status.COMPLETED,
    Paused: Status.PAUSED,
    Retried: Status.SCHEDULED,
    Failed: Status.FAILED,
    Buried: Status.DEAD,
}
"""How the outcome of a node's job is counted, whose row does not stay."""
_log = logging.getLogger("perdure.worker")


class Service:
    """Everything that runs between start and stop. Lives on one event loop."""

    def __init__(
        self,
        store: Store,
        code: Code,
        settings: WorkerSettings,
        info: WorkerInfo,
        codec: Codec,
        report: Report,
    ) -> None:
        self.worker_id = info.id
        self.codec = codec
        self.payload_max_bytes = settings.payload_max_bytes
        self.abort_grace = settings.abort_grace
        self.hold_off = settings.hold_off
        self.allows_scripts = settings.allows_scripts
        self.secrets = code.secrets
        self._store = store
        self._code = code
        self._settings = settings
        self._info = info
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._runner: asyncio.Task[Any] | None = None
        self._held: dict[JobId, Attempt] = {}
        self._doubted: set[JobId] = set()
        """Jobs of which a hint said that they may have been taken away."""
        self._slots = Slots(settings.concurrency, self._start)
        self._stop_asked = asyncio.Event()
        self._grace = settings.grace
        self._is_stopping = False
        self._endings: list[asyncio.TimerHandle] = []
        self._threads = Threads("perdure task")
        self._processes = Processes(self._threads)
        self._progress = ProgressWriter(store, self._progressed)
        self._lanes = KnownLanes(code, settings)
        graphs = Graphs(code.flows.values())
        runs = RunCommits(store, graphs, codec, code.flows, self._may_go_on, self._lanes_to_compare)
        self._commits = Commits(store, settings, runs, self._settled, self._node_settled, codec)
        self._claims = ClaimLoop(
            store, self._lanes, self._request, self._room, self._take, self._held_ids
        )
        housekeeper = Housekeeper(store, settings, info.id, report)
        acting = Acting(store, graphs, codec)
        duties = (
            WaitDuty(store, acting, settings.namespace),
            ScheduleDuty(store, Ticking(store, acting, graphs, codec), settings.namespace),
        )
        self._scout = Scout(store, self._lanes, settings, housekeeper, duties, self._claims.look)
        self._watch = ClaimWatch(store, self._held.values, self._renewed)
        self._leases = LeaseKeeper(
            store.clone(),
            self._current_info,
            self._held_claims,
            settings.lease,
            self._renewed_aside,
        )

    @property
    def running(self) -> int:
        return self._slots.running

    @property
    def concurrency(self) -> int:
        return self._slots.concurrency

    @property
    def is_ending(self) -> bool:
        return self._is_stopping or (self._runner is not None and self._runner.cancelling() > 0)

    async def run(self) -> None:
        """Work until asked to stop, then stop gracefully."""
        self._runner = asyncio.current_task()
        await self._store.maintenance.register_worker(self._info)
        self._leases.start()
        unsubscribe = self._store.subscribe(self._hear, HEARD)
        self._report.emit(WorkerStarted(worker=self.worker_id))
        parts = (self._claims, self._scout, self._watch)
        loops = [asyncio.create_task(part.run()) for part in parts]
        try:
            await self._stop_asked.wait()
        finally:
            try:
                await self._drain(loops)
            finally:  # a cancelled stop is less graceful, but leaves no thread behind either
                unsubscribe()
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)
                self._progress.close()
                self._processes.close()
                self._threads.close()
                await self._leases.stop()
                await self._sign_off()

    def call(self, act: Callable[..., None], *args: Any) -> None:
        """Call one of the methods below from any thread."""
        tell(self._loop, act, *args)

    def ask_to_stop(self, grace: timedelta | None = None) -> None:
        """Start nothing from this moment on. Asked again, the earliest end counts."""
        self._grace = self._grace if grace is None else grace
        self._is_stopping = True
        self._claims.stop()
        self._scout.stop()
        self._slots.give_back_all()
        for attempt in list(self._held.values()):
            if attempt.is_over:
                self._slots.ended(attempt)
        ending = self._loop.call_later(self._grace.total_seconds(), self._stop_running)
        self._endings.append(ending)
        if not self._stop_asked.is_set():
            running, grace = self._slots.running, self._grace
            self._report.emit(WorkerStopping(worker=self.worker_id, running=running, grace=grace))
        self._stop_asked.set()

    def scale(self, concurrency: int) -> None:
        self._slots.concurrency = concurrency
        self._slots.fill()
        self._claims.room_changed()

    # Claiming

    def _request(self) -> tuple[str, Any, timedelta]:
        return self._settings.namespace, self._info.id, self._settings.lease

    def _room(self) -> int:
        if len(self._commits) > UNCOMMITTED_MAX:
            return 0
        # A job that waits here under a limit would hold a place that others could use.
        return self._slots.room(may_claim_ahead=not self._lanes.are_limited)

    def _take(self, claimed: Claimed, is_fresh: bool) -> None:
        for job in claimed.jobs:
            if (former := self._held.get(job.claim.id)) is not None:
                # It was taken away and came back before anybody could tell us.
                former.stop(Stop.CLAIM_LOST)
            attempt = Attempt(job, self._code.task_of(job.lane), self, claimed.now)
            self._held[job.claim.id] = attempt
            if self._is_stopping or not is_fresh:
                attempt.finish(GivenBack())
            elif job.node is not None and job.deaths >= self._settings.deaths_max:
                attempt.finish(Buried(failure=poison_pill(job.deaths)))
            else:
                self._slots.take(attempt)
        self._slots.fill()

    def _start(self, attempt: Attempt) -> None:
        self._report.tally.started += 1
        if self._report.wants(JobStarted):
            self._report.job(JobStarted, attempt.job)
        try:
            attempt.start()
        except Exception as error:  # no thread to be had, for one
            attempt.raised(error)

    def _held_ids(self) -> list[JobId]:
        return list(self._held)

    # What an attempt needs (see Crew)

    def launch(self, attempt: Attempt) -> Body:
        if attempt.task.isolation == "process":
            return self._processes.launch(attempt, self, self._loop)
        if attempt.task.is_async:
            return CoroutineBody(attempt, self._loop, self._context, self.payload_max_bytes)
        return ThreadBody(attempt, self._threads, self._loop, self.payload_max_bytes)

    def report(self, attempt: Attempt, progress: Progress) -> None:
        self._progress.report(attempt, progress)

    def ended(self, attempt: Attempt, outcome: NodeOutcome | None) -> None:
        # A node keeps its slot until its commit tells whether its job goes on. When stopping none
        # does, and the stop must not wait for a store that does not answer.
        if outcome is None or self._is_stopping or not moves_run(attempt, outcome):
            self._slots.ended(attempt)
            self._claims.room_changed()
        if outcome is None:
            self._let_go(attempt)
            self._report.settled(attempt, GivenBack(), None)
        else:
            self._commits.add(attempt, outcome)

    @property
    def has_one_body(self) -> bool:
        return self._slots.running == 1

    async def write_here(self) -> None:
        await self._commits.write_here()

    def rules_of(self, job: ClaimedJob) -> NodeRules | None:
        return self._code.flows.rules_of(job)

    def steps_of(self, attempt: Attempt) -> Steps:
        return AttemptSteps(self._store, self, attempt, self._loop)

    # What comes back

    def _settled(self, attempt: Attempt, outcome: NodeOutcome, status: Status | None) -> None:
        self._let_go(attempt)
        self._claims.room_changed()
        self._report.settled(attempt, outcome, status)
        if isinstance(outcome, Retried) and outcome.until is None:
            # Nobody hints at the end of our own hold-off, so look then.
            self._claims.look_at((outcome.delay + outcome.hold_off).total_seconds() + 0.01)

    def _node_settled(self, settled: NodeSettled) -> None:
        attempt, outcome = settled.attempt, settled.outcome
        status = STATUS_AFTER.get(type(outcome)) if settled.is_written else None
        if settled.goes_on is None:
            self._slots.ended(attempt)
            self._settled(attempt, outcome, status)
            return
        assert settled.answer is not None
        self._report.settled(attempt, outcome, status)
        if self._held.get(attempt.claim.id) is not attempt:
            # It was taken away since, and has come back to us under another claim.
            self._slots.ended(attempt)
            return
        job = continued(attempt.job, settled.goes_on)
        task = self._code.task_of(job.lane)
        following = Attempt(job, task, self, settled.answer.now or job.created_at)
        self._held[attempt.claim.id] = following
        if attempt.claim.id in self._doubted:
            self._watch.look()  # it had no body that could be told
        if (
            self._is_stopping
            or not self._slots.can_go_on(attempt)
            or yields(settled.goes_on, settled.answer)
        ):
            following.finish(GivenBack())
            self._slots.ended(attempt)
            self._claims.look()
        else:
            self._slots.go_on(attempt, following)

    def _may_go_on(self, attempt: Attempt, priority: int, lane: Lane) -> bool:
        """Whether this worker can run the next node, and it is not less urgent than the last."""
        if self._is_stopping or priority > attempt.job.priority:
            return False
        return self._lanes.serves(lane)

    def _lanes_to_compare(self) -> list[str]:
        """The lanes that may hold something more urgent, when there is no slot for it."""
        return [] if self._slots.has_free else self._lanes.texts()

    def _let_go(self, attempt: Attempt) -> None:
        if self._held.get(attempt.claim.id) is attempt:
            del self._held[attempt.claim.id]
            self._doubted.discard(attempt.claim.id)

    def _progressed(self, attempt: Attempt, progress: Progress) -> None:
        if self._report.wants(JobProgressed):
            self._report.job(JobProgressed, attempt.job, progress=progress)

    def _renewed(self, claims: Sequence[Claim], renewal: Renewal) -> None:
        if not renewal.lost and not renewal.aborting:
            return
        for claim in claims:
            attempt = self._held.get(claim.id)
            if attempt is None or attempt.is_over or attempt.claim.epoch != claim.epoch:
                continue
            if claim.id in renewal.lost:
                attempt.stop(Stop.CLAIM_LOST)
            elif claim.id in renewal.aborting and attempt.stopped_by is None:
                self._report.job(JobAborting, attempt.job)
                attempt.stop(Stop.ABORTED)

    def _renewed_aside(self, claims: Sequence[Claim], renewal: Renewal) -> None:
        tell(self._loop, self._renewed, claims, renewal)

    def _held_claims(self) -> list[Claim]:
        # list() of a dict's values is atomic, and this is called from the lease thread.
        return [attempt.claim for attempt in list(self._held.values())]

    def _current_info(self) -> WorkerInfo:
        return replace(self._info, concurrency=self._slots.concurrency)

    def _hear(self, hint: Hint) -> None:
        match hint.kind:
            case HintKind.READY:
                if not hint.names:
                    self._scout.look()
                    self._claims.look()
                elif self._lanes.note(hint.names):
                    self._claims.look()
            case HintKind.SCHEDULED | HintKind.DUE:
                self._scout.look()
            case HintKind.ABORTING:
                meant = {id for id in self._held if not hint.names or id in hint.names}
                if meant:
                    self._doubted |= meant
                    self._watch.look()

    # Stopping

    async def _drain(self, loops: Sequence[asyncio.Task[None]]) -> None:
        if not self._is_stopping:
            self.ask_to_stop()  # cancelled, rather than asked
        await self._slots.is_empty.wait()
        for ending in self._endings:
            ending.cancel()
        self._watch.stop()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                # Not cancelled: what a claim under way took would be nobody's until its lease
                # ends. Answered now, it is given back.
                await asyncio.wait(loops)
                await self._commits.flush()
        except TimeoutError:
            _log.error("the store does not answer: unwritten outcomes will be executed again")

    def _stop_running(self) -> None:
        for attempt in list(self._held.values()):
            attempt.stop(Stop.SHUTDOWN)

    async def _sign_off(self) -> None:
        try:
            async with asyncio.timeout(SIGN_OFF_SECONDS):
                await self._store.maintenance.remove_worker(self._info.id)
        except Exception:
            _log.warning("the worker's row was not removed; it will be dropped as idle")
        self._report.emit(WorkerStopped(worker=self.worker_id))
