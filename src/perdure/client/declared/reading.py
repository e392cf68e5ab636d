"""From YAML text to plain data with the place of every key; hostile files are refused early.

One document, without tags and merge keys. Keys are texts as they are written. Anchors are allowed,
but what their aliases come to is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from perdure.client.declared.document import Document, Faults, FlowFault, Mark
from perdure.client.declared.scalars import plain_scalar
from perdure.errors import InvalidFlow, InvalidInput
from perdure.model.path import Path

TEXT_MAX = 5_000_000
"""How many characters a file may have."""
VALUES_MAX = 500_000
"""How many values there may be once every alias is written out."""
DEPTH_MAX = 100

UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""What no database keeps in a text."""

_ESCAPES = re.compile(r"\\u([dD][89abAB]..)\\u([dD][c-fC-F]..)|\\.", re.DOTALL)


def read_yaml(text: str, file: str = "") -> Document:
    """The data of a file; ``InvalidFlow`` with all lines that cannot be read."""
    reading = _Reading(file)
    if len(text) > TEXT_MAX:
        raise reading.refusal(None, f"it has more than {TEXT_MAX} characters")
    reading.events = _events(text, reading)
    data = reading.document()
    if reading.faults:
        raise reading.faults.error()
    return Document(data, file, reading.marks)


def read_json(text: str, file: str = "") -> Document:
    """JSON as the YAML that it is, but for tabs and characters that are written in two halves."""
    return read_yaml(_ESCAPES.sub(_joined, text.replace("\t", " ")), file)


def _joined(escape: re.Match[str]) -> str:
    high, low = escape.groups()
    if high is None:
        return escape[0]
    try:
        return f"\\U{0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00:08x}"
    except ValueError:
        return escape[0]


def _events(text: str, reading: _Reading) -> Iterator[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        told = ", ".join(part for part in (error.context, error.problem) if part)
        raise reading.refusal(_place(error, text), f"this is not YAML: {told}") from None
    except (yaml.YAMLError, ValueError) as error:
        told = " ".join(str(error).split())
        raise reading.refusal(None, f"this is not YAML: {told}") from None


def _place(error: Any, text: str) -> Mark | None:
    """Where it is wrong; where that begins which does not end, if it goes on to the end."""
    last = max(1, len(text.splitlines()))
    found = error.problem_mark or error.context_mark
    if found and found.line >= last:
        found = error.context_mark or found
    return Mark(min(found.line + 1, last), found.column + 1) if found else None


class _Anchored(NamedTuple):
    value: Any
    size: int
    """How many values are in it."""
    height: int
    """How deep it is nested."""


class _Reading:
    def __init__(self, file: str) -> None:
        self.events: Iterator[Any] = iter(())
        self.marks: dict[Path, Mark] = {}
        self.faults = Faults(file)
        self._file = file
        self._values = 0
        self._deepest = 0
        self._anchors: dict[str, _Anchored] = {}

    def document(self) -> Any:
        from yaml import DocumentEndEvent, DocumentStartEvent, StreamEndEvent, StreamStartEvent

        data: Any = None
        documents = 0
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a second document begins here; a file has one flow"
                    raise self.refusal(_mark(event.start_mark), message)
            elif not isinstance(event, DocumentEndEvent | StreamStartEvent | StreamEndEvent):
                data = self._value(event, ())
        if not documents:
            raise self.refusal(Mark(1, 1), "it is empty; a flow begins with 'flow: NAME'")
        return data

    def refusal(self, mark: Mark | None, message: str) -> InvalidFlow:
        """Of what leaves nothing to go on with."""
        self.faults.add(FlowFault(message, file=self._file, mark=mark))
        return self.faults.error()

    def _fault(self, event: Any, message: str) -> None:
        mark = _mark(event.start_mark)
        self.faults.add(FlowFault(message, file=self._file, mark=mark))

    def _value(self, event: Any, path: Path) -> Any:
        from yaml import AliasEvent, MappingStartEvent, ScalarEvent

        self._count(event, 1, len(path))
        self.marks.setdefault(path, _mark(event.start_mark))
        if isinstance(event, AliasEvent):
            return self._aliased(event, len(path))
        before, self._deepest, outer = self._values, len(path), self._deepest
        if event.tag is not None:
            self._fault(event, f"the tag {event.tag!r}: a flow has no tags; leave it out")
        value: Any
        if isinstance(event, ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, MappingStartEvent):
            value = self._mapping(path)
        else:
            value = self._sequence(path)
        if event.anchor is not None:
            size, height = self._values - before, self._deepest - len(path)
            self._anchors[event.anchor] = _Anchored(value, size, height)
        self._deepest = max(self._deepest, outer)
        return value

    def _count(self, event: Any, values: int, depth: int) -> None:
        self._values += values
        self._deepest = max(self._deepest, depth)
        mark = _mark(event.start_mark)
        if self._values > VALUES_MAX:
            raise self.refusal(mark, f"it comes to more than {VALUES_MAX} values")
        if depth > DEPTH_MAX:
            raise self.refusal(mark, f"this is nested deeper than {DEPTH_MAX} levels")

    def _aliased(self, event: Any, depth: int) -> Any:
        if event.anchor not in self._anchors:
            message = f"there is no &{event.anchor} before this that is complete"
            self._fault(event, message)
            return None
        anchored = self._anchors[event.anchor]
        self._count(event, anchored.size, depth + anchored.height)
        return anchored.value

    def _scalar(self, event: Any) -> Any:
        if UNSTORABLE.search(event.value):
            self._fault(event, "this text has a character that cannot be stored")
            return ""
        if not event.implicit[0]:
            return event.value
        try:
            return plain_scalar(event.value)
        except InvalidInput as error:
            self._fault(event, str(error))
            return 0

    def _sequence(self, path: Path) -> list[Any]:
        from yaml import SequenceEndEvent

        items: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        from yaml import MappingEndEvent

        entries: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            key = self._key(event, path)
            if key in lines:
                self._fault(event, f"the key {key!r} is there already, in line {lines[key]}")
            lines.setdefault(key, event.start_mark.line + 1)
            self.marks[(*path, key)] = _mark(event.start_mark)
            entries[key] = self._value(next(self.events), (*path, key))
        return entries

    def _key(self, event: Any, path: Path) -> str:
        from yaml import ScalarEvent

        if not isinstance(event, ScalarEvent):
            self._fault(event, "a key must be a text, not a list, an object or an alias")
            self._value(event, (*path, ""))
            return ""
        is_plain = event.implicit[0]
        if event.tag is not None or event.anchor is not None:
            self._fault(event, f"the key {event.value!r} must have no tag and no anchor")
        elif is_plain and event.value == "<<":
            self._fault(event, "'<<' does not merge here; write the keys out")
        elif is_plain and not event.value:
            self._fault(event, "a key is missing before this colon")
        elif UNSTORABLE.search(event.value):
            self._fault(event, "this key has a character that cannot be stored")
        return str(event.value)


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)
