"""Live events and their subscribers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import islice

from perdure.errors import TooManySubscribers
from perdure.model.times import nearest_duration
from perdure.store.contract.live import LIVE_KEPT, SUBSCRIBERS_MAX, LiveStore
from perdure.store.memory.transaction import Session, Transaction


class MemoryLive(LiveStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def subscribe(self, namespace: str, id: str, filter: bytes, lease: timedelta) -> int:
        with self._session.transaction() as transaction:
            state, now = transaction.state, transaction.now
            known = _subscribers(transaction, namespace)
            if id not in known and len(known) >= SUBSCRIBERS_MAX:
                raise TooManySubscribers(namespace=namespace, most=SUBSCRIBERS_MAX)
            state.subscribers[namespace, id] = (filter, now + nearest_duration(lease))
            transaction.hints.subscribed()
            return state.live_number

    async def unsubscribe(self, namespace: str, id: str) -> None:
        with self._session.transaction() as transaction:
            transaction.state.subscribers.pop((namespace, id), None)
            transaction.hints.subscribed()

    async def subscribers(self, namespace: str) -> Mapping[str, bytes]:
        with self._session.transaction() as transaction:
            return _subscribers(transaction, namespace)

    async def publish(self, namespace: str, events: Sequence[bytes]) -> None:
        with self._session.transaction() as transaction:
            if not _subscribers(transaction, namespace):
                return
            state, now = transaction.state, transaction.now
            while state.live_events and state.live_events[0][2] < now - LIVE_KEPT:
                state.live_events.popleft()
            for event in events:
                state.live_number += 1
                state.live_events.append((state.live_number, namespace, now, event))
            transaction.hints.live()

    async def read(self, namespace: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        with self._session.transaction() as transaction:
            found = (
                (number, event)
                for number, place, _, event in transaction.state.live_events
                if number > after and place == namespace
            )
            return list(islice(found, limit))


def _subscribers(transaction: Transaction, namespace: str) -> dict[str, bytes]:
    subscribers = transaction.state.subscribers
    for place, (_, until) in list(subscribers.items()):
        if until <= transaction.now:
            del subscribers[place]
    return {id: filter for (place, id), (filter, _) in subscribers.items() if place == namespace}
