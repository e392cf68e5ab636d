"""Hints between processes, as PostgreSQL notifications."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from zlib import crc32

import asyncpg
import msgspec

from perdure.clock import monotonic
from perdure.model.hint import Hint, HintType
from perdure.model.value import Value
from perdure.store.postgres.address import Address, place_of
from perdure.store.postgres.connection import Connection, close_gently, connect, growing_delays
from perdure.store.wakeups import HintTypes, Hub, Listener, hub_of

NAMES_MAX = 50

PAYLOAD_MAX_BYTES = 7000
"""PostgreSQL refuses 8000."""

Merged = dict[HintType, set[str] | None]
"""Names by type; None means any."""

_random = secrets.token_hex(6)


class Message(Value):
    sender: str
    hints: dict[HintType, list[str] | None]


def merge(merged: Merged, hints: Iterable[Hint]) -> Merged:
    """Add hints to the existing ones; too many names become any."""
    for hint in hints:
        known = merged.get(hint.type, set())
        if known is not None:
            names = known | hint.names
            merged[hint.type] = names if hint.names and len(names) <= NAMES_MAX else None
    return merged


def write_message(merged: Merged, sender: str) -> str:
    hints = {
        hint_type: None if names is None else sorted(names) for hint_type, names in merged.items()
    }
    payload = msgspec.json.encode(Message(sender=sender, hints=hints))
    if len(payload) > PAYLOAD_MAX_BYTES:
        payload = msgspec.json.encode(Message(sender=sender, hints=dict.fromkeys(hints)))
    return payload.decode()


def read_message(payload: str, own_signature: str) -> list[Hint]:
    """The hints of a notification; none if it is our own or malformed."""
    try:
        message = msgspec.json.decode(payload, type=Message)
    except msgspec.DecodeError:  # anyone can write to a channel
        return []
    if message.sender == own_signature:
        return []
    return [
        Hint(type=hint_type, names=frozenset(names or ()))
        for hint_type, names in message.hints.items()
    ]


def signature(place: str) -> str:
    """The signature of this process's handles on one place; different in every process.

    Two spellings of one place count as two: they share no hub, so each must receive the other's
    hints.
    """
    return f"{os.getpid()}.{_random}.{crc32(place.encode()):08x}"


def channel_of(schema: str) -> str:
    return f"perdure_{schema}"


GATHER_S = 0.01

GATHER_SHARE = 4
"""Hints are gathered for at least this multiple of the time that sending took."""

FLUSH_TIMEOUT_S = 1.0

HEARTBEAT_S = 30.0
"""How often a silent connection is probed."""

ANSWER_TIMEOUT_S = 10.0
"""For the wake-up connection, which sends little, all of which may be lost."""

_NOTIFY = "SELECT pg_notify($1, $2)"

_HEARTBEAT = "SELECT 1"

_FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

_log = logging.getLogger("perdure.store")


class Wakeups:
    """The hints of one store: published here, and received here from every process."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._channel = channel_of(address.schema)
        self._place = place_of(address)
        self._near = hub_of(self._place)
        self._far = Hub()  # its own: each handle passes on remote hints once
        self._pending: Merged = {}
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()  # a connection takes one command at a time
        self._is_closed = False
        self._is_out = False

    def publish(self, hints: Iterable[Hint]) -> None:
        """Publish hints, immediately in this process and soon in others."""
        hints = list(hints)
        self.publish_nearby(hints)
        if hints and not self._is_closed:
            merge(self._pending, hints)
            if self._sender is None:
                self._sender = asyncio.create_task(self._send())

    def publish_nearby(self, hints: Iterable[Hint]) -> None:
        """Publish hints in this process only."""
        for hint in hints:
            self._near.publish(hint)

    def subscribe(self, listener: Listener, types: HintTypes = None) -> Callable[[], None]:
        stop_near = self._near.subscribe(listener, types)
        stop_far = self._far.subscribe(listener, types)
        if self._listener is None and self._address.is_listening:
            self._listener = asyncio.create_task(self._listen())

        def stop() -> None:
            stop_near()
            stop_far()

        return stop

    def reopen(self) -> None:
        self._is_closed = False

    async def close(self) -> None:
        """Send pending hints, for a bounded time, and close the connection."""
        self._is_closed = True
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=FLUSH_TIMEOUT_S)
        for task in (self._sender, self._listener):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._sender = self._listener = None
        if self._connection is not None:
            await close_gently(self._connection)
            self._connection = None

    async def _send(self) -> None:
        delays = growing_delays()
        while self._pending:
            sent, self._pending = self._pending, {}
            try:
                async with self._turn:
                    connection = await self._connect()
                    began = monotonic()
                    await connection.fetch(
                        _NOTIFY, self._channel, write_message(sent, signature(self._place))
                    )
            except _FAILURES as error:
                self._pending = _both(sent, self._pending)
                self._give_up(error)
                await asyncio.sleep(next(delays))
            else:
                delays = growing_delays()
                # A busy server takes longer, and gets fewer notifications.
                await asyncio.sleep(max(GATHER_S, GATHER_SHARE * (monotonic() - began)))
        self._sender = None

    async def _listen(self) -> None:
        delays = growing_delays()
        while True:
            is_lost = asyncio.Event()
            try:
                async with self._turn:
                    connection = await self._connect()
                    connection.add_termination_listener(lambda _, lost=is_lost: lost.set())
                    await connection.add_listener(self._channel, self._hear)
                delays = growing_delays()
                for hint_type in HintType:
                    self._far.publish(Hint(type=hint_type))
                while not await _set_within(is_lost, HEARTBEAT_S):
                    async with self._turn:
                        if not is_lost.is_set():
                            await connection.fetch(_HEARTBEAT)
            except _FAILURES as error:
                self._give_up(error)
            await asyncio.sleep(next(delays))

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        for hint in read_message(payload, signature(self._place)):
            self._far.publish(hint)

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            # A hint need not survive a crash, so commits need not wait for the disk.
            self._connection = await connect(
                self._address, ANSWER_TIMEOUT_S, synchronous_commit="off"
            )
            self._is_out = False
        return self._connection

    def _give_up(self, error: Exception) -> None:
        """Drop the connection after any error: another may succeed, and polling finds missed
        changes.
        """
        if self._connection is not None:
            self._connection.terminate()
        if not self._is_out:
            self._is_out = True
            _log.warning(
                "wake-ups between processes are interrupted; polling stands in for them",
                extra={"fields": {"store": self._address.url, "error": repr(error)}},
            )


def _both(earlier: Merged, later: Merged) -> Merged:
    for hint_type, names in later.items():
        merge(earlier, [Hint(type=hint_type, names=frozenset(names or ()))])
    return earlier


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    # Not wait_for: on Python 3.11 it swallows a cancellation that comes with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
