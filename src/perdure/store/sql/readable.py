"""What rows hold as JSON beside what counts. One that cannot be read keeps nobody from the rest."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.model.failure import Failure

UNREADABLE = Failure(type="", message="what was kept of this failure cannot be read")
_decode_failure = msgspec.json.Decoder(Failure).decode


def read_details(data: bytes | None) -> Any:
    """The details of a progress; None where they cannot be read."""
    try:
        return None if data is None else msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_failure(data: bytes) -> Failure:
    try:
        return _decode_failure(data)
    except (msgspec.DecodeError, RecursionError):
        return UNREADABLE


def readable_json(data: bytes) -> str:
    """A failure as a column of JSON can take it."""
    try:
        msgspec.json.decode(data)
        return data.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.encode(UNREADABLE).decode()
