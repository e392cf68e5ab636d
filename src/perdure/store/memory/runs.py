"""Runs: how they begin, go on, are read, and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from msgspec.structs import replace

from perdure.errors import StaleClaim
from perdure.model.duration import nearest_duration
from perdure.model.event import StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import Claim, Job
from perdure.model.run import (
    CommitAnswer,
    FlowCount,
    LoadedRun,
    NewRun,
    Run,
    RunCommit,
    RunFilter,
    RunStatus,
    Snapshot,
    StoredStep,
    Submitted,
)
from perdure.store.contract import RunAfter, RunBefore, RunStore
from perdure.store.memory.committing import commit
from perdure.store.memory.removing import remove_tree
from perdure.store.memory.run_records import RunRecords, Steps
from perdure.store.memory.stored_run import Place, StoredRun
from perdure.store.memory.submitting import submit
from perdure.store.memory.transaction import Transaction
from perdure.store.memory.waits import MemoryWaits


class MemoryRuns(MemoryWaits, RunStore):
    async def save_definition(self, namespace: str, flow: str, version: str, data: bytes) -> None:
        with self._transaction() as transaction:
            transaction.state.records.definitions.setdefault((namespace, flow, version), data)

    async def get_definition(self, namespace: str, flow: str, version: str) -> bytes | None:
        with self._transaction() as transaction:
            return transaction.state.records.definitions.get((namespace, flow, version))

    async def submit_run(self, run: NewRun) -> Submitted:
        with self._transaction() as transaction:
            return submit(transaction, run)

    async def commit_runs(
        self, commits: Sequence[RunCommit], lanes: Sequence[str] = ()
    ) -> CommitAnswer:
        with self._transaction() as transaction:
            results = [commit(transaction, each) for each in commits]
            namespaces = {each.namespace for each in commits}
            waiting = transaction.state.waiting
            fronts = (waiting.first((place, lane)) for place in namespaces for lane in lanes)
            return CommitAnswer(
                results=results,
                most_urgent_rank=min((rank for rank in fronts if rank is not None), default=None),
                now=transaction.now,
            )

    async def load_runs(self, runs: Sequence[RunAfter]) -> list[LoadedRun | None]:
        with self._transaction() as transaction:
            return [_load(transaction.state.records, wanted) for wanted in runs]

    async def latest_events(self, runs: Sequence[RunBefore], limit: int) -> list[list[StoredEvent]]:
        with self._transaction() as transaction:
            return [_latest(transaction.state.records, wanted, limit) for wanted in runs]

    async def event_values(
        self, namespace: str, run: RunId, numbers: Sequence[int]
    ) -> dict[int, bytes]:
        with self._transaction() as transaction:
            log = transaction.state.records.events.get((namespace, run), [])
            events = (log[number - 1].event for number in numbers if 1 <= number <= len(log))
            return {event.number: event.value for event in events if event.value is not None}

    async def get_run(self, namespace: str | None, id: RunId) -> Run | None:
        with self._transaction() as transaction:
            records = transaction.state.records
            places = records.by_name.ids(id) if namespace is None else [(namespace, id)]
            for run in (records.runs.get(place) for place in places):
                return None if run is None else run.as_run()
            return None

    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        with self._transaction() as transaction:
            page = islice(_newest_first(transaction.state.records, filter), limit)
            return [run.as_run() for run in page]

    async def count_runs(self, filter: RunFilter) -> int:
        with self._transaction() as transaction:
            return sum(1 for _ in _newest_first(transaction.state.records, filter))

    async def live_flows(self, namespace: str | None) -> list[FlowCount]:
        with self._transaction() as transaction:
            live = transaction.state.records.live
            return [
                FlowCount(
                    namespace=place, flow=flow, version=version, count=len(live.entries(group))
                )
                for group in sorted(live.groups())
                for place, flow, version in [group]
                if namespace in (None, place)
            ]

    async def run_states(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        with self._transaction() as transaction:
            found = (transaction.state.records.runs.get(place) for place in runs)
            return [None if run is None else run.as_run() for run in found]

    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        with self._transaction() as transaction:
            state = transaction.state
            jobs = (state.jobs[id] for id in state.of_run.ids((namespace, run)))
            return [job.as_job(with_values=False) for job in jobs]

    async def save_step(self, claim: Claim, owner: str, step: StoredStep) -> None:
        with self._transaction() as transaction:
            job = transaction.held(claim)
            if job is None:
                raise StaleClaim(claim.id, claim.epoch)
            records = transaction.state.records
            if owner not in records.steps:
                holder = job.id if job.node is None else (job.namespace, job.node.run)
                transaction.put(records.put_steps, owner, None, Steps(holder))
            records.steps[owner].by_name.setdefault(step.name, step)

    async def load_steps(self, owner: str) -> list[StoredStep]:
        with self._transaction() as transaction:
            steps = transaction.state.records.steps.get(owner)
            return [] if steps is None else list(steps.by_name.values())

    async def prune_runs(
        self, namespace: str, keep: Mapping[RunStatus, timedelta], limit: int
    ) -> int:
        with self._transaction() as transaction:
            removed = 0
            for status, kept_for in keep.items():
                until = transaction.now - nearest_duration(kept_for)
                over = _over(transaction, (namespace, status), until)
                for root in list(islice(over, limit - removed)):
                    remove_tree(transaction, root)
                    removed += 1
            return removed

    async def save_snapshot(self, namespace: str, run: RunId, snapshot: Snapshot) -> None:
        with self._transaction() as transaction:
            records = transaction.state.records
            kept = records.runs.get((namespace, run))
            if kept is None or snapshot.number > kept.number:
                return  # the run it was taken of is not there, or was replaced
            if kept.snapshot is not None and kept.snapshot.number >= snapshot.number:
                return
            transaction.put(records.put_run, kept.place, kept, replace(kept, snapshot=snapshot))


def _load(records: RunRecords, wanted: RunAfter) -> LoadedRun | None:
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


def _latest(records: RunRecords, wanted: RunBefore, limit: int) -> list[StoredEvent]:
    log = records.events.get((wanted.namespace, wanted.id), [])
    before = len(log) if wanted.number is None else min(len(log), max(0, wanted.number - 1))
    page = log[max(0, before - limit) : before]
    return [replace(kept.event, value=None) for kept in reversed(page)]


def _newest_first(records: RunRecords, filter: RunFilter) -> Iterator[StoredRun]:
    entries: Sequence[tuple[Any, Place]]
    if filter.id is not None:
        named = records.by_name.ids(filter.id)
        entries = sorted((records.runs[place].created_at, place) for place in named)
    elif filter.parent is not None and filter.namespace is not None:
        entries = records.children.entries((filter.namespace, filter.parent))
    else:
        entries = records.by_age.entries()
    for _, place in reversed(entries):
        run = records.runs[place]
        if _matches(run, filter):
            yield run


def _matches(run: StoredRun, filter: RunFilter) -> bool:
    return (
        filter.namespace in (None, run.namespace)
        and filter.id in (None, run.id)
        and filter.status in (None, run.status)
        and filter.flow in (None, run.flow)
        and filter.version in (None, run.version)
        and (filter.parent is None or (run.parent is not None and run.parent.run == filter.parent))
        and filter.is_ended in (None, run.is_ended)
        and (filter.before is None or (run.created_at, run.id) < filter.before)
    )


def _over(
    transaction: Transaction, group: tuple[str, RunStatus], until: datetime
) -> Iterator[Place]:
    """Runs that ended by ``until``, earliest first, but for those with a child that goes on."""
    records = transaction.state.records
    for ended_at, root in records.ended.entries(group):
        if ended_at > until:
            return
        if all(records.runs[place].is_ended for place in records.tree(root)):
            yield root
