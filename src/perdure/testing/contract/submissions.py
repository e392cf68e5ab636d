"""Submitting runs, and storing the definitions of their flows."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from perdure.clock import ManualClock
from perdure.errors import InvalidInput, RunExists
from perdure.model.event import Parent, StoredEvent
from perdure.model.ids import JobId, RunId
from perdure.model.job import Status
from perdure.model.run import (
    NewWait,
    OnExisting,
    Run,
    RunFilter,
    Snapshot,
    StoredStep,
    Wait,
    WaitType,
)
from perdure.store.contract import Store
from perdure.testing.contract.builders import (
    CHILD,
    COMPLETED,
    CONFLICT,
    DONE,
    FAILED,
    FLOW,
    HOUR,
    MINUTE,
    NAMESPACE,
    NODE_PARTITION,
    OTHER_NAMESPACE,
    RUN,
    RUNNING,
    SECOND,
    VERSION,
    WAITING,
    child_wait,
    claim_new_node,
    claim_node,
    claim_nodes,
    commit,
    commit_next,
    due_keys,
    event,
    is_still_claimed,
    jobs_by_key,
    load,
    new_child,
    new_run,
    node_job,
    read_run,
    run_record,
    submit,
    timer,
    waits_by_key,
)
from perdure.testing.contract.handles import run_concurrently


class TestRunsSubmit:
    async def test_adds_the_run(self, store: Store, clock: ManualClock) -> None:
        submitted = await store.runs.submit(new_run())

        assert submitted.is_new
        assert submitted.run == Run(
            id=RUN,
            namespace=NAMESPACE,
            flow=FLOW,
            version=VERSION,
            status=RUNNING,
            number=1,
            parent=None,
            created_at=clock(),
            updated_at=clock(),
            started_at=clock(),
            finished_at=None,
            summary=b'{"by":"ann"}',
        )
        assert await read_run(store) == submitted.run

    async def test_numbers_its_first_events_from_one(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, events=(event("submitted", "input"), event("completed")))

        loaded = await load(store)
        assert loaded.events == [
            StoredEvent(number=1, at=clock(), data=b'{"type":"submitted"}', value=b'"input"'),
            StoredEvent(number=2, at=clock(), data=b'{"type":"completed"}', value=None),
        ]
        assert loaded.run.number == 2

    async def test_adds_its_jobs(self, store: Store) -> None:
        soon, later = node_job("pack[0]"), node_job("pack[1]", delay=MINUTE)

        await submit(store, jobs=(soon, later))

        jobs = await jobs_by_key(store)
        assert {key: (job.id, job.status) for key, job in jobs.items()} == {
            "pack[0]": (soon.id, Status.WAITING),
            "pack[1]": (later.id, Status.SCHEDULED),
        }
        [claimed] = await claim_nodes(store)
        assert (claimed.claim.id, claimed.node) == (soon.id, soon.node)

    async def test_opens_its_waits(self, store: Store, clock: ManualClock) -> None:
        signal = NewWait(key="ask", type=WaitType.SIGNAL, name="approval")

        await submit(store, status=WAITING, waits=(timer(delay=HOUR), signal))

        assert await waits_by_key(store) == {
            "delay": Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="delay",
                type=WaitType.TIMER,
                name="",
                opened_at=clock(),
                due_at=clock() + HOUR,
            ),
            "ask": Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="ask",
                type=WaitType.SIGNAL,
                name="approval",
                opened_at=clock(),
                due_at=None,
            ),
        }

    async def test_adds_its_children_with_all_that_is_theirs(self, store: Store) -> None:
        grandchild = new_child(id=RunId("below"), parent=Parent(run=CHILD, key="label"))
        child = new_child(
            jobs=(node_job("print", run=CHILD),),
            waits=(timer("truck", delay=MINUTE), child_wait("label", RunId("below"))),
            children=(grandchild,),
        )

        await submit(store, waits=(child_wait(),), children=(child,))

        added = await read_run(store, CHILD)
        assert (added.flow, added.version, added.number) == ("shipping", "v7", 1)
        assert added.parent == Parent(run=RUN, key="ship")
        assert (await read_run(store, RunId("below"))).parent == Parent(run=CHILD, key="label")
        assert list(await jobs_by_key(store, CHILD)) == ["print"]
        assert set(await waits_by_key(store, CHILD)) == {"truck", "label"}
        assert set(await waits_by_key(store)) == {"ship"}

    async def test_gives_a_run_that_is_over_at_once_its_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = await submit(store, status=COMPLETED)

        assert run.finished_at == clock()

    async def test_lets_a_wait_be_due_for_a_child_that_is_over_at_once(self, store: Store) -> None:
        child = new_child(status=COMPLETED)

        await submit(store, waits=(child_wait(), timer(delay=HOUR)), children=(child,))

        assert await due_keys(store) == ["ship"]

    @pytest.mark.parametrize("on_existing", ["fail", "replace"])
    async def test_writes_all_or_nothing(self, store: Store, on_existing: OnExisting) -> None:
        await submit(store, id=RunId("other"), jobs=(node_job(run=RunId("other")),))
        if on_existing == "replace":
            await submit(store, jobs=(node_job(),), waits=(timer(delay=HOUR), child_wait()))
            await commit_next(store, children=(new_child(),))
        before = await run_record(store), await run_record(store, CHILD)
        too_late = node_job("late", run=RunId("below"), delay=timedelta.max)
        below = new_child(id=RunId("below"), jobs=(node_job("a"), too_late))
        run = new_run(
            jobs=(node_job("b"),),
            waits=(timer("c", delay=SECOND),),
            children=(new_child(), below),
            on_existing=on_existing,
        )

        with pytest.raises(InvalidInput):
            await store.runs.submit(run)

        assert (await run_record(store), await run_record(store, CHILD)) == before
        assert (await store.queries.get_runs([(NAMESPACE, RunId("below"))]))[0] is None
        assert await store.maintenance.due_waits(NAMESPACE, 10) == []

    async def test_keeps_an_id_apart_in_each_namespace(self, store: Store) -> None:
        await submit(store, jobs=(node_job(),))

        theirs = await submit(store, namespace=OTHER_NAMESPACE, flow="theirs")

        assert (await read_run(store)).flow == FLOW
        assert await read_run(store, RUN, OTHER_NAMESPACE) == theirs
        assert await store.queries.run_jobs(OTHER_NAMESPACE, RUN) == []

    async def test_takes_an_id_of_any_characters_and_length(self, store: Store) -> None:
        id = RunId("Bestellung/Ä 'q\" %_\\ 🚚" + "x" * 200)

        await submit(store, id=id, jobs=(node_job(run=id),), waits=(timer(),))
        result = await commit(store, run=id, cancel_all=True, status=FAILED)

        assert (result.state, (await read_run(store, id)).number) == ("done", 2)
        assert await store.queries.run_jobs(NAMESPACE, id) == []
        assert await store.queries.run_waits(NAMESPACE, id) == []


class TestSubmittingAnIdThatIsTaken:
    @pytest.mark.parametrize("status", [RUNNING, COMPLETED])
    async def test_fails_and_writes_nothing(self, store: Store, status: str) -> None:
        await submit(store, status=status, jobs=(node_job(),), waits=(timer(delay=HOUR),))
        before = await run_record(store)
        rival = new_run(
            flow="rivals",
            events=(event("rival"),),
            jobs=(node_job("rival"),),
            waits=(timer("rival"),),
            children=(new_child(),),
        )

        with pytest.raises(RunExists) as raised:
            await store.runs.submit(rival)

        assert (raised.value.run_id, raised.value.flow, raised.value.status) == (RUN, FLOW, status)
        assert await run_record(store) == before
        assert (await store.queries.get_runs([(NAMESPACE, CHILD)]))[0] is None

    async def test_fails_for_the_very_same_run_too(self, store: Store) -> None:
        """Only a lost answer makes it count as submitted, and nothing was lost here."""
        await store.runs.submit(new_run())

        with pytest.raises(RunExists):
            await store.runs.submit(new_run())

    async def test_yields_the_run_that_is_there_if_asked(self, store: Store) -> None:
        await submit(store, jobs=(node_job(),))
        await commit_next(store)
        before = await run_record(store)
        rival = new_run(
            flow="rivals",
            jobs=(node_job("rival"),),
            waits=(timer("rival"),),
            on_existing="use_existing",
        )

        submitted = await store.runs.submit(rival)

        assert not submitted.is_new
        assert (submitted.run.flow, submitted.run.number) == (FLOW, 2)
        assert await run_record(store) == before

    @pytest.mark.parametrize("on_existing", ["use_existing", "replace"])
    async def test_matters_only_if_it_is_taken(self, store: Store, on_existing: OnExisting) -> None:
        submitted = await store.runs.submit(new_run(on_existing=on_existing))

        assert submitted.is_new

    async def test_replaces_all_that_is_kept_if_asked(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store,
            status=WAITING,
            jobs=(node_job("pack"), node_job("weigh")),
            waits=(timer(delay=HOUR), timer("truck", delay=MINUTE)),
        )
        await commit_next(store, snapshot=Snapshot(number=2, data=b"old"), summary=b"old")
        await commit_next(store, status=FAILED)
        clock.advance(SECOND)
        new = node_job("start")

        submitted = await store.runs.submit(
            new_run(
                flow="returns",
                version="v2",
                events=(event("second", "again"),),
                jobs=(new,),
                waits=(timer("truck", delay=HOUR),),
                on_existing="replace",
            )
        )

        run = submitted.run
        assert submitted.is_new
        assert (run.flow, run.version, run.status, run.number) == ("returns", "v2", RUNNING, 1)
        assert (run.created_at, run.finished_at) == (clock(), None)
        assert [each.data for each in (await load(store)).events] == [b'{"type":"second"}']
        assert (await load(store, number=None)).snapshot is None
        assert {key: job.id for key, job in (await jobs_by_key(store)).items()} == {"start": new.id}
        waits = await waits_by_key(store)
        assert {key: wait.due_at for key, wait in waits.items()} == {"truck": clock() + HOUR}
        assert await store.queries.count_runs(RunFilter()) == 1

    async def test_is_created_later_than_the_run_that_was_there(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The time when it was created tells it apart; all else is as of now."""

        def starts() -> dict[str, Any]:
            waits = (timer(delay=HOUR), child_wait())
            return {"jobs": (node_job("pack"),), "waits": waits, "children": (new_child(),)}

        former = await submit(store)
        second = await submit(store, on_existing="replace", **starts())
        third = await submit(store, on_existing="replace", **starts())

        assert former.created_at == clock()
        assert former.created_at < second.created_at < third.created_at < clock() + SECOND
        assert (third.updated_at, third.started_at) == (clock(), clock())
        jobs, waits = await jobs_by_key(store), await waits_by_key(store)
        assert jobs["pack"].created_at == jobs["pack"].ready_at == clock()
        assert waits[timer().key].due_at == clock() + HOUR

    async def test_has_children_that_are_created_later_than_those_that_were_there(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A commit that was decided about one of those must not be written to its successor."""
        await submit(store)
        clock.advance(SECOND)
        await commit(store, 1, children=[new_child()], waits=[child_wait()])
        former = await read_run(store, CHILD)

        with_child = {"waits": (child_wait(),), "children": (new_child(),)}
        run = await submit(store, on_existing="replace", **with_child)

        child = await read_run(store, CHILD)
        assert former.created_at == clock() < child.created_at == run.created_at
        for decided_about, state in ((former, CONFLICT), (child, DONE)):
            created = decided_about.created_at
            result = await commit(store, child.number, run=CHILD, created_at=created)
            assert result.state is state

    async def test_is_created_when_the_clock_says_so_after_it_was_set_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        clock.advance(-HOUR)

        assert (await submit(store, on_existing="replace")).created_at == clock()

    async def test_takes_jobs_from_their_workers(self, store: Store) -> None:
        claimed = await claim_new_node(store)

        await submit(store, on_existing="replace")

        assert not await is_still_claimed(store, claimed)
        assert await store.queries.get_job(None, claimed.id) is None
        result = await commit(store, settlements=(), jobs=(node_job("next"),))
        assert result.state == "done"

    async def test_removes_the_children_that_were_there(self, store: Store) -> None:
        """Else a child of the new run would meet one of the old run under its id."""
        child = new_child(jobs=(node_job("print", run=CHILD),))
        await submit(store, waits=(child_wait(),), children=(child,))
        claimed = await claim_node(store)
        second = new_child(events=(event("second child"),))

        await submit(store, waits=(child_wait(),), children=(second,), on_existing="replace")

        assert not await is_still_claimed(store, claimed)
        assert [each.data for each in (await load(store, CHILD)).events] == [
            b'{"type":"second child"}'
        ]
        assert await store.queries.run_jobs(NAMESPACE, CHILD) == []

    async def test_forgets_the_steps_of_the_run_that_was_there(self, store: Store) -> None:
        claimed = await claim_new_node(store)
        await store.runs.save_step(claimed, "order-42:pack", StoredStep(name="weigh", value=b"1"))

        await submit(store, on_existing="replace")

        assert await store.runs.load_steps("order-42:pack") == []

    async def test_leaves_a_run_of_another_namespace_alone(self, store: Store) -> None:
        await submit(store, namespace=OTHER_NAMESPACE, waits=(timer(delay=HOUR),))
        before = await run_record(store, RUN, OTHER_NAMESPACE)

        await submit(store, on_existing="replace")

        assert await run_record(store, RUN, OTHER_NAMESPACE) == before


SUBMITTERS = 8


class TestSubmittingAtOnce:
    @pytest.mark.parametrize("is_alike", [True, False])
    async def test_makes_one_new_run_under_fail(self, store: Store, is_alike: bool) -> None:
        async def work(handle: Store, number: int) -> JobId | None:
            job = node_job(f"by-{number}")
            first = event("submitted") if is_alike else event(f"by {number}")
            try:
                await handle.runs.submit(new_run(events=(first,), jobs=(job,)))
            except RunExists:
                return None
            return job.id

        answers = await run_concurrently(store, work, SUBMITTERS)

        [winner] = [answer for answer in answers if answer is not None]
        assert [job.id for job in await store.queries.run_jobs(NAMESPACE, RUN)] == [winner]
        assert (await read_run(store)).number == 1

    async def test_makes_one_new_run_for_all_who_use_the_existing(self, store: Store) -> None:
        async def work(handle: Store, number: int) -> bool:
            run = new_run(jobs=(node_job(f"by-{number}"),), on_existing="use_existing")
            return (await handle.runs.submit(run)).is_new

        answers = await run_concurrently(store, work, SUBMITTERS)

        assert Counter(answers) == {True: 1, False: SUBMITTERS - 1}
        assert len(await store.queries.run_jobs(NAMESPACE, RUN)) == 1

    async def test_leaves_the_last_of_those_who_terminate_the_existing(self, store: Store) -> None:
        async def work(handle: Store, number: int) -> JobId:
            job = node_job(f"by-{number}")
            run = new_run(jobs=(job,), waits=(timer(),), on_existing="replace")
            assert (await handle.runs.submit(run)).is_new
            return job.id

        ids = await run_concurrently(store, work, SUBMITTERS)

        [left] = await store.queries.run_jobs(NAMESPACE, RUN)
        assert left.id in ids
        assert [job.claim.id for job in await claim_nodes(store, NODE_PARTITION)] == [left.id]
        assert (await read_run(store)).number == 1


# Definitions


class TestRunsSaveDefinition:
    async def test_leaves_a_version_that_is_known_as_it_is(self, store: Store) -> None:
        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"first")

        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"second")

        assert await store.runs.get_definition(NAMESPACE, FLOW, VERSION) == b"first"


class TestRunsGetDefinition:
    async def test_distinguishes_namespaces_flows_and_versions(self, store: Store) -> None:
        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"mine")
        await store.runs.save_definition(NAMESPACE, FLOW, "v2", b"newer")
        await store.runs.save_definition(NAMESPACE, "returns", VERSION, b"other")
        await store.runs.save_definition(OTHER_NAMESPACE, FLOW, VERSION, b"theirs")

        assert await store.runs.get_definition(NAMESPACE, FLOW, VERSION) == b"mine"
        assert await store.runs.get_definition(NAMESPACE, FLOW, "v2") == b"newer"
        assert await store.runs.get_definition(NAMESPACE, "returns", VERSION) == b"other"
        assert await store.runs.get_definition(OTHER_NAMESPACE, FLOW, VERSION) == b"theirs"

    async def test_is_none_for_what_was_never_saved(self, store: Store) -> None:
        await store.runs.save_definition(NAMESPACE, FLOW, VERSION, b"mine")

        assert await store.runs.get_definition(NAMESPACE, FLOW, "v2") is None
        assert await store.runs.get_definition(OTHER_NAMESPACE, FLOW, VERSION) is None
