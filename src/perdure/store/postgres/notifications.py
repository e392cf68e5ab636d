"""Hints as the text of a notification, and back: merged by kind, and kept short."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from zlib import crc32

import msgspec

from perdure.model.hint import Hint, HintKind
from perdure.model.value import Value

NAMES_MAX = 50
PAYLOAD_MAX_BYTES = 7000
"""PostgreSQL refuses 8000."""

Merged = dict[HintKind, set[str] | None]
"""The names by kind; None means any."""

_random = secrets.token_hex(6)


class Message(Value):
    sender: str
    hints: dict[HintKind, list[str] | None]


def merge(merged: Merged, hints: Iterable[Hint]) -> Merged:
    """Add hints to those already there; too many names become any."""
    for hint in hints:
        known = merged.get(hint.kind, set())
        if known is not None:
            names = known | hint.names
            merged[hint.kind] = names if hint.names and len(names) <= NAMES_MAX else None
    return merged


def write_message(merged: Merged, sender: str) -> str:
    hints = {kind: None if names is None else sorted(names) for kind, names in merged.items()}
    payload = msgspec.json.encode(Message(sender=sender, hints=hints))
    if len(payload) > PAYLOAD_MAX_BYTES:
        payload = msgspec.json.encode(Message(sender=sender, hints=dict.fromkeys(hints)))
    return payload.decode()


def read_message(payload: str, own_signature: str) -> list[Hint]:
    """The hints of a notification; none when it is our own, or not of our making."""
    try:
        message = msgspec.json.decode(payload, type=Message)
    except msgspec.DecodeError:  # a channel is open to everybody
        return []
    if message.sender == own_signature:
        return []
    return [Hint(kind=kind, names=frozenset(names or ())) for kind, names in message.hints.items()]


def signature(place: str) -> str:
    """How the handles of this process on one place sign; another process signs otherwise.

    Two spellings of the same place count as two: they share no hub, so they must hear each other.
    """
    return f"{os.getpid()}.{_random}.{crc32(place.encode()):08x}"


def channel_of(schema: str) -> str:
    return f"perdure_{schema}"
