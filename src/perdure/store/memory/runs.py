"""Submitting, committing, loading and removing runs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.errors import ClaimLost
from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import Claim
from perdure.model.partition import UNSUSPECTED
from perdure.model.run import CommitAnswer, LoadedRun, NewRun, RunCommit, StoredStep, Submitted
from perdure.store.contract import EventsAfter, EventsBefore, RunStore
from perdure.store.memory.commit import commit_runs
from perdure.store.memory.state import DefinitionUse, RunRecords
from perdure.store.memory.submit import submit
from perdure.store.memory.transaction import Session


class MemoryRuns(RunStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        with self._session.transaction() as transaction:
            records, place = transaction.state.records, (namespace, flow, version)
            records.definitions.setdefault(place, data)
            before = records.definition_uses.get(place)
            was_left = before is not None and before.was_left
            records.definition_uses[place] = DefinitionUse(transaction.now, was_left)

    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None:
        with self._session.transaction() as transaction:
            return transaction.state.records.definitions.get((namespace, flow, version))

    async def submit(self, run: NewRun) -> Submitted:
        with self._session.transaction() as transaction:
            return submit(transaction, run)

    async def commit(
        self, commits: Sequence[RunCommit], partitions: Sequence[str] = ()
    ) -> CommitAnswer:
        with self._session.transaction() as transaction:
            return commit_runs(transaction, commits, partitions)

    async def load(self, runs: Sequence[EventsAfter]) -> list[LoadedRun | None]:
        with self._session.transaction() as transaction:
            return [load_run(transaction.state.records, wanted) for wanted in runs]

    async def latest_events(
        self, runs: Sequence[EventsBefore], limit: int
    ) -> list[list[StoredEvent]]:
        with self._session.transaction() as transaction:
            return [latest_events(transaction.state.records, wanted, limit) for wanted in runs]

    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        with self._session.transaction() as transaction:
            log = transaction.state.records.events.get((namespace, run), [])
            events = (log[number - 1].event for number in numbers if 1 <= number <= len(log))
            return {event.number: event.value for event in events if event.value is not None}

    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        with self._session.transaction() as transaction:
            job = transaction.claimed(claim)
            if job is None:
                raise ClaimLost(job_id=claim.id, epoch=claim.epoch)
            transaction.save_step(job, owner, step)
            if job.suspicion != UNSUSPECTED:
                progressed = replace(job, suspicion=UNSUSPECTED, was_claimed_alone=False)
                transaction.save(progressed)

    async def load_steps(self, owner: str) -> list[StoredStep]:
        with self._session.transaction() as transaction:
            steps = transaction.state.records.steps.get(owner)
            return [] if steps is None else list(steps.by_name.values())


def load_run(records: RunRecords, wanted: EventsAfter) -> LoadedRun | None:
    place = wanted.namespace, wanted.id
    run = records.runs.get(place)
    if run is None:
        return None
    snapshot = run.snapshot if wanted.number is None else None
    after = wanted.number or (snapshot.number if snapshot else 0)
    return LoadedRun(
        run=run.as_run(),
        snapshot=snapshot,
        events=[kept.event for kept in records.events[place][after:]],
    )


def latest_events(records: RunRecords, wanted: EventsBefore, limit: int) -> list[StoredEvent]:
    log = records.events.get((wanted.namespace, wanted.id), [])
    before = len(log) if wanted.number is None else min(len(log), max(0, wanted.number - 1))
    page = log[max(0, before - limit) : before]
    return [replace(kept.event, value=None) for kept in reversed(page)]
