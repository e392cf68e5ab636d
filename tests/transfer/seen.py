"""All that can be seen of a store through its contract."""

from __future__ import annotations

from typing import Any

from perdure.model.job import JobFilter
from perdure.model.run import RunFilter, WaitFilter, WaitType
from perdure.store.contract import EventsAfter
from perdure.store.opening import store_at

MANY = 1000


async def seen_of(url: str) -> dict[str, Any]:
    store = store_at(url)
    await store.open()
    try:
        runs = await store.queries.list_runs(RunFilter(), MANY)
        jobs = await store.queries.list_jobs(JobFilter(), MANY)
        asked = [EventsAfter(namespace=run.namespace, id=run.id) for run in runs]
        whole = [EventsAfter(namespace=run.namespace, id=run.id, number=0) for run in runs]
        return {
            "runs": runs,
            "states": await store.runs.load(asked),
            "logs": await store.runs.load(whole),
            "definitions": [
                await store.runs.get_definition(run.namespace, run.flow, run.version)
                for run in runs
            ],
            "run jobs": [await store.queries.run_jobs(run.namespace, run.id) for run in runs],
            "run waits": [await store.queries.run_waits(run.namespace, run.id) for run in runs],
            "signals": await store.queries.list_waits(WaitFilter(type=WaitType.SIGNAL), MANY),
            "approvals": await store.queries.list_waits(WaitFilter(type=WaitType.APPROVAL), MANY),
            "outside": await store.queries.list_waits(WaitFilter(type=WaitType.EXTERNAL), MANY),
            "jobs": [await store.queries.get_job(None, job.id) for job in jobs],
            "job states": await store.queries.job_states([job.id for job in jobs]),
            "failures": [await store.queries.failed_attempts(job.id) for job in jobs],
            "schedules": await store.schedules.list(None),
            "paused": await store.admin.paused_queues(None),
            "depth": await store.admin.queue_stats(None),
        }
    finally:
        await store.close()
