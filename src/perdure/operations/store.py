"""Operations on the store as a whole: health, time and pruning."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from perdure import clock
from perdure.model import check
from perdure.model.facts import EndedCounts
from perdure.model.job import FINISHED, Status
from perdure.model.run import ENDED, RunStatus
from perdure.model.schedule import UnreadableSchedule
from perdure.model.times import Duration
from perdure.model.worker import PollResult, is_live, summary
from perdure.operations.insight.health import Health, Vitals, judge
from perdure.operations.operation import Group, Role, operation
from perdure.operations.records import ClusterStats, TaskStats
from perdure.store.contract import POLL_PARTITIONS_MAX, Store

PRUNE_BATCH = 1_000
"""Jobs or runs deleted per transaction, so that other writers do not wait long."""


class StoreOperations(Group):
    """The store as a whole."""

    @operation("store.health", role=Role.OPERATOR)
    async def health(self) -> Health:
        """Check the health of a store and its work.

        The findings include suggested actions; nothing is changed.
        """
        store = await self._backend.store()
        return Health(url=store.url, findings=judge(await _vitals(store, self._backend.visible)))

    @operation("store.stats", role=Role.VIEWER)
    async def stats(self) -> ClusterStats:
        """Count the work of all workers, past and present.

        In total, and per task and queue. A worker reports with each heartbeat, several times per
        lease, and when it stops; what a killed one did since its last heartbeat is not counted.
        """
        store, visible = await self._backend.store(), self._backend.visible
        counts = await store.queries.work_counts(visible)
        workers, now = await store.queries.workers(visible), await store.now()
        live = [each for each in workers if is_live(each, now)]
        return ClusterStats(
            workers=len(live),
            running=sum(len(each.running) for each in live),
            concurrency=sum(each.info.concurrency for each in live),
            tasks=tuple(
                TaskStats(namespace=place, task=each.task, queue=each.queue, **summary([each]))
                for place, every in sorted(counts.items())
                for each in every
            ),
            **summary(each for every in counts.values() for each in every),
        )

    @operation("store.now", role=Role.VIEWER)
    async def now(self) -> datetime:
        """Get the store's time.

        Leases and schedules use this time.
        """
        return await (await self._backend.store()).now()

    @operation("store.count_finished", role=Role.OPERATOR, one_namespace=True)
    async def count_finished(
        self, *, older_than: Duration, status: str | None = None
    ) -> EndedCounts:
        """Count jobs and runs that prune would delete.

        Disabled jobs only with that status.
        """
        keep = check.span(older_than, "older_than")
        jobs, runs = _statuses(status)
        store = await self._backend.store()
        found = await store.admin.count_ended(self._backend.namespace, keep)
        return EndedCounts(
            jobs={each: count for each, count in found.jobs.items() if each in jobs},
            runs={each: count for each, count in found.runs.items() if each in runs},
        )

    @operation("store.prune", role=Role.ADMIN, writes=True, one_namespace=True)
    async def prune(self, *, older_than: Duration, status: str | None = None) -> int:
        """Delete old finished jobs and runs.

        Returns how many. Workers also prune, by their ``keep_…`` settings. A run is removed with
        its child runs, once all of them have finished. Disabled jobs are deleted only with that
        status, if they were disabled long ago.
        """
        namespace = self._backend.namespace
        keep = check.span(older_than, "older_than")
        jobs, runs = _statuses(status)
        store = await self._backend.store()
        removed = 0
        while count := await store.maintenance.prune_runs(
            namespace, dict.fromkeys(runs, keep), PRUNE_BATCH
        ):
            removed += count
        while count := await store.maintenance.prune_jobs(
            namespace, dict.fromkeys(jobs, keep), PRUNE_BATCH
        ):
            removed += count
        return removed


def _statuses(status: Any) -> tuple[frozenset[Status], frozenset[RunStatus]]:
    """Split statuses into those of jobs and of runs; some words mean both."""
    if status is None:
        return FINISHED, ENDED
    prunable = FINISHED | {Status.DISABLED}
    meant = check.choice(status, "status", sorted({*prunable, *ENDED}))
    jobs = frozenset(each for each in prunable if each == meant)
    return jobs, frozenset(each for each in ENDED if each == meant)


async def _vitals(store: Store, namespace: str | None) -> Vitals:
    asked = clock.monotonic()
    # A cheap read on every backend.
    paused = await store.admin.paused_queues(namespace)
    latency = timedelta(seconds=clock.monotonic() - asked)
    examination = await store.admin.inspect_storage()
    before = clock.system_clock()
    now = await store.now()
    after = clock.system_clock()
    workers, depth = (
        await store.queries.workers(namespace),
        await store.admin.queue_stats(namespace),
    )
    schedules = await store.schedules.list(namespace)
    places = {namespace} if namespace is not None else await _namespaces(store)
    return Vitals(
        now=now,
        latency=latency,
        # The store read its clock about halfway between request and response.
        skew=before + (after - before) / 2 - now,
        examination=examination,
        workers=tuple(workers),
        polls={place: await _poll_all(store, place) for place in sorted(places)},
        depth=tuple(depth),
        runs=tuple(await store.admin.run_stats(namespace)),
        paused_queues=tuple(paused),
        unreadable_schedules=tuple(
            each for each in schedules if isinstance(each, UnreadableSchedule)
        ),
    )


async def _namespaces(store: Store) -> set[str]:
    """Omit empty ones."""
    return {
        *(each.info.namespace for each in await store.queries.workers(None)),
        *(each.namespace for each in await store.admin.queue_stats(None)),
        *(each.namespace for each in await store.admin.live_flows(None)),
        *(each.namespace for each in await store.schedules.list(None)),
    }


async def _poll_all(store: Store, namespace: str) -> PollResult:
    """Queue stats with all partitions, not only the first page."""
    poll = page = await store.maintenance.poll(namespace)
    partitions = list(poll.partitions)
    while len(page.partitions) >= POLL_PARTITIONS_MAX:
        page = await store.maintenance.poll(namespace, after_partition=partitions[-1])
        partitions += page.partitions
    return replace(poll, partitions=tuple(partitions))
