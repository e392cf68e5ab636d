"""Parse YAML, JSON or plain data into a document with the line and column of every key.

YAML is read from parser events, with the scalars of YAML 1.2. Limits count aliases expanded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from perdure.diagnostics import Code, Fault, Path, Source, declare, safe_repr
from perdure.errors import InvalidFlow, InvalidInput
from perdure.model.text import type_name

FAULTS_MAX = 200
"""Most faults reported for one flow."""

MORE_FAULTS = declare("flow.more_faults", "there may be more faults")
SYNTAX = declare("yaml.syntax", "not valid YAML: {reason}")
TOO_LONG = declare("yaml.too_long", "has more than {most} characters")
TOO_MANY_VALUES = declare("yaml.too_many_values", "has more than {most} values")
TOO_DEEP = declare("yaml.too_deep", "is nested deeper than {most} levels")
EMPTY = declare("yaml.empty", "the file is empty", "A flow starts with 'flow: NAME'")
SECOND_DOCUMENT = declare(
    "yaml.second_document", "a second document starts here", "Put each flow in its own file"
)
TAG = declare("yaml.tag", "tags are not supported (got {tag!r})", "Remove it")
NO_ANCHOR = declare("yaml.no_anchor", "unknown anchor &{anchor}", "Define it before this line")
UNSTORABLE = declare("yaml.unstorable", "[key {key}: ]contains a character that cannot be stored")
NOT_A_KEY = declare("yaml.not_a_key", "a key must be a string, not {found}")
DECORATED_KEY = declare("yaml.decorated_key", "key {key!r} must have no tag and no anchor")
MERGE_KEY = declare("yaml.merge_key", "merge keys ('<<') are not supported", "Repeat the keys")
EMPTY_KEY = declare("yaml.empty_key", "a key is missing before this colon")
DUPLICATE_KEY = declare("yaml.duplicate_key", "duplicate key {key!r}; first used in line {line}")
NUMBER = declare(
    "yaml.number", "{number} is not a number that can be stored", "Write it as a string"
)
NOT_JSON = declare("yaml.not_json", "{found} is not JSON data")


class Mark(NamedTuple):
    """A position; lines and columns start at 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data, with the positions of its parts if it comes from a file."""

    data: Any
    file: str = ""
    marks: Mapping[Path, Mark] = field(default_factory=dict)

    def mark_of(self, path: Path) -> Mark | None:
        """The position of the value at the path, or of the nearest value around it."""
        if not self.marks:
            return None
        while path and path not in self.marks:
            path = path[:-1]
        return self.marks.get(path, Mark(1, 1))

    def line_of(self, path: Path) -> str:
        mark = self.mark_of(path)
        return f"line {mark.line}" if mark else ""

    def located(self, fault: Fault, path: Path) -> Fault:
        """The fault with the position of the value at the path."""
        return located(fault, self.file, self.mark_of(path))


def located(fault: Fault, file: str, mark: Mark | None = None) -> Fault:
    line, column = mark or (0, 0)
    return replace(fault, source=Source(file=file, line=line, column=column))


class Faults:
    """Collects faults; beyond the limit, ``add`` raises them and so ends the search."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._found: list[Fault] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, *faults: Fault) -> None:
        self._found += faults
        if len(self._found) > FAULTS_MAX:
            raise self.error()

    def error(self) -> InvalidFlow:
        return invalid(self._flow, self._found)


def invalid(flow: str, faults: Iterable[Fault]) -> InvalidFlow:
    """The error with all faults, without duplicates, sorted by file and line."""
    once: dict[Any, tuple[Source, Fault]] = {}
    for fault in faults:
        source = fault.source or Source()
        once.setdefault((fault.code, fault.where, source, repr(fault.args)), (source, fault))
    files = list(dict.fromkeys(source.file for source, _ in once.values()))
    found = sorted(
        once.values(), key=lambda each: (files.index(each[0].file), each[0].line, each[0].column)
    )
    reported = [fault for _, fault in found[:FAULTS_MAX]]
    if len(found) > FAULTS_MAX:
        reported.append(located(MORE_FAULTS.fault(), ""))
    return InvalidFlow(*reported, flow=flow)


