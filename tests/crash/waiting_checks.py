"""What is true of runs that have ended, whoever died meanwhile: each has one end, and one log."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection
from typing import Any

from perdure import AsyncClient, RunFailed, RunStatus
from perdure.engine.cached_run import restored
from perdure.model.event import NodeCompleted, decode_event
from perdure.model.ids import RunId
from perdure.model.payload import PlainCodec
from perdure.model.run import ENDED, LoadedRun, Run, RunFilter, RunState
from perdure.operations.run_log import RunLog, event_type
from perdure.store.contract import EventsAfter, Store

NAMESPACE = "default"
PAGE = 200
COUNTED = frozenset(
    {
        "node_completed",
        "node_failed",
        "node_retried",
        "node_paused",
        "node_reported",
        "report_ignored",
        "approval_answered",
        "signal_received",
    }
)
"""Events of which one too many would be an act, or an end of a node, that counted twice."""


async def check_logs(store: Store) -> dict[str, dict[str, int]]:
    """Check every run and its log; how often there is what, by run."""
    counts: dict[str, dict[str, int]] = {}
    async for run, whole, shortened in _loaded(store):
        log = RunLog(run.id, PlainCodec())
        log.take(whole.events)
        assert log.state == _restored(shortened)
        assert (log.state.status, log.state.number) == (run.status, run.number)
        assert run.status in ENDED
        assert not log.state.live
        counts[run.id] = _counted(whole)
    return counts


async def check_nothing_is_left(client: AsyncClient, store: Store) -> None:
    """No wait, no job, no lease."""
    assert list(await client.waits.list()) == []
    assert await client.jobs.count() == 0
    poll = await store.maintenance.poll(NAMESPACE)
    assert (poll.partitions, poll.next_lease_end_at, poll.next_due_at) == ((), None, None)
    assert (poll.next_wait_at, poll.next_tick_at) == (None, None)


async def check_nothing_is_held(client: AsyncClient, store: Store, ids: Collection[str]) -> None:
    """Runs that wait have no job at all, let alone one that somebody holds."""
    runs = await runs_of(store, ids)
    jobs = await client.jobs.list(limit=1000)
    assert {run.status for run in runs} == {RunStatus.WAITING}
    assert {job.node.run for job in jobs if job.node is not None}.isdisjoint(ids)


async def runs_of(store: Store, ids: Collection[str]) -> list[Run]:
    found = await store.queries.get_runs([(NAMESPACE, RunId(id)) for id in ids])
    runs = [run for run in found if run is not None]
    assert len(runs) == len(ids)
    return runs


async def outcome_of(client: AsyncClient, run: str, timeout: float) -> Any:
    """The result, or what the run failed with."""
    try:
        return await client.runs.handle(run).result(timeout)
    except RunFailed as error:
        return f"failed: {error.failure and error.failure.type}"


async def _loaded(store: Store) -> AsyncIterator[tuple[Run, LoadedRun, LoadedRun]]:
    """Every run there is, with its whole log, and as a worker would load it."""
    before = None
    while True:
        runs = await store.queries.list_runs(RunFilter(namespace=NAMESPACE, before=before), PAGE)
        if not runs:
            return
        before = (runs[-1].created_at, runs[-1].id)
        whole = [EventsAfter(namespace=NAMESPACE, id=run.id, number=0) for run in runs]
        shortened = [EventsAfter(namespace=NAMESPACE, id=run.id) for run in runs]
        loaded = (await store.runs.load(whole), await store.runs.load(shortened))
        for run, log, short in zip(runs, *loaded, strict=True):
            assert log is not None
            assert short is not None
            yield run, log, short


def _restored(loaded: LoadedRun) -> RunState:
    found = restored(loaded, PlainCodec())
    assert found is not None
    return found[0]


def _counted(loaded: LoadedRun) -> dict[str, int]:
    events = [decode_event(loaded.run.id, each.number, each.data) for each in loaded.events]
    nodes = Counter(event.node for event in events if isinstance(event, NodeCompleted))
    assert set(nodes.values()) <= {1}
    node_types = Counter(event_type(event) for event in events)
    return {found_type: count for found_type, count in node_types.items() if found_type in COUNTED}
