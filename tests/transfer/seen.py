"""All that can be seen of a store through its contract."""

from __future__ import annotations

from typing import Any

from perdure.model.job import JobFilter
from perdure.model.run import RunFilter, WaitFilter, WaitKind
from perdure.store.contract import RunAfter
from perdure.store.opening import store_at

MANY = 1000


async def seen_of(url: str) -> dict[str, Any]:
    store = store_at(url)
    await store.open()
    try:
        runs = await store.list_runs(RunFilter(), MANY)
        jobs = await store.list_jobs(JobFilter(), MANY)
        asked = [RunAfter(namespace=run.namespace, id=run.id) for run in runs]
        whole = [RunAfter(namespace=run.namespace, id=run.id, number=0) for run in runs]
        return {
            "runs": runs,
            "states": await store.load_runs(asked),
            "logs": await store.load_runs(whole),
            "definitions": [
                await store.get_definition(run.namespace, run.flow, run.version) for run in runs
            ],
            "run jobs": [await store.run_jobs(run.namespace, run.id) for run in runs],
            "run waits": [await store.run_waits(run.namespace, run.id) for run in runs],
            "signals": await store.list_waits(WaitFilter(kind=WaitKind.SIGNAL), MANY),
            "approvals": await store.list_waits(WaitFilter(kind=WaitKind.APPROVAL), MANY),
            "outside": await store.list_waits(WaitFilter(kind=WaitKind.OUTSIDE), MANY),
            "jobs": [await store.get_job(None, job.id) for job in jobs],
            "job states": await store.job_states([job.id for job in jobs]),
            "failures": [await store.failed_attempts(job.id) for job in jobs],
            "schedules": await store.list_schedules(None),
            "paused": await store.paused_queues(None),
            "depth": await store.depth(None),
        }
    finally:
        await store.close()
