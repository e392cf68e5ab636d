"""What can be seen of runs."""

from __future__ import annotations

import pytest

from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.job import JobFilter, QueueDepth, Status
from perdure.model.outcome import Retried
from perdure.model.run import FlowCount, Run, RunFilter
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, SECOND, failure, read
from tests.conformance.run_builders import (
    COMPLETED,
    FAILED,
    FLOW,
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    RUN,
    VERSION,
    WAITING,
    child_wait,
    claim_node,
    claim_nodes,
    go_on,
    new_child,
    node_job,
    read_run,
    repeats,
    submit,
    timer,
)


async def various(store: Store, clock: ManualClock) -> None:
    """Runs that differ in every way a filter can tell, each a second younger."""
    await submit(store, id=RunId("a"))
    clock.advance(SECOND)
    await submit(store, id=RunId("b"), version="v2", status=WAITING)
    clock.advance(SECOND)
    await submit(store, id=RunId("c"), flow="returns", status=COMPLETED)
    clock.advance(SECOND)
    await submit(store, id=RunId("d"), namespace=OTHER_NAMESPACE, status=FAILED)
    clock.advance(SECOND)
    await submit(store, waits=(child_wait(),), children=(new_child(id=RunId("f")),), id=RUN)


FILTERS: dict[str, tuple[RunFilter, list[str]]] = {
    "namespace": (RunFilter(namespace=NAMESPACE), ["order-42", "f", "c", "b", "a"]),
    "id": (RunFilter(id=RunId("d")), ["d"]),
    "id in its namespace": (RunFilter(id=RunId("a"), namespace=NAMESPACE), ["a"]),
    "id elsewhere": (RunFilter(id=RunId("d"), namespace=NAMESPACE), []),
    "id of a child": (RunFilter(id=RunId("f"), parent=RUN, is_ended=False), ["f"]),
    "id of another status": (RunFilter(id=RunId("a"), status=WAITING), []),
    "unknown id": (RunFilter(id=RunId("order")), []),
    "status": (RunFilter(status=COMPLETED), ["c"]),
    "flow": (RunFilter(flow=FLOW), ["order-42", "d", "b", "a"]),
    "version": (RunFilter(version="v2"), ["b"]),
    "parent": (RunFilter(parent=RUN), ["f"]),
    "parent in its namespace": (RunFilter(parent=RUN, namespace=NAMESPACE), ["f"]),
    "parent elsewhere": (RunFilter(parent=RUN, namespace=OTHER_NAMESPACE), []),
    "ended": (RunFilter(is_ended=True), ["d", "c"]),
    "unended": (RunFilter(is_ended=False), ["order-42", "f", "b", "a"]),
    "several": (RunFilter(flow=FLOW, version=VERSION, is_ended=False), ["order-42", "a"]),
    "nothing": (RunFilter(status=COMPLETED, flow=FLOW), []),
}


class TestQueriesListRuns:
    async def test_gives_them_newest_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        for id in ("a", "c", "b"):
            await submit(store, id=RunId(id))
            clock.advance(SECOND)

        runs = await store.queries.list_runs(RunFilter(), 2)

        assert [run.id for run in runs] == ["b", "c"]
        assert runs[0] == await read_run(store, RunId("b"))

    @pytest.mark.parametrize("name", FILTERS)
    async def test_gives_those_that_match_in(
        self, store: Store, clock: ManualClock, name: str
    ) -> None:
        await various(store, clock)
        filter, wanted = FILTERS[name]

        assert [run.id for run in await store.queries.list_runs(filter, 10)] == wanted

    async def test_goes_through_them_page_by_page(self, store: Store, clock: ManualClock) -> None:
        for number in range(9):  # three at each moment
            await submit(store, id=RunId(f"run-{number}"))
            clock.advance(SECOND if number % 3 == 2 else 0 * SECOND)
        seen: list[str] = []
        page: list[Run] = []
        for _ in range(5):
            before = (page[-1].created_at, page[-1].id) if page else None
            page = await store.queries.list_runs(RunFilter(before=before), 2)
            seen += [run.id for run in page]

        assert seen == [f"run-{number}" for number in reversed(range(9))]

    async def test_gives_all_of_one_id_newest_first(self, store: Store, clock: ManualClock) -> None:
        for namespace in ("b", "c", "a"):
            await submit(store, id=RUN, namespace=namespace)
            await submit(store, id=RunId(f"{RUN}/child"), namespace=namespace)
            clock.advance(SECOND)

        runs = await store.queries.list_runs(RunFilter(id=RUN), 10)

        assert [(run.namespace, run.id) for run in runs] == [("a", RUN), ("c", RUN), ("b", RUN)]
        assert await store.queries.list_runs(RunFilter(id=RUN), 2) == runs[:2]
        older = RunFilter(id=RUN, before=(runs[0].created_at, RUN))
        assert await store.queries.list_runs(older, 10) == runs[1:]
        assert await store.queries.count_runs(RunFilter(id=RUN)) == 3


