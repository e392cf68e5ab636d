"""Live events and their subscribers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from perdure.errors import TooManySubscribers
from perdure.model.hint import Hint, HintType
from perdure.model.times import nearest_duration
from perdure.store.contract.live import LIVE_KEPT, SUBSCRIBERS_MAX, LiveStore
from perdure.store.postgres.params import (
    LiveEventColumns,
    PublishLiveEventsParams,
    SaveSubscriberParams,
)
from perdure.store.postgres.session import Session
from perdure.store.sql.statements import arguments_of


class PostgresLive(LiveStore):
    def __init__(self, session: Session) -> None:
        self._session = session

    async def subscribe(self, namespace: str, id: str, filter: bytes, lease: timedelta) -> int:
        params = SaveSubscriberParams(
            now=self._session.moment(),
            namespace=namespace,
            id=id,
            filter=filter,
            lease=nearest_duration(lease),
            most=SUBSCRIBERS_MAX,
        )
        [(latest, is_saved)] = await self._session.fetch("save_subscriber", *params)
        if not is_saved:
            raise TooManySubscribers(namespace=namespace, most=SUBSCRIBERS_MAX)
        self._session.publish(Hint(type=HintType.SUBSCRIBED))
        return int(latest)

    async def unsubscribe(self, namespace: str, id: str) -> None:
        await self._session.fetch("remove_subscriber", namespace, id)
        self._session.publish(Hint(type=HintType.SUBSCRIBED))

    async def subscribers(self, namespace: str) -> Mapping[str, bytes]:
        rows = await self._session.fetch("subscribers", namespace, self._session.moment())
        return {row[0]: row[1] for row in rows}

    async def publish(self, namespace: str, events: Sequence[bytes]) -> None:
        params = PublishLiveEventsParams(
            now=self._session.moment(),
            namespace=namespace,
            kept=LIVE_KEPT,
            published=LiveEventColumns(event=list(events)),
        )
        if await self._session.fetch("publish_live_events", *arguments_of(params)):
            self._session.publish(Hint(type=HintType.LIVE))

    async def read(self, namespace: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        rows = await self._session.fetch("live_events", namespace, after, limit)
        return [(row[0], row[1]) for row in rows]
