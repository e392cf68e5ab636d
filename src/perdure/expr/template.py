"""Templates: ``{{ name.path }}`` in the strings of a config, rendered from the inputs of a node.

A string that is exactly one template renders to the value itself, of any type. Other strings stay
strings: values are inserted as strings or compact JSON, and never rendered again. ``{{{{`` is a
literal ``{{``; a ``}}`` outside a template is literal. Templates have no calls, filters or
arithmetic. Keys are never templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from perdure.diagnostics import Fault, declare
from perdure.errors import InvalidInput, PerdureError, TemplateMissing, record_text
from perdure.expr.path import MISSING, MissingKey, OnMissing, Path, look_up, path_text, value_at
from perdure.model.payload import to_json
from perdure.model.text import preview
from perdure.model.value import Value

DEPTH_MAX = 100
"""The nesting of a config."""
FAULTS_MAX = 100
"""Most faults reported for one config."""
TEXT_MAX = 10_000_000
"""Characters of all rendered templates in one config, counted as JSON where they are no strings."""

_OPEN, _CLOSE = "{{", "}}"
_LITERAL_OPEN = _OPEN * 2
# Parts cannot contain a dot, so there is only one way to match: no backtracking.
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")


NOT_CLOSED = declare(
    "template.not_closed", "{template!r} has no closing '}}'; write '{{{{' for a literal '{{'"
)
EMPTY = declare("template.empty", "{template!r} is empty; name an input, as in {{ order.total }}")
MALFORMED = declare(
    "template.malformed",
    "{template!r} is not a template: only names of letters, digits, '_' and '-' with single dots "
    "between them, as in {{ order.total }}; no calls, filters or arithmetic",
)
TOO_LONG = declare(
    "template.too_long",
    "the templates render to more than {most} characters",
    "Use large values once, or pass them by reference",
)
TOO_DEEP = declare(
    "template.too_deep", "the config is nested deeper than {most} levels, at {beginning}…"
)


class TemplateUse(Value):
    """One template: its first name, the rest of its path, and where it is in the config."""

    name: str
    path: tuple[str, ...]
    where: Path
    text: str

    @property
    def whole_path(self) -> tuple[str, ...]:
        return (self.name, *self.path)


class TemplateSkips(PerdureError):
    """``on_missing: skip``: the node is skipped, because this value is missing."""

    CODE = declare("template.skips", "template {template!r} in {where}: {reason}")
    template: str
    where: str
    reason: str


_Piece = str | TemplateUse | Fault


def template_names(config: Any) -> list[TemplateUse]:
    """All well-formed templates in the config, in order."""
    return [
        piece
        for where, text in _texts(config)
        for piece in _pieces(text, where)
        if isinstance(piece, TemplateUse)
    ]


def template_faults(config: Any) -> list[Fault]:
    """All faults of the templates in a config, with their paths."""
    faults = (
        piece
        for where, text in _texts(config)
        for piece in _pieces(text, where)
        if isinstance(piece, Fault)
    )
    try:
        return list(islice(faults, FAULTS_MAX))
    except InvalidInput as error:
        return list(error.faults)


def render(config: Any, scope: Mapping[str, Any], on_missing: OnMissing = "error") -> Any:
    """Render all templates of a config from the scope.

    A missing value raises ``TemplateMissing`` or ``TemplateSkips``; with ``"default"``, it is null,
    or empty inside a string. Malformed templates always raise ``InvalidInput``.
    """
    return _Rendering(scope, on_missing).of(config, ())


def with_names(text: str, names: Mapping[str, str]) -> str | None:
    """The same template over other names; None if it uses a name that is not among these."""
    made = []
    for piece in _pieces(text, ()):
        if isinstance(piece, TemplateUse):
            if piece.name not in names:
                return None
            made.append(f"{_OPEN} {'.'.join((names[piece.name], *piece.path))} {_CLOSE}")
        elif isinstance(piece, Fault):
            return None
        else:
            made.append(piece.replace(_OPEN, _LITERAL_OPEN))
    return "".join(made)


def input_scope(value: Any) -> dict[str, Any]:
    """The names of a template over an input: ``input``, and its own keys."""
    return {**(value if isinstance(value, dict) else {}), "input": value}


def render_text(template: str, scope: Mapping[str, Any]) -> str:
    """Render a template as text; empty for null. Raises ``TemplateMissing``."""
    value = render(template, scope)
    if value is None or isinstance(value, str):
        return value or ""
    return to_json(value, f"the value of {template}").decode()


class _Rendering:
    def __init__(self, scope: Mapping[str, Any], on_missing: OnMissing) -> None:
        self._scope = scope
        self._on_missing = on_missing
        self._text_left = TEXT_MAX
        self._sizes: dict[tuple[str, ...], int] = {}

    def of(self, config: Any, where: Path) -> Any:
        _refuse_deep(where)
        if isinstance(config, str):
            return self._text(config, where) if _OPEN in config else config
        if isinstance(config, Mapping):
            return {key: self.of(value, (*where, key)) for key, value in config.items()}
        if isinstance(config, list | tuple):
            return [self.of(value, (*where, index)) for index, value in enumerate(config)]
        return config

    def _text(self, text: str, where: Path) -> Any:
        pieces = list(_pieces(text, where))
        match pieces:
            case [TemplateUse() as use]:
                value = self._value(use)
                if value is MISSING:
                    return None
                # It costs no copy here, but one when the config is encoded or converted.
                self._spend(self._size(use, value))
                return value
        return "".join(self._as_text(piece) for piece in pieces)

    def _size(self, use: TemplateUse, value: Any) -> int:
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, Mapping | list | tuple):
            return 1
        size = self._sizes.get(use.whole_path)
        if size is None:
            size = len(to_json(value, f"the value of {use.text}", 2**63))
            self._sizes[use.whole_path] = size
        return size

    def _spend(self, characters: int) -> None:
        self._text_left -= characters
        if self._text_left < 0:
            raise InvalidInput(TOO_LONG.fault(most=TEXT_MAX))

    def _as_text(self, piece: _Piece) -> str:
        if isinstance(piece, Fault):
            raise InvalidInput(piece)
        text = piece if isinstance(piece, str) else _text_of(self._value(piece), piece)
        self._spend(len(text))
        return text

    def _value(self, use: TemplateUse) -> Any:
        if self._on_missing == "default":
            return value_at(self._scope, use.whole_path)
        try:
            return look_up(self._scope, use.whole_path)
        except MissingKey as missing:
            refused = TemplateSkips if self._on_missing == "skip" else TemplateMissing
            raise refused(
                template=use.text, where=path_text(use.where), reason=record_text(missing)
            ) from None


def _text_of(value: Any, use: TemplateUse) -> str:
    if value is MISSING:
        return ""
    return value if isinstance(value, str) else to_json(value, f"the value of {use.text}").decode()


def _texts(config: Any, where: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every string of the config that may have templates, with its path."""
    _refuse_deep(where)
    if isinstance(config, str):
        if _OPEN in config:
            yield where, config
    elif isinstance(config, Mapping):
        for key, value in config.items():
            yield from _texts(value, (*where, key))
    elif isinstance(config, list | tuple):
        for index, value in enumerate(config):
            yield from _texts(value, (*where, index))


