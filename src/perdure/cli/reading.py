"""Reading values that may have been stored with a codec that the command line does not have."""

from __future__ import annotations

import msgspec

from perdure.cli.job_view import NOT_READABLE

_SAID = msgspec.json.encode(NOT_READABLE)


class ReadingCodec:
    """Plain JSON; in place of what is none, a text that says so. Not for writing."""

    def encode(self, data: bytes) -> bytes:
        raise AssertionError("what only reads does not write")

    def decode(self, data: bytes) -> bytes:
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _SAID
        return data
