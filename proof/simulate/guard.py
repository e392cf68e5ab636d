"""Who sees every call that reached the store, and says at once what must not be."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence, Set
from datetime import datetime, timedelta
from typing import Any

from perdure.model.ids import JobId
from perdure.model.job import FINISHED, HELD, Claimed, TakenOver
from perdure.model.run import CommitAnswer, CommitState, RunCommit
from perdure.model.schedule import ScheduleAnswer, ScheduleCommit, ScheduleCommitState
from perdure.model.worker import Renewal
from perdure.store.contract import ClaimRequest
from perdure.store.memory.state import State
from proof.simulate.fences import Fences
from proof.simulate.queue_order import ill_chosen
from proof.simulate.tasks import (
    KEYED_SEATS,
    SEATS,
    TAPS,
    TAPS_SECONDS,
)
from proof.simulate.trace import Trace

PATIENCE, PATIENCE_AT_REST = timedelta(seconds=60), timedelta(seconds=12)
"""With whatever befalls the workers, and where nothing does."""
SEATED = {"seated": SEATS}
QUIET = frozenset(
    {
        "maintenance.poll",
        "jobs.check",
        "maintenance.register_worker",
        "maintenance.acquire_lease",
        "now",
    }
)
"""Calls that say little and are made often: told without what they were about."""

_TYPE = b'{"type":"'


class Guard:
    """Checks what can be told from one call and those before it."""

    def __init__(
        self,
        state: State,
        now: Callable[[], datetime],
        trace: Trace,
        find: Callable[[str], None],
    ) -> None:
        self.calls: Counter[str] = Counter()
        self.deadline_patience = PATIENCE
        """How long after its deadline a job may still be claimed: somebody has to notice."""
        self._state = state
        self._now = now
        self._trace = trace
        self._find = find
        self._fences = Fences(state, now, find)
        self._epochs: dict[JobId, int] = {}
        self._leases: dict[JobId, datetime] = {}
        self._revived: set[JobId] = set()
        """Jobs whose lease ran out and was renewed before anybody took them over. A limit does not
        count them meanwhile, so that another may have got their place."""
        self._ended: dict[tuple[str, str, datetime], int] = {}
        """How many events ended runs had; when they began tells most runs of one id apart."""
        self._taps: deque[datetime] = deque()
        self._ticks: set[tuple[str, datetime, datetime]] = set()

    def sees(self, name: str) -> None:
        if name not in QUIET:
            self._fences.before()

    def saw(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        self.calls[name] += 1
        self._trace(_told(name, args, answer))
        if name not in QUIET:
            self._fences.after(name, args, answer)
        match name, answer:
            case "jobs.claim", Claimed():
                self._saw_claim(args[0], answer)
            case "jobs.renew", Renewal():
                self._saw_renewal(args[1], args[2], answer)
            case "maintenance.take_over_expired", list():
                self._saw_take_over(answer)
            case "jobs.insert", list():
                self._check_fingerprints()
            case "schedules.commit", ScheduleAnswer(state=ScheduleCommitState.DONE):
                self._saw_tick(args[0])
            case "runs.commit", CommitAnswer():
                for commit, result in zip(args[0], answer.results, strict=True):
                    if result.state is CommitState.DONE:
                        self._saw_commit(commit)

    @property
    def pruned(self) -> Set[Hashable]:
        """What was removed because it had ended long enough ago: ids of jobs, places of runs."""
        return self._fences.pruned

    def _saw_claim(self, request: ClaimRequest, claimed: Claimed) -> None:
        now = self._now()
        for job in claimed.jobs:
            id, epoch = job.claim.id, job.claim.epoch
            if epoch <= self._epochs.get(id, 0):
                self._find(f"job {id} was claimed with epoch {epoch}, which it had before")
            self._epochs[id] = epoch
            self._leases[id] = now + request.lease
            self._revived.discard(id)
            if job.deadline_at is not None:
                noticeable_at = max(job.deadline_at, self._fences.let_go.get(id, job.deadline_at))
                if noticeable_at < now - self.deadline_patience:
                    self._find(f"job {id} was claimed {now - job.deadline_at} after its deadline")
            if job.lane.task == "tapped":
                self._taps.append(now)
        self._check_limits(now)
        for finding in ill_chosen(self._state, request, claimed, now):
            self._find(finding)

    def _check_limits(self, now: datetime) -> None:
        live: Counter[str] = Counter()
        keyed: defaultdict[tuple[str, ...], int] = defaultdict(int)
        for job in self._state.jobs.values():
            if job.id in self._revived or job.status not in HELD or job.lease_until is None:
                continue
            if job.lease_until > now:
                live[job.lane.task] += 1
                if job.lane.task == "keyed":
                    keyed[job.lane.keys] += 1
        for task, most in SEATED.items():
            if live[task] > most:
                self._find(f"{live[task]} jobs of {task} are held at once, where {most} may be")
        for keys, count in keyed.items():
            if count > KEYED_SEATS:
                self._find(f"{count} jobs under {keys} are held at once")
        while self._taps and self._taps[0] <= now - timedelta(seconds=TAPS_SECONDS):
            self._taps.popleft()
        if len(self._taps) > TAPS:
            self._find(f"{len(self._taps)} jobs started within {TAPS_SECONDS} s, not {TAPS}")

    def _saw_renewal(self, claims: Sequence[Any], lease: timedelta, renewal: Renewal) -> None:
        for claim in claims:
            if claim.id not in renewal.lost:
                if self._leases.get(claim.id, self._now()) <= self._now():
                    self._revived.add(claim.id)
                self._leases[claim.id] = self._now() + lease

    def _saw_take_over(self, taken: list[TakenOver]) -> None:
        for each in taken:
            until = self._leases.get(each.id)
            if until is not None and until > self._now():
                self._find(f"job {each.id} was taken over before its lease ran out")
            if self._state.jobs[each.id].epoch <= self._epochs.get(each.id, 0):
                self._find(f"job {each.id} was taken over, and its claim is still current")

    def _check_fingerprints(self) -> None:
        live = Counter(
            (job.lane.queue, job.fingerprint)
            for job in self._state.jobs.values()
            if job.fingerprint is not None and job.status not in FINISHED
        )
        for (_, fingerprint), count in live.items():
            if count > 1:
                self._find(f"{count} live jobs have the fingerprint {fingerprint}")

    def _saw_tick(self, commit: ScheduleCommit) -> None:
        """A tick of the timetable starts one thing; what somebody triggers is none of it."""
        state = commit.schedule.state
        last = state.history[-1] if state.history else None
        if (commit.job is None and commit.run is None) or last is None or last.reason:
            return
        tick = (commit.schedule.name, state.created_at, last.at)
        if tick in self._ticks:
            self._find(f"the tick of {commit.schedule.name} at {last.at} started twice")
        self._ticks.add(tick)

    def _saw_commit(self, commit: RunCommit) -> None:
        place = commit.namespace, commit.run
        run, log = self._state.records.runs.get(place), self._state.records.events.get(place)
        if run is None or log is None:
            return
        if run.number != len(log):
            self._find(f"run {run.id} has {len(log)} events, and says it has {run.number}")
        this = (*place, run.created_at)
        before = self._ended.get(this)
        if before is not None and commit.expected < before:  # begun anew at the same moment
            del self._ended[this]
        elif before is not None and len(log) > before:
            if kind_of(log[before].event.data) != "RunRetried":
                self._find(f"run {run.id} had ended, and got more events")
            del self._ended[this]
        if run.is_ended:
            self._ended[this] = len(log)


def kind_of(data: bytes) -> str:
    """The kind of a stored event, without reading all of it."""
    start = len(_TYPE) if data.startswith(_TYPE) else 0
    return data[start : data.index(b'"', start)].decode() if start else "?"


def short(id: str) -> str:
    return id[-6:]


def _told(name: str, args: tuple[Any, ...], answer: Any) -> str:
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
            return f"{name}: {'; '.join(_commit_told(commit, result) for commit, result in pairs)}"
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
        case "maintenance.take_over_expired", list():
            return f"{name}: {', '.join(short(each.id) for each in answer) or 'nothing'}"
        case "maintenance.due_waits", list():
            told = ", ".join(f"{each.run}/{each.key}" for each in answer)
            return f"{name}: {told or 'nothing'}"
    return f"{name}: {answer}" if isinstance(answer, bool | int) else name


def _commit_told(commit: RunCommit, result: Any) -> str:
    kinds = " ".join(kind_of(event.data) for event in commit.events)
    settled = ", ".join(
        f"{short(each.claim.id)}/{each.claim.epoch} {type(each.then).__name__}"
        for each in commit.settlements
    )
    return (
        f"{commit.run} after {commit.expected} [{kinds}] "
        f"{f'({settled}) ' if settled else ''}-> {commit.status} {result.state}"
    )
