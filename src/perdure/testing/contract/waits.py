"""Waits: opened, closed and canceled by commits, listed, and due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.job import Status
from perdure.model.outcome import Retried
from perdure.model.run import NewWait, Wait, WaitFilter, WaitType
from perdure.model.times import EARLIEST, LATEST
from perdure.store.contract import Store
from perdure.testing.contract.builders import (
    CANCELLED,
    CHILD,
    CONFLICT,
    FAILED,
    HOUR,
    MINUTE,
    NAMESPACE,
    OTHER_NAMESPACE,
    PAUSED,
    RUN,
    SECOND,
    approval,
    child_wait,
    claim_nodes,
    commit,
    commit_next,
    continues,
    due_keys,
    external,
    failure,
    finishes,
    is_still_claimed,
    jobs_by_key,
    listed_keys,
    new_child,
    node_job,
    retries,
    signal,
    step,
    submit,
    timer,
    waits_by_key,
)

# Written by a commit


SIGNAL = NewWait(key="ask", type=WaitType.SIGNAL, name="approval", delay=HOUR)


class TestWaitsOfACommit:
    async def test_are_opened(self, store: Store, clock: ManualClock) -> None:
        await submit(store)
        clock.advance(SECOND)

        await commit_next(store, waits=(SIGNAL, child_wait()))

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

        await commit_next(store, close_waits=("delay", "ship", "nothing"))

        assert set(await waits_by_key(store)) == {"ask"}
        assert await due_keys(store) == []

    async def test_are_not_closed_where_the_same_commit_reopens_them(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(timer("poll", delay=SECOND),))
        clock.advance(MINUTE)

        await commit_next(store, close_waits=("poll",), waits=(timer("poll", delay=HOUR),))

        assert (await waits_by_key(store))["poll"].due_at == clock() + HOUR

    async def test_take_the_place_of_one_that_was_left_under_their_key(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A retry may come before a worker has handled a child that was given up."""
        await submit(store, waits=(child_wait(),), children=(new_child(),))
        await commit_next(store, cancel_all=True, status=FAILED)
        second = RunId("order-42/ship~3")

        await commit_next(store, waits=(child_wait("ship", second),))

        wait = (await waits_by_key(store))["ship"]
        assert (wait.name, wait.due_at) == (second, None)
        assert await due_keys(store) == []

    async def test_are_opened_with_all_that_is_to_be_kept(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store)

        await commit_next(
            store,
            waits=(
                approval(deciders=("ann", "bob"), detail=b"\x00\xff", delay=HOUR),
                external(detail=b'{"job":7}'),
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

        await commit_next(store, waits=(approval(due_at=at, delay=HOUR), timer(due_at=at - HOUR)))

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

        await commit_next(
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

        await commit_next(store, waits=(signal("ask"),))

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

        await commit_next(store, close_waits=("check",), waits=(approval(),))

        assert (await waits_by_key(store))["check"].opened_at == clock()

    @pytest.mark.parametrize("part", [{"cancel_keys": ("check",)}, {"cancel_all": True}])
    async def test_are_new_ones_where_the_same_commit_gives_up_their_key(
        self, store: Store, clock: ManualClock, part: dict[str, object]
    ) -> None:
        await submit(store, waits=(approval(deciders=("ann",)),))
        clock.advance(SECOND)

        await commit_next(store, waits=(approval(deciders=("bob",)),), **part)

        wait = (await waits_by_key(store))["check"]
        assert (wait.opened_at, wait.deciders) == (clock(), ("bob",))

    async def test_are_not_opened_by_a_commit_that_conflicts(self, store: Store) -> None:
        await submit(store, waits=(approval(deciders=("ann",)),))

        result = await commit(store, 9, waits=(approval(deciders=("bob",)), external()))

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

        await commit_next(store, waits=(approval(due_at=given),))

        assert (await waits_by_key(store))["check"].due_at == kept
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == kept

    async def test_may_be_as_long_as_a_life(self, store: Store, clock: ManualClock) -> None:
        await submit(store)

        await commit_next(store, waits=(timer(delay=timedelta.max),))

        due_at = (await waits_by_key(store))["delay"].due_at
        assert due_at is not None
        assert due_at > clock() + timedelta(days=30_000)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at


class TestCancelKeys:
    async def test_take_jobs_away_from_their_workers_too(self, store: Store) -> None:
        await submit(store, jobs=tuple(node_job(f"pack[{item}]") for item in range(4)))
        jobs = await claim_nodes(store, limit=2)
        claimed = {job.node.key: job.claim for job in jobs if job.node}

        await commit_next(store, cancel_keys=("pack[0]", "pack[2]", "nothing"))

        assert set(await jobs_by_key(store)) == {"pack[1]", "pack[3]"}
        assert not await is_still_claimed(store, claimed["pack[0]"])
        assert await is_still_claimed(store, claimed["pack[1]"])
        assert await store.queries.get_job(None, claimed["pack[0]"].id) is None

    async def test_end_waits_but_a_childs_becomes_due(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(timer(delay=HOUR), SIGNAL, child_wait(), child_wait("other")))
        clock.advance(SECOND)

        await commit_next(store, cancel_keys=("delay", "ship"))

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
        claimed = {job.node.key: job.claim for job in jobs if job.node}

        await commit_next(
            store,
            settlements=(
                finishes(claimed["a"]),
                continues(claimed["b"], node_job("after-b")),
                retries(claimed["c"], Retried(failure=failure())),
            ),
            cancel_keys=("a", "b", "c", "d", "after-b"),
        )

        assert {key: job.status for key, job in (await jobs_by_key(store)).items()} == {
            "after-b": Status.ACTIVE,
            "c": Status.WAITING,
        }
        assert await is_still_claimed(store, claimed["b"])

    async def test_leave_alone_what_the_same_commit_starts(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, jobs=(node_job("pack"),), waits=(timer(delay=SECOND), child_wait()))
        new = node_job("pack")

        await commit_next(
            store,
            jobs=(new,),
            waits=(timer(delay=HOUR), child_wait("ship", RunId("second"))),
            cancel_keys=("pack", "delay", "ship"),
        )

        assert [job.id for job in await store.queries.run_jobs(NAMESPACE, RUN)] == [new.id]
        waits = await waits_by_key(store)
        assert waits["delay"].due_at == clock() + HOUR
        assert (waits["ship"].name, waits["ship"].due_at) == ("second", None)


class TestCancelAll:
    async def test_take_away_everything_that_is_live(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store,
            jobs=(node_job("claimed"), node_job("waiting"), node_job("later", delay=HOUR)),
            waits=(timer(delay=HOUR), SIGNAL, child_wait()),
        )
        [job] = await claim_nodes(store, limit=1)
        clock.advance(SECOND)

        await commit_next(store, cancel_all=True, status=CANCELLED)

        assert await store.queries.run_jobs(NAMESPACE, RUN) == []
        assert not await is_still_claimed(store, job.claim)
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
        claimed = {job.node.key: job.claim for job in jobs if job.node}

        await commit_next(
            store,
            cancel_all=True,
            settlements=(
                finishes(claimed["a"]),
                continues(claimed["b"], node_job("undo:b")),
                retries(claimed["c"], Retried(failure=failure())),
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

        await commit_next(store, cancel_all=True, close_waits=("ship",), status=FAILED)

        assert set(await waits_by_key(store)) == {"other"}

    async def test_leave_a_time_alone_that_has_come_already(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(child_wait(),))
        await commit_next(store, cancel_keys=("ship",))
        due_at = clock()
        clock.advance(MINUTE)

        await commit_next(store, cancel_all=True, status=FAILED)

        assert (await waits_by_key(store))["ship"].due_at == due_at

    @pytest.mark.parametrize("part", [{"cancel_all": True}, {"cancel_keys": ("pack", "delay")}])
    async def test_leave_other_runs_alone(self, store: Store, part: dict[str, object]) -> None:
        other = RunId("other")
        await submit(
            store, id=other, jobs=(node_job(run=other),), waits=(timer(delay=HOUR), child_wait())
        )
        await submit(store, jobs=(node_job(),), waits=(timer(),))

        await commit_next(store, **part)

        assert list(await jobs_by_key(store, other)) == ["pack"]
        waits = await waits_by_key(store, other)
        assert set(waits) == {"delay", "ship"}
        assert waits["ship"].due_at is None


# Lists: inboxes, waits for a signal, external waits


OTHER_RUN = RunId("order-43")
EVERYTHING = (
    approval("check"),
    approval("review", name="Read it?"),
    external("carrier"),
    external("bank", name="transfer"),
    signal("paid", name="paid"),
    signal("sent", name="sent"),
    timer("delay", delay=HOUR),
    child_wait("ship"),
)


async def open_in_turn(store: Store, clock: ManualClock, *waits: NewWait) -> None:
    """Each in a run of its own, whose ids sort the other way round, a second after another."""
    for number, wait in enumerate(waits):
        await submit(store, id=RunId(f"run-{len(waits) - number}"), waits=(wait,))
        clock.advance(SECOND)


class TestQueriesListWaits:
    async def test_gives_all_that_is_kept(self, store: Store, clock: ManualClock) -> None:
        opened_at = clock()
        wait = approval(delay=HOUR, deciders=("ann", "role:finance"), detail=b'{"total":10}')
        await submit(store, waits=(wait,))

        assert await store.queries.list_waits(WaitFilter(namespace=NAMESPACE), 10) == [
            Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="check",
                type=WaitType.APPROVAL,
                name="Ship it?",
                opened_at=opened_at,
                due_at=opened_at + HOUR,
                deciders=("ann", "role:finance"),
                detail=b'{"total":10}',
            )
        ]

    async def test_is_empty_where_nothing_waits(self, store: Store) -> None:
        await submit(store)

        assert await store.queries.list_waits(WaitFilter(), 10) == []

    @pytest.mark.parametrize("found_type", list(WaitType))
    async def test_gives_those_of_a_type(self, store: Store, found_type: WaitType) -> None:
        await submit(store, waits=EVERYTHING)

        wanted = sorted(wait.key for wait in EVERYTHING if wait.type is found_type)
        assert await listed_keys(store, type=found_type) == wanted

    @pytest.mark.parametrize("found_type", [None, WaitType.SIGNAL])
    async def test_gives_those_of_a_name(self, store: Store, found_type: WaitType | None) -> None:
        await submit(store, waits=EVERYTHING)

        assert await listed_keys(store, name="paid", type=found_type) == ["paid"]
        assert await listed_keys(store, name="pai", type=found_type) == []

    async def test_names_an_approval_or_a_report_too(self, store: Store) -> None:
        await submit(store, waits=EVERYTHING)

        assert await listed_keys(store, name="Read it?", type=WaitType.APPROVAL) == ["review"]
        assert await listed_keys(store, name="transfer", type=WaitType.EXTERNAL) == ["bank"]
        assert await listed_keys(store, name="transfer", type=WaitType.APPROVAL) == []

    async def test_gives_those_of_a_run(self, store: Store) -> None:
        await submit(store, waits=EVERYTHING)
        await submit(store, id=OTHER_RUN, waits=(approval("theirs"), timer("their timer")))

        assert await listed_keys(store, run=OTHER_RUN) == ["their timer", "theirs"]
        assert await listed_keys(store, run=OTHER_RUN, type=WaitType.APPROVAL) == ["theirs"]
        assert await listed_keys(store, run=RunId("order")) == []

    @pytest.mark.parametrize(
        "part",
        [
            {},
            {"type": WaitType.APPROVAL},
            {"type": WaitType.APPROVAL, "deciders": ("ann",)},
            {"run": RUN},
        ],
        ids=["all", "of a type", "inbox", "of a run"],
    )
    async def test_keeps_namespaces_apart_unless_asked_for_all(
        self, store: Store, part: dict[str, Any]
    ) -> None:
        await submit(store, waits=(approval("ours"),))
        await submit(store, namespace=OTHER_NAMESPACE, waits=(approval("theirs"),))

        assert await listed_keys(store, **part) == ["ours"]
        assert await listed_keys(store, namespace=OTHER_NAMESPACE, **part) == ["theirs"]
        assert await listed_keys(store, namespace=None, **part) == ["ours", "theirs"]

    async def test_keeps_signals_of_a_name_apart_by_namespace(self, store: Store) -> None:
        await submit(store, waits=(signal("ours"),))
        await submit(store, namespace=OTHER_NAMESPACE, waits=(signal("theirs"),))

        part: dict[str, Any] = {"type": WaitType.SIGNAL, "name": "paid"}
        assert await listed_keys(store, **part) == ["ours"]
        assert await listed_keys(store, namespace=None, **part) == ["ours", "theirs"]

    async def test_gives_suspended_ones_too(self, store: Store) -> None:
        await submit(store, waits=(approval(delay=SECOND),))

        await commit_next(store, suspend=True, status=PAUSED)

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["check"]

    async def test_gives_those_of_children(self, store: Store) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(waits=(approval(),)),))

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["check"]

    async def test_does_not_give_those_that_ended(self, store: Store) -> None:
        await submit(store, waits=EVERYTHING)

        await commit_next(store, close_waits=("check", "paid"), cancel_keys=("carrier",))

        for found_type, keys in {
            WaitType.APPROVAL: ["review"],
            WaitType.SIGNAL: ["sent"],
            WaitType.EXTERNAL: ["bank"],
        }.items():
            assert await listed_keys(store, type=found_type) == keys
        await commit_next(store, cancel_all=True, close_waits=("ship",), status=CANCELLED)
        assert await listed_keys(store) == []

    async def test_does_not_give_those_of_a_run_that_was_replaced(self, store: Store) -> None:
        await submit(store, waits=EVERYTHING)

        await submit(store, on_existing="replace", waits=(approval("second"),))

        assert await listed_keys(store) == ["second"]


class TestInbox:
    async def test_has_approvals_for_these_deciders_or_for_anyone(
        self, store: Store, clock: ManualClock
    ) -> None:
        await open_in_turn(
            store,
            clock,
            approval("ann", deciders=("ann",)),
            approval("bob", deciders=("bob",)),
            approval("both", deciders=("bob", "ann")),
            approval("anybody"),
        )

        async def inbox(*deciders: str) -> list[str]:
            return await listed_keys(store, type=WaitType.APPROVAL, deciders=deciders)

        assert await inbox("ann") == ["ann", "both", "anybody"]
        assert await inbox("eve", "bob") == ["bob", "both", "anybody"]
        assert await inbox("ann", "bob") == ["ann", "bob", "both", "anybody"]
        assert await inbox("eve") == ["anybody"]
        assert await inbox() == ["anybody"]

    @pytest.mark.parametrize(
        "name",
        ['O"Brien', "back\\slash", "{a,b}", "a,b", " ", "", "NULL", "[]", "\u00e9\U0001f600", "%"],
    )
    async def test_takes_any_name_for_what_it_is(self, store: Store, name: str) -> None:
        await submit(store, waits=(approval(deciders=(name, "somebody")), timer()))

        part: dict[str, Any] = {"type": WaitType.APPROVAL}
        assert await listed_keys(store, deciders=(name,), **part) == ["check"]
        assert await listed_keys(store, deciders=(f"{name}x",), **part) == []
        [wait] = await store.queries.list_waits(WaitFilter(type=WaitType.APPROVAL), 10)
        assert wait.deciders == (name, "somebody")

    async def test_follows_who_is_asked(self, store: Store) -> None:
        await submit(store, waits=(approval(deciders=("ann",)),))

        await commit_next(store, waits=(approval(deciders=("bob",)),))

        assert await listed_keys(store, type=WaitType.APPROVAL, deciders=("ann",)) == []
        assert await listed_keys(store, type=WaitType.APPROVAL, deciders=("bob",)) == ["check"]

    async def test_follows_what_is_waited_for(self, store: Store) -> None:
        await submit(store, waits=(approval("ask"), signal("sent", name="sent")))

        await commit_next(store, waits=(signal("ask"), external("sent")))

        assert await listed_keys(store, type=WaitType.APPROVAL) == []
        assert await listed_keys(store, type=WaitType.SIGNAL, name="sent") == []
        assert await listed_keys(store, type=WaitType.SIGNAL, name="paid") == ["ask"]
        assert await listed_keys(store, type=WaitType.EXTERNAL) == ["sent"]


WAYS: list[dict[str, Any]] = [
    {},
    {"type": WaitType.APPROVAL},
    {"type": WaitType.APPROVAL, "namespace": None},
    {"type": WaitType.APPROVAL, "deciders": ("ann",)},
]


class TestPages:
    @pytest.mark.parametrize("part", WAYS)
    async def test_start_with_the_longest_open(
        self, store: Store, clock: ManualClock, part: dict[str, Any]
    ) -> None:
        await open_in_turn(store, clock, *(approval(key) for key in ("b", "a", "c")))

        assert await listed_keys(store, **part) == ["b", "a", "c"]
        assert await listed_keys(store, limit=2, **part) == ["b", "a"]

    @pytest.mark.parametrize("part", WAYS)
    async def test_continue_after_the_last_of_the_page_before(
        self, store: Store, clock: ManualClock, part: dict[str, Any]
    ) -> None:
        """Also among those that were opened at the same moment, in one run and in several."""
        for id in ("run-b", "run-a"):
            await submit(store, id=RunId(id), waits=tuple(approval(key) for key in "cab"))
        clock.advance(SECOND)
        await submit(store, id=RunId("run-0"), waits=(approval("a"), approval("b")))

        assert await paged(store, WaitFilter(**{"namespace": NAMESPACE, **part}), 3) == [
            *(("run-a", key) for key in "abc"),
            *(("run-b", key) for key in "abc"),
            *(("run-0", key) for key in "ab"),
        ]

    @pytest.mark.parametrize("namespace", [NAMESPACE, None])
    async def test_of_a_run_and_of_a_signal_are_in_the_same_order(
        self, store: Store, clock: ManualClock, namespace: str | None
    ) -> None:
        await submit(store, waits=(signal("c"), signal("b")))
        clock.advance(SECOND)
        await commit_next(store, waits=(signal("a"), signal("d")))

        for filter in (
            WaitFilter(namespace=namespace, run=RUN),
            WaitFilter(namespace=namespace, type=WaitType.SIGNAL, name="paid"),
            WaitFilter(namespace=namespace, type=WaitType.SIGNAL),
        ):
            assert await paged(store, filter, 1) == [(RUN, key) for key in "bcad"]

    async def test_keep_the_place_of_one_that_was_opened_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        await open_in_turn(store, clock, approval("first"), approval("second"))

        await commit_next(store, run=RunId("run-2"), waits=(approval("first", delay=MINUTE),))

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["first", "second"]

    async def test_put_one_last_that_was_closed_and_opened_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        await open_in_turn(store, clock, approval("first"), approval("second"))

        await commit_next(
            store, run=RunId("run-2"), close_waits=("first",), waits=(approval("first"),)
        )

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["second", "first"]

    async def test_distinguish_moments_that_are_close(
        self, store: Store, clock: ManualClock
    ) -> None:
        for key in ("b", "a", "c"):
            await submit(store, id=RunId(f"of-{key}"), waits=(approval(key),))
            clock.advance(timedelta(microseconds=1))

        assert await paged(store, WaitFilter(type=WaitType.APPROVAL), 1) == [
            (f"of-{key}", key) for key in "bac"
        ]


async def paged(store: Store, filter: WaitFilter, limit: int) -> list[tuple[str, str]]:
    """Runs and keys of all pages."""
    found: list[tuple[str, str]] = []
    after = None
    while page := await store.queries.list_waits(replace(filter, after=after), limit):
        assert len(page) <= limit
        found += [(wait.run, wait.key) for wait in page]
        after = page[-1].opened_at, page[-1].run, page[-1].key
    return found


# Due waits


class TestMaintenanceDueWaits:
    async def test_are_those_whose_time_has_come(self, store: Store, clock: ManualClock) -> None:
        ask = NewWait(key="ask", type=WaitType.SIGNAL, name="approval", delay=MINUTE)
        opened_at = clock()
        await submit(store, waits=(ask, timer(delay=HOUR), child_wait()))

        clock.advance(MINUTE - SECOND)
        assert await store.maintenance.due_waits(NAMESPACE, 10) == []
        clock.advance(SECOND)

        assert await store.maintenance.due_waits(NAMESPACE, 10) == [
            Wait(
                run=RUN,
                namespace=NAMESPACE,
                key="ask",
                type=WaitType.SIGNAL,
                name="approval",
                opened_at=opened_at,
                due_at=clock(),
            )
        ]

    async def test_name_the_deciders_and_what_they_need_to_know(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(
            store, waits=(approval(deciders=("ann", "bob"), detail=b"form", delay=SECOND),)
        )
        clock.advance(SECOND)

        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)

        assert (wait.type, wait.name) == (WaitType.APPROVAL, "Ship it?")
        assert (wait.deciders, wait.detail) == (("ann", "bob"), b"form")

    @pytest.mark.parametrize("new", [approval, external, signal, timer])
    async def test_are_of_any_type_and_given_a_delay_or_a_time(
        self, store: Store, clock: ManualClock, new: Callable[..., NewWait]
    ) -> None:
        await submit(
            store,
            waits=(
                new("delay", delay=SECOND),
                new("time", due_at=clock() + 2 * SECOND),
                new("later", due_at=clock() + MINUTE),
                new("never"),
            ),
        )

        clock.advance(2 * SECOND)

        assert await due_keys(store) == ["delay", "time"]

    async def test_come_at_a_time_that_is_given_in_any_zone(
        self, store: Store, clock: ManualClock
    ) -> None:
        east = timezone(5 * HOUR)
        await submit(store, waits=(approval(due_at=(clock() + SECOND).astimezone(east)),))
        assert await due_keys(store) == []

        clock.advance(SECOND)

        [wait] = await store.maintenance.due_waits(NAMESPACE, 10)
        assert wait.due_at == clock()

    async def test_are_put_off_by_one_that_takes_their_place(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, waits=(approval(delay=SECOND),))
        clock.advance(SECOND)
        assert await due_keys(store) == ["check"]

        await commit_next(store, waits=(approval(delay=MINUTE),))

        assert await due_keys(store) == []
        clock.advance(MINUTE)
        assert await due_keys(store) == ["check"]

    async def test_are_due_in_a_paused_run_if_opened_after_it_was_paused(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A suspension covers the waits that are open; a later commit opens its own as it asks."""
        await submit(store, waits=(approval(delay=SECOND), timer(delay=SECOND)))
        await commit_next(store, suspend=True, status=PAUSED)

        await commit_next(
            store, waits=(approval(delay=SECOND), signal(delay=SECOND)), status=PAUSED
        )
        clock.advance(SECOND)

        assert sorted(await due_keys(store)) == ["ask", "check"]

    async def test_come_earliest_first_up_to_the_limit(
        self, store: Store, clock: ManualClock
    ) -> None:
        delays = {"third": 3, "first": 1, "fifth": 5, "second": 2, "fourth": 4}
        for key, minutes in delays.items():
            await submit(store, id=RunId(f"of-{key}"), waits=(timer(key, delay=minutes * MINUTE),))
        clock.advance(4 * MINUTE)

        due = await store.maintenance.due_waits(NAMESPACE, 3)

        assert [wait.key for wait in due] == ["first", "second", "third"]
        assert await due_keys(store) == ["first", "second", "third", "fourth"]

    async def test_stay_until_they_are_closed(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer(delay=SECOND),))
        clock.advance(SECOND)

        assert await due_keys(store) == await due_keys(store) == ["delay"]
        await commit_next(store, close_waits=("delay",))
        assert await due_keys(store) == []

    async def test_are_due_at_once_without_a_delay_to_wait_out(self, store: Store) -> None:
        await submit(store, waits=(timer(delay=0 * SECOND),))

        assert await due_keys(store) == ["delay"]

    async def test_are_none_of_another_namespace(self, store: Store, clock: ManualClock) -> None:
        await submit(store, namespace=OTHER_NAMESPACE, waits=(timer(delay=SECOND),))
        clock.advance(SECOND)

        assert await due_keys(store) == []
        assert await due_keys(store, OTHER_NAMESPACE) == ["delay"]


class TestTheNextWaitOfAPoll:
    async def test_is_the_earliest_of_the_namespace(self, store: Store, clock: ManualClock) -> None:
        await submit(store, waits=(timer("late", delay=HOUR), timer("soon", delay=MINUTE)))
        await submit(store, namespace=OTHER_NAMESPACE, waits=(timer(delay=SECOND),))
        due_at = clock() + MINUTE

        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at
        clock.advance(HOUR)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at

    async def test_is_none_of_a_run_that_is_paused(self, store: Store, clock: ManualClock) -> None:
        due_at = clock() + MINUTE
        await submit(store, waits=(timer(delay=MINUTE),))

        await commit_next(store, suspend=True, status=PAUSED)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at is None
        await commit_next(store, suspend=False)
        assert (await store.maintenance.poll(NAMESPACE)).next_wait_at == due_at

    async def test_is_none_without_a_wait_that_has_a_time(self, store: Store) -> None:
        await submit(store, waits=(child_wait(), timer(delay=SECOND)))

        await commit_next(store, close_waits=("delay",))

        poll = await store.maintenance.poll(NAMESPACE)
        assert (poll.next_wait_at, poll.next_due_at) == (None, None)
