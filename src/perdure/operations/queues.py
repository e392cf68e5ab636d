"""Operations on queues and workers."""

from __future__ import annotations

from perdure.model import check
from perdure.model.job import QueueDepth, QueueInfo, Status
from perdure.model.worker import WorkerState, is_live
from perdure.operations.operation import Group, Role, operation
from perdure.operations.page import Page, page_of_all
from perdure.operations.records import QueueStats, WorkerRecord


class Queues(Group):
    """Job counts by queue; pause and resume."""

    @operation("queues.list", role=Role.VIEWER)
    async def list(self, *, limit: int = 1_000, cursor: str | None = None) -> Page[QueueStats]:
        """List queues with their jobs by status.

        Only queues that have jobs or are paused.
        """
        store, visible = await self._backend.store(), self._backend.visible
        counts = await store.admin.queue_stats(visible)
        paused = await store.admin.paused_queues(visible)
        return page_of_all(
            "queues.list",
            queue_stats(counts, paused),
            limit,
            cursor,
            lambda queue: (queue.namespace, queue.name),
        )

    @operation("queues.pause", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def pause(self, name: str, *, by: str | None = None) -> None:
        """Pause a queue; running jobs continue.

        None of its jobs starts until it is resumed.
        """
        check.name(name, "queue")
        who = check.optional(check.person, by, "by")
        store = await self._backend.store()
        await store.admin.pause_queue(self._backend.namespace, name, who)

    @operation("queues.resume", role=Role.OPERATOR, writes=True, one_namespace=True)
    async def resume(self, name: str) -> None:
        """Resume a paused queue."""
        check.stored_name(name, "queue")
        store = await self._backend.store()
        await store.admin.resume_queue(self._backend.namespace, name)


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
                    silent_for=now - each.seen_at,
                )
                for each in found
            ],
            limit,
            cursor,
            lambda worker: (worker.started_at.isoformat(), worker.info.id),
        )


def queue_stats(counts: list[QueueDepth], paused: list[QueueInfo]) -> list[QueueStats]:
    by_queue: dict[tuple[str, str], dict[Status, int]] = {}
    for entry in counts:
        by_queue.setdefault((entry.namespace, entry.queue), {})[entry.status] = entry.count
    pauses = {(each.namespace, each.queue): each for each in paused}
    return [
        QueueStats(
            namespace=namespace,
            name=name,
            counts=by_queue.get((namespace, name), {}),
            paused_at=None if (pause := pauses.get((namespace, name))) is None else pause.paused_at,
            paused_by=None if pause is None else pause.paused_by,
        )
        for namespace, name in sorted({*by_queue, *pauses})
    ]
