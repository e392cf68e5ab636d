"""What a commit opens, closes and gives up: waits, and with drops and clears jobs too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.job import Status
from perdure.model.outcome import Retried
from perdure.model.run import NewWait, Wait, WaitType
from perdure.model.times import EARLIEST, LATEST
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, MINUTE, SECOND, failure
from tests.conformance.run_builders import (
    CANCELLED,
    CHILD,
    CONFLICT,
    FAILED,
    NAMESPACE,
    RUN,
    approval,
    child_wait,
    claim_nodes,
    commit,
    continues,
    due_keys,
    ends,
    go_on,
    is_suspended,
    jobs_by_key,
    new_child,
    node_job,
    outside,
    repeats,
    signal,
    step,
    submit,
    timer,
    waits_by_key,
)

SIGNAL = NewWait(key="ask", type=WaitType.SIGNAL, name="approval", delay=HOUR)


class TestWaitsOfACommit:
    async def test_are_opened(self, store: Store, clock: ManualClock) -> None:
        await submit(store)
        clock.advance(SECOND)

        await go_on(store, waits=(SIGNAL, child_wait()))

        assert await waits_by_key(store) == {
            "ask": Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="ask",
                type=WaitType.SIGNAL,
                name="approval",
                opened_at=clock(),
                due_at=clock() + HOUR,
            ),
            "ship": Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="ship",
                type=WaitType.CHILD,
                name=CHILD,
                opened_at=clock(),
                due_at=None,
            ),
        }

    async def test_are_closed_by_their_keys(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer(delay=SECOND), SIGNAL, child_wait()))
        clock.advance(MINUTE)

        await go_on(store, close_waits=("delay", "ship", "nothing"))

        assert set(await waits_by_key(store)) == {"ask"}
        assert await due_keys(store) == []

    async def test_are_not_closed_where_the_same_commit_opens_them_anew(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(timer("poll", delay=SECOND),))
        clock.advance(MINUTE)

        await go_on(store, close_waits=("poll",), waits=(timer("poll", delay=HOUR),))

        assert (await waits_by_key(store))["poll"].due_at == clock() + HOUR

    async def test_take_the_place_of_one_that_was_left_under_their_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A retry may come before anybody has looked after a child that was given up."""
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        await go_on(store, cancel_all=True, status=FAILED)
        anew = RunId("order-42/ship~3")

        await go_on(store, waits=(child_wait("ship", anew),))

        wait = (await waits_by_key(store))["ship"]
        assert (wait.name, wait.due_at) == (anew, None)
        assert await due_keys(store) == []

    async def test_are_opened_with_all_that_is_to_be_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)

        await go_on(
            store,
            waits=(
                approval(deciders=("ann", "bob"), detail=b"\x00\xff", delay=HOUR),
                outside(detail=b'{"job":7}'),
            ),
        )

        waits = await waits_by_key(store)
        assert waits["check"] == Wait(
            run=RUN,
            namespace=NAMESPACE,
            key="check",
            type=WaitType.APPROVAL,
            name="Ship it?",
            opened_at=clock(),
            due_at=clock() + HOUR,
            deciders=("ann", "bob"),
            detail=b"\x00\xff",
        )
        carrier = waits["carrier"]
        assert (carrier.type, carrier.name) == (WaitType.EXTERNAL, "label")
        assert (carrier.deciders, carrier.detail, carrier.due_at) == ((), b'{"job":7}', None)

    async def test_are_opened_the_same_way_with_a_run_and_with_its_children(
        self, store: Store
    ) -> None:
        wait = approval(deciders=("ann",), detail=b"form")
        await submit(store, waits=(wait, child_wait()), children=(new_child(waits=(wait,)),))

        ours, theirs = (await waits_by_key(store))["check"], await waits_by_key(store, CHILD)
        assert theirs == {"check": replace(ours, run=CHILD)}
        assert (ours.deciders, ours.detail) == (("ann",), b"form")

    async def test_are_due_at_a_time_rather_than_after_a_delay(
        self, store: Store, clock: ManualClock
    ) -> None:
        at = clock() + MINUTE
        await submit(store)
        clock.advance(SECOND)

        await go_on(store, waits=(approval(due_at=at, delay=HOUR), timer(due_at=at - HOUR)))

        waits = await waits_by_key(store)
        assert (waits["check"].due_at, waits["delay"].due_at) == (at, at - HOUR)
        assert await due_keys(store) == ["delay"]
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == at - HOUR

    async def test_take_the_place_of_an_open_one_but_for_when_it_was_opened(
        self, store: Store, clock: ManualClock
    ) -> None:
        opened_at = clock()
        await submit(store, waits=(approval(deciders=("ann",), detail=b"1", delay=MINUTE),))
        clock.advance(HOUR)

        await go_on(
            store,
            waits=(approval(name="Now?", deciders=("bob", "eve"), detail=b"2", delay=HOUR),),
        )

        assert await waits_by_key(store) == {
            "check": Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="check",
                type=WaitType.APPROVAL,
                name="Now?",
                opened_at=opened_at,
                due_at=clock() + HOUR,
                deciders=("bob", "eve"),
                detail=b"2",
            )
        }
        assert await due_keys(store) == []

    async def test_lose_what_the_one_that_takes_their_place_does_not_have(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(approval("ask", deciders=("ann",), detail=b"1", delay=SECOND),))
        clock.advance(MINUTE)

        await go_on(store, waits=(signal("ask"),))

        wait = (await waits_by_key(store))["ask"]
        assert (wait.type, wait.due_at, wait.deciders, wait.detail) == (
            WaitType.SIGNAL,
            None,
            (),
            b"",
        )
        assert await due_keys(store) == []

    async def test_are_new_ones_where_the_same_commit_closes_their_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(approval(),))
        clock.advance(SECOND)

        await go_on(store, close_waits=("check",), waits=(approval(),))

        assert (await waits_by_key(store))["check"].opened_at == clock()

    @pytest.mark.parametrize("part", [{"cancel_keys": ("check",)}, {"cancel_all": True}])
    async def test_are_new_ones_where_the_same_commit_gives_up_their_key(
        self, store: Store, clock: ManualClock, part: dict[str, object]
    ) -> None:
        await submit(store, waits=(approval(deciders=("ann",)),))
        clock.advance(SECOND)

        await go_on(store, waits=(approval(deciders=("bob",)),), **part)

        wait = (await waits_by_key(store))["check"]
        assert (wait.opened_at, wait.deciders) == (clock(), ("bob",))

    async def test_are_not_opened_by_a_commit_that_conflicts(self, store: Store) -> None:
        await submit(store, waits=(approval(deciders=("ann",)),))

        result = await commit(store, 9, waits=(approval(deciders=("bob",)), outside()))

        assert result.state is CONFLICT
        waits = await waits_by_key(store)
        assert {key: wait.deciders for key, wait in waits.items()} == {"check": ("ann",)}

    async def test_are_opened_once_by_a_commit_that_is_repeated(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)
        again = step(1, waits=(approval(delay=HOUR),))
        await store.runs.commit([again])
        before = await waits_by_key(store)
        clock.advance(MINUTE)

        await store.runs.commit([again])

        assert await waits_by_key(store) == before

    async def test_of_several_runs_are_kept_apart(self, store: Store) -> None:
        """One write opens all of them, with lists of different lengths."""
        deciders = [(), ("ann",), ("ann", "bob"), ('{"', "\\"), ()]
        ids = [RunId(f"run-{number}") for number in range(len(deciders))]
        for id in ids:
            await submit(store, id=id)

        await store.runs.commit(
            [
                step(1, run=id, waits=(approval(deciders=names), approval("b", deciders=("x",))))
                for id, names in zip(ids, deciders, strict=True)
            ]
        )

        found = [(await waits_by_key(store, id))["check"].deciders for id in ids]
        assert found == deciders

    @pytest.mark.parametrize(
        "given,kept",
        [
            (datetime.max.replace(tzinfo=UTC), LATEST),
            (datetime.min.replace(tzinfo=UTC), EARLIEST),
        ],
    )
    async def test_are_due_as_late_or_early_as_can_be_kept(
        self, store: Store, given: datetime, kept: datetime
    ) -> None:
        await submit(store)

        await go_on(store, waits=(approval(due_at=given),))

        assert (await waits_by_key(store))["check"].due_at == kept
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == kept

    async def test_may_be_as_long_as_a_life(self, store: Store, clock: ManualClock) -> None:
        await submit(store)

        await go_on(store, waits=(timer(delay=timedelta.max),))

        due_at = (await waits_by_key(store))["delay"].due_at
        assert due_at is not None
        assert due_at > clock() + timedelta(days=30_000)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at


