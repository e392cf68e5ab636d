"""Inserting, claiming and settling jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from perdure.errors import FingerprintTaken, IllegalTransition
from perdure.model.check import check_times
from perdure.model.failure import Failure
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import CLAIMED, FINISHED, Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.limit import HOLDERS_MAX, LimitRule, LimitUsage, LimitUse
from perdure.model.outcome import Settlement
from perdure.model.run import StoredStep
from perdure.model.value import Value
from perdure.model.worker import Renewal
from perdure.store import admission
from perdure.store.contract import ClaimRequest, JobStore
from perdure.store.contract.refusals import deadline_passed
from perdure.store.failures import replaced_by
from perdure.store.lifecycle import Transition, after_settling, allows
from perdure.store.outcomes import Delayed, Written, written_by
from perdure.store.sql.rows import STATUS_OF
from perdure.store.sqlite.rows import (
    INLINE_MAX_BYTES,
    Row,
    SqliteJobRow,
    as_json,
    claimed_from,
    deadline_of,
    encode,
    encode_details,
    micros,
    micros_in,
    moment,
    moment_or_none,
    new_row,
)
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.transaction import Transaction


class Move(Value):
    """A change of one job's status."""

    job: SqliteJobRow
    after: Status
    failure: Failure | None = None
    """The failure to add to its history."""
    takes_claim: bool = False
    """Whether to revoke the claim."""
    attempts_back: int = 0
    crashes: int = 0
    partition: str | None = None
    """Its partition from now on, if it changes."""


def move(transaction: Transaction, operation: Transition, moves: Sequence[Move]) -> None:
    """Write the moves by the transition table, record their failures, and publish hints."""
    for step in moves:
        if not allows(operation, Status(step.job.status), step.after):
            raise IllegalTransition(job_id=step.job.id, operation=operation, status=step.job.status)
    now = transaction.now
    transaction.write_rows(
        "move_jobs",
        [
            (
                step.job.number,
                step.after,
                step.job.epoch + step.takes_claim,
                step.job.attempt - step.attempts_back,
                step.job.crashes + step.crashes,
                step.partition or step.job.partition,
                now if step.after in FINISHED else None,
            )
            for step in moves
        ],
    )
    failed = [(step.job, step.failure) for step in moves if step.failure is not None]
    record_failures(transaction, failed)
    hint_at_moves(
        transaction,
        [
            (step.job._replace(partition=step.partition or step.job.partition), step.after)
            for step in moves
        ],
    )


def record_failures(
    transaction: Transaction, failed: Iterable[tuple[SqliteJobRow, Failure]]
) -> None:
    """Add failures to jobs, given their rows before this write."""
    transaction.write_rows(
        "insert_failures",
        [
            (job.id, job.attempt, job.worker, transaction.now, encode(failure))
            for job, failure in failed
        ],
    )


def hint_at_moves(transaction: Transaction, moved: Iterable[tuple[SqliteJobRow, Status]]) -> None:
    """Publish hints for waiters, pollers, and workers that wait for room under a limit."""
    for job, after in moved:
        frees_limit = bool(job.is_limited) and after not in CLAIMED
        transaction.hints.moved(job.id, after, job.partition, frees_limit=frees_limit)


def is_claimed(job: SqliteJobRow) -> bool:
    return job.status in CLAIMED


Fingerprint = tuple[str, str, str | None]

_PARTITION, _STATUS = 4, 6  # positions in a new row


class _Replace(Value):
    """A job to cancel in favor of another."""

    rival: JobId
    by: JobId


Step = NewJob | _Replace


