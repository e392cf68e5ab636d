"""Operations on queues and workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from perdure.errors import QueueAlreadyPaused, QueueNotPaused
from perdure.model import check
from perdure.model.job import Job, QueueDepth, QueueInfo, Status
from perdure.model.partition import Partition
from perdure.model.worker import PollResult, WorkerState, is_live
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import Page, page_of_all, page_size
from perdure.operations.records import QueuePage, QueueStats, WorkerRecord
from perdure.store.contract import POLL_PARTITIONS_MAX, Store


class Queues(Group):
    """Job counts by queue; pause and resume."""

    @operation("queues.list", role=Role.VIEWER)
    async def list(self, *, limit: int = 1_000, cursor: str | None = None) -> QueuePage:
        """List queues, and count jobs and runs by status.

        Only queues that have jobs or are paused. Counts are exact up to 10,000; ``more`` names the
        statuses of a queue that has more. ``runs`` has the runs of each namespace by status, with
        those that wait for people and those that are orphaned: a run may use several queues.
        """
        store, visible = await self._backend.store(), self._backend.visible
        counts = await store.admin.queue_stats(visible)
        paused = await store.admin.paused_queues(visible)
        page = page_of_all(
            "queues.list",
            queue_stats(counts, paused),
            limit,
            cursor,
            lambda queue: (queue.namespace, queue.name),
        )
        runs = tuple(await store.admin.run_stats(visible))
        return QueuePage(items=page.items, next=page.next, runs=runs)

    @operation("queues.peek", role=Role.VIEWER, one_namespace=True)
    async def peek(self, name: str, *, limit: int = 10) -> Sequence[Job]:
        """List the next jobs of a queue.

        In the order in which workers claim them, without their values. Limits, tags and the code
        of workers are not considered; a paused queue has no next jobs.
        """
        check.stored_name(name, "queue")
        store, namespace = await self._backend.store(), self._backend.namespace
        return await next_jobs(store, namespace, page_size(limit), lambda each: each.queue == name)

    @operation("queues.pause", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def pause(self, name: str, *, by: str | None = None) -> None:
        """Pause a queue; running jobs continue.

        None of its jobs starts until it is resumed.
        """
        check.name(name, "queue")
        who = check.optional(check.person, by, "by")
        store = await self._backend.store()
        namespace = self._backend.namespace
        while not await store.admin.pause_queue(namespace, name, who):
            for pause in await store.admin.paused_queues(namespace):
                if pause.queue == name:
                    raise QueueAlreadyPaused(
                        name=name, paused_at=pause.paused_at, paused_by=pause.paused_by
                    )

    @operation("queues.resume", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def resume(self, name: str) -> None:
        """Resume a paused queue."""
        check.stored_name(name, "queue")
        store = await self._backend.store()
        if not await store.admin.resume_queue(self._backend.namespace, name):
            raise QueueNotPaused(name=name)


class Workers(Group):
    """Registered workers."""

    @operation("workers.list", role=Role.VIEWER)
    async def list(self, *, limit: int = 1_000, cursor: str | None = None) -> Page[WorkerRecord]:
        """List workers and what they run.

        Includes their host, start time and last heartbeat. A killed worker is ``silent``
        once its lease has passed, and listed until maintenance removes it, within minutes.
        """
        store = await self._backend.store()
        # Heartbeats first: one that arrives in between must not have a negative age.
        found = await store.queries.workers(self._backend.visible)
        now = await store.now()
        return page_of_all(
            "workers.list",
            [
                WorkerRecord(
                    **{name: getattr(each, name) for name in WorkerState.__struct_fields__},
                    status="live" if is_live(each, now) else "silent",
                    silent_for=max(now - each.seen_at, timedelta(0)),
                )
                for each in found
            ],
            limit,
            cursor,
            lambda worker: (worker.started_at.isoformat(), worker.info.id),
        )


async def next_jobs(
    store: Store, namespace: str, limit: int, is_wanted: Callable[[Partition], bool]
) -> list[Job]:
    """The next jobs of the partitions that are wanted, in the order of claims."""
    poll = await store.maintenance.poll(namespace)
    partitions = [
        text
        for text, partition in await waiting_partitions(store, namespace, poll)
        if is_wanted(partition) and partition.queue not in poll.paused
    ]
    return await store.queries.peek(namespace, partitions, limit)


async def waiting_partitions(
    store: Store, namespace: str, poll: PollResult
) -> list[tuple[str, Partition]]:
    """All partitions with waiting jobs, as stored and parsed; ``poll`` has the first of them."""
    texts = list(poll.partitions)
    while len(poll.partitions) == POLL_PARTITIONS_MAX:
        poll = await store.maintenance.poll(namespace, poll.partitions[-1])
        texts += poll.partitions
    return [(text, Partition.parse(text)) for text in texts]


def queue_stats(counts: list[QueueDepth], paused: list[QueueInfo]) -> list[QueueStats]:
    by_queue: dict[tuple[str, str], dict[Status, QueueDepth]] = {}
    for entry in counts:
        by_queue.setdefault((entry.namespace, entry.queue), {})[entry.status] = entry
    pauses = {(each.namespace, each.queue): each for each in paused}
    return [
        QueueStats(
            namespace=namespace,
            name=name,
            counts={status: each.count for status, each in depths.items()},
            more=tuple(status for status, each in depths.items() if each.has_more),
            paused_at=None if (pause := pauses.get((namespace, name))) is None else pause.paused_at,
            paused_by=None if pause is None else pause.paused_by,
        )
        for namespace, name in sorted({*by_queue, *pauses})
        for depths in [by_queue.get((namespace, name), {})]
    ]
