"""Commits as the columns that one statement takes, and its answer as what became of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from perdure.model.ids import JobId
from perdure.model.job import Claim, NewJob, Status
from perdure.model.reach import check_times, reachable
from perdure.model.run import (
    CommitResult,
    CommitState,
    Continues,
    Repeats,
    RunCommit,
)
from perdure.store.postgres.connections import Record
from perdure.store.postgres.hints import Moves
from perdure.store.postgres.job_kinds import JobKinds, compact
from perdure.store.postgres.rows import encode_failure

NOW, SERIALS, IS_MOVED, CLAIMS, IS_DUE, LANES, RANK = range(7)
"""Where the row that ``commit_runs`` answers with has what."""

DONE = CommitResult(state=CommitState.DONE)
_CONFLICT = CommitResult(state=CommitState.CONFLICT)
_CONFLICTING, _DONE_BEFORE = 0, -1  # in place of a run's serial
_ENDS, _REPEATS = 0, -1  # in place of the kind of the next job
_IS_LIMITED = 4  # among what the statement says of a claim


class CommitBatch:
    """Steps of different runs, in the order in which their rows are locked."""

    def __init__(self, commits: Sequence[RunCommit]) -> None:
        self.commits = sorted(commits, key=lambda commit: (commit.namespace, commit.run))
        self._lines = sorted(
            (
                (settlement.claim.id, settlement.claim.epoch, position, settlement.then)
                for position, commit in enumerate(self.commits, 1)
                for settlement in commit.settlements
            ),
            key=lambda line: line[0],
        )
        for commit in self.commits:
            for job in commit.jobs:
                check_times(job)

    @property
    def settled(self) -> list[JobId]:
        """In the order in which they are locked."""
        return [line[0] for line in self._lines]

    def columns(self, moment: datetime | None, lanes: Sequence[str]) -> Iterator[Any]:
        """The arguments of ``commit_runs``."""
        commits = self.commits
        yield moment
        yield [commit.namespace for commit in commits]
        yield [commit.run for commit in commits]
        yield [commit.expected for commit in commits]
        yield [commit.token for commit in commits]
        yield [commit.status for commit in commits]
        yield [commit.expected + len(commit.events) for commit in commits]
        yield compact([commit.summary for commit in commits])
        kinds = JobKinds()
        yield from self._claim_columns(kinds)
        yield from self._event_columns()
        yield from self._job_columns(kinds)
        yield from kinds.columns()
        yield from self._repeat_columns()
        yield list({commit.namespace for commit in commits}) if lanes else []
        yield list(lanes)

    def results(self, row: Record) -> list[CommitResult]:
        """What became of each commit, in the order of ``commits``."""
        serials, claims = row[SERIALS], row[CLAIMS]
        stale: dict[int, list[Claim]] = {}
        for (id, epoch, position, _), is_held in zip(self._lines, claims, strict=True):
            if not is_held and serials[position - 1] > 0:
                stale.setdefault(position, []).append(Claim(id=id, epoch=epoch))
        results = []
        for position, serial in enumerate(serials, 1):
            if serial == _CONFLICTING:
                results.append(_CONFLICT)
            elif position in stale:
                claims_of_it = tuple(stale[position])
                results.append(CommitResult(state=CommitState.STALE, stale=claims_of_it))
            else:
                results.append(DONE)
        return results

    def note(self, row: Record, results: Sequence[CommitResult], moves: Moves) -> None:
        """Let ``moves`` learn what there is to publish."""
        for commit, result, is_moved in zip(self.commits, results, row[IS_MOVED], strict=True):
            if result is DONE:
                moves.stepped(commit.run, is_moved=is_moved)
                for job in commit.jobs:
                    note_queued(job, moves)
        if any(claim & _IS_LIMITED for claim in row[CLAIMS]):
            moves.frees_limit()
        if row[IS_DUE]:
            moves.due()
        for lane in row[LANES]:
            moves.queued(Status.WAITING if lane else Status.SCHEDULED, lane)

    def new(self, row: Record, results: Sequence[CommitResult]) -> list[RunCommit]:
        """Those that were written just now, not by an earlier try."""
        return [
            commit
            for commit, result, serial in zip(self.commits, results, row[SERIALS], strict=True)
            if result is DONE and serial != _DONE_BEFORE
        ]

    def _claim_columns(self, kinds: JobKinds) -> Iterator[list[Any]]:
        next_jobs = [then.job if type(then) is Continues else None for _, _, _, then in self._lines]
        fates = [_REPEATS if type(then) is Repeats else _ENDS for _, _, _, then in self._lines]
        yield [position for _, _, position, _ in self._lines]
        yield [id for id, _, _, _ in self._lines]
        yield [epoch for _, epoch, _, _ in self._lines]
        yield [
            fate if job is None else kinds.number_of(job)
            for fate, job in zip(fates, next_jobs, strict=True)
        ]
        yield compact([None if job is None else job.input for job in next_jobs])
        yield compact(
            [None if job is None or job.node is None else job.node.key for job in next_jobs]
        )

    def _event_columns(self) -> Iterator[list[Any]]:
        events = [
            (position, number, event)
            for position, commit in enumerate(self.commits, 1)
            for number, event in enumerate(commit.events, commit.expected + 1)
        ]
        yield [position for position, _, _ in events]
        yield [number for _, number, _ in events]
        yield [event.data for _, _, event in events]
        yield [event.value for _, _, event in events]

    def _job_columns(self, kinds: JobKinds) -> Iterator[list[Any]]:
        jobs = [
            (position, job)
            for position, commit in enumerate(self.commits, 1)
            for job in commit.jobs
        ]
        yield [position for position, _ in jobs]
        yield [job.id for _, job in jobs]
        yield [None if job.node is None else job.node.run for _, job in jobs]
        yield [kinds.number_of(job) for _, job in jobs]
        yield [job.input for _, job in jobs]
        yield [None if job.node is None else job.node.key for _, job in jobs]

    def _repeat_columns(self) -> Iterator[list[Any]]:
        repeats = [
            (position, id, reachable(then.outcome))
            for id, _, position, then in self._lines
            if type(then) is Repeats
        ]
        yield [position for position, _, _ in repeats]
        yield [id for _, id, _ in repeats]
        yield [encode_failure(retried.failure) for _, _, retried in repeats]
        yield [retried.delay for _, _, retried in repeats]
        yield [retried.until for _, _, retried in repeats]
        yield [retried.hold_off for _, _, retried in repeats]
        yield [retried.is_postponed for _, _, retried in repeats]
        yield [retried.closes_limit for _, _, retried in repeats]


def note_queued(job: NewJob, moves: Moves) -> None:
    """A job was inserted; where only the store knows whether its time has come, tell of both."""
    if job.run_at is not None or job.delay > timedelta(0):
        moves.queued(Status.SCHEDULED, job.lane.text)
    if job.run_at is not None or job.delay <= timedelta(0):
        moves.queued(Status.WAITING, job.lane.text)
