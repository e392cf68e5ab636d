"""Whether a call changed only what it may: jobs before and after it, compared.

The store in memory replaces a job as a whole with each write, so a job that is another object than
before was written to. What may be written is said here once more, in other words than the code's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from perdure.errors import IllegalTransition
from perdure.model.ids import JobId
from perdure.model.job import FINISHED, HELD, Claim, Status, StatusChange, TakenOver
from perdure.model.outcome import Retried, Settlement
from perdure.model.worker import Renewal
from perdure.store.memory.state import State
from perdure.store.memory.stored_job import StoredJob
from perdure.store.memory.stored_run import Place, StoredRun

Jobs = Mapping[JobId, StoredJob]
Runs = Mapping[Place, StoredRun]

_UNHELD = frozenset({Status.WAITING, Status.SCHEDULED, Status.PAUSED})
KEPT = timedelta(seconds=10)
"""Whatever retention says, what has ended stays for so long, for those who wait for it."""
_ABORTED = frozenset({Status.ABORTING, Status.CANCELLED})


class Fences:
    """Compares the jobs of a store around one call at a time."""

    def __init__(
        self, state: State, now: Callable[[], datetime], find: Callable[[str], None]
    ) -> None:
        self._state = state
        self._now = now
        self._find = find
        self._before: Jobs = {}
        self._runs_before: Runs = {}
        self.pruned: set[Hashable] = set()
        self.let_go: dict[JobId, datetime] = {}
        """When jobs that had been set aside went back to the queue."""

    def before(self) -> None:
        """Remember how things are, right before a call is carried out."""
        self._before = dict(self._state.jobs)
        self._runs_before = dict(self._state.records.runs)

    def after(self, name: str, args: tuple[Any, ...], answer: Any) -> None:
        """Look at what the call has changed, and whether it did what it is there for."""
        changed = self._changed()
        self._note_let_go(changed)
        if isinstance(answer, Exception):
            if isinstance(answer, IllegalTransition):
                self._find(f"{name}: {answer}")
            for id in changed:
                self._find(f"{name} raised {type(answer).__name__}, and changed job {id}")
            return
        self._check_finality(name, changed)
        match name, answer:
            case "jobs.save_progress", _:
                self._check_stale(name, [claim for claim, _ in args[0]], changed)
            case "jobs.renew", Renewal():
                stale = self._check_stale(name, args[1], changed)
                if answer.lost != stale:
                    self._find(f"renewal says {sorted(answer.lost)} are lost, not {sorted(stale)}")
            case "runs.save_step", _:
                if not self._is_current(args[0]):
                    self._find(f"a step of job {args[0].id} was stored under a stale claim")
            case "jobs.settle", list():
                self._saw_outcomes(args[0], answer, changed)
            case "maintenance.promote_due", int():
                self._saw_promotion(args[1], answer, changed)
            case "maintenance.take_over_expired", list():
                self._saw_take_over(args[1], args[2], answer)
            case "maintenance.expire_deadlines", list():
                self._saw_deadlines(args[1], len(answer), changed)
            case "maintenance.prune_jobs", _:
                gone = [self._before[id] for id in changed if id not in self._state.jobs]
                self._check_ended([(job.id, job.finished_at) for job in gone])
            case "maintenance.prune_runs", _:
                runs = self._state.records.runs
                left = [run for place, run in self._runs_before.items() if place not in runs]
                roots = [(run.place, run.finished_at) for run in left if run.parent is None]
                self._check_ended(roots)
            case "admin.abort_jobs", list():
                self._saw_abort(answer)

    def _changed(self) -> list[JobId]:
        """Jobs that were there, and were written to or removed."""
        jobs = self._state.jobs
        return [id for id, job in self._before.items() if jobs.get(id) is not job]

    def _note_let_go(self, changed: Sequence[JobId]) -> None:
        for id in changed:
            after = self._state.jobs.get(id)
            was_aside = self._before[id].status in (Status.DISABLED, Status.PAUSED)
            if was_aside and after is not None and after.status is Status.WAITING:
                self.let_go[id] = self._now()

    def _is_current(self, claim: Claim) -> bool:
        job = self._before.get(claim.id)
        return job is not None and job.status in HELD and job.epoch == claim.epoch

    def _check_finality(self, name: str, changed: Sequence[JobId]) -> None:
        for id in changed:
            before, after = self._before[id], self._state.jobs.get(id)
            if after is None:
                if before.node is None and name != "maintenance.prune_jobs":
                    self._find(f"{name} removed job {id}")
                continue
            if after.epoch < before.epoch:
                self._find(f"{name} took the epoch of job {id} back")
            if before.status in FINISHED and name != "admin.retry_jobs":
                self._find(f"{name} changed job {id}, which was {before.status}")
            if before.status is Status.ABORTING and after.status not in _ABORTED:
                self._find(f"{name} made job {id} {after.status}, though it was aborted")

    def _check_stale(
        self, name: str, claims: Sequence[Claim], changed: Sequence[JobId]
    ) -> frozenset[JobId]:
        """Only jobs that are held under one of these claims may change; the others' ids."""
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

    def _saw_take_over(self, limit: int, deaths_max: int, taken: Sequence[TakenOver]) -> None:
        now = self._now()
        for each in taken:
            before, after = self._before[each.id], self._state.jobs[each.id]
            if after.failures != before.failures or after.deaths != before.deaths + 1:
                self._find(f"the death of a worker counts as a failure of job {each.id}")
            is_poison = after.node is None and after.deaths >= deaths_max
            if is_poison and after.status is Status.WAITING:
                self._find(f"job {each.id} waits after {after.deaths} deaths of {deaths_max}")
        if len(taken) < limit:
            for job in self._state.jobs.values():
                if job.status in HELD and job.lease_until is not None and job.lease_until <= now:
                    self._find(f"the lease of job {job.id} ran out, and it was not taken over")

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
        """What is pruned has ended long enough ago."""
        for id, finished_at in gone:
            if finished_at is None or finished_at > self._now() - KEPT:
                self._find(f"{id} was removed, and its end was {finished_at}")
            self.pruned.add(id)

    def _saw_abort(self, moved: Sequence[StatusChange]) -> None:
        for each in moved:
            job = self._state.jobs[each.id]
            if each.before not in FINISHED and job.status not in _ABORTED:
                self._find(f"job {each.id} was aborted, and is {job.status}")
