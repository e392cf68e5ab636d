"""Lists of waits: inboxes, who waits for a signal, what was asked outside."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.clock import ManualClock
from perdure.model.ids import RunId
from perdure.model.run import NewWait, Wait, WaitFilter, WaitType
from perdure.store.contract import Store
from tests.conformance.builders import HOUR, MINUTE, SECOND
from tests.conformance.run_builders import (
    CANCELLED,
    NAMESPACE,
    OTHER_NAMESPACE,
    PAUSED,
    RUN,
    approval,
    child_wait,
    go_on,
    listed_keys,
    new_child,
    outside,
    signal,
    submit,
    timer,
)

OTHER_RUN = RunId("order-43")
EVERYTHING = (
    approval("check"),
    approval("review", name="Read it?"),
    outside("carrier"),
    outside("bank", name="transfer"),
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
    async def test_gives_those_of_a_kind(self, store: Store, found_type: WaitType) -> None:
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
        ids=["all", "of a kind", "inbox", "of a run"],
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

    async def test_gives_held_ones_too(self, store: Store) -> None:
        await submit(store, waits=(approval(delay=SECOND),))

        await go_on(store, suspend=True, status=PAUSED)

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["check"]

    async def test_gives_those_of_children(self, store: Store) -> None:
        await submit(store, waits=(child_wait(),), children=(new_child(waits=(approval(),)),))

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["check"]

    async def test_does_not_give_those_that_ended(self, store: Store) -> None:
        await submit(store, waits=EVERYTHING)

        await go_on(store, close_waits=("check", "paid"), cancel_keys=("carrier",))

        for found_type, keys in {
            WaitType.APPROVAL: ["review"],
            WaitType.SIGNAL: ["sent"],
            WaitType.EXTERNAL: ["bank"],
        }.items():
            assert await listed_keys(store, type=found_type) == keys
        await go_on(store, cancel_all=True, close_waits=("ship",), status=CANCELLED)
        assert await listed_keys(store) == []

    async def test_does_not_give_those_of_a_run_that_was_replaced(self, store: Store) -> None:
        await submit(store, waits=EVERYTHING)

        await submit(store, on_existing="replace", waits=(approval("anew"),))

        assert await listed_keys(store) == ["anew"]


class TestInbox:
    async def test_has_what_names_one_of_those_asked_for_or_nobody(
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

        await go_on(store, waits=(approval(deciders=("bob",)),))

        assert await listed_keys(store, type=WaitType.APPROVAL, deciders=("ann",)) == []
        assert await listed_keys(store, type=WaitType.APPROVAL, deciders=("bob",)) == ["check"]

    async def test_follows_what_is_waited_for(self, store: Store) -> None:
        await submit(store, waits=(approval("ask"), signal("sent", name="sent")))

        await go_on(store, waits=(signal("ask"), outside("sent")))

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
    async def test_begin_with_the_longest_open(
        self, store: Store, clock: ManualClock, part: dict[str, Any]
    ) -> None:
        await open_in_turn(store, clock, *(approval(key) for key in ("b", "a", "c")))

        assert await listed_keys(store, **part) == ["b", "a", "c"]
        assert await listed_keys(store, limit=2, **part) == ["b", "a"]

    @pytest.mark.parametrize("part", WAYS)
    async def test_go_on_after_the_last_of_the_page_before(
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
        await go_on(store, waits=(signal("a"), signal("d")))

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

        await go_on(store, run=RunId("run-2"), waits=(approval("first", delay=MINUTE),))

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["first", "second"]

    async def test_put_one_last_that_was_closed_and_opened_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        await open_in_turn(store, clock, approval("first"), approval("second"))

        await go_on(store, run=RunId("run-2"), close_waits=("first",), waits=(approval("first"),))

        assert await listed_keys(store, type=WaitType.APPROVAL) == ["second", "first"]

    async def test_tell_moments_apart_that_are_close(
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
