"""Live events: published while a client subscribes, and kept for a minute."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

LIVE_KEPT = timedelta(minutes=1)
"""How long live events are kept for subscribers that read late."""
SUBSCRIBER_LEASE = timedelta(minutes=1)
"""How long a subscriber stays registered unless it renews its lease."""
SUBSCRIBERS_MAX = 200
"""For each namespace: its workers compare every event with the filter of each."""


class LiveStore(Protocol):
    """Events of one namespace for its subscribers. The store interprets neither."""

    @abstractmethod
    async def subscribe(self, namespace: str, id: str, filter: bytes, lease: timedelta) -> int:
        """Register a subscriber, or renew its lease; return the number of the latest event.

        - Raises ``TooManySubscribers`` for a new one if there are ``SUBSCRIBERS_MAX``, or a few
          more that came at the same time.
        - Publishes a hint, by which processes learn of a new subscriber at once.
        """

    @abstractmethod
    async def unsubscribe(self, namespace: str, id: str) -> None: ...

    @abstractmethod
    async def subscribers(self, namespace: str) -> Mapping[str, bytes]:
        """The filters of those whose lease has not expired, by id."""

    @abstractmethod
    async def publish(self, namespace: str, events: Sequence[bytes]) -> None:
        """Write events, in order, if there is a subscriber; remove those older than
        ``LIVE_KEPT``.

        - An event with a higher number never becomes visible first.
        """

    @abstractmethod
    async def read(self, namespace: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The events with higher numbers, in order, with their numbers."""
