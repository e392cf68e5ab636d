"""Jobs: how they come in, are held, and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from perdure.model.hint import HintKind
from perdure.model.ids import JobId, WorkerId
from perdure.model.job import Claim, Claimed, Inserted, NewJob, Progress, Status
from perdure.model.outcome import Settlement
from perdure.model.worker import Renewal
from perdure.store.contract import ClaimRequest, JobStore
from perdure.store.lifecycle import Operation
from perdure.store.sqlite.claiming import claim_jobs
from perdure.store.sqlite.inserting import insert_jobs
from perdure.store.sqlite.moving import Move, move
from perdure.store.sqlite.rows import JobRow, as_json, encode_details, micros_in
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.settling import settle_jobs
from perdure.store.sqlite.transaction import Transaction


class SqliteJobs(JobStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def insert(self, jobs: Iterable[NewJob]) -> list[Inserted]:
        made = list(jobs)
        return await self._session.write_small(
            lambda transaction: insert_jobs(transaction, made), len(made)
        )

    async def claim(self, request: ClaimRequest) -> Claimed:
        # What a claim finds may be more than it asks for: with many lanes it is not small.
        size = request.limit + len(request.lanes)
        return await self._session.write_small(
            lambda transaction: claim_jobs(transaction, request), size
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Status | None]:
        return await self._session.write_small(
            lambda transaction: settle_jobs(transaction, settlements), len(settlements)
        )

    async def renew(self, worker: WorkerId, claims: Sequence[Claim], lease: timedelta) -> Renewal:
        def renew(transaction: Transaction) -> Renewal:
            current = _current(transaction, claims)
            transaction.write(
                "renew_leases",
                numbers=as_json([number for number, _ in current.values()]),
                lease_until=transaction.now + micros_in(lease),
            )
            return _renewal(claims, current)

        return await self._session.write(renew)

    async def check(self, claims: Sequence[Claim]) -> Renewal:
        return await self._session.read(
            lambda transaction: _renewal(claims, _current(transaction, claims))
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
            transaction.hint(HintKind.CHANGED, (claim.id for claim in latest))

        await self._session.write(save)

    async def requeue_unknown(self, worker: WorkerId, known: Sequence[JobId]) -> int:
        def give_back(transaction: Transaction) -> int:
            held = [JobRow._make(row) for row in transaction.rows("held_by_worker", worker=worker)]
            kept = set(known)
            moves = [_returned(job) for job in held if job.id not in kept]
            move(transaction, Operation.GIVE_BACK, moves)
            return len(moves)

        return await self._session.write(give_back)


def _current(transaction: Transaction, claims: Sequence[Claim]) -> dict[Claim, tuple[int, str]]:
    """Row number and status of those claims that are current."""
    wanted = set(claims)
    rows = transaction.rows("claim_states", ids=as_json([claim.id for claim in wanted]))
    found = {Claim(id=id, epoch=epoch): (number, status) for number, id, epoch, status in rows}
    return {claim: state for claim, state in found.items() if claim in wanted}


def _renewal(claims: Sequence[Claim], current: dict[Claim, tuple[int, str]]) -> Renewal:
    return Renewal(
        lost=frozenset(claim.id for claim in claims if claim not in current),
        aborting=frozenset(
            claim.id for claim, (_, status) in current.items() if status == Status.ABORTING
        ),
    )


def _returned(job: JobRow) -> Move:
    if job.status == Status.ABORTING:
        return Move(job=job, after=Status.CANCELLED, takes_claim=True)
    return Move(job=job, after=Status.WAITING, takes_claim=True, attempts_back=1)