NULLS = re.compile(r"null|Null|NULL|~|")
BOOLEANS = re.compile(r"true|True|TRUE|false|False|FALSE")
INTEGERS = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOATS = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""Larger integers cannot be stored exactly."""

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
    """Return the number; raise ``InvalidInput`` if JSON cannot store it exactly."""
    is_large = isinstance(number, int) and not INTEGER_MIN <= number <= INTEGER_MAX
    if is_large or not math.isfinite(number):
        raise InvalidInput(NUMBER.fault(number=str(number)[:40]))
    return number


TEXT_MAX = 5_000_000
"""In characters."""
VALUES_MAX = 100_000
"""Each takes about a kilobyte, with its position."""
EXPANDED_MAX = 500_000
"""Values with all aliases expanded."""
DEPTH_MAX = 100

_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that databases cannot store in a string."""

_ESCAPES = re.compile(r"\\u([dD][89abAB]..)\\u([dD][c-fC-F]..)|\\.", re.DOTALL)


def read_yaml(text: str, file: str = "") -> Document:
    """Parse YAML; raise ``InvalidFlow`` with all faults."""
    reading = _YamlReader(file)
    if len(text) > TEXT_MAX:
        raise reading.refusal(None, TOO_LONG.fault(most=TEXT_MAX))
    reading.events = _events(text, reading)
    data = reading.document()
    if reading.faults:
        raise reading.faults.error()
    return Document(data, file, reading.marks)


def read_json(text: str, file: str = "") -> Document:
    """Parse JSON as YAML, after replacing tabs and escaped surrogate pairs, which YAML rejects."""
    return read_yaml(_ESCAPES.sub(_joined, text.replace("\t", " ")), file)


def _joined(escape: re.Match[str]) -> str:
    high, low = escape.groups()
    if high is None:
        return escape[0]
    try:
        return f"\\U{0x10000 + (int(high, 16) - 0xD800) * 0x400 + int(low, 16) - 0xDC00:08x}"
    except ValueError:
        return escape[0]


