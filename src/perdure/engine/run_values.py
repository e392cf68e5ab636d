"""The values of a run's events, as far as they are at hand."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.errors import ValueMissing
from perdure.model.payload import Codec

VALUES_MAX_BYTES = 16 * 1024 * 1024
"""What is kept of one run between two steps; older values are read again if they are needed."""


class RunValues:
    """JSON by event number. What is not here is read when a decision asks for it."""

    __slots__ = ("_codec", "_json", "_list_bytes", "lists", "size_bytes")

    def __init__(self, codec: Codec) -> None:
        self.lists: dict[str, list[bytes]] = {}
        self.size_bytes = 0
        self._codec = codec
        self._json: dict[int, bytes] = {}
        self._list_bytes: dict[str, int] = {}

    def json(self, number: int) -> bytes:
        try:
            return self._json[number]
        except KeyError:
            raise ValueMissing(numbers=(number,)) from None

    def __contains__(self, number: int) -> bool:
        return number in self._json

    def put(self, number: int, json: bytes) -> None:
        self.size_bytes += len(json) - len(self._json.get(number, b""))
        self._json[number] = json

    def trim(self) -> None:
        """Let go of the oldest values, between two decisions, if there are too many."""
        for node in self.lists.keys() - self._list_bytes.keys():
            self._list_bytes[node] = sum(map(len, self.lists[node]))
            self.size_bytes += self._list_bytes[node]
        if self.size_bytes <= VALUES_MAX_BYTES:
            return
        for number in list(self._json):
            self.size_bytes -= len(self._json.pop(number))
            if self.size_bytes <= VALUES_MAX_BYTES:
                return
        self.lists.clear()
        self._list_bytes.clear()
        self.size_bytes = 0

    def put_stored(self, number: int, value: bytes) -> None:
        """A value as the store has it."""
        self.put(number, self._codec.decode(value))

    def missing(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if number and number not in self._json]