class TestDrops:
    async def test_take_jobs_away_from_their_holders_too(self, store: Store) -> None:
        await submit(store, jobs=tuple(node_job(f"pack[{item}]") for item in range(4)))
        jobs = await claim_nodes(store, limit=2)
        held = {job.node.key: job.claim for job in jobs if job.node}

        await go_on(store, cancel_keys=("pack[0]", "pack[2]", "nothing"))

        assert set(await jobs_by_key(store)) == {"pack[1]", "pack[3]"}
        assert not await is_suspended(store, held["pack[0]"])
        assert await is_suspended(store, held["pack[1]"])
        assert await store.queries.get_job(None, held["pack[0]"].id) is None

    async def test_end_waits_but_a_childs_becomes_due(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(timer(delay=HOUR), SIGNAL, child_wait(), child_wait("other")))
        clock.advance(SECOND)

        await go_on(store, cancel_keys=("delay", "ship"))

        waits = await waits_by_key(store)
        assert {key: wait.due_at for key, wait in waits.items()} == {
            "ask": clock() + HOUR - SECOND,
            "ship": clock(),
            "other": None,
        }
        assert await due_keys(store) == ["ship"]

    async def test_leave_alone_what_the_same_commit_settles(self, store: Store) -> None:
        await submit(store, jobs=tuple(node_job(key) for key in ("a", "b", "c", "d")))
        jobs = await claim_nodes(store)
        held = {job.node.key: job.claim for job in jobs if job.node}

        await go_on(
            store,
            settlements=(
                ends(held["a"]),
                continues(held["b"], node_job("after-b")),
                repeats(held["c"], Retried(failure=failure())),
            ),
            cancel_keys=("a", "b", "c", "d", "after-b"),
        )

        assert {key: job.status for key, job in (await jobs_by_key(store)).items()} == {
            "after-b": Status.ACTIVE,
            "c": Status.WAITING,
        }
        assert await is_suspended(store, held["b"])

    async def test_leave_alone_what_the_same_commit_starts(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job("pack"),), waits=(timer(delay=SECOND), child_wait()))
        new = node_job("pack")

        await go_on(
            store,
            jobs=(new,),
            waits=(timer(delay=HOUR), child_wait("ship", RunId("anew"))),
            cancel_keys=("pack", "delay", "ship"),
        )

        assert [job.id for job in await store.queries.run_jobs(NAMESPACE, RUN)] == [new.id]
        waits = await waits_by_key(store)
        assert waits["delay"].due_at == clock() + HOUR
        assert (waits["ship"].name, waits["ship"].due_at) == ("anew", None)


