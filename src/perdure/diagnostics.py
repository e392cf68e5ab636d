"""Diagnostics as data: errors, faults and findings are values, rendered once per interface.

Declare a code next to the code that uses it, together with its message template::

    UNKNOWN_TASK = declare(
        "flow.unknown_task", "unknown task {name!r}[; did you mean {nearest:or}?]", "Pass `tasks`"
    )
    faults.append(UNKNOWN_TASK.fault(("nodes", id, "task"), name=name, nearest=near(name, known)))

In a template, ``{field}`` inserts an argument, ``{count:job|jobs}`` a count with its noun, and
``{names:or}`` or ``{names:and}`` a list in words. A part in ``[brackets]`` is dropped if one of its
fields is missing or empty. A `name` in backticks is a parameter, which each interface renders in
its own way (``retries=...``, ``retries:``, ``--retries``); ``{name:parameter}`` renders the
parameter that its argument names. Programs match on codes and arguments; no code ever parses a
rendered message.
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
"""Limits for one argument as data; the rest is omitted."""


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
    """Where a flow was defined: a position in a file, or a call of the builder."""

    file: str = ""
    line: int = 0
    """Lines and columns start at 1; 0 if the flow does not come from a file."""
    column: int = 0
    call: str = ""
    """For example ``.then number 2``; empty for flows in YAML or as data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(Diagnostic):
    """A problem in a caller's input or an author's flow, with the path to it."""

    where: Path = ()
    source: Source | None = None
    """For faults of flows."""

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
    """A stable name for one type of diagnostic, with its message template."""

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
    """Convert objects to strings: they may not pickle, and may change or grow."""
    return {name: _plain(value, iter(range(ENTRIES_MAX))) for name, value in args.items()}


def _plain(value: Any, budget: Iterator[int], depth: int = 0) -> Any:
    """Convert a value to JSON types; ``budget`` yields once for each entry still allowed."""
    match value:
        case str():
            return _encodable(value) if len(value) <= MESSAGE_MAX else truncate(_encodable(value))
        case int() if not -(2**63) <= value < 2**64:
            return _Repr(safe_repr(value))
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
            return _Repr(_encodable(safe_repr(value)))


def _encodable(text: str) -> str:
    """Escape lone surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    plain = text.encode("utf-8", "backslashreplace").decode()
    return text if plain == text else plain


class _Repr(str):
    """The ``repr`` of an object; not quoted again by ``{field!r}``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_REST = _Repr("...")


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
        """Render a parameter as the subject of a sentence, without a value."""
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
                return ", ".join(_entry_previews(value))
            case Mapping():
                import json  # only messages with structured arguments need it

                bounded = _plain(dict(islice(value.items(), LIST_MAX)), iter(range(LIST_MAX)))
                text = json.dumps(bounded, ensure_ascii=False, default=safe_repr)
                return truncate(text, VALUE_MAX)
            case _:
                return str(value)

    def action(self, action: Action) -> str:
        raise NotImplementedError


def _entry_previews(values: Collection[Any]) -> list[str]:
    """Truncate before rendering: rendering very many entries would take too long."""
    previews = list(map(safe_repr, islice(values, LIST_MAX)))
    return previews if len(values) <= LIST_MAX else [*previews, "..."]


class PythonRenderer(Renderer):
    """Renders for Python: parameters as keyword arguments, actions as client calls."""

    def name(self, argument: str) -> str:
        return f"{argument}=..."

    def action(self, action: Action) -> str:
        """``client.runs.fork(id='order-42', after=...)``; the caller fills in each ``...``."""
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
    """Renders for authors of YAML flows: options are keys."""

    def name(self, argument: str) -> str:
        return argument


class RecordRenderer(PythonRenderer):
    """Renders stored messages, which any interface may show, so without actions."""

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
    """Whether the text ends a sentence; a trailing ellipsis is part of a value."""
    return text.endswith(("?", ".")) and not text.endswith("...")


def message(diagnostic: Diagnostic, renderer: Renderer = PYTHON) -> str:
    """Return the message without remedy and actions, for interfaces that show them separately."""
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
    from difflib import get_close_matches  # only errors need it

    return tuple(get_close_matches(name, sorted(known), n=most))


def safe_repr(value: Any) -> str:
    """Return ``repr(value)``, truncated, or the name of its type if that fails."""
    try:
        if isinstance(value, list | tuple | set | frozenset | dict):
            budget = iter(range(ENTRIES_MAX))
            start = _plain(value, budget)
            if next(budget, None) is None:  # `repr` of nested lists may take forever
                value = list(start) if isinstance(value, list) else start
        text = repr(value)
    except Exception:  # nested too deeply, or the class has a broken `__repr__`
        return f"<{type(value).__name__}>"
    return truncate(text, VALUE_MAX)


def truncate(text: str, most: int = MESSAGE_MAX) -> str:
    """Truncate in the middle: the start names the subject, the end the result."""
    half = most // 2 - 3
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


def span_text(span: timedelta) -> str:
    """Format a duration as ``1h30m``, ``5s`` or ``250ms``."""
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
                previews = _entry_previews(value or ())
                return f" {spec} ".join(filter(None, (", ".join(previews[:-1]), *previews[-1:])))
            if spec == "parameter":
                return renderer.parameter(value) if isinstance(value, str) else safe_repr(value)
            if spec:
                one, many = spec.split("|")
                return f"{value} {one if value == 1 else many}"
            return safe_repr(value) if found["repr"] else renderer.value(value)
        except Exception:  # a message must not fail because a value cannot be rendered
            return f"<{type(value).__name__}>"

    # Only the template is scanned for groups and fields; values are inserted verbatim.
    return _PART.sub(part, _OPTIONAL.sub(optional, template))


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | tuple | list | Mapping) and not value)
