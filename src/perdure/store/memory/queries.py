"""Reads for clients and operators."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice, takewhile
from typing import Any

from perdure.model.client_event import EndedJob, EndFilter
from perdure.model.facts import EXPLAINED_MAX, ExplainFacts, may_have_failed
from perdure.model.ids import JobId, RunId
from perdure.model.job import FailedAttempt, Job, JobFilter, JobState, Status
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.run import Run, RunFilter, RunStatus, Wait, WaitFilter, WaitType
from perdure.model.worker import TaskCounts, WorkerState, counted_since, counts_of
from perdure.store.contract import EventsAfter, EventsBefore, QueryStore
from perdure.store.memory.jobs import limit_use
from perdure.store.memory.records import Place, StoredJob, StoredRun, StoredWait
from perdure.store.memory.runs import latest_events, load_run
from perdure.store.memory.state import RunRecords
from perdure.store.memory.transaction import Session, Transaction


class MemoryQueries(QueryStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def get_job(self, namespace: str | None, id: JobId) -> Job | None:
        with self._session.transaction() as transaction:
            for job in transaction.visible(namespace, [id]):
                return job.as_job(with_values=True)
            return None

    async def list_jobs(self, filter: JobFilter, limit: int) -> list[Job]:
        with self._session.transaction() as transaction:
            page = islice(newest_jobs(transaction, filter), limit)
            return [job.as_job(with_values=False) for job in page]

    async def peek(self, namespace: str, partitions: Sequence[str], limit: int) -> list[Job]:
        with self._session.transaction() as transaction:
            state = transaction.state
            fronts = (state.waiting.entries((namespace, each)) for each in partitions)
            first = islice(merge(*fronts), limit)
            return [state.jobs[id].as_job(with_values=False) for _, id in first]

    async def count_jobs(self, filter: JobFilter) -> int:
        with self._session.transaction() as transaction:
            return sum(1 for _ in newest_jobs(transaction, filter))

    async def job_states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        with self._session.transaction() as transaction:
            jobs = transaction.state.jobs
            return {id: jobs[id].as_state() for id in ids if id in jobs}

    async def failed_attempts(self, id: JobId) -> list[FailedAttempt]:
        with self._session.transaction() as transaction:
            job = transaction.state.jobs.get(id)
            return [] if job is None else list(job.history)

    async def find_result(
        self, namespace: str, task: str, input_hash: int, input: bytes
    ) -> bytes | None:
        with self._session.transaction() as transaction:
            latest_first = reversed(transaction.state.results.ids(input_hash))
            for job in transaction.visible(namespace, list(latest_first)):
                if (job.partition.task, job.input) == (task, input):
                    return job.output
            return None

    async def workers(self, namespace: str | None) -> list[WorkerState]:
        with self._session.transaction() as transaction:
            return _workers(transaction, namespace)

    async def work_counts(self, namespace: str | None) -> dict[str, list[TaskCounts]]:
        with self._session.transaction() as transaction:
            state = transaction.state
            found = {place: list(rows) for place, rows in state.past_counts.items()}
            for worker in state.workers.values():
                counted = counted_since(worker.counts, worker.counts_before)
                found.setdefault(worker.info.namespace, []).extend(counted)
            return {
                place: counts_of(rows)
                for place, rows in found.items()
                if rows and namespace in (None, place)
            }

    async def explain_facts(
        self, namespace: str, run: RunId | None = None, job: JobId | None = None
    ) -> ExplainFacts:
        with self._session.transaction() as transaction:
            state, records = transaction.state, transaction.state.records
            if run is not None:
                found = [state.jobs[id] for id in state.of_run.ids((namespace, run))]
                waits = sorted(records.waits_of((namespace, run)), key=lambda wait: wait.key)
                wanted = EventsAfter(namespace=namespace, id=run)
                loaded = load_run(records, wanted)
                before = EventsBefore(namespace=namespace, id=run)
                events = latest_events(records, before, EXPLAINED_MAX)
            else:
                found = list(transaction.visible(namespace, [] if job is None else [job]))
                waits, loaded, events = [], None, []
            awaited = None if loaded is None else loaded.run.awaited_place
            holders = records.holders.entries((namespace, awaited))[:EXPLAINED_MAX]
            jobs = [each.as_job(with_values=False) for each in found]
            children = [RunId(wait.name) for wait in waits if wait.type is WaitType.CHILD]
            return ExplainFacts(
                now=transaction.now,
                loaded=loaded,
                jobs=tuple(jobs),
                waits=tuple(wait.as_wait() for wait in waits),
                failures={
                    id: state.jobs[id].history[-1]
                    for id in may_have_failed(jobs)
                    if state.jobs[id].history
                },
                events=tuple(events),
                children={
                    id: records.runs[namespace, id].status
                    for id in children
                    if (namespace, id) in records.runs
                },
                workers=tuple(_workers(transaction, namespace)),
                paused_queues=tuple(
                    pause
                    for (place, _), pause in sorted(state.paused.items())
                    if place == namespace
                ),
                place_holders=tuple(id for _, (_, id) in holders),
            )

    async def get_jobs(self, namespace: str, ids: Sequence[JobId]) -> list[Job]:
        with self._session.transaction() as transaction:
            found = transaction.visible(namespace, list(ids))
            return [job.as_job(with_values=False) for job in found]

    async def limit_usage(self, namespace: str, rules: Sequence[LimitRule]) -> list[LimitUse]:
        with self._session.transaction() as transaction:
            return [limit_use(transaction, namespace, rule) for rule in rules]

    async def list_runs(self, filter: RunFilter, limit: int) -> list[Run]:
        with self._session.transaction() as transaction:
            page = islice(_newest_runs(transaction.state.records, filter), limit)
            return [run.as_run() for run in page]

    async def count_runs(self, filter: RunFilter) -> int:
        with self._session.transaction() as transaction:
            return sum(1 for _ in _newest_runs(transaction.state.records, filter))

    async def get_runs(self, runs: Sequence[tuple[str, RunId]]) -> list[Run | None]:
        with self._session.transaction() as transaction:
            found = (transaction.state.records.runs.get(place) for place in runs)
            return [None if run is None else run.as_run() for run in found]

    async def run_jobs(self, namespace: str, run: RunId) -> list[Job]:
        with self._session.transaction() as transaction:
            state = transaction.state
            jobs = (state.jobs[id] for id in state.of_run.ids((namespace, run)))
            return [job.as_job(with_values=False) for job in jobs]

    async def run_waits(self, namespace: str, run: RunId) -> list[Wait]:
        with self._session.transaction() as transaction:
            waits = transaction.state.records.waits_of((namespace, run))
            return [wait.as_wait() for wait in sorted(waits, key=lambda wait: wait.key)]

    async def list_waits(self, filter: WaitFilter, limit: int) -> list[Wait]:
        with self._session.transaction() as transaction:
            found = _oldest_waits(transaction.state.records, filter)
            page = islice((wait for wait in found if _wait_matches(wait, filter)), limit)
            return [wait.as_wait() for wait in page]

    async def ended_jobs(self, filter: EndFilter, limit: int) -> list[EndedJob]:
        with self._session.transaction() as transaction:
            state = transaction.state
            groups = [(filter.namespace, Status(each)) for each in filter.statuses]
            ends = merge(
                *(_ends(state.finished.entries(each), filter.after, filter) for each in groups)
            )
            jobs = ((at, state.jobs[id]) for at, id in ends)
            found = (
                EndedJob(
                    id=job.id,
                    status=job.status,
                    at=at,
                    queue=job.partition.queue,
                    task=job.partition.task,
                    attempt=job.attempt,
                )
                for at, job in jobs
                if filter.queue in (None, job.partition.queue)
                and filter.task in (None, job.partition.task)
            )
            return list(islice(found, limit))

    async def ended_runs(self, filter: EndFilter, limit: int) -> list[Run]:
        with self._session.transaction() as transaction:
            records, namespace = transaction.state.records, filter.namespace
            statuses = [RunStatus(each) for each in filter.statuses]
            groups: list[tuple[Any, ...]] = [(namespace, each) for each in statuses]
            groups += [(namespace, each, "child") for each in statuses]
            at, id = filter.after
            after = (at, (namespace, id))
            ends = merge(*(_ends(records.ended.entries(each), after, filter) for each in groups))
            runs = (records.runs[place] for _, place in ends)
            page = islice((run for run in runs if filter.flow in (None, run.flow)), limit)
            return [run.as_run() for run in page]

    async def pruned_until(self, namespace: str) -> Mapping[str, datetime]:
        with self._session.transaction() as transaction:
            pruned = transaction.state.pruned_ends.items()
            return {type: until for (place, type), until in pruned if place == namespace}


def _ends(entries: Sequence[Any], after: Any, filter: EndFilter) -> Iterator[Any]:
    """The entries of an index by time of end that the filter selects."""
    later = islice(entries, bisect_right(entries, after), None)
    return takewhile(lambda entry: entry[0] < filter.until, later)


def _workers(transaction: Transaction, namespace: str | None) -> list[WorkerState]:
    records = sorted(
        transaction.state.workers.values(), key=lambda record: (record.started_at, record.info.id)
    )
    return [
        WorkerState(
            info=record.info,
            started_at=record.started_at,
            seen_at=record.seen_at,
            running=tuple(transaction.state.by_worker.ids(record.info.id)),
        )
        for record in records
        if namespace in (None, record.info.namespace)
    ]


def newest_jobs(transaction: Transaction, filter: JobFilter) -> Iterator[StoredJob]:
    for _, id in reversed(transaction.state.by_id.entries()):
        job = transaction.state.jobs[id]
        if not job.is_hidden and _job_matches(job, filter):
            yield job


def _job_matches(job: StoredJob, filter: JobFilter) -> bool:
    return (
        filter.namespace in (None, job.namespace)
        and filter.status in (None, job.status)
        and filter.queue in (None, job.partition.queue)
        and filter.task in (None, job.partition.task)
        and filter.group in (None, job.group)
        and (filter.before is None or job.id < filter.before)
    )


def _newest_runs(records: RunRecords, filter: RunFilter) -> Iterator[StoredRun]:
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
        if _run_matches(run, filter):
            yield run


def _run_matches(run: StoredRun, filter: RunFilter) -> bool:
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


def _oldest_waits(records: RunRecords, filter: WaitFilter) -> Iterator[StoredWait]:
    """Waits in listed order, from the narrowest index that covers the filter."""
    if filter.run is None and filter.type in (WaitType.EXTERNAL, WaitType.APPROVAL):
        places = records.listed.after(filter.after, filter.type)
    elif filter.run is None and filter.type is WaitType.SIGNAL and filter.name is not None:
        places = records.listed.after(filter.after, (filter.type, filter.name))
    else:
        yield from sorted(_candidates(records, filter), key=lambda wait: (wait.age, wait.place))
        return
    for namespace, run, key in places:
        yield records.waits[namespace, run][key]


def _candidates(records: RunRecords, filter: WaitFilter) -> list[StoredWait]:
    if filter.run is None:
        return [wait for waits in records.waits.values() for wait in waits.values()]
    places = records.by_name.ids(filter.run)
    return [wait for place in places for wait in records.waits_of(place)]


def _wait_matches(wait: StoredWait, filter: WaitFilter) -> bool:
    return (
        filter.namespace in (None, wait.namespace)
        and filter.run in (None, wait.run)
        and filter.type in (None, wait.type)
        and filter.name in (None, wait.name)
        and (filter.deciders is None or _is_for(wait, filter.deciders))
        and (filter.after is None or wait.age > filter.after)
    )


def _is_for(wait: StoredWait, deciders: tuple[str, ...]) -> bool:
    """Whether the wait is in the inbox of these deciders; one without deciders is in all."""
    return not wait.deciders or not set(deciders).isdisjoint(wait.deciders)