def _refuse_deep(where: Path) -> None:
    if len(where) > DEPTH_MAX:
        raise InvalidInput(TOO_DEEP.fault(most=DEPTH_MAX, beginning=path_text(where[:5])))


def _pieces(text: str, where: Path) -> Iterator[_Piece]:
    """Split a string into literals and templates."""
    at = 0
    while (opened := text.find(_OPEN, at)) >= 0:
        if opened > at:
            yield text[at:opened]
        if text.startswith(_LITERAL_OPEN, opened):
            yield _OPEN
            at = opened + len(_LITERAL_OPEN)
            continue
        closed = text.find(_CLOSE, opened + len(_OPEN))
        if closed < 0:
            yield NOT_CLOSED.fault(where, template=preview(text[opened:]))
            return
        at = closed + len(_CLOSE)
        yield _template(text[opened:at], where)
    if at < len(text):
        yield text[at:]


def _template(text: str, where: Path) -> TemplateUse | Fault:
    inside = text[len(_OPEN) : -len(_CLOSE)].strip()
    if not inside:
        return EMPTY.fault(where, template=preview(text))
    if not _NAME.fullmatch(inside):
        return MALFORMED.fault(where, template=preview(text))
    name, *path = inside.split(".")
    return TemplateUse(name=name, path=tuple(path), where=where, text=preview(text))
