"""Live events and their subscribers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from perdure.errors import TooManySubscribers
from perdure.store.contract.live import LIVE_KEPT, SUBSCRIBERS_MAX, LiveStore
from perdure.store.sqlite.rows import micros_in
from perdure.store.sqlite.session import Session
from perdure.store.sqlite.transaction import Transaction


class SqliteLive(LiveStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def subscribe(self, namespace: str, id: str, filter: bytes, lease: timedelta) -> int:
        def save(transaction: Transaction) -> int:
            now = transaction.now
            transaction.write("remove_lost_subscribers", namespace=namespace, now=now)
            known = _subscribers(transaction, namespace)
            if id not in known and len(known) >= SUBSCRIBERS_MAX:
                raise TooManySubscribers(namespace=namespace, most=SUBSCRIBERS_MAX)
            row = {"namespace": namespace, "id": id, "filter": filter}
            transaction.write("save_subscriber", **row, until=now + micros_in(lease))
            transaction.hints.subscribed()
            [(latest,)] = transaction.rows("latest_live_event")
            return int(latest)

        return await self._session.write(save)

    async def unsubscribe(self, namespace: str, id: str) -> None:
        def remove(transaction: Transaction) -> None:
            transaction.write("remove_subscriber", namespace=namespace, id=id)
            transaction.hints.subscribed()

        await self._session.write(remove)

    async def subscribers(self, namespace: str) -> Mapping[str, bytes]:
        return await self._session.read(lambda transaction: _subscribers(transaction, namespace))

    async def publish(self, namespace: str, events: Sequence[bytes]) -> None:
        def add(transaction: Transaction) -> None:
            if not _subscribers(transaction, namespace):
                return
            now = transaction.now
            transaction.write("remove_live_events", until=now - micros_in(LIVE_KEPT))
            for event in events:
                transaction.write("add_live_event", namespace=namespace, now=now, event=event)
            transaction.hints.live()

        await self._session.write(add)

    async def read(self, namespace: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        rows = await self._session.rows(
            "live_events", namespace=namespace, after=after, limit=limit
        )
        return [(number, event) for number, event in rows]


def _subscribers(transaction: Transaction, namespace: str) -> dict[str, bytes]:
    rows = transaction.rows("subscribers", namespace=namespace, now=transaction.now)
    return {row[0]: row[1] for row in rows}
