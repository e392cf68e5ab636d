"""Explain runs and jobs: gather the facts in one consistent read, and hand them to the pure rules
of ``operations.insight.explain``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from perdure.errors import JobNotFound, PerdureError, RunNotFound
from perdure.model.event import RunPaused, decode_event
from perdure.model.facts import ExplainFacts
from perdure.model.ids import JobId, RunId
from perdure.model.job import Job, Status
from perdure.model.run import WaitType
from perdure.operations.backend import Backend
from perdure.operations.insight import explain as insight
from perdure.operations.insight.explain import (
    FINDINGS_MAX,
    Explanation,
    Surroundings,
    explain_job_of_run,
    rules_for,
)
from perdure.operations.records import decoded
from perdure.store.contract import Store


async def explain_run(backend: Backend, id: RunId) -> Explanation:
    store, namespace = await backend.store(), await backend.namespace_of(id)
    facts = await store.queries.explain_facts(namespace, run=id)
    if facts.loaded is None:
        raise RunNotFound(run_id=id)
    run = await (await backend.engine()).open_run(namespace, id, facts.loaded)
    flow = f"{run.state.flow}@{run.state.version}"
    around = await _with_limits(store, namespace, _surroundings(backend, facts), flow)
    if run.state.is_paused:
        for each in facts.events:
            if isinstance(decode_event(id, each.number, each.data), RunPaused):
                around = replace(around, paused_at=each.at)
                break
    return insight.explain_run(id, run.state, around, facts.now)


async def explain_job(backend: Backend, id: JobId) -> Explanation:
    store, namespace = await backend.store(), backend.visible
    if namespace is None:
        found = await store.queries.get_job(None, id)
        if found is None:
            raise JobNotFound(job_id=id)
        namespace = found.namespace
    facts = await store.queries.explain_facts(namespace, job=id)
    if not facts.jobs:
        raise JobNotFound(job_id=id)
    [job] = facts.jobs
    if job.node is not None:
        return explain_job_of_run(job, await explain_run(backend, job.node.run))
    around = await _with_limits(store, namespace, _surroundings(backend, facts), "")
    return insight.explain_job(job, around, facts.now)


def _surroundings(backend: Backend, facts: ExplainFacts) -> Surroundings:
    details: dict[str, Any] = {}
    for wait in facts.waits:
        if wait.detail and wait.type in (WaitType.SIGNAL, WaitType.APPROVAL):
            # Omit details that only another codec can decode; the explanation is useful without
            # them.
            with suppress(PerdureError):
                details[wait.key] = decoded(wait.detail, backend.codec)
    return Surroundings(
        jobs=facts.jobs,
        waits=facts.waits,
        failures=facts.failures,
        place_holders=facts.place_holders,
        workers=facts.workers,
        paused_queues=facts.paused_queues,
        children=facts.children,
        details=details,
    )


async def _with_limits(
    store: Store, namespace: str, around: Surroundings, flow: str
) -> Surroundings:
    """Add the usage of limits that apply to waiting jobs, and the jobs that have used them
    longest."""
    waiting: dict[Any, Job] = {
        (job.queue, job.task, job.limit_keys): job
        for job in around.jobs
        if job.status is Status.WAITING
    }
    found = {
        rule
        for job in list(waiting.values())[:FINDINGS_MAX]
        for worker in around.workers
        for rule in rules_for(job, flow, worker)
    }
    if not found:
        return around
    rules = sorted(found, key=lambda rule: rule.key)
    uses = dict(zip(rules, await store.queries.limit_usage(namespace, rules), strict=True))
    ids = dict.fromkeys(id for use in uses.values() for id in use.held_by[:1])
    holders = await store.queries.get_jobs(namespace, list(ids)[:FINDINGS_MAX]) if ids else []
    return replace(around, limit_uses=uses, holders={job.id: job for job in holders})