class TestQueriesCountRuns:
    @pytest.mark.parametrize("name", FILTERS)
    async def test_counts_those_that_match_in(
        self, store: Store, clock: ManualClock, name: str
    ) -> None:
        await various(store, clock)
        filter, wanted = FILTERS[name]

        assert await store.queries.count_runs(filter) == len(wanted)


class TestAdminLiveFlows:
    async def test_count_unended_runs_by_version(self, store: Store, clock: ManualClock) -> None:
        await various(store, clock)

        live = await store.admin.live_flows(NAMESPACE)

        def count(flow: str, version: str, count: int) -> FlowCount:
            return FlowCount(namespace=NAMESPACE, flow=flow, version=version, count=count)

        wanted = [count(FLOW, VERSION, 2), count(FLOW, "v2", 1), count("shipping", "v7", 1)]
        assert sorted(live, key=lambda each: (each.flow, each.version)) == wanted

    async def test_follow_a_run_as_it_ends_and_moves(self, store: Store) -> None:
        await submit(store, namespace=OTHER_NAMESPACE)
        await submit(store)

        async def versions(namespace: str | None) -> list[tuple[str, str]]:
            live = await store.admin.live_flows(namespace)
            return sorted((each.namespace, each.version) for each in live)

        await go_on(store, version="v2")
        assert await versions(None) == [(NAMESPACE, "v2"), (OTHER_NAMESPACE, VERSION)]
        await go_on(store, status=FAILED)
        assert await versions(None) == [(OTHER_NAMESPACE, VERSION)]
        await go_on(store)
        assert await versions(NAMESPACE) == [(NAMESPACE, "v2")]


class TestQueriesGetRuns:
    async def test_are_in_the_order_asked(self, store: Store) -> None:
        mine = await submit(store)
        theirs = await submit(store, namespace=OTHER_NAMESPACE)
        other = await submit(store, id=RunId("other"), status=COMPLETED)

        states = await store.queries.get_runs(
            [
                (NAMESPACE, RunId("other")),
                (OTHER_NAMESPACE, RUN),
                (NAMESPACE, RunId("nobody")),
                (OTHER_NAMESPACE, RunId("other")),
                (NAMESPACE, RUN),
            ]
        )

        assert states == [other, theirs, None, None, mine]
        assert await store.queries.get_runs([]) == []


class TestQueriesRunJobs:
    async def test_are_those_of_the_run_oldest_first_without_values(self, store: Store) -> None:
        jobs = [node_job(f"pack[{item}]") for item in range(3)]
        other = RunId("other")
        await submit(store, jobs=tuple(jobs))
        await submit(store, id=other, jobs=(node_job(run=other),))
        theirs = node_job(namespace=OTHER_NAMESPACE)
        await submit(store, namespace=OTHER_NAMESPACE, jobs=(theirs,))

        found = await store.queries.run_jobs(NAMESPACE, RUN)

        assert [job.id for job in found] == [job.id for job in jobs]
        assert [job.node for job in found] == [job.node for job in jobs]
        assert {job.input for job in found} == {None}
        assert await store.queries.run_jobs(NAMESPACE, RunId("nobody")) == []

    async def test_have_their_failures_elsewhere(self, store: Store) -> None:
        await submit(store, jobs=(node_job(),))
        held = await claim_node(store)
        await go_on(store, settlements=(repeats(held, Retried(failure=failure("jammed"))),))

        [job] = await store.queries.run_jobs(NAMESPACE, RUN)

        assert (job.status, job.failures) == (Status.WAITING, 1)
        [failed] = await store.queries.failed_attempts(job.id)
        assert failed.failure == failure("jammed")

    async def test_are_seen_among_all_jobs_too(self, store: Store) -> None:
        await submit(store, jobs=(node_job("a"), node_job("b")))
        [claimed] = await claim_nodes(store, limit=1)

        [waiting] = await store.queries.list_jobs(JobFilter(status=Status.WAITING), 10)
        assert waiting.node == node_job("b").node
        assert (await read(store, claimed.claim.id)).node == node_job("a").node
        assert await store.queries.count_jobs(JobFilter(queue=NODE_PARTITION.queue)) == 2
        depth = QueueDepth(
            namespace=NAMESPACE, queue=NODE_PARTITION.queue, status=Status.ACTIVE, count=1
        )
        assert depth in await store.admin.queue_stats(NAMESPACE)


class TestQueriesRunWaits:
    async def test_are_those_of_the_run(self, store: Store) -> None:
        await submit(store, waits=(timer("a", delay=HOUR), timer("b"), child_wait("c")))
        await submit(store, id=RunId("other"), waits=(timer("theirs"),))
        await submit(store, namespace=OTHER_NAMESPACE, waits=(timer("elsewhere"),))

        waits = await store.queries.run_waits(NAMESPACE, RUN)

        assert {wait.key for wait in waits} == {"a", "b", "c"}
        assert {(wait.namespace, wait.run) for wait in waits} == {(NAMESPACE, RUN)}
        assert await store.queries.run_waits(NAMESPACE, RunId("nobody")) == []
