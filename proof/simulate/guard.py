"""Checks every call to the store: which rows it may change, and the order of claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from datetime import datetime, timedelta
from typing import Any

import msgspec

from perdure.engine.failures import TOO_MANY_CRASHES
from perdure.errors import IllegalTransition
from perdure.model.client_event import LISTENING, ClientEvent
from perdure.model.ids import JobId
from perdure.model.job import (
    CLAIMED,
    DEFAULT_QUEUE,
    FINISHED,
    Claim,
    Claimed,
    Status,
    StatusChange,
    TakenOver,
)
from perdure.model.outcome import DeadLettered, Parked, Requeued, Retried, Settlement
from perdure.model.run import CommitAnswer, CommitState, Continues, Retries, RunCommit
from perdure.model.schedule import ScheduleAnswer, ScheduleCommit, ScheduleCommitState
from perdure.model.worker import Renewal, WorkerInfo
from perdure.store import admission
from perdure.store.contract import ClaimRequest, PartitionClaim
from perdure.store.lifecycle import Transition
from perdure.store.memory.records import Place, StoredJob, StoredRun
from perdure.store.memory.state import MemoryState
from proof.simulate.loop import Trace, moment
from proof.simulate.run_clocks import Now, RunClocks
from proof.simulate.tasks import (
    KEYED_SEATS,
    SEATS,
    TAPS,
    TAPS_SECONDS,
)

Jobs = Mapping[JobId, StoredJob]
Runs = Mapping[Place, StoredRun]
End = tuple[str, str, datetime]
"""The type of a client event, the id of the job or run, and when it ended."""


def ends_in(jobs: Iterable[StoredJob], runs: Iterable[StoredRun]) -> Iterator[End]:
    """The ends of jobs and runs, as clients receive them."""
    for job in jobs:
        if job.finished_at is not None:
            yield f"job.{job.status}", job.id, job.finished_at
    for run in runs:
        if run.finished_at is not None:
            yield f"run.{run.status}", run.id, run.finished_at


_UNHELD = frozenset({Status.WAITING, Status.SCHEDULED, Status.PAUSED})
WAITER_RETENTION = timedelta(seconds=10)
"""Ended work must stay this long for its waiters, whatever the retention."""
_ABORTED = frozenset({Status.ABORTING, Status.CANCELLED})


class WriteGuard:
    """Compares the jobs of a store before and after each call."""

    def __init__(
        self, state: MemoryState, now: Callable[[], datetime], find: Callable[[str], None]
    ) -> None:
        self._state = state
        self._now = now
        self._find = find
        self._before: Jobs = {}
        self._runs_before: Runs = {}
        self.pruned: set[Hashable] = set()
        self.pruned_ends: set[End] = set()
        self.ends: dict[End, int] = {}
        """All ends so far, numbered."""
        self.changed_runs: list[tuple[StoredRun | None, StoredRun]] = []
        """Runs that the last call changed or added, before and after it."""
        self.let_go: dict[JobId, datetime] = {}
        """When parked jobs were requeued."""

    def before(self) -> None:
        """Remember the state right before a call."""
        self._before = dict(self._state.jobs)
        self._runs_before = dict(self._state.records.runs)

    def after(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """Check the changes of a call, and that it did its work."""
        changed = self._changed()
        self.changed_runs = [
            (before, run)
            for place, run in self._state.records.runs.items()
            if (before := self._runs_before.get(place)) is not run
        ]
        self._note_release(changed)
        self._note_ends(changed)
        if isinstance(answer, Exception):
            if isinstance(answer, IllegalTransition):
                self._find(f"{name}: {answer}")
            for id in changed:
                self._find(f"{name} raised {type(answer).__name__}, and changed job {id}")
            return
        is_retry = name == "admin.change_jobs" and args[0] is Transition.RETRY
        self._check_finality(name, changed, is_retry)
        match name, answer:
            case "jobs.move_start", _:
                self._check_stale(name, [args[0]], changed)
            case "jobs.save_progress", _:
                self._check_stale(name, [claim for claim, _ in args[0]], changed)
            case "jobs.renew", Renewal():
                stale = self._check_stale(name, args[1], changed)
                if answer.lost != stale:
                    self._find(f"renewal says {sorted(answer.lost)} are lost, not {sorted(stale)}")
            case "runs.save_step", _:
                if not self._is_current(args[0]):
                    self._find(f"a step of job {args[0].id} was stored under a stale claim")
                elif self._state.jobs[args[0].id].suspicion.crashes:
                    self._find(f"job {args[0].id} stored a step, and is still suspected")
            case "jobs.settle", list():
                self._saw_outcomes(args[0], answer, changed)
            case "jobs.requeue_unknown", int():
                for id in changed:
                    if self._before[id].incarnation != args[2]:
                        self._find(f"{args[0]} requeued job {id}, which another one had claimed")
            case "maintenance.promote_due", int():
                self._saw_promotion(args[1], answer, changed)
            case "maintenance.release_sticky", int():
                self._saw_release(args[1], answer, changed)
            case "maintenance.take_over_expired", list():
                self._saw_take_over(answer)
                if len(answer) < args[1]:
                    self._check_leases()
            case "maintenance.take_over_former", list():
                self._saw_take_over(answer)
                self._check_former(args, answer)
            case "maintenance.expire_deadlines", list():
                self._saw_deadlines(args[1], len(answer), changed)
            case "maintenance.prune_jobs", _:
                gone = [self._before[id] for id in changed if id not in self._state.jobs]
                self._check_ended([(job.id, job.finished_at) for job in gone])
                self.pruned_ends.update(ends_in(gone, ()))
            case "maintenance.prune_runs", _:
                runs = self._state.records.runs
                left = [run for place, run in self._runs_before.items() if place not in runs]
                roots = [(run.place, run.finished_at) for run in left if run.parent is None]
                self._check_ended(roots)
                ends = ends_in((), left)
                # Children may end ahead of a clock that is set back, and go with their parent.
                self.pruned_ends.update(end for end in ends if end[2] <= self._now())
            case "admin.change_jobs", list() if args[0] is Transition.ABORT:
                self._saw_abort(answer)

    def has_changed(self, id: JobId) -> bool:
        return self._state.jobs.get(id) is not self._before.get(id)

    def _changed(self) -> list[JobId]:
        """Existing jobs that were changed or removed."""
        jobs = self._state.jobs
        return [id for id, job in self._before.items() if jobs.get(id) is not job]

    def _note_release(self, changed: Sequence[JobId]) -> None:
        for id in changed:
            after = self._state.jobs.get(id)
            was_aside = self._before[id].status in (Status.DISABLED, Status.PAUSED)
            if was_aside and after is not None and after.status is Status.WAITING:
                self.let_go[id] = self._now()

    def _note_ends(self, changed: Sequence[JobId]) -> None:
        jobs = [self._state.jobs[id] for id in changed if id in self._state.jobs]
        for end in ends_in(jobs, [run for _, run in self.changed_runs]):
            self.ends.setdefault(end, len(self.ends))

    def _is_current(self, claim: Claim) -> bool:
        job = self._before.get(claim.id)
        return job is not None and job.status in CLAIMED and job.epoch == claim.epoch

    def _check_finality(self, name: str, changed: Sequence[JobId], is_retry: bool) -> None:
        for id in changed:
            before, after = self._before[id], self._state.jobs.get(id)
            if after is None:
                if before.node is None and name != "maintenance.prune_jobs":
                    self._find(f"{name} removed job {id}")
                continue
            if after.epoch < before.epoch:
                self._find(f"{name} took the epoch of job {id} back")
            if before.status in FINISHED and not is_retry:
                self._find(f"{name} changed job {id}, which was {before.status}")
            if before.status is Status.ABORTING and after.status not in _ABORTED:
                self._find(f"{name} made job {id} {after.status}, though it was aborted")

    def _check_stale(
        self, name: str, claims: Sequence[Claim], changed: Sequence[JobId]
    ) -> frozenset[JobId]:
        """Only jobs under one of these claims may change; returns the ids of the others."""
        current = {claim.id for claim in claims if self._is_current(claim)}
        for id in changed:
            if id not in current:
                self._find(f"{name} under a stale claim changed job {id}")
        return frozenset(claim.id for claim in claims) - current

    def _saw_outcomes(
        self,
        settlements: Sequence[Settlement],
        statuses: Sequence[Status | None],
        changed: Sequence[JobId],
    ) -> None:
        self._check_stale("jobs.settle", [each.claim for each in settlements], changed)
        for settlement, status in zip(settlements, statuses, strict=True):
            id, outcome = settlement.claim.id, settlement.outcome
            if self._is_current(settlement.claim) is (status is None):
                self._find(f"the outcome of job {id} was answered with {status}")
            is_condemned = (
                isinstance(outcome, DeadLettered) and outcome.failure.code == TOO_MANY_CRASHES.name
            )
            if status is Status.DEAD and is_condemned and not self._before[id].suspicion.alone:
                self._find(f"job {id} is dead, and no worker crashed while it had no other job")
            if status in (Status.WAITING, Status.SCHEDULED) and isinstance(outcome, Retried):
                wanted = outcome.until or self._now() + outcome.delay
                if self._state.jobs[id].ready_at < wanted:
                    self._find(f"job {id} is to be retried at {wanted}, and is ready before")

    def _saw_promotion(self, limit: int, count: int, changed: Sequence[JobId]) -> None:
        now = self._now()
        for id in changed:
            if self._before[id].ready_at > now:
                self._find(f"job {id} is waiting before it is ready")
        if count < limit:
            for job in self._state.jobs.values():
                if job.status is Status.SCHEDULED and job.ready_at <= now:
                    self._find(f"job {job.id} is due, and was not made waiting")

    def _saw_release(self, limit: int, count: int, changed: Sequence[JobId]) -> None:
        now, workers = self._now(), self._state.workers

        def is_over(job: StoredJob) -> bool:
            worker = None if job.sticky_worker is None else workers.get(job.sticky_worker)
            is_late = job.sticky_until is None or job.sticky_until <= now
            return is_late or worker is None or now - worker.seen_at > worker.info.lease

        for id in changed:
            if not is_over(self._before[id]):
                self._find(f"job {id} was released before its time, and its worker is live")
        if count < limit:
            for job in self._state.jobs.values():
                if job.status is Status.WAITING and job.sticky_until and is_over(job):
                    self._find(f"job {job.id} waits for {job.sticky_worker}, and was not released")

    def _saw_take_over(self, taken: Sequence[TakenOver]) -> None:
        for each in taken:
            before, after = self._before[each.id], self._state.jobs[each.id]
            if after.failures != before.failures or after.crashes != before.crashes + 1:
                self._find(f"a worker crash counts as a failure of job {each.id}")
            if before.status is Status.ACTIVE and after.status is not Status.WAITING:
                self._find(f"job {each.id} was taken over, and is {after.status}")
            was, found = before.suspicion, after.suspicion
            counts_alone = was.crashes > 0 and before.was_claimed_alone
            wanted = (was.crashes + 1, was.alone + counts_alone)
            if before.status is Status.ACTIVE and (found.crashes, found.alone) != wanted:
                self._find(f"job {each.id} is suspected by {found} after a takeover, not {wanted}")

    def _check_leases(self) -> None:
        now = self._now()
        for job in self._state.jobs.values():
            if job.status in CLAIMED and job.lease_until is not None and job.lease_until <= now:
                self._find(f"the lease of job {job.id} ran out, and it was not taken over")

    def _check_former(self, args: tuple[Any, ...], taken: Sequence[TakenOver]) -> None:
        namespace, worker, incarnation, limit = args

        def is_former(job: StoredJob) -> bool:
            is_of_worker = job.worker == worker and job.namespace == namespace
            return is_of_worker and job.incarnation not in (None, incarnation)

        for each in taken:
            if not is_former(self._before[each.id]):
                self._find(f"job {each.id} was taken over by {worker}, which had not claimed it")
        if len(taken) < limit:
            for job in self._state.jobs.values():
                if job.status in CLAIMED and is_former(job):
                    self._find(f"{worker} started again, and left its job {job.id}")

    def _saw_deadlines(self, limit: int, count: int, changed: Sequence[JobId]) -> None:
        now = self._now()
        for id in changed:
            deadline = self._before[id].deadline_at
            if deadline is None or deadline > now:
                self._find(f"job {id} expired before its deadline")
        if count < limit:
            for job in self._state.jobs.values():
                is_late = job.deadline_at is not None and job.deadline_at <= now
                if is_late and job.status in _UNHELD:
                    self._find(f"the deadline of job {job.id} passed, and it is {job.status}")

    def _check_ended(self, gone: Iterable[tuple[Hashable, datetime | None]]) -> None:
        """Only work that ended long enough ago is pruned."""
        for id, finished_at in gone:
            if finished_at is None or finished_at > self._now() - WAITER_RETENTION:
                self._find(f"{id} was removed, and its end was {finished_at}")
            self.pruned.add(id)

    def _saw_abort(self, moved: Sequence[StatusChange]) -> None:
        for each in moved:
            job = self._state.jobs[each.id]
            if each.before not in FINISHED and job.status not in _ABORTED:
                self._find(f"job {each.id} was aborted, and is {job.status}")


def claim_violations(
    state: MemoryState, request: ClaimRequest, claimed: Claimed, now: datetime, latest: datetime
) -> Iterator[str]:
    """Violations of a claim, right after it was made; ``latest``: of all times so far."""
    yield from _closed_too_long(state, request, claimed, now)
    taken = [state.jobs[job.claim.id] for job in claimed.jobs]
    for job in taken:
        if job.ready_at > latest:
            yield f"job {job.id} was claimed {job.ready_at - now} before it is ready"
        if all(each.partition != job.partition_key for each in request.partitions):
            yield f"job {job.id} was claimed from another partition than {job.partition_key}"
        if job.sticky_worker not in (None, request.worker):
            yield f"job {job.id} waits for {job.sticky_worker}, and was claimed by another worker"
    if len(taken) > request.limit:
        yield f"{len(taken)} jobs were claimed, where {request.limit} were asked for"
    left = _first_left(state, request, now)
    for job in taken:
        first = left.get(job.partition_key)
        if first is not None and _urgency(first) < _urgency(job):
            yield f"job {job.id} was claimed, and {first.id} of its partition comes before it"
    free = _free_partitions(state, request, now)
    last = max(map(_urgency, taken), default=None)
    for partition in free & left.keys():
        job = left[partition]
        if len(taken) < request.limit:
            yield f"job {job.id} may be claimed, and was left where it is"
        elif last is not None and _urgency(job) < last:
            yield f"job {job.id} comes before one that was claimed, and nothing is in its way"


def not_alone(
    state: MemoryState, request: ClaimRequest, claimed: Claimed, unknown: Container[Claim]
) -> Iterator[str]:
    """Suspects that were claimed alone beside other jobs, except those ``unknown`` to the worker.

    A claim whose answer was lost, or which arrived after it was abandoned, is unknown to it.
    """
    if not request.is_alone:
        return
    for job in (state.jobs[job.claim.id] for job in claimed.jobs):
        beside = [
            each.id
            for each in state.jobs.values()
            if each.status in CLAIMED
            and each.id != job.id
            and (each.worker, each.incarnation) == (job.worker, job.incarnation)
            and Claim(id=each.id, epoch=each.epoch) not in unknown
        ]
        if job.suspicion.crashes and beside:
            yield f"job {job.id} was claimed alone, and its worker has {beside}"


def _closed_too_long(
    state: MemoryState, request: ClaimRequest, claimed: Claimed, now: datetime
) -> Iterator[str]:
    """A limit opens within its own window, unless an attempt closed it."""
    rules = [rule for partition in request.partitions for rule in partition.rules]
    records = (state.limits.get((request.namespace, rule.key)) for rule in rules)
    if claimed.opens_at is None or any(each is not None and each.closed_until for each in records):
        return
    longest = max(admission.windows(rules).values(), default=timedelta(0))
    if claimed.opens_at - now > longest:
        yield f"a limit opens in {claimed.opens_at - now}, and its window is {longest}"


def _first_left(state: MemoryState, request: ClaimRequest, now: datetime) -> dict[str, StoredJob]:
    """The job with the lowest rank in each partition among those still claimable."""
    partitions = {partition.partition for partition in request.partitions}
    left: dict[str, StoredJob] = {}
    for job in state.jobs.values():
        if job.status is not Status.WAITING or job.partition_key not in partitions:
            continue
        if job.namespace != request.namespace or job.is_held_off(request.worker, now):
            continue
        first = left.get(job.partition_key)
        if first is None or _urgency(job) < _urgency(first):
            left[job.partition_key] = job
    return left


def _free_partitions(state: MemoryState, request: ClaimRequest, now: datetime) -> set[str]:
    """Partitions from which more could be claimed: open, and with room under all their limits.

    Expired leases take no room, whether or not the jobs have been taken over.
    """
    live: Counter[str] = Counter()
    for job in state.jobs.values():
        if job.status in CLAIMED and job.lease_until is not None and job.lease_until > now:
            live.update(job.limit_keys)

    def is_free(partition: PartitionClaim) -> bool:
        if (request.namespace, partition.queue) in state.paused:
            return False
        for rule in partition.rules:
            kept = state.limits.get((request.namespace, rule.key))
            is_closed = kept is not None and kept.closed_until is not None
            if rule.live_max is None or live[rule.key] >= rule.live_max or is_closed:
                return False  # rates are judged by recorded starts
        return True

    return {partition.partition for partition in request.partitions if is_free(partition)}


def _urgency(job: StoredJob) -> tuple[float, str]:
    return job.rank, job.id


LATENESS_MAX, LATENESS_MAX_AT_REST = timedelta(seconds=60), timedelta(seconds=12)
"""Under faults, and without them."""
HELD_SECONDS_MAX = 60.0
"""How long after its lease a job of a dead worker may still be held."""
SEATED = {"seated": SEATS}
LIVE_OUTCOMES: Mapping[type, str] = {
    Parked: "job.parked",
    Requeued: "job.requeued",
    Retried: "job.retried",
}
QUIET = frozenset(
    {
        "maintenance.poll",
        "jobs.check",
        "maintenance.register_worker",
        "maintenance.acquire_lease",
        "now",
    }
)
"""Frequent, uninteresting calls: traced without their arguments."""

_TYPE = b'{"type":"'


class CallGuard:
    """Checks promises that a single call, or a sequence of calls, can violate."""

    def __init__(
        self,
        state: MemoryState,
        now: Callable[[], datetime],
        trace: Trace,
        find: Callable[[str], None],
        true_now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.calls: Counter[str] = Counter()
        self.deadline_lateness = LATENESS_MAX
        """How long after its deadline a job may still be claimed, or a run be live."""
        self._state = state
        self._now = now
        self._trace = trace
        self._find = find
        self._writes = WriteGuard(state, now, find)
        self._true_now = true_now
        self._latest = now()
        """The latest time of the store's clock so far."""
        self._heard: dict[JobId, float] = {}
        """When a job was claimed or its lease renewed, and for how long, in true seconds."""
        self._epochs: dict[JobId, int] = {}
        self._leases: dict[JobId, datetime] = {}
        self._untold: dict[Claim, tuple[str, ...]] = {}
        """Claims whose response is not delivered yet, and what they violate once it is."""
        self._revived: set[JobId] = set()
        """Jobs whose lease expired and was renewed before a takeover. A limit does not count them
        meanwhile, so another job may have got their place.
        """
        self._ended: dict[tuple[str, str, datetime], int] = {}
        """Event counts of ended runs; the start time distinguishes runs with the same id."""
        self._taps: list[tuple[datetime, JobId]] = []
        self.published: list[ClientEvent] = []
        """Live events."""
        self._outcomes: set[tuple[JobId, str]] = set()
        """Live events of outcomes that were written."""
        self._ticks: set[tuple[str, datetime, datetime]] = set()
        self._clocks = RunClocks()
        self._infos: dict[int | None, WorkerInfo] = {}
        """What each incarnation of a worker serves."""

    def sees(self, name: str) -> None:
        if name not in QUIET:
            self._writes.before()

    def saw(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        self.calls[name] += 1
        self._latest = max(self._latest, self._now())
        self._trace(_call_text(name, args, answer))
        if name not in QUIET:
            self._writes.after(name, args, answer)
            self._check_clocks()
        match name, answer:
            case "maintenance.register_worker", True:
                self._infos[args[0].incarnation] = args[0]
            case "jobs.claim", Claimed():
                self._saw_claim(args[0], answer)
            case "jobs.move_start", bool():
                self._saw_move(args[0], answer)
            case "jobs.renew", Renewal():
                self._saw_renewal(args[1], args[2], answer)
            case "maintenance.take_over_expired", list():
                self._check_epochs(answer)
                self._check_expired(answer)
            case "maintenance.take_over_former", list():
                self._check_epochs(answer)
            case "maintenance.bound_times", int():
                self._saw_bound_times()
            case "jobs.insert", list():
                self._check_fingerprints()
            case "jobs.settle", list():
                for settlement, status in zip(args[0], answer, strict=True):
                    if status is not None:
                        outcome = LIVE_OUTCOMES.get(type(settlement.outcome), "")
                        self._outcomes.add((settlement.claim.id, outcome))
            case "live.publish", None:
                self._saw_published(args[1])
            case "schedules.commit", ScheduleAnswer(state=ScheduleCommitState.DONE):
                self._saw_tick(args[0])
            case "runs.commit", CommitAnswer():
                for commit, result in zip(args[0], answer.results, strict=True):
                    if result.state is CommitState.DONE:
                        self._saw_commit(commit)

    def received(self, name: str, answer: Any) -> None:
        """The sender of a call got its answer."""
        if name == "jobs.claim" and isinstance(answer, Claimed):
            wrong = [each for job in answer.jobs for each in self._untold.pop(job.claim, ())]
            for finding in dict.fromkeys(wrong):
                self._find(finding)

    def clock_set_back(self) -> None:
        """The clock was set back since the last call."""
        self._taps = [(min(at, self._now()), id) for at, id in self._taps]

    @property
    def ends(self) -> Mapping[End, int]:
        """All ends of jobs and runs so far, numbered."""
        return self._writes.ends

    @property
    def kept_ends(self) -> Set[End]:
        """Those whose rows are there, or were until they were pruned."""
        there = ends_in(self._state.jobs.values(), self._state.records.runs.values())
        return self._writes.pruned_ends.union(there)

    @property
    def pruned(self) -> Set[Hashable]:
        """Work that was pruned: ids of jobs, places of runs."""
        return self._writes.pruned

    def _saw_claim(self, request: ClaimRequest, claimed: Claimed) -> None:
        now = self._now()
        self._check_holders()
        for job in claimed.jobs:
            id, epoch = job.claim.id, job.claim.epoch
            self._heard[id] = self._true_now() + request.lease.total_seconds()
            if epoch <= self._epochs.get(id, 0):
                self._find(f"job {id} was claimed with epoch {epoch}, which it had before")
            self._epochs[id] = epoch
            self._leases[id] = now + request.lease
            self._revived.discard(id)
            if job.deadline_at is not None:
                noticeable_at = max(job.deadline_at, self._writes.let_go.get(id, job.deadline_at))
                if noticeable_at < now - self.deadline_lateness:
                    self._find(f"job {id} was claimed {now - job.deadline_at} after its deadline")
            if job.partition.task == "tapped":
                self._taps.append((now, id))
            self._check_place(self._state.jobs[id])
        self._check_limits(now)
        for finding in claim_violations(self._state, request, claimed, now, self._latest):
            self._find(finding)
        wrong = tuple(not_alone(self._state, request, claimed, self._untold))
        self._untold.update(dict.fromkeys([job.claim for job in claimed.jobs], wrong))

    def _check_clocks(self) -> None:
        """Runs start, time out and end in time."""
        now = Now(moment(self._true_now()), self._now(), self._latest)
        for before, run in self._writes.changed_runs:
            log = self._state.records.events[run.place]
            for finding in self._clocks.changed(before, run, log, now, self.deadline_lateness):
                self._find(finding)

    def _check_place(self, job: StoredJob) -> None:
        """The worker of a claimed job serves its queue and tags, which are those of its run."""
        queue, tags = job.partition.queue, job.partition.tags
        info = self._infos.get(job.incarnation)
        if info is not None and (
            queue not in info.queues or (info.tags is not None and not set(tags) <= set(info.tags))
        ):
            self._find(
                f"job {job.id} of {queue} {tags} is claimed by {job.worker}, which serves others"
            )
        if job.node is not None:
            settings = self._state.records.runs[job.namespace, job.node.run].settings
            if (queue, tags) != (settings.queue or DEFAULT_QUEUE, settings.tags):
                self._find(f"job {job.id} is in {queue} {tags}, and its run elsewhere")

    def _check_holders(self) -> None:
        """The job of a dead worker is taken over soon after its lease, whatever the clock shows."""
        late = self._true_now() - HELD_SECONDS_MAX
        for id in [id for id, until in self._heard.items() if until < late]:
            job = self._state.jobs.get(id)
            if job is not None and job.status in CLAIMED and self._epochs.get(id) == job.epoch:
                self._find(f"job {id} is held by {job.worker}, which was not heard for too long")
            del self._heard[id]

    def _check_limits(self, now: datetime) -> None:
        live: Counter[str] = Counter()
        keyed: defaultdict[tuple[str, ...], int] = defaultdict(int)
        for job in self._state.jobs.values():
            if job.id in self._revived or job.status not in CLAIMED or job.lease_until is None:
                continue
            if job.lease_until > now:
                live[job.partition.task] += 1
                if job.partition.task == "keyed":
                    keyed[job.partition.keys] += 1
        for task, most in SEATED.items():
            if live[task] > most:
                self._find(f"{live[task]} jobs of {task} are held at once, where {most} may be")
        for keys, count in keyed.items():
            if count > KEYED_SEATS:
                self._find(f"{count} jobs under {keys} are held at once")
        since = now - timedelta(seconds=TAPS_SECONDS)
        self._taps = [(at, id) for at, id in self._taps if at > since]
        if len(self._taps) > TAPS:
            self._find(f"{len(self._taps)} jobs started within {TAPS_SECONDS} s, not {TAPS}")

    def _saw_move(self, claim: Claim, is_moved: bool) -> None:
        """A late start counts from now on, or not at all."""
        if self._epochs.get(claim.id) != claim.epoch or not self._writes.has_changed(claim.id):
            return
        for number, (_, id) in reversed(list(enumerate(self._taps))):
            if id == claim.id:
                del self._taps[number]
                break
        if is_moved and self._state.jobs[claim.id].partition.task == "tapped":
            self._taps.append((self._now(), claim.id))
        self._check_limits(self._now())

    def _saw_renewal(self, claims: Sequence[Any], lease: timedelta, renewal: Renewal) -> None:
        for claim in claims:
            if claim.id not in renewal.lost:
                if self._leases.get(claim.id, self._now()) <= self._now():
                    self._revived.add(claim.id)
                self._leases[claim.id] = self._now() + lease
                self._heard[claim.id] = self._true_now() + lease.total_seconds()

    def _saw_bound_times(self) -> None:
        for id, until in self._leases.items():
            job = self._state.jobs.get(id)
            if job is not None and job.lease_until is not None:
                self._leases[id] = min(until, job.lease_until)

    def _check_expired(self, taken: list[TakenOver]) -> None:
        for each in taken:
            until = self._leases.get(each.id)
            if until is not None and until > self._now():
                self._find(f"job {each.id} was taken over before its lease ran out")

    def _check_epochs(self, taken: list[TakenOver]) -> None:
        for each in taken:
            if self._state.jobs[each.id].epoch <= self._epochs.get(each.id, 0):
                self._find(f"job {each.id} was taken over, and its claim is still current")

    def _check_fingerprints(self) -> None:
        live = Counter(
            (job.partition.queue, job.fingerprint)
            for job in self._state.jobs.values()
            if job.fingerprint is not None and job.status not in FINISHED
        )
        for (_, fingerprint), count in live.items():
            if count > 1:
                self._find(f"{count} live jobs have the fingerprint {fingerprint}")

    def _saw_tick(self, commit: ScheduleCommit) -> None:
        """A scheduled tick starts one run or job; manual triggers do not count."""
        state = commit.schedule.state
        last = state.history[-1] if state.history else None
        if (commit.job is None and commit.run is None) or last is None or last.reason:
            return
        tick = (commit.schedule.name, state.created_at, last.at)
        if tick in self._ticks:
            self._find(f"the tick of {commit.schedule.name} at {last.at} started twice")
        self._ticks.add(tick)

    def _saw_published(self, events: Sequence[bytes]) -> None:
        """Live events say what was written before."""
        for event in (msgspec.json.decode(data, type=ClientEvent) for data in events):
            if event.type == LISTENING:
                continue
            self.published.append(event)
            id = JobId(event.job or "")
            is_outcome = event.type in LIVE_OUTCOMES.values()
            if event.worker is not None and id not in self._epochs:
                self._find(f"{event.type} of job {id} was published, but no worker has claimed it")
            elif event.worker is not None and is_outcome and (id, event.type) not in self._outcomes:
                self._find(f"{event.type} of job {id} was published, and not written")

    def _saw_commit(self, commit: RunCommit) -> None:
        for settlement in commit.settlements:
            # A node that parks needs no job meanwhile.
            has_retry = isinstance(settlement.job_outcome, Retries)
            self._outcomes.add((settlement.claim.id, "job.retried" if has_retry else "job.parked"))
        place = commit.namespace, commit.run
        run, log = self._state.records.runs.get(place), self._state.records.events.get(place)
        if run is None or log is None:
            return
        if run.number != len(log):
            self._find(f"run {run.id} has {len(log)} events, and says it has {run.number}")
        for settlement in commit.settlements:
            job = self._state.jobs.get(settlement.claim.id)
            is_continued = isinstance(settlement.job_outcome, Continues)
            if is_continued and job is not None and job.status in CLAIMED:
                self._check_place(job)  # unless this commit is a repeated one
        for child in commit.children:
            inherited = child.settings.queue, child.settings.tags
            if inherited != (run.settings.queue, run.settings.tags):
                self._find(f"run {child.id} is in {inherited}, and its parent elsewhere")
        if commit.created_at not in (None, run.created_at):
            self._find(f"run {run.id} got a commit that was decided about the one before it")
        this = (*place, run.created_at)
        before = self._ended.get(this)
        if before is not None and len(log) > before:
            if type_of(log[before].event.data) != "RunRetried":
                self._find(f"run {run.id} had ended, and got more events")
            del self._ended[this]
        if run.is_ended:
            self._ended[this] = len(log)


def type_of(data: bytes) -> str:
    """The type of a stored event, without decoding all of it."""
    start = len(_TYPE) if data.startswith(_TYPE) else 0
    return data[start : data.index(b'"', start)].decode() if start else "?"


def short(id: str) -> str:
    return id[-6:]


def _call_text(name: str, args: tuple[Any, ...], answer: Any) -> str:
    if isinstance(answer, Exception):
        return f"{name}: {type(answer).__name__}"
    if name in QUIET:
        return name
    match name, answer:
        case "jobs.claim", Claimed():
            jobs = ", ".join(f"{short(job.claim.id)}/{job.claim.epoch}" for job in answer.jobs)
            return f"{name}: {jobs or 'nothing'}"
        case "runs.commit", CommitAnswer():
            pairs = zip(args[0], answer.results, strict=True)
            return f"{name}: {'; '.join(_commit_text(commit, result) for commit, result in pairs)}"
        case "jobs.settle", list():
            pairs = zip(args[0], answer, strict=True)
            settled = (
                f"{short(each.claim.id)}/{each.claim.epoch} {type(each.outcome).__name__}"
                f" -> {status}"
                for each, status in pairs
            )
            return f"{name}: {', '.join(settled)}"
        case "jobs.insert", list():
            return f"{name}: {', '.join(short(each.id) for each in answer)}"
        case "runs.submit", _:
            return f"{name}: {args[0].id} of {args[0].flow}, new: {answer.is_new}"
        case "maintenance.take_over_expired" | "maintenance.take_over_former", list():
            return f"{name}: {', '.join(short(each.id) for each in answer) or 'nothing'}"
        case "maintenance.due_waits", list():
            received = ", ".join(f"{each.run}/{each.key}" for each in answer)
            return f"{name}: {received or 'nothing'}"
    return f"{name}: {answer}" if isinstance(answer, bool | int) else name


def _commit_text(commit: RunCommit, result: Any) -> str:
    node_types = " ".join(type_of(event.data) for event in commit.events)
    settled = ", ".join(
        f"{short(each.claim.id)}/{each.claim.epoch} {type(each.job_outcome).__name__}"
        for each in commit.settlements
    )
    return (
        f"{commit.run} after {commit.expected} [{node_types}] "
        f"{f'({settled}) ' if settled else ''}-> {commit.status} {result.state}"
    )
