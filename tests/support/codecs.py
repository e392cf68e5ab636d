"""Codecs that one client has and another has not."""

from __future__ import annotations


class Reversed:
    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


class Sealing:
    """Leaves a mark by which others can tell what they cannot read."""

    def encode(self, data: bytes) -> bytes:
        return b"sealed " + data

    def decode(self, data: bytes) -> bytes:
        return data.removeprefix(b"sealed ")