def _events(text: str, reading: _YamlReader) -> Iterator[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise reading.refusal(_place(error, text), SYNTAX.fault(reason=reason)) from None
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise reading.refusal(None, SYNTAX.fault(reason=reason)) from None


def _place(error: Any, text: str) -> Mark | None:
    """The position of the error; for an unclosed construct, of its start."""
    last = max(1, len(text.splitlines()))
    found = error.problem_mark or error.context_mark
    if found and found.line >= last:
        found = error.context_mark or found
    return Mark(min(found.line + 1, last), found.column + 1) if found else None


class _Anchored(NamedTuple):
    value: Any
    size: int
    """The number of values in it."""
    height: int
    """The depth of its nesting."""


class _YamlReader:
    def __init__(self, file: str) -> None:
        self.events: Iterator[Any] = iter(())
        self.marks: dict[Path, Mark] = {}
        self.faults = Faults(file)
        self._file = file
        self._values = 0
        self._parsed = 0
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
                    raise self.refusal(_mark(event.start_mark), SECOND_DOCUMENT.fault())
            elif not isinstance(event, DocumentEndEvent | StreamStartEvent | StreamEndEvent):
                data = self._value(event, ())
        if not documents:
            raise self.refusal(Mark(1, 1), EMPTY.fault())
        return data

    def refusal(self, mark: Mark | None, fault: Fault) -> InvalidFlow:
        """The error for a fault after which parsing cannot continue."""
        self.faults.add(located(fault, self._file, mark))
        return self.faults.error()

    def _fault(self, event: Any, code: Code, **args: Any) -> None:
        self.faults.add(located(code.fault(**args), self._file, _mark(event.start_mark)))

    def _value(self, event: Any, path: Path) -> Any:
        from yaml import AliasEvent, MappingStartEvent, ScalarEvent

        self._count(event, 1, len(path))
        self._parsed += 1
        if self._parsed > VALUES_MAX:
            raise self.refusal(_mark(event.start_mark), TOO_MANY_VALUES.fault(most=VALUES_MAX))
        self.marks.setdefault(path, _mark(event.start_mark))
        if isinstance(event, AliasEvent):
            return self._aliased(event, len(path))
        before, self._deepest, outer = self._values, len(path), self._deepest
        if event.tag is not None:
            self._fault(event, TAG, tag=event.tag)
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
        if self._values > EXPANDED_MAX:
            raise self.refusal(mark, TOO_MANY_VALUES.fault(most=EXPANDED_MAX))
        if depth > DEPTH_MAX:
            raise self.refusal(mark, TOO_DEEP.fault(most=DEPTH_MAX))

    def _aliased(self, event: Any, depth: int) -> Any:
        if event.anchor not in self._anchors:
            self._fault(event, NO_ANCHOR, anchor=event.anchor)
            return None
        anchored = self._anchors[event.anchor]
        self._count(event, anchored.size, depth + anchored.height)
        return anchored.value

    def _scalar(self, event: Any) -> Any:
        if _UNSTORABLE.search(event.value):
            self._fault(event, UNSTORABLE)
            return ""
        if not event.implicit[0]:
            return event.value
        try:
            return plain_scalar(event.value)
        except InvalidInput as error:
            mark = _mark(event.start_mark)
            self.faults.add(*(located(each, self._file, mark) for each in error.faults))
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
                self._fault(event, DUPLICATE_KEY, key=key, line=lines[key])
            lines.setdefault(key, event.start_mark.line + 1)
            self.marks[(*path, key)] = _mark(event.start_mark)
            entries[key] = self._value(next(self.events), (*path, key))
        return entries

    def _key(self, event: Any, path: Path) -> str:
        from yaml import ScalarEvent

        if not isinstance(event, ScalarEvent):
            self._fault(event, NOT_A_KEY, found="a list, an object or an alias")
            self._value(event, (*path, ""))
            return ""
        is_plain = event.implicit[0]
        if event.tag is not None or event.anchor is not None:
            self._fault(event, DECORATED_KEY, key=event.value)
        elif is_plain and event.value == "<<":
            self._fault(event, MERGE_KEY)
        elif is_plain and not event.value:
            self._fault(event, EMPTY_KEY)
        elif _UNSTORABLE.search(event.value):
            self._fault(event, UNSTORABLE, key=repr(event.value))
        return str(event.value)


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def plain_document(data: Any) -> Document:
    """A copy of the data as JSON types; raise ``InvalidFlow`` if it has others."""
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
        if self._values > VALUES_MAX:
            raise invalid("", [located(TOO_MANY_VALUES.fault(most=VALUES_MAX), "")])
        if len(path) > DEPTH_MAX:
            raise invalid("", [located(TOO_DEEP.fault(path[:3], most=DEPTH_MAX), "")])
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
            self._fault(NOT_A_KEY.fault(path, found=safe_repr(key)))
        elif _UNSTORABLE.search(key):
            self._fault(UNSTORABLE.fault(path, key=repr(key)))
        return str(key)

    def _scalar(self, value: Any, path: Path) -> Any:
        if isinstance(value, str):
            if _UNSTORABLE.search(value):
                self._fault(UNSTORABLE.fault(path))
            return str(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            try:
                return checked_number(value)
            except InvalidInput as error:
                self._fault(*(each.under(*path) for each in error.faults))
                return 0
        self._fault(NOT_JSON.fault(path, found=type_name(value)))
        return None

    def _fault(self, *faults: Fault) -> None:
        self.faults.add(*(located(each, "") for each in faults))
