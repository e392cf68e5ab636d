"""Live events and their subscribers."""

from __future__ import annotations

import asyncio

import pytest

from perdure.clock import ManualClock
from perdure.errors import TooManySubscribers
from perdure.model.hint import Hint, HintType
from perdure.store.contract import LIVE_KEPT, SUBSCRIBERS_MAX, Store
from perdure.testing.contract.builders import MINUTE, NAMESPACE, OTHER_NAMESPACE, SECOND


async def subscribe(store: Store, id: str = "ann", namespace: str = NAMESPACE) -> int:
    return await store.live.subscribe(namespace, id, b"everything", MINUTE)


async def read(store: Store, after: int = 0, limit: int = 100) -> list[bytes]:
    return [event for _, event in await store.live.read(NAMESPACE, after, limit)]


async def hinted(store: Store, hint_type: HintType) -> asyncio.Event:
    heard = asyncio.Event()

    def hear(_: Hint) -> None:
        heard.set()

    store.subscribe(hear, [hint_type])
    return heard


class TestLiveSubscribe:
    async def test_returns_the_number_after_which_events_follow(self, store: Store) -> None:
        await subscribe(store)
        await store.live.publish(NAMESPACE, [b"1", b"2"])
        after = await subscribe(store, "bob")
        await store.live.publish(NAMESPACE, [b"3"])

        assert await read(store, after) == [b"3"]

    async def test_lasts_for_its_lease_unless_renewed(
        self, store: Store, clock: ManualClock
    ) -> None:
        await subscribe(store)
        await subscribe(store, "bob")
        clock.advance(MINUTE - SECOND)
        await subscribe(store)
        clock.advance(SECOND)

        assert list(await store.live.subscribers(NAMESPACE)) == ["ann"]

    async def test_raises_when_the_namespace_has_many(
        self, store: Store, clock: ManualClock
    ) -> None:
        for number in range(SUBSCRIBERS_MAX):
            await subscribe(store, f"{number}")
        await subscribe(store, "0")
        await subscribe(store, namespace=OTHER_NAMESPACE)
        with pytest.raises(TooManySubscribers):
            await subscribe(store)
        clock.advance(MINUTE)
        await subscribe(store)

    async def test_shows_in_polls_of_its_namespace_while_it_lasts(
        self, store: Store, clock: ManualClock
    ) -> None:
        await subscribe(store)
        assert (await store.maintenance.poll(NAMESPACE)).has_subscribers
        assert not (await store.maintenance.poll(OTHER_NAMESPACE)).has_subscribers
        clock.advance(MINUTE)
        assert not (await store.maintenance.poll(NAMESPACE)).has_subscribers

    async def test_is_announced(self, store: Store) -> None:
        heard = await hinted(store, HintType.SUBSCRIBED)
        await subscribe(store)
        async with asyncio.timeout(20):
            await heard.wait()


class TestLiveUnsubscribe:
    async def test_ends_one_subscription(self, store: Store) -> None:
        await subscribe(store)
        await subscribe(store, "bob")
        await store.live.unsubscribe(NAMESPACE, "ann")
        await store.live.unsubscribe(NAMESPACE, "ann")

        assert list(await store.live.subscribers(NAMESPACE)) == ["bob"]


class TestLiveSubscribers:
    async def test_are_those_of_the_namespace_with_their_filters(self, store: Store) -> None:
        await subscribe(store)
        await subscribe(store, "bob", OTHER_NAMESPACE)

        assert await store.live.subscribers(NAMESPACE) == {"ann": b"everything"}


class TestLivePublish:
    async def test_writes_nothing_without_subscribers(
        self, store: Store, clock: ManualClock
    ) -> None:
        await subscribe(store, namespace=OTHER_NAMESPACE)
        await store.live.publish(NAMESPACE, [b"1"])
        await subscribe(store)
        clock.advance(MINUTE)
        await store.live.publish(NAMESPACE, [b"2"])

        assert await read(store) == []

    async def test_forgets_events_after_a_while(self, store: Store, clock: ManualClock) -> None:
        await store.live.subscribe(NAMESPACE, "ann", b"", 10 * MINUTE)
        for number in range(3):
            await store.live.publish(NAMESPACE, [b"%d" % number])
            clock.advance(LIVE_KEPT - SECOND)

        assert await read(store) == [b"1", b"2"]

    async def test_is_announced(self, store: Store) -> None:
        heard = await hinted(store, HintType.LIVE)
        await subscribe(store)
        await store.live.publish(NAMESPACE, [b"1"])
        async with asyncio.timeout(20):
            await heard.wait()


class TestLiveRead:
    async def test_pages_in_order_within_the_namespace(self, store: Store) -> None:
        await subscribe(store)
        await subscribe(store, "bob", OTHER_NAMESPACE)
        sent = [b"%d" % number for number in range(25)]
        for start in range(0, 25, 5):
            await store.live.publish(NAMESPACE, sent[start : start + 5])
            await store.live.publish(OTHER_NAMESPACE, [b"theirs"])

        found: list[bytes] = []
        after = 0
        while page := await store.live.read(NAMESPACE, after, 4):
            found += [event for _, event in page]
            after = page[-1][0]
        assert found == sent
