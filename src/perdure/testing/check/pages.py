"""All runs, jobs and waits of a store, page by page, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator

from perdure.model.job import Job, JobFilter
from perdure.model.run import Run, RunFilter, Wait, WaitFilter
from perdure.store.contract import Store

RUNS = 50
"""Whose logs are in memory at once."""
JOBS = 500
WAITS = 2_000
_SAME_ID = 10_000
"""Namespaces that may have a run of one id."""


async def pages_of_runs(store: Store) -> AsyncIterator[list[Run]]:
    """Newest first. A page ends between two moments and ids, or takes in what shares its last.

    The next page begins after a moment and an id, which runs of several namespaces may share.
    """
    before = None
    while page := await store.list_runs(RunFilter(before=before), RUNS):
        last = page[-1]
        seen = {(run.namespace, run.id) for run in page}
        if len(page) == RUNS:
            alike = await store.list_runs(RunFilter(id=last.id), _SAME_ID)
            page += [
                run
                for run in alike
                if run.created_at == last.created_at and (run.namespace, run.id) not in seen
            ]
        yield page
        before = (last.created_at, last.id)


async def pages_of_jobs(store: Store) -> AsyncIterator[list[Job]]:
    """Newest first. Without the jobs that only their waiters still see."""
    before = None
    while page := await store.list_jobs(JobFilter(before=before), JOBS):
        yield page
        before = page[-1].id


async def pages_of_waits(store: Store) -> AsyncIterator[list[Wait]]:
    """The longest open first; a page takes in what shares its last place."""
    after = None
    while page := await store.list_waits(WaitFilter(after=after), WAITS):
        last = page[-1]
        after = (last.opened_at, last.run, last.key)
        if len(page) == WAITS:
            seen = {(wait.namespace, wait.run, wait.key) for wait in page}
            alike = await store.list_waits(WaitFilter(run=last.run), WAITS)
            page += [
                wait
                for wait in alike
                if (wait.opened_at, wait.run, wait.key) == after
                and (wait.namespace, wait.run, wait.key) not in seen
            ]
        yield page