def insert_jobs(transaction: Transaction, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Add jobs and answer in their order; raises before it writes."""
    for job in jobs:
        check_times(job)
    is_plain = all(job.fingerprint is None for job in jobs) and not _past(transaction, jobs)
    if is_plain:
        _write(transaction, jobs)
        return [Inserted(id=job.id, is_new=True) for job in jobs]
    transaction.write("take_write_lock")
    steps, answers = _plan(transaction, jobs)
    for found_type, group in groupby(steps, type):
        if found_type is _Replace:
            _cancel(transaction, [step for step in group if isinstance(step, _Replace)])
        else:
            _write(transaction, [step for step in group if isinstance(step, NewJob)])
    return answers


def _plan(
    transaction: Transaction, jobs: Sequence[NewJob]
) -> tuple[Sequence[Step], list[Inserted]]:
    """The steps to run, in order, as if the jobs came one by one."""
    known = {row[1] for row in transaction.rows("jobs_by_id", ids=as_json([j.id for j in jobs]))}
    live = _live_fingerprints(transaction, jobs)
    steps: list[Step] = []
    answers: list[Inserted] = []
    for job in jobs:
        if job.id in known:  # retried after a lost response
            answers.append(Inserted(id=job.id, is_new=True))
            continue
        _check_deadline(transaction, job)
        rival = live.get(_fingerprint_of(job))
        if rival is not None and job.on_conflict == "return":
            answers.append(Inserted(id=rival, is_new=False))
            continue
        if rival is not None and job.on_conflict == "raise":
            raise FingerprintTaken(
                queue=job.partition.queue, fingerprint=job.fingerprint or "", job_id=rival
            )
        if rival is not None:
            steps.append(_Replace(rival=rival, by=job.id))
        steps.append(job)
        known.add(job.id)
        if job.fingerprint is not None:
            live[_fingerprint_of(job)] = job.id
        answers.append(Inserted(id=job.id, is_new=True))
    return steps, answers


def _write(transaction: Transaction, jobs: Sequence[NewJob]) -> None:
    rows = [new_row(job, transaction.now) for job in jobs]
    transaction.write_rows("insert_jobs", rows)
    large = [(job.id, job.input) for job in jobs if len(job.input) > INLINE_MAX_BYTES]
    transaction.write_rows("insert_large_inputs", large)
    for row in rows:
        transaction.hints.queued(row[_STATUS], row[_PARTITION])


def _cancel(transaction: Transaction, replaced: Iterable[_Replace]) -> None:
    by = {step.rival: step.by for step in replaced}
    rivals = [SqliteJobRow._make(r) for r in transaction.rows("jobs_by_id", ids=as_json(list(by)))]
    moves = [
        Move(
            job=rival,
            after=Status.CANCELLED,
            failure=replaced_by(by[rival.id]),
            takes_claim=is_claimed(rival),
        )
        for rival in rivals
    ]
    move(transaction, Transition.REPLACE, moves)
    for rival in rivals:
        if is_claimed(rival):
            transaction.hints.stopped(rival.id)


def _live_fingerprints(
    transaction: Transaction, jobs: Sequence[NewJob]
) -> dict[Fingerprint, JobId]:
    wanted = {_fingerprint_of(job) for job in jobs if job.fingerprint is not None}
    rows = transaction.rows("live_fingerprints", wanted=as_json(list(wanted)))
    found = (SqliteJobRow._make(row) for row in rows)
    return {(job.namespace, job.queue, job.fingerprint): job.id for job in found}


def _fingerprint_of(job: NewJob) -> Fingerprint:
    return job.namespace, job.partition.queue, job.fingerprint


def _past(transaction: Transaction, jobs: Sequence[NewJob]) -> bool:
    deadlines = (deadline_of(job, transaction.now) for job in jobs)
    return any(at is not None and at <= transaction.now for at in deadlines)


def _check_deadline(transaction: Transaction, job: NewJob) -> None:
    deadline_at = deadline_of(job, transaction.now)
    if deadline_at is not None and deadline_at <= transaction.now:
        raise deadline_passed(job.id, moment(deadline_at), moment(transaction.now))


def limit_uses(
    transaction: Transaction, namespace: str, rules: Sequence[LimitRule]
) -> list[LimitUse]:
    holders: dict[str, list[JobId]] = {}
    for key, id in transaction.rows("limit_holders", namespace=namespace, now=transaction.now):
        holders.setdefault(key, []).append(JobId(id))
    usages, _ = _usages(transaction, namespace, rules)
    return [
        LimitUse(usage=usage, held_by=tuple(holders.get(rule.key, ())[:HOLDERS_MAX]))
        for rule, usage in zip(rules, usages, strict=True)
    ]


def _usages(
    transaction: Transaction, namespace: str, rules: Sequence[LimitRule]
) -> tuple[list[LimitUsage], bool]:
    """The usage of each rule, and whether the clock was set back since."""
    live: dict[str, int] = dict(
        transaction.rows("live_under_limits", namespace=namespace, now=transaction.now)
    )
    keys = list({rule.key for rule in rules})
    found = transaction.rows("limits", namespace=namespace, keys=as_json(keys))
    marks = {key: times for key, *times in found}
    usages, recorded = [], set[int | None]()
    for rule in rules:
        starts, oldest, newest = _starts_in_window(transaction, namespace, rule)
        last_start_at, closed_until, closed_at = marks.get(rule.key, (None, None, None))
        recorded |= {newest, last_start_at, closed_at}
        usages.append(
            LimitUsage(
                live=live.get(rule.key, 0),
                starts=starts,
                oldest_start_at=moment_or_none(oldest),
                last_start_at=moment_or_none(last_start_at),
                closed_until=moment_or_none(closed_until),
            )
        )
    latest = max((at for at in recorded if at is not None), default=0)
    return usages, latest - transaction.now > micros_in(admission.CLOCK_STEP_MIN)


def bound_limits(transaction: Transaction, namespace: str, keys: Iterable[str] | None) -> None:
    """Bound what limits count after the clock was set back; None for all keys."""
    wanted = None if keys is None else as_json(list(keys))
    for name in ("bound_limits", "bound_starts"):
        transaction.write(name, namespace=namespace, keys=wanted, now=transaction.now)


def record_starts(
    transaction: Transaction,
    namespace: str,
    started: Sequence[tuple[str, ...]],
    rules: Sequence[LimitRule],
) -> None:
    """Count started jobs, given the keys of each, and drop starts outside the window."""
    now = transaction.now
    counts = Counter(key for keys in started for key in keys)
    transaction.write_rows(
        "record_starts",
        [(namespace, key, now, now + micros_in(admission.memory_of(rules, key))) for key in counts],
    )
    windows = admission.windows(rule for rule in rules if rule.key in counts)
    transaction.write_rows("add_starts", [(namespace, key, now, counts[key]) for key in windows])
    for key, window in windows.items():
        transaction.write(
            "forget_starts", namespace=namespace, key=key, until=now - micros_in(window)
        )


def _starts_in_window(
    transaction: Transaction, namespace: str, rule: LimitRule
) -> tuple[int, int | None, int | None]:
    if rule.window is None:
        return 0, None, None
    since = transaction.now - micros_in(rule.window)
    [(starts, oldest, newest)] = transaction.rows(
        "starts_since", namespace=namespace, key=rule.key, since=since
    )
    return starts, oldest, newest


def move_start(transaction: Transaction, claim: Claim, within: timedelta) -> bool:
    """Count the start of a claimed job now, or no longer if that is too late."""
    now = transaction.now
    for number, namespace, at, keys in transaction.rows(
        "counted_start", id=claim.id, epoch=claim.epoch
    ):
        is_moved: bool = now - at < micros_in(within)
        for key in msgspec.json.decode(keys, type=list[str]):
            place = {"namespace": namespace, "key": key}
            starts = transaction.rows("starts_at", at=at, **place)
            if starts:
                row, count = starts[0]
                transaction.write("decrement_starts" if count > 1 else "remove_start", number=row)
            if is_moved:
                if starts:
                    transaction.write_rows("add_starts", [(namespace, key, now, 1)])
                transaction.write("move_last_start", now=now, by=now - at, **place)
            elif [count for _, count in starts] == [1]:
                transaction.write("forget_last_start", at=at, **place)
        transaction.write(
            "move_start",
            number=number,
            started_at=now if is_moved else at,
            limit_keys=keys if is_moved else None,
        )
        if not is_moved:
            transaction.hints.frees_limit()
        return is_moved
    return False


PartitionRules = Mapping[str, tuple[LimitRule, ...]]


def claim_jobs(transaction: Transaction, request: ClaimRequest) -> Claimed:
    """Lease the most urgent jobs of the partitions, as many as the limits leave room for."""
    paused = {name for (name,) in transaction.rows("paused_among", namespace=request.namespace)}
    partitions = {
        partition.partition: partition.rules
        for partition in request.partitions
        if partition.queue not in paused
    }
    if any(partitions.values()):
        return _claim_limited(transaction, request, partitions)
    rows = transaction.rows(
        "claim_jobs",
        namespace=request.namespace,
        partitions=as_json(list(partitions)),
        worker=request.worker,
        lease_until=transaction.now + micros_in(request.lease),
        now=transaction.now,
        limit=request.limit,
        alone=int(request.is_alone),
        incarnation=request.incarnation,
    )
    return _claimed(transaction, rows)


def _claim_limited(
    transaction: Transaction, request: ClaimRequest, partitions: PartitionRules
) -> Claimed:
    rules = tuple(
        dict.fromkeys(rule for of_partition in partitions.values() for rule in of_partition)
    )
    usages, is_ahead = _usages(transaction, request.namespace, rules)
    if is_ahead:
        bound_limits(transaction, request.namespace, {rule.key for rule in rules})
        usages, _ = _usages(transaction, request.namespace, rules)
    rooms = admission.rooms(dict(zip(rules, usages, strict=True)), transaction.moment)
    open_partitions = [
        partition
        for partition, of_partition in partitions.items()
        if all(rooms[rule.key].count for rule in of_partition)
    ]
    keys = {
        partition: tuple(dict.fromkeys(rule.key for rule in partitions[partition]))
        for partition in open_partitions
    }
    front = transaction.rows(
        "front_of_partitions",
        namespace=request.namespace,
        partitions=as_json(open_partitions),
        worker=request.worker,
        now=transaction.now,
        limit=request.limit,
    )

    partition_of = {str(number): partition for number, partition in front}
    candidates = ((number, keys[partition]) for number, partition in partition_of.items())
    left = {key: room.count for key, room in rooms.items()}
    chosen = admission.share_out(candidates, left, request.limit)

    rows = _start(transaction, request, [(number, keys[partition_of[number]]) for number in chosen])
    started = [keys[partition_of[number]] for number in chosen]
    record_starts(transaction, request.namespace, started, rules)
    claimed = _claimed(transaction, rows)
    return Claimed(jobs=claimed.jobs, now=claimed.now, opens_at=admission.opens_at(rooms))


def _start(
    transaction: Transaction, request: ClaimRequest, chosen: Sequence[tuple[str, tuple[str, ...]]]
) -> list[Row]:
    until = transaction.now + micros_in(request.lease)
    return transaction.returned_rows(
        "claim_picked",
        [
            (
                int(number),
                request.worker,
                until,
                transaction.now,
                as_json(keys) if keys else None,
                int(request.is_alone),
                request.incarnation,
            )
            for number, keys in chosen
        ],
    )


def _claimed(transaction: Transaction, rows: Sequence[Row]) -> Claimed:
    rows = sorted(rows, key=_rank_then_id)
    without_input = [row[1] for row in rows if row[5] is None]
    large_inputs: dict[str, bytes] = {}
    if without_input:
        found = transaction.rows("large_inputs", ids=as_json(without_input))
        large_inputs = dict(found)
    jobs = [claimed_from(row, large_inputs) for row in rows]
    return Claimed(jobs=jobs, now=moment(transaction.now))


def _rank_then_id(row: Row) -> tuple[float, str]:
    return row[0], row[1]


class _Ending(NamedTuple):
    """A settlement whose claim is current."""

    job: SqliteJobRow
    after: Status
    settlement: Settlement
    written: Written
    ready_at: int

    @property
    def moved_job(self) -> SqliteJobRow:
        """With the partition that it moves to."""
        key = self.written.partition_key
        return self.job if key is None else self.job._replace(partition=key)


def settle_jobs(transaction: Transaction, settlements: Sequence[Settlement]) -> list[Status | None]:
    """Write outcomes under their claims' fences; None, and nothing written, for a stale one."""
    endings = _endings(transaction, settlements)
    current = [ending for ending in endings if ending is not None]
    # Most jobs complete: a separate statement leaves most columns alone.
    completed = [ending for ending in current if ending.after is Status.COMPLETED]
    others = [ending for ending in current if ending.after is not Status.COMPLETED]
    now = transaction.now
    transaction.write_rows("complete_jobs", [_completed_row(now, ending) for ending in completed])
    transaction.write_rows("settle_jobs", [_row(now, ending) for ending in others])
    record_failures(
        transaction,
        [(each.job, each.written.failure) for each in others if each.written.failure is not None],
    )
    transaction.write_rows(
        "close_limits",
        [
            (each.job.namespace, each.written.delayed.closes_limit, each.ready_at, now)
            for each in others
            if each.written.delayed is not None and each.written.delayed.closes_limit
        ],
    )
    hint_at_moves(transaction, [(ending.moved_job, ending.after) for ending in current])
    return [None if ending is None else ending.after for ending in endings]


def _endings(transaction: Transaction, settlements: Sequence[Settlement]) -> list[_Ending | None]:
    ids = as_json([settlement.claim.id for settlement in settlements])
    jobs = {row[1]: SqliteJobRow._make(row) for row in transaction.rows("jobs_by_id", ids=ids)}
    endings: list[_Ending | None] = []
    for settlement in settlements:
        job = jobs.get(settlement.claim.id)
        ending = None
        if job is not None and job.epoch == settlement.claim.epoch:
            written = written_by(settlement.outcome)
            ready_at = _ready_at(transaction, job, written.delayed)
            is_due = ready_at <= transaction.now
            is_node = job.run_id is not None
            before, outcome = STATUS_OF[job.status], settlement.outcome
            after = after_settling(before, outcome, is_due=is_due, is_node=is_node)
            if after is not None:
                ending = _Ending(job, after, settlement, written, ready_at)
                del jobs[job.id]  # it is unclaimed if the same claim comes again
        endings.append(ending)
    return endings


def _completed_row(now: int, ending: _Ending) -> Row:
    """A row for the statement ``complete_jobs``."""
    job, _, settlement, written, _ = ending
    progress = settlement.progress
    return (
        job.number,
        now,
        int(settlement.is_hidden),  # faster than a bool, for which the driver looks up an adapter
        None if progress is None else progress.message,
        None if progress is None else encode_details(progress),
        written.output,
    )


def _row(now: int, ending: _Ending) -> Row:
    """A row for the statement ``settle_jobs``."""
    job, after, settlement, written, ready_at = ending
    # An aborting job ends cancelled whatever its outcome.
    is_counted = job.status == Status.ACTIVE
    delayed = written.delayed if is_counted else None
    progress = settlement.progress
    is_finished = after in FINISHED
    return (
        job.number,
        after,
        written.attempts_back if is_counted else 0,
        written.failures if is_counted else 0,
        written.snoozes if is_counted else 0,
        ready_at if is_counted else job.ready_at,
        None if delayed is None else job.worker,
        None if delayed is None else ready_at + micros_in(delayed.hold_off),
        now if is_finished else None,
        is_finished and settlement.is_hidden,
        None if progress is None else progress.percent,
        None if progress is None else progress.message,
        None if progress is None else encode_details(progress),
        ending.moved_job.partition if is_counted else job.partition,
    )


def _ready_at(transaction: Transaction, job: SqliteJobRow, delayed: Delayed | None) -> int:
    if delayed is None:
        return job.ready_at
    if delayed.until is not None:
        return micros(delayed.until)
    return transaction.now + micros_in(delayed.delay)


class SqliteJobs(JobStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def insert(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        made = list(jobs)
        return await self._session.write_small(
            lambda transaction: insert_jobs(transaction, made), len(made)
        )

    async def claim(self, request: ClaimRequest) -> Claimed:
        # A claim may read more than it returns: with many partitions it is not small.
        size = request.limit + len(request.partitions)
        return await self._session.write_small(
            lambda transaction: claim_jobs(transaction, request), size
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        return await self._session.write_small(
            lambda transaction: settle_jobs(transaction, settlements), len(settlements)
        )

    async def settle_parked(self, settlement: Settlement, worker: WorkerId) -> Status | None:
        claim = settlement.claim

        def settle(transaction: Transaction) -> Status | None:
            row = {"id": claim.id, "epoch": claim.epoch, "worker": worker, "now": transaction.now}
            if not transaction.write("accept_parked", **row):
                return None
            accepted = Claim(id=claim.id, epoch=claim.epoch + 1)
            [status] = settle_jobs(transaction, [replace(settlement, claim=accepted)])
            return status

        return await self._session.write(settle)

    async def resume_parked(self, claim: Claim, step: StoredStep) -> bool:
        def resume(transaction: Transaction) -> bool:
            rows = transaction.rows("parked_job", id=claim.id, epoch=claim.epoch)
            for job in map(SqliteJobRow._make, rows):
                transaction.write(
                    "save_step", id=job.id, owner=job.id, step=step.name, value=step.value
                )
                move(transaction, Transition.RESUME, [Move(job=job, after=Status.WAITING)])
            return bool(rows)

        return await self._session.write(resume)

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        def renew(transaction: Transaction) -> Renewal:
            current = _current(transaction, claims)
            transaction.write(
                "renew_leases",
                numbers=as_json([number for number, _ in current.values()]),
                lease_until=transaction.now + micros_in(lease),
            )
            return _renewal(transaction, claims, current)

        return await self._session.write(renew)

    async def check(self, claims: Sequence[Claim]) -> Renewal:
        return await self._session.read(
            lambda transaction: _renewal(transaction, claims, _current(transaction, claims))
        )

    async def save_progress(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        def save(transaction: Transaction) -> None:
            current = _current(transaction, [claim for claim, _ in progress])
            latest = {claim: reached for claim, reached in progress if claim in current}
            transaction.write_rows(
                "save_progress",
                [
                    (current[claim][0], reached.percent, reached.message, encode_details(reached))
                    for claim, reached in latest.items()
                ],
            )
            transaction.hints.changed(claim.id for claim in latest)

        await self._session.write(save)

    async def move_start(self, claim: Claim, within: timedelta) -> bool:
        return await self._session.write_small(
            lambda transaction: move_start(transaction, claim, within), 1
        )

    async def requeue_unknown(
        self, worker: WorkerId, known: Sequence[JobId], incarnation: int | None = None
    ) -> int:
        def requeue(transaction: Transaction) -> int:
            rows = transaction.rows("claimed_by_worker", worker=worker, incarnation=incarnation)
            held = [SqliteJobRow._make(row) for row in rows]
            kept = set(known)
            moves = [_returned(job) for job in held if job.id not in kept]
            move(transaction, Transition.REQUEUE, moves)
            return len(moves)

        return await self._session.write(requeue)


def _current(transaction: Transaction, claims: Sequence[Claim]) -> dict[Claim, tuple[int, str]]:
    """Row number and status of the current claims."""
    wanted = set(claims)
    rows = transaction.rows("claim_states", ids=as_json([claim.id for claim in wanted]))
    found = {Claim(id=id, epoch=epoch): (number, status) for number, id, epoch, status in rows}
    return {claim: state for claim, state in found.items() if claim in wanted}


def _renewal(
    transaction: Transaction, claims: Sequence[Claim], current: dict[Claim, tuple[int, str]]
) -> Renewal:
    lost = [claim.id for claim in claims if claim not in current]
    disabled = transaction.rows("disabled_among", ids=as_json(lost)) if lost else ()
    return Renewal(
        lost=frozenset(lost),
        disabled=frozenset(id for (id,) in disabled),
        aborting=frozenset(
            claim.id for claim, (_, status) in current.items() if status == Status.ABORTING
        ),
    )


def _returned(job: SqliteJobRow) -> Move:
    if job.status == Status.ABORTING:
        return Move(job=job, after=Status.CANCELLED, takes_claim=True)
    return Move(job=job, after=Status.WAITING, takes_claim=True, attempts_back=1)
