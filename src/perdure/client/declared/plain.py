"""Data that a program hands over instead of a file: what is not JSON is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.client.declared.document import Document, Faults, FlowFault, invalid
from perdure.client.declared.reading import DEPTH_MAX, UNSTORABLE, VALUES_MAX
from perdure.client.declared.scalars import checked_number
from perdure.errors import InvalidInput
from perdure.model.path import Path, path_text
from perdure.model.showing import type_name


def plain_document(data: Any) -> Document:
    """A copy of the data in which there are only objects, lists, texts, numbers, booleans, null."""
    checking = _Checking()
    copy = checking.copied(data, ())
    if checking.faults:
        raise checking.faults.error()
    return Document(copy)


class _Checking:
    def __init__(self) -> None:
        self.faults = Faults("")
        self._values = 0

    def copied(self, value: Any, path: Path) -> Any:
        self._values += 1
        if self._values > VALUES_MAX or len(path) > DEPTH_MAX:
            limit = f"nested deeper than {DEPTH_MAX} levels, or more than {VALUES_MAX} values"
            raise invalid("", [FlowFault(f"this is too much: {limit}", mark=None)])
        if isinstance(value, Mapping):
            return {
                self._key(key, path): self.copied(inside, (*path, str(key)))
                for key, inside in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.copied(inside, (*path, at)) for at, inside in enumerate(value)]
        return self._scalar(value, path)

    def _key(self, key: Any, path: Path) -> str:
        if not isinstance(key, str):
            self._fault(path, f"the key {key!r} must be a text")
        elif UNSTORABLE.search(key):
            self._fault(path, f"the key {key!r} has a character that cannot be stored")
        return str(key)

    def _scalar(self, value: Any, path: Path) -> Any:
        if isinstance(value, str):
            if UNSTORABLE.search(value):
                self._fault(path, "this text has a character that cannot be stored")
            return str(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            try:
                return checked_number(value)
            except InvalidInput as error:
                self._fault(path, str(error))
                return 0
        self._fault(path, f"{type_name(value)} is not JSON data")
        return None

    def _fault(self, path: Path, message: str) -> None:
        where = f"{path_text(path)}: " if path else ""
        self.faults.add(FlowFault(f"{where}{message}", mark=None))
