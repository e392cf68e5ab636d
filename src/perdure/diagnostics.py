"""Diagnostics as data: errors, faults and findings are values, rendered once per interface.

Declare a code next to the code that uses it, together with its message template::

    UNKNOWN_TASK = declare(
        "flow.unknown_task", "unknown task {name!r}[; did you mean {nearest:or}?]", "Pass `tasks`"
    )
    faults.append(UNKNOWN_TASK.fault(("nodes", id, "task"), name=name, nearest=near(name, known)))

In a template, ``{field}`` inserts an argument, ``{count:job|jobs}`` a count with its noun, and
``{names:or}`` or ``{names:and}`` a list in words. A part in ``[brackets]`` is dropped if one of its
fields is missing or empty. A `name` in backticks is a parameter, which each interface spells in its
own way (``retries=...``, ``retries:``, ``--retries``); so is the one that the argument of
``{name:parameter}`` names. Programs match on codes and arguments; no code ever parses a rendered
message.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, ClassVar

Path = tuple[str | int, ...]

MESSAGE_MAX = 20_000
"""An argument may quote external input of any length."""

VALUE_MAX = 300
LIST_MAX = 100
"""Entries of one list or mapping in a message."""

ENTRIES_MAX, DEPTH_MAX = 1_000, 10
"""Of one argument as data: more is left out."""


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """The state may be intended."""
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Action:
    """A suggested operation. ``asks`` names the arguments that the user must supply."""

    operation: str
    args: Mapping[str, Any] = field(default_factory=dict)
    asks: tuple[str, ...] = ()


# Dataclasses, not msgspec structs: ``perdure --help`` imports errors but must not load msgspec.
@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    code: str
    args: Mapping[str, Any] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        return render(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a flow was written: a place in a file, or a call of the builder."""

    file: str = ""
    line: int = 0
    """Line and column count from 1; 0 where a flow does not come from a file."""
    column: int = 0
    call: str = ""
    """Such as ``.then number 2``; empty for flows as YAML or data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Diagnostic):
    """A problem in what a caller passed or an author wrote, with the path to it."""

    where: Path = ()
    source: Source | None = None
    """Of flows: where it was written."""

    def under(self, *place: str | int) -> Fault:
        """Return this fault with its path prefixed by ``place``."""
        return replace(self, where=(*place, *self.where))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Diagnostic):
    """An observation, such as why a run is waiting or what a health check found."""

    about: str = ""
    """The node, queue, worker or table concerned; empty for the whole run or store."""


@dataclass(frozen=True, slots=True)
class Code:
    """A stable name for one kind of diagnostic, with the sentence that people read."""

    name: str
    sentence: str
    remedy: str = ""

    _declared: ClassVar[dict[str, Code]] = {}

    def fault(self, where: Path = (), /, *actions: Action, **args: Any) -> Fault:
        return Fault(code=self.name, where=where, args=_plain_args(args), actions=actions)

    def finding(
        self,
        about: str = "",
        /,
        *actions: Action,
        severity: Severity = Severity.ERROR,
        **args: Any,
    ) -> Finding:
        return Finding(
            code=self.name,
            about=about,
            args=_plain_args(args),
            actions=actions,
            severity=severity,
        )


def _plain_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """Callers' objects are stored as text: they may not pickle, and may change or grow."""
    return {name: _plain(value, iter(range(ENTRIES_MAX))) for name, value in args.items()}


def _plain(value: Any, budget: Iterator[int], depth: int = 0) -> Any:
    """A value that JSON can carry; ``budget`` has an item for each entry that may still follow."""
    match value:
        case str():
            return _encodable(value) if len(value) <= MESSAGE_MAX else truncate(_encodable(value))
        case int() if not -(2**63) <= value < 2**64:
            return _Shown(safe_repr(value))
        case int() | float() | None | datetime() | timedelta():
            return value
        case list() | tuple() | set() | frozenset() | dict() if depth == DEPTH_MAX:
            deque(budget, maxlen=0)
            return _REST
        case list() | tuple() | set() | frozenset():
            entries = tuple(
                _plain(each, budget, depth + 1) for _, each in zip(budget, value, strict=False)
            )
            return entries if len(entries) == len(value) else (*entries, _REST)
        case dict():
            return {
                _encodable(name if isinstance(name, str) else safe_repr(name)): _plain(
                    each, budget, depth + 1
                )
                for _, (name, each) in zip(budget, value.items(), strict=False)
            }
        case _:
            return _Shown(_encodable(safe_repr(value)))


