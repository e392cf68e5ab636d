"""Reading runs: for a decision, for people, and the steps of a task; retention of runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.errors import ClaimLost
from perdure.model.event import Parent, StoredEvent
from perdure.model.ids import RunId
from perdure.model.job import FINISHED, JobFilter, QueueDepth, Status
from perdure.model.outcome import Completed, Requeued, Retried
from perdure.model.partition import UNSUSPECTED
from perdure.model.run import ENDED, FlowCount, Run, RunFilter, RunStatus, Snapshot, StoredStep
from perdure.store.contract import EventsAfter, EventsBefore, Store
from perdure.testing.contract.builders import (
    CANCELLED,
    CHILD,
    COMPLETED,
    CONFLICT,
    FAILED,
    FLOW,
    HOUR,
    LEASE,
    MINUTE,
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    RUN,
    SECOND,
    SUSPECTED,
    VERSION,
    WAITING,
    child_wait,
    claim_new,
    claim_new_node,
    claim_node,
    claim_nodes,
    commit,
    commit_next,
    continues,
    due_keys,
    event,
    failure,
    finishes,
    load,
    new_child,
    node_job,
    read_job,
    read_run,
    retries,
    settle,
    submit,
    timer,
)
from perdure.testing.contract.handles import THREADS, run_concurrently

# Events, values and snapshots before a decision


async def run_of(store: Store, count: int, **changes: Any) -> None:
    await submit(store)
    events = tuple(event(f"e{number}", f"v{number}") for number in range(2, count + 1))
    await commit_next(store, events=events, **changes)


class TestRunsLoad:
    async def test_gives_the_run_with_its_events(self, store: Store, clock: ManualClock) -> None:
        await submit(store)
        started_at = clock()
        clock.advance(SECOND)
        await commit_next(store, events=(event("two"),))

        [loaded] = await store.runs.load([EventsAfter(namespace=NAMESPACE, id=RUN)])

        assert loaded is not None
        assert loaded.run == await read_run(store)
        assert loaded.snapshot is None
        assert loaded.events == [
            StoredEvent(number=1, at=started_at, data=b'{"type":"submitted"}', value=b'"input"'),
            StoredEvent(number=2, at=clock(), data=b'{"type":"two"}', value=None),
        ]

    async def test_starts_with_the_snapshot_if_there_is_one(self, store: Store) -> None:
        await run_of(store, 5, snapshot=Snapshot(number=3, data=b"three"))

        loaded = await load(store, number=None)

        assert loaded.snapshot == Snapshot(number=3, data=b"three")
        assert [each.number for each in loaded.events] == [4, 5]

    async def test_gives_the_events_after_a_number_and_no_snapshot(self, store: Store) -> None:
        await run_of(store, 5, snapshot=Snapshot(number=3, data=b"three"))

        loaded = [await load(store, number=number) for number in (0, 2, 5, 9)]

        numbers = [[event.number for event in each.events] for each in loaded]
        assert numbers == [[1, 2, 3, 4, 5], [3, 4, 5], [], []]
        assert {each.snapshot for each in loaded} == {None}
        assert {each.run.number for each in loaded} == {5}

    async def test_answers_in_the_order_asked_with_none_for_what_is_not_there(
        self, store: Store
    ) -> None:
        first, second = RunId("first"), RunId("second")
        await submit(store, id=first)
        await submit(store, id=second)
        await submit(store, id=first, namespace=OTHER_NAMESPACE, flow="theirs")

        loaded = await store.runs.load(
            [
                EventsAfter(namespace=NAMESPACE, id=second, number=0),
                EventsAfter(namespace=NAMESPACE, id=RunId("unknown")),
                EventsAfter(namespace=OTHER_NAMESPACE, id=first),
                EventsAfter(namespace=OTHER_NAMESPACE, id=second),
                EventsAfter(namespace=NAMESPACE, id=first, number=1),
                EventsAfter(namespace=NAMESPACE, id=second, number=1),
            ]
        )

        found = [
            None if each is None else (each.run.namespace, each.run.id, len(each.events))
            for each in loaded
        ]
        assert found == [
            (NAMESPACE, second, 1),
            None,
            (OTHER_NAMESPACE, first, 1),
            None,
            (NAMESPACE, first, 0),
            (NAMESPACE, second, 0),
        ]
        assert await store.runs.load([]) == []

    async def test_is_one_consistent_view_of_a_run(self, store: Store) -> None:
        """While others write, its number is that of the last event each time."""
        await submit(store)

        async def work(handle: Store, writer: int) -> None:
            for _ in range(25):
                loaded = await load(handle)
                last = loaded.events[-1].number
                assert (loaded.run.number, len(loaded.events)) == (last, last)
                if writer % 2:
                    events = (event("one"), event("two"))
                    result = await commit(handle, last, events=events)
                    assert result.state in ("done", CONFLICT)

        await run_concurrently(store, work)

        assert (await read_run(store)).number > THREADS

    async def test_reads_a_long_run(self, store: Store) -> None:
        await run_of(store, 3000, snapshot=Snapshot(number=2990, data=b"x"))

        assert [each.number for each in (await load(store)).events] == list(range(1, 3001))
        assert len((await load(store, number=None)).events) == 10


class TestRunsLatestEvents:
    async def test_are_read_from_the_end_without_their_values(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        clock.advance(SECOND)
        await commit_next(store, events=(event("two", "large"), event("three")))

        [found] = await store.runs.latest_events([EventsBefore(namespace=NAMESPACE, id=RUN)], 2)

        assert found == [
            StoredEvent(number=3, at=clock(), data=b'{"type":"three"}'),
            StoredEvent(number=2, at=clock(), data=b'{"type":"two"}'),
        ]

    async def test_continue_before_a_number(self, store: Store) -> None:
        await run_of(store, 5)

        pages = await store.runs.latest_events(
            [
                EventsBefore(namespace=NAMESPACE, id=RUN, number=number)
                for number in (5, 3, 2, 1, 0, 99)
            ],
            2,
        )

        numbers = [[each.number for each in page] for page in pages]
        assert numbers == [[4, 3], [2, 1], [1], [], [], [5, 4]]

    async def test_are_in_the_order_asked_and_none_of_what_is_not_there(self, store: Store) -> None:
        first, second = RunId("first"), RunId("second")
        await submit(store, id=first)
        await submit(store, id=second)
        await commit_next(store, run=second, events=(event("two"),))

        found = await store.runs.latest_events(
            [
                EventsBefore(namespace=NAMESPACE, id=second),
                EventsBefore(namespace=NAMESPACE, id=RunId("unknown")),
                EventsBefore(namespace=OTHER_NAMESPACE, id=first),
                EventsBefore(namespace=NAMESPACE, id=first),
                EventsBefore(namespace=NAMESPACE, id=second, number=2),
            ],
            10,
        )

        assert [[each.number for each in page] for page in found] == [[2, 1], [], [], [1], [1]]
        assert await store.runs.latest_events([], 10) == []


class TestRunsEventValues:
    async def test_are_those_of_the_events_asked_for(self, store: Store) -> None:
        await run_of(store, 4)

        values = await store.runs.event_values(NAMESPACE, RUN, [4, 1, 3])

        assert values == {1: b'"input"', 3: b'"v3"', 4: b'"v4"'}

    async def test_leave_out_events_without_one_and_events_that_are_not_there(
        self, store: Store
    ) -> None:
        await submit(store)
        await commit_next(store, events=(event("none"), event("null", "")))

        assert await store.runs.event_values(NAMESPACE, RUN, [0, 2, 3, 9]) == {3: b'""'}
        assert await store.runs.event_values(NAMESPACE, RunId("unknown"), [1]) == {}
        assert await store.runs.event_values(OTHER_NAMESPACE, RUN, [1]) == {}
        assert await store.runs.event_values(NAMESPACE, RUN, []) == {}


# Lists and counts


async def various(store: Store, clock: ManualClock) -> None:
    """Runs that differ in every way a filter can distinguish, each a second younger."""
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

        await commit_next(store, version="v2")
        assert await versions(None) == [(NAMESPACE, "v2"), (OTHER_NAMESPACE, VERSION)]
        await commit_next(store, status=FAILED)
        assert await versions(None) == [(OTHER_NAMESPACE, VERSION)]
        await commit_next(store)
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
                (NAMESPACE, RunId("unknown")),
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
        assert await store.queries.run_jobs(NAMESPACE, RunId("unknown")) == []

    async def test_have_their_failures_elsewhere(self, store: Store) -> None:
        await submit(store, jobs=(node_job(),))
        claimed = await claim_node(store)
        await commit_next(
            store, settlements=(retries(claimed, Retried(failure=failure("jammed"))),)
        )

        [job] = await store.queries.run_jobs(NAMESPACE, RUN)

        assert (job.status, job.failures) == (Status.WAITING, 1)
        [failed] = await store.queries.failed_attempts(job.id)
        assert failed.failure == failure("jammed")

    async def test_are_seen_among_all_jobs_too(self, store: Store) -> None:
        await submit(store, jobs=(node_job("a"), node_job("b")))
        [claimed] = await claim_nodes(store, limit=1)

        [waiting] = await store.queries.list_jobs(JobFilter(status=Status.WAITING), 10)
        assert waiting.node == node_job("b").node
        assert (await read_job(store, claimed.claim.id)).node == node_job("a").node
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
        assert await store.queries.run_waits(NAMESPACE, RunId("unknown")) == []


# Steps: results that a task stores while it runs


OWNER = "order-42:pack:0"


def stored(name: str = "weigh", value: bytes = b"17") -> StoredStep:
    return StoredStep(name=name, value=value)


async def steps_of(store: Store, owner: str = OWNER) -> dict[str, bytes]:
    steps = await store.runs.load_steps(owner)
    assert len({step.name for step in steps}) == len(steps)
    return {step.name: step.value for step in steps}


class TestRunsSaveStep:
    async def test_keeps_a_result_under_its_name(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        await store.runs.save_step(claimed, OWNER, stored("weigh", b"17"))
        await store.runs.save_step(claimed, OWNER, stored("label", b'"x"'))
        await store.runs.save_step(claimed, "order-42:pack:1", stored("weigh", b"18"))

        assert await steps_of(store) == {"weigh": b"17", "label": b'"x"'}
        assert await steps_of(store, "order-42:pack:1") == {"weigh": b"18"}

    async def test_keeps_the_order_in_which_they_were_saved(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        names = ["weigh", "label", "zip", "ask"]
        for name in names:
            await store.runs.save_step(claimed, OWNER, stored(name))

        assert [step.name for step in await store.runs.load_steps(OWNER)] == names

    async def test_lets_the_first_one_stay(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        await store.runs.save_step(claimed, OWNER, stored(value=b"first"))

        await store.runs.save_step(claimed, OWNER, stored(value=b"second"))

        assert await steps_of(store) == {"weigh": b"first"}

    async def test_refuses_a_claim_that_is_not_current(
        self, store: Store, clock: ManualClock
    ) -> None:
        stale = await claim_new_node(store)
        clock.advance(LEASE)
        await store.maintenance.take_over_expired(NAMESPACE, 10)

        with pytest.raises(ClaimLost) as raised:
            await store.runs.save_step(stale, OWNER, stored())

        assert (raised.value.job_id, raised.value.epoch) == (stale.id, stale.epoch)
        await claim_node(store, suspicion=SUSPECTED)
        with pytest.raises(ClaimLost):
            await store.runs.save_step(stale, OWNER, stored())
        assert await steps_of(store) == {}

    async def test_is_progress_which_removes_the_suspicion(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Finding 35: a long job that is preempted again and again must complete."""
        suspicion, seen = UNSUSPECTED, []
        claimed = await claim_new_node(store)
        for number in range(4):
            if number:
                claimed = await claim_node(store, suspicion=suspicion, is_alone=True)
            if number == 2:
                await store.runs.save_step(claimed, OWNER, stored())
                assert (await read_job(store, claimed.id)).suspicion == UNSUSPECTED
            clock.advance(LEASE)
            await store.maintenance.take_over_expired(NAMESPACE, 10)
            suspicion = (await read_job(store, claimed.id)).suspicion
            seen.append((suspicion.crashes, suspicion.alone))

        assert seen == [(1, 0), (2, 1), (1, 0), (2, 1)]
        assert (await read_job(store, claimed.id)).crashes == 4

    async def test_refuses_a_claim_on_a_job_that_is_over(self, store: Store) -> None:
        node, plain = await claim_new_node(store), await claim_new(store)
        await commit_next(store, settlements=(finishes(node),))
        await settle(store, plain, Completed(output=b"1"))

        for claim in (node, plain):
            with pytest.raises(ClaimLost):
                await store.runs.save_step(claim, OWNER, stored())

        assert await steps_of(store) == {}

    async def test_keeps_one_of_those_that_come_at_once(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        async def work(handle: Store, number: int) -> None:
            await handle.runs.save_step(claimed, OWNER, stored(value=f"{number}".encode()))

        await run_concurrently(store, work)

        [step] = await store.runs.load_steps(OWNER)
        assert step.value in [b"0", b"1", b"2", b"3"]


class TestRunsLoadSteps:
    async def test_finds_none_of_another_owner(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        await store.runs.save_step(claimed, OWNER, stored())

        assert await store.runs.load_steps("order-42:pack") == []

    async def test_finds_them_when_the_job_is_run_again(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        await store.runs.save_step(claimed, OWNER, stored())
        await settle(store, claimed, Requeued())
        await claim_node(store)

        assert await steps_of(store) == {"weigh": b"17"}

    async def test_finds_them_while_their_run_is_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A run that is retried finds what its failed node had done."""
        claimed = await claim_new_node(store)
        await store.runs.save_step(claimed, OWNER, stored())
        await commit_next(store, settlements=(continues(claimed, node_job("next")),))
        await store.runs.save_step(claimed, "order-42:next", stored())
        await commit_next(store, settlements=(finishes(claimed),), status=COMPLETED)

        assert await steps_of(store) == await steps_of(store, "order-42:next") == {"weigh": b"17"}
        clock.advance(MINUTE)
        await store.maintenance.prune_runs(NAMESPACE, {COMPLETED: MINUTE}, 10)
        assert await steps_of(store) == await steps_of(store, "order-42:next") == {}

    async def test_finds_those_of_a_plain_job_while_that_is_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        claimed = await claim_new(store)
        await store.runs.save_step(claimed, claimed.id, stored())
        await settle(store, claimed, Completed(output=b"1"))

        assert await steps_of(store, claimed.id) == {"weigh": b"17"}
        clock.advance(MINUTE)
        await store.maintenance.prune_jobs(NAMESPACE, dict.fromkeys(FINISHED, MINUTE), 10)
        assert await steps_of(store, claimed.id) == {}


# Pruning ended runs


KEEP = dict.fromkeys(ENDED, HOUR)


async def prune(store: Store, limit: int = 10) -> int:
    return await store.maintenance.prune_runs(NAMESPACE, KEEP, limit)


async def left(store: Store) -> set[str]:
    return {run.id for run in await store.queries.list_runs(RunFilter(), 100)}


class TestMaintenancePruneRuns:
    @pytest.mark.parametrize("status", sorted(ENDED))
    async def test_removes_runs_that_ended_longer_ago(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store)
        clock.advance(MINUTE)
        await commit_next(store, status=status)

        clock.advance(HOUR - SECOND)
        assert await prune(store) == 0
        clock.advance(SECOND)
        assert await prune(store) == 1

        assert (await store.queries.get_runs([(NAMESPACE, RUN)]))[0] is None
        assert await prune(store) == 0

    async def test_removes_all_that_is_kept_of_them(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(child_wait("left", RunId("gone")), timer(delay=SECOND)))
        await commit_next(store, snapshot=Snapshot(number=2, data=b"two"))
        await commit_next(store, status=FAILED)
        clock.advance(HOUR)
        assert await prune(store) == 1

        assert await store.runs.load([EventsAfter(namespace=NAMESPACE, id=RUN)]) == [None]
        assert await store.runs.event_values(NAMESPACE, RUN, [1, 2]) == {}
        assert await store.queries.run_waits(NAMESPACE, RUN) == []
        assert await due_keys(store) == []
        assert (await commit(store, 3)).state == "conflict"
        await submit(store)
        loaded = await load(store, number=None)
        assert (loaded.snapshot, [each.number for each in loaded.events]) == (None, [1])

    @pytest.mark.parametrize("status", sorted(set(RunStatus) - ENDED))
    async def test_leaves_runs_that_have_not_ended(
        self, store: Store, clock: ManualClock, status: RunStatus
    ) -> None:
        await submit(store, status=status)
        clock.advance(1000 * HOUR)

        assert await prune(store) == 0
        assert (await read_run(store)).status is status

    async def test_keeps_each_status_for_its_own_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        for status in (COMPLETED, FAILED, CANCELLED):
            await submit(store, id=RunId(status), status=status)
        clock.advance(HOUR)

        keep: dict[RunStatus, timedelta] = {COMPLETED: HOUR, FAILED: 2 * HOUR}
        assert await store.maintenance.prune_runs(NAMESPACE, keep, 10) == 1

        assert await left(store) == {FAILED, CANCELLED}

    async def test_counts_from_the_last_end_of_a_run_that_was_retried(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        await commit_next(store, status=FAILED)
        clock.advance(MINUTE)
        await commit_next(store)
        clock.advance(HOUR)
        assert await prune(store) == 0

        await commit_next(store, status=COMPLETED)
        clock.advance(HOUR - SECOND)
        assert await prune(store) == 0

    async def test_takes_those_that_ended_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        for id in ("c", "a", "b"):
            await submit(store, id=RunId(id), status=COMPLETED)
            clock.advance(SECOND)
        clock.advance(HOUR)

        assert await prune(store, 2) == 2
        assert await left(store) == {"b"}
        assert await prune(store, 2) == 1

    async def test_leaves_other_namespaces_alone(self, store: Store, clock: ManualClock) -> None:
        await submit(store, namespace=OTHER_NAMESPACE, status=COMPLETED)
        clock.advance(HOUR)

        assert await prune(store) == 0
        assert await left(store) == {RUN}


class TestPruningParents:
    async def test_removes_children_with_their_parent_and_not_before(
        self, store: Store, clock: ManualClock
    ) -> None:
        below = RunId("below")
        grandchild = new_child(id=below, parent=Parent(run=CHILD, key="label"), status=COMPLETED)
        child = new_child(status=COMPLETED, children=(grandchild,))
        await submit(store, waits=(child_wait(),), children=(child,))
        clock.advance(HOUR)
        assert await prune(store) == 0
        await commit_next(store, status=COMPLETED)
        clock.advance(HOUR)

        await prune(store)

        assert await left(store) == set()
        loaded = await store.runs.load(
            [EventsAfter(namespace=NAMESPACE, id=id) for id in (RUN, CHILD, below)]
        )
        assert loaded == [None, None, None]

    async def test_keeps_a_parent_while_a_child_continues(
        self, store: Store, clock: ManualClock
    ) -> None:
        """It failed, and its child is still being cancelled and undone."""
        child = new_child(jobs=(node_job("undo:print", run=CHILD),))
        await submit(store, waits=(child_wait(),), children=(child,))
        await commit_next(store, cancel_all=True, status=FAILED)
        clock.advance(HOUR)

        assert await prune(store) == 0
        assert await left(store) == {RUN, CHILD}
        await commit_next(store, run=CHILD, cancel_all=True, status=CANCELLED)
        await prune(store)
        assert await left(store) == set()

    async def test_keeps_a_parent_while_a_grandchild_continues(
        self, store: Store, clock: ManualClock
    ) -> None:
        below = RunId("below")
        grandchild = new_child(id=below, parent=Parent(run=CHILD, key="label"), status=WAITING)
        child = new_child(status=COMPLETED, children=(grandchild,))
        await submit(store, status=COMPLETED, children=(child,))
        clock.advance(HOUR)

        assert await prune(store) == 0
        assert await left(store) == {RUN, CHILD, below}
        await commit_next(store, run=below, status=COMPLETED)
        await prune(store)
        assert await left(store) == set()

    async def test_goes_past_parents_that_have_to_be_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        child = new_child(status=WAITING)
        await submit(store, status=COMPLETED, children=(child,))
        clock.advance(SECOND)
        await submit(store, id=RunId("other"), status=COMPLETED)
        clock.advance(HOUR)

        assert await prune(store, 1) == 1
        assert await left(store) == {RUN, CHILD}
