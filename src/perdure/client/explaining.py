"""Explaining a run: what the store knows around it is read here, and judged by the rules."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from perdure.client.results import decoded
from perdure.client.run_acts import RunActs
from perdure.errors import PerdureError
from perdure.model.explanation import Explanation, Surroundings
from perdure.model.failure import Failure
from perdure.model.ids import JobId, RunId
from perdure.model.job import Job, Status
from perdure.model.payload import Codec
from perdure.model.run import RunStatus, Wait, WaitKind
from perdure.rules.explain import FINDINGS_MAX, explain_run
from perdure.store.contract import Store


async def explain(acts: RunActs, id: RunId) -> Explanation:
    store = await acts.store()
    run = await acts.load(id)
    jobs = await store.run_jobs(run.namespace, id)
    waits = await store.run_waits(run.namespace, id)
    around = Surroundings(
        jobs=tuple(jobs),
        waits=tuple(waits),
        failures=await _failures(store, jobs),
        workers=tuple(await store.workers(run.namespace)),
        paused_queues=tuple(await store.paused_queues(run.namespace)),
        children=await _children(store, run.namespace, waits),
        details=_details(waits, acts.codec),
    )
    return explain_run(id, run.state, around, await store.now())


async def _failures(store: Store, jobs: list[Job]) -> dict[JobId, Failure]:
    """What the last attempt left behind of each job that waits for another one."""
    retried = [job.id for job in jobs if job.status is Status.SCHEDULED][:FINDINGS_MAX]
    return {id: past[-1].failure for id in retried if (past := await store.failed_attempts(id))}


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
    found = await store.run_states(ids) if ids else []
    return {run.id: run.status for run in found if run is not None}
