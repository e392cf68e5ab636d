"""All runs, jobs and waits of a store, page by page, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from perdure.model.ids import JobId
from perdure.model.job import Job, JobFilter
from perdure.model.run import Run, RunFilter, Wait, WaitFilter
from perdure.model.value import Value
from perdure.store.contract import Store
from perdure.verify.inside.reads import InsideReads

RUNS = 50
"""Whose logs are in memory at once."""
JOBS = 500
WAITS = 2_000
_SAME_ID = 10_000
"""Namespaces that may have a run of one id."""


class Unlisted(Value):
    """A job that the store cannot list; without a name, it and all that are older."""

    job: str
    reason: str


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


async def pages_of_jobs(
    store: Store, inside: InsideReads | None
) -> AsyncIterator[list[Job] | Unlisted]:
    """Newest first, then those that only their waiters still see, where the store tells of them.

    A job that cannot be listed keeps nobody from the others, where the store tells its id.
    """

    async def listed(before: JobId | None, limit: int) -> list[Job]:
        return await store.list_jobs(JobFilter(before=before), limit)

    async for page in _pages(listed, inside):
        yield page
    if inside is not None:
        async for page in _pages(inside.dropped_jobs, None):
            yield page


async def _pages(
    listed: Callable[[JobId | None, int], Awaitable[list[Job]]], inside: InsideReads | None
) -> AsyncIterator[list[Job] | Unlisted]:
    before, limit = None, JOBS
    while True:
        try:
            page = await listed(before, limit)
        except Exception as error:  # what a store does with broken rows is not known
            if limit > 1:
                limit = 1
                continue
            before = None if inside is None else await inside.job_before(before)
            yield Unlisted(job=before or "", reason=f"{type(error).__name__}: {error}")
            if before is None:
                return
            limit = JOBS
            continue
        if not page:
            return
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
