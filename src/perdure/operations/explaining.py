"""Explaining runs and jobs: what the store knows around them is read here, and judged by rules."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from perdure.engine.cached_run import CachedRun
from perdure.errors import JobNotFound, PerdureError
from perdure.model.event import RunPaused, decode_event
from perdure.model.ids import JobId, RunId
from perdure.model.job import FINISHED, FailedAttempt, Job, Status
from perdure.model.limit import LimitRule, LimitUse
from perdure.model.payload import Codec
from perdure.model.run import RunStatus, Wait, WaitKind
from perdure.model.worker import WorkerState
from perdure.operations.backend import Backend
from perdure.operations.insight import explain as insight
from perdure.operations.insight.explain import (
    FINDINGS_MAX,
    HOLDERS_MAX,
    Explanation,
    Surroundings,
    explain_job_of_run,
    rules_for,
)
from perdure.operations.records import decoded
from perdure.store.contract import EventsBefore, Store


async def explain_job(backend: Backend, id: JobId) -> Explanation:
    store = await backend.store()
    job = await store.queries.get_job(backend.visible, id)
    if job is None:
        raise JobNotFound(job_id=id)
    return await _explained_job(backend, job)


async def explain_run(backend: Backend, id: RunId) -> Explanation:
    store = await backend.store()
    run = await backend.load_run(id)
    jobs = await store.queries.run_jobs(run.namespace, id)
    waits = await store.queries.run_waits(run.namespace, id)
    workers = await store.queries.workers(run.namespace)
    flow = f"{run.state.flow}@{run.state.version}"
    uses, holders = await _limits(store, run.namespace, jobs, flow, workers)
    around = Surroundings(
        jobs=tuple(jobs),
        waits=tuple(waits),
        failures=await _failures(store, jobs),
        paused_at=await _paused_at(store, run),
        workers=tuple(workers),
        paused_queues=tuple(await store.admin.paused_queues(run.namespace)),
        children=await _children(store, run.namespace, waits),
        details=_details(waits, backend.codec),
        limit_uses=uses,
        holders=holders,
    )
    return insight.explain_run(id, run.state, around, await store.now())


async def _explained_job(backend: Backend, job: Job) -> Explanation:
    if job.node is not None:
        return explain_job_of_run(job, await explain_run(backend, job.node.run))
    store = await backend.store()
    workers = await store.queries.workers(job.namespace)
    uses, holders = await _limits(store, job.namespace, [job], "", workers)
    around = Surroundings(
        jobs=(job,),
        failures=await _failures(store, [job]),
        workers=tuple(workers),
        paused_queues=tuple(await store.admin.paused_queues(job.namespace)),
        limit_uses=uses,
        holders=holders,
    )
    return insight.explain_job(job, around, await store.now())


async def _limits(
    store: Store, namespace: str, jobs: list[Job], flow: str, workers: Sequence[WorkerState]
) -> tuple[dict[LimitRule, LimitUse], dict[JobId, Job]]:
    """What is in use under the limits of waiting jobs, and some of those who use it."""
    waiting = {(job.queue, job.task, job.limit_keys): job for job in jobs if _waits(job)}
    found = {
        rule
        for job in list(waiting.values())[:FINDINGS_MAX]
        for worker in workers
        for rule in rules_for(job, flow, worker)
    }
    if not found:
        return {}, {}
    rules = sorted(found, key=lambda rule: rule.key)
    uses = dict(zip(rules, await store.queries.limit_usage(namespace, rules), strict=True))
    ids = dict.fromkeys(id for use in uses.values() for id in use.held_by[:HOLDERS_MAX])
    jobs_held = [await store.queries.get_job(namespace, id) for id in list(ids)[:FINDINGS_MAX]]
    return uses, {job.id: job for job in jobs_held if job is not None}


def _waits(job: Job) -> bool:
    return job.status is Status.WAITING


async def _paused_at(store: Store, run: CachedRun) -> datetime | None:
    """When it was paused, if that is among the last things that happened in it."""
    if not run.state.is_paused:
        return None
    [events] = await store.runs.latest_events(
        [EventsBefore(namespace=run.namespace, id=run.id, number=run.state.number + 1)],
        FINDINGS_MAX,
    )
    for each in events:
        if isinstance(decode_event(run.id, each.number, each.data), RunPaused):
            return each.at
    return None


async def _failures(store: Store, jobs: list[Job]) -> dict[JobId, FailedAttempt]:
    """What the last attempt left behind of each job that waits for another one, or ended."""
    failed = [job.id for job in jobs if job.status is Status.SCHEDULED or job.status in FINISHED]
    asked = failed[:FINDINGS_MAX]
    return {id: past[-1] for id in asked if (past := await store.queries.failed_attempts(id))}


def _details(waits: list[Wait], codec: Codec) -> dict[str, Any]:
    """Without those that only another codec can read: there is enough to say without them."""
    details = {}
    for wait in waits:
        if wait.detail and wait.kind in (WaitKind.SIGNAL, WaitKind.APPROVAL):
            with suppress(PerdureError):
                details[wait.key] = decoded(wait.detail, codec)
    return details


async def _children(store: Store, namespace: str, waits: list[Wait]) -> dict[RunId, RunStatus]:
    ids = [(namespace, RunId(wait.name)) for wait in waits if wait.kind is WaitKind.CHILD]
    found = await store.queries.get_runs(ids) if ids else []
    return {run.id: run.status for run in found if run is not None}