class TestClears:
    async def test_take_away_everything_that_is_live(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store,
            jobs=(node_job("held"), node_job("waiting"), node_job("later", delay=HOUR)),
            waits=(timer(delay=HOUR), SIGNAL, child_wait()),
        )
        [job] = await claim_nodes(store, limit=1)
        clock.advance(SECOND)

        await go_on(store, cancel_all=True, status=CANCELLED)

        assert await store.queries.run_jobs(NAMESPACE, RUN) == []
        assert not await is_suspended(store, job.claim)
        assert await claim_nodes(store) == []
        assert {key: wait.due_at for key, wait in (await waits_by_key(store)).items()} == {
            "ship": clock()
        }

    async def test_leave_alone_what_the_same_commit_settles_or_starts(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store,
            jobs=tuple(node_job(key) for key in ("a", "b", "c", "d")),
            waits=(timer(delay=SECOND),),
        )
        jobs = await claim_nodes(store)
        held = {job.node.key: job.claim for job in jobs if job.node}

        await go_on(
            store,
            cancel_all=True,
            settlements=(
                ends(held["a"]),
                continues(held["b"], node_job("undo:b")),
                repeats(held["c"], Retried(failure=failure())),
            ),
            jobs=(node_job("undo:a"),),
            waits=(timer(delay=HOUR), child_wait()),
        )

        assert set(await jobs_by_key(store)) == {"undo:a", "undo:b", "c"}
        assert {key: wait.due_at for key, wait in (await waits_by_key(store)).items()} == {
            "delay": clock() + HOUR,
            "ship": None,
        }

    async def test_close_what_is_to_be_closed(self, store: Store) -> None:
        await submit(store, waits=(child_wait(), child_wait("other", RunId("o"))))

        await go_on(store, cancel_all=True, close_waits=("ship",), status=FAILED)

        assert set(await waits_by_key(store)) == {"other"}

    async def test_leave_a_time_alone_that_has_come_already(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),))
        await go_on(store, cancel_keys=("ship",))
        due_at = clock()
        clock.advance(MINUTE)

        await go_on(store, cancel_all=True, status=FAILED)

        assert (await waits_by_key(store))["ship"].due_at == due_at

    @pytest.mark.parametrize("part", [{"cancel_all": True}, {"cancel_keys": ("pack", "delay")}])
    async def test_leave_other_runs_alone(self, store: Store, part: dict[str, object]) -> None:
        other = RunId("other")
        await submit(
            store, id=other, jobs=(node_job(run=other),), waits=(timer(delay=HOUR), child_wait())
        )
        await submit(store, jobs=(node_job(),), waits=(timer(),))

        await go_on(store, **part)

        assert list(await jobs_by_key(store, other)) == ["pack"]
        waits = await waits_by_key(store, other)
        assert set(waits) == {"delay", "ship"}
        assert waits["ship"].due_at is None