def _encodable(text: str) -> str:
    """Escape halves of surrogate pairs, which UTF-8 cannot carry."""
    if text.isascii():
        return text
    plain = text.encode("utf-8", "backslashreplace").decode()
    return text if plain == text else plain


class _Shown(str):
    """An object as text: shown as it is where a template asks for its ``repr``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_REST = _Shown("...")


def declare(name: str, sentence: str, remedy: str = "") -> Code:
    if name in Code._declared:
        raise ValueError(f"code {name!r} is declared twice")
    code = Code._declared[name] = Code(name, sentence, remedy)
    return code


def declared() -> Mapping[str, Code]:
    """Return all codes declared so far; ``docs/reference/errors.md`` is generated from them."""
    return Code._declared


class Renderer:
    """Renders names, values and actions for one interface: Python, YAML, CLI or HTTP."""

    def name(self, argument: str) -> str:
        return argument

    def parameter(self, name: str) -> str:
        """A parameter as the subject of a sentence, where no value follows."""
        return name

    def value(self, value: Any) -> str:
        match value:
            case datetime():
                return value.isoformat(sep=" ", timespec="seconds")
            case timedelta():
                return span_text(value)
            case float():
                return f"{value:g}"
            case list() | tuple() | set() | frozenset():
                return ", ".join(_shown_entries(value))
            case Mapping():
                import json  # only messages with structured arguments need it

                bounded = _plain(dict(islice(value.items(), LIST_MAX)), iter(range(LIST_MAX)))
                text = json.dumps(bounded, ensure_ascii=False, default=safe_repr)
                return truncate(text, VALUE_MAX)
            case _:
                return str(value)

    def action(self, action: Action) -> str:
        raise NotImplementedError


def _shown_entries(values: Collection[Any]) -> list[str]:
    """Truncated before rendering: rendering very many entries would take too long."""
    shown = list(map(safe_repr, islice(values, LIST_MAX)))
    return shown if len(values) <= LIST_MAX else [*shown, "..."]


class PythonRenderer(Renderer):
    """Addresses Python code: parameters as keywords, actions as calls of the client."""

    def name(self, argument: str) -> str:
        return f"{argument}=..."

    def action(self, action: Action) -> str:
        """``client.runs.fork(id='order-42', after=...)``; ``...`` is for the caller to fill in."""
        given: dict[str, Any] = {**action.args, **dict.fromkeys(action.asks, ...)}
        call = f"client.{action.operation}"
        if action.operation == "worker.run":  # not an operation of a client
            call = "Worker"
            del given["module"]
        else:
            given.pop("namespace", None)  # the client has it
        values = {name: "..." if each is ... else safe_repr(each) for name, each in given.items()}
        return f"{call}({', '.join(f'{name}={value}' for name, value in values.items())})"


class YamlRenderer(PythonRenderer):
    """Addresses the author of a flow in YAML: options are keys."""

    def name(self, argument: str) -> str:
        return argument


class RecordRenderer(PythonRenderer):
    """For stored messages, which may be read in any interface: suggests no operations."""

    def action(self, action: Action) -> str:
        return ""


PYTHON = PythonRenderer()
YAML = YamlRenderer()
RECORD = RecordRenderer()
_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_PART = re.compile(r"`(?P<name>\w+)`|\{(?P<field>\w+)(?P<repr>!r)?(?::(?P<spec>[^}]*))?\}")


def render(diagnostic: Diagnostic, renderer: Renderer = PYTHON) -> str:
    """Return the message, the remedy and the suggested actions as text. Never raises."""
    code = Code._declared.get(diagnostic.code)
    if code is None:  # sent by a newer server
        return truncate(f"{diagnostic.code} {safe_repr(dict(diagnostic.args))}")
    text = _fill(code.sentence, diagnostic.args, renderer)
    if advice := advice_text(diagnostic, renderer):
        text = f"{text}{': ' if not code.remedy else ' ' if _ends(text) else '. '}{advice}"
    return truncate(text)


def advice_text(diagnostic: Diagnostic, renderer: Renderer = PYTHON) -> str:
    """Return what to do about it: the remedy, and the suggested actions as calls or commands."""
    text = remedy(diagnostic, renderer)
    actions = " or ".join(filter(None, map(renderer.action, diagnostic.actions)))
    if diagnostic.actions and not actions:
        return ""  # the remedy only introduces them
    return f"{text}: {actions}" if text and actions else text or actions


def _ends(text: str) -> bool:
    """Whether a sentence is over; an ellipsis stands for an argument."""
    return text.endswith(("?", ".")) and not text.endswith("...")


def message(diagnostic: Diagnostic, renderer: Renderer = PYTHON) -> str:
    """Return the sentence alone, for interfaces that show remedy and actions elsewhere."""
    code = Code._declared.get(diagnostic.code)
    return (
        render(diagnostic, renderer)
        if code is None
        else _filled(code.sentence, diagnostic, renderer)
    )


def remedy(diagnostic: Diagnostic, renderer: Renderer = PYTHON) -> str:
    code = Code._declared.get(diagnostic.code)
    return "" if code is None else _filled(code.remedy, diagnostic, renderer)


def as_data(diagnostic: Diagnostic, renderer: Renderer = PYTHON) -> dict[str, Any]:
    """Return the payload for ``--json``, HTTP and MCP: the diagnostic plus its rendered message."""
    import msgspec

    args = {
        name: msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
        for name, value in diagnostic.args.items()
    }
    plain = replace(
        diagnostic,
        args=_plain_args(args),
        actions=tuple(replace(each, args=_plain_args(each.args)) for each in diagnostic.actions),
    )
    data: dict[str, Any] = msgspec.to_builtins(plain, enc_hook=safe_repr)
    if data.get("source") is None:
        data.pop("source", None)
    for action, found in zip(diagnostic.actions, data["actions"], strict=True):
        found["rendered"] = _encodable(renderer.action(action))
    return {**data, "message": _encodable(render(diagnostic, renderer))}


def near(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Return the known names that resemble a misspelled one."""
    from difflib import get_close_matches  # only mistakes need it

    return tuple(get_close_matches(name, sorted(known), n=most))


