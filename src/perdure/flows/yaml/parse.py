"""From YAML, JSON or plain data to a document that knows the line and column of every key.

YAML is read from parser events: scalars are those of YAML 1.2, and aliases count as written out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

from perdure.diagnostics import Fault
from perdure.errors import FaultText, InvalidFlow, InvalidInput
from perdure.expr.path import Path, path_text
from perdure.flows.check import GENERIC, INVALID_NODE, INVALID_STRUCTURE
from perdure.model.text import type_name

FAULTS_MAX = 200
"""How many faults of one flow are told."""


class Mark(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


class FlowFault(FaultText):
    """One fault with its place; ``line`` and ``column`` are 0 where a flow is not from a file."""

    file: str
    line: int
    column: int
    node: str
    """The id of the node that it is about, or nothing."""
    message: str

    def __new__(
        cls,
        message: str,
        *,
        file: str = "",
        mark: Mark | None,
        node: str = "",
        fault: Fault | None = None,
    ) -> FlowFault:
        line, column = mark or (0, 0)
        where_line = f"{file}:{line}: " if file else f"line {line}: "
        place = where_line if line else f"{file}: " if file else ""
        where = f"node {node!r}: " if node else ""
        fault = fault or INVALID_STRUCTURE.fault(message=message)
        told = {"file": file, "line": line, "column": column}
        args = {**fault.args, **{name: value for name, value in told.items() if value}}
        text = f"{place}{where}{message}"
        made = cast(FlowFault, super().__new__(cls, text, replace(fault, args=args)))
        made.file, made.line, made.column = file, line, column
        made.node, made.message = node, message
        return made


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data, and where its parts are in ``file``, as far as there is one."""

    data: Any
    file: str = ""
    marks: Mapping[Path, Mark] = field(default_factory=dict)

    def mark_of(self, path: Path) -> Mark | None:
        """The place of what the path leads to, or of what is around it."""
        if not self.marks:
            return None
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(1, 1))

    def fault(
        self, path: Path, message: str, node: str = "", found: Fault | None = None
    ) -> FlowFault:
        """What is wrong at a path, of which ``found`` is what is known as data."""
        where = ("nodes", node, *path[2:]) if node else path
        if found is None or found.code in GENERIC:
            code = INVALID_NODE if node else INVALID_STRUCTURE
            args = {"node": node, "message": message} if node else {"message": message}
            found = code.fault(found.where if found else (), **args)
        if len(where) >= len(found.where):
            found = replace(found, where=where)
        return FlowFault(message, file=self.file, mark=self.mark_of(path), node=node, fault=found)


class Faults:
    """What is wrong with a flow, up to a bound: with more the search ends, and this is raised."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._found: list[FlowFault] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, *faults: FlowFault) -> None:
        self._found += faults
        if len(self._found) > FAULTS_MAX:
            raise self.error()

    def error(self) -> InvalidFlow:
        return invalid(self._flow, self._found)


def invalid(flow: str, faults: Iterable[FlowFault]) -> InvalidFlow:
    """All faults, each once: by file, and by line in it."""
    once = list(dict.fromkeys(faults))
    files = list(dict.fromkeys(fault.file for fault in once))
    once.sort(key=lambda fault: (files.index(fault.file), fault.line, fault.column))
    if len(once) > FAULTS_MAX:
        once[FAULTS_MAX:] = [FlowFault("and there may be more faults", mark=None)]
    return InvalidFlow(*once, flow=flow)


NULLS = re.compile(r"null|Null|NULL|~|")
BOOLEANS = re.compile(r"true|True|TRUE|false|False|FALSE")
INTEGERS = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOATS = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""What is stored as a whole number."""

_DIGITS_MAX = 100
_BASES = {"0o": 8, "0x": 16}


def plain_scalar(text: str) -> Any:
    if NULLS.fullmatch(text):
        return None
    if BOOLEANS.fullmatch(text):
        return text.lower() == "true"
    if len(text) > _DIGITS_MAX:
        return text
    if INTEGERS.fullmatch(text):
        return checked_number(int(text[2:], _BASES[text[:2]]) if text[:2] in _BASES else int(text))
    if FLOATS.fullmatch(text):
        return checked_number(float(re.sub(r"\.(inf|nan)", r"\1", text.lower())))
    return text


def checked_number(number: int | float) -> int | float:
    if isinstance(number, int) and not INTEGER_MIN <= number <= INTEGER_MAX:
        raise InvalidInput(
            f"{str(number)[:40]} is too large for a whole number; write it as a text"
        )
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidInput(f"{number} is not a number that JSON has; write it as a text")
    return number


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