def safe_repr(value: Any) -> str:
    """``repr``, bounded; the type's name where that fails. The value may be anything."""
    try:
        if isinstance(value, list | tuple | set | frozenset | dict):
            budget = iter(range(ENTRIES_MAX))
            start = _plain(value, budget)
            if next(budget, None) is None:  # `repr` of lists within lists may take for ever
                value = list(start) if isinstance(value, list) else start
        text = repr(value)
    except Exception:  # nested too deep, or a class of the caller's that fails at it
        return f"<{type(value).__name__}>"
    return truncate(text, VALUE_MAX)


def truncate(text: str, most: int = MESSAGE_MAX) -> str:
    """Keep both ends: the start names the subject, the end the result."""
    half = most // 2 - 3
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def span_text(span: timedelta) -> str:
    """A duration the way people write one: ``1h30m``, ``5s``, ``250ms``."""
    milliseconds = abs(span) / timedelta(milliseconds=1)
    if 0 < milliseconds < 1:
        return f"{'-' if span < timedelta(0) else ''}{milliseconds:.1g}ms"
    left = round(milliseconds)
    text = ""
    for unit, size in _UNITS_MS:
        count, left = divmod(left, size)
        if count:
            text += f"{count}{unit}"
    return f"{'-' if span < timedelta(0) else ''}{text or '0s'}"


_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def _filled(template: str, diagnostic: Diagnostic, renderer: Renderer) -> str:
    return truncate(_fill(template, diagnostic.args, renderer))


def _fill(template: str, args: Mapping[str, Any], renderer: Renderer) -> str:
    def optional(found: re.Match[str]) -> str:
        fields = [part["field"] for part in _PART.finditer(found[1]) if part["field"]]
        is_missing = any(_is_empty(args.get(each)) for each in fields)
        return "" if is_missing else found[1]

    def part(found: re.Match[str]) -> str:
        if found["name"]:
            return renderer.name(found["name"])
        value, spec = args.get(found["field"]), found["spec"]
        try:
            if spec in ("or", "and"):
                shown = _shown_entries(value or ())
                return f" {spec} ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
            if spec == "parameter":
                return renderer.parameter(value) if isinstance(value, str) else safe_repr(value)
            if spec:
                one, many = spec.split("|")
                return f"{value} {one if value == 1 else many}"
            return safe_repr(value) if found["repr"] else renderer.value(value)
        except Exception:  # a message must not fail because a value cannot be shown
            return f"<{type(value).__name__}>"

    # Only the template is scanned for groups and fields. Values are inserted verbatim.
    return _PART.sub(part, _OPTIONAL.sub(optional, template))


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | tuple | list | Mapping) and not value)
