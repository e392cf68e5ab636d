"""Inputs by name: how they are told, and which node they mean once all nodes are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, get_args

from perdure.diagnostics import declare, near, safe_repr
from perdure.errors import InvalidInput
from perdure.model import check
from perdure.model.graph import Input, OnMissing
from perdure.model.path import parse_path
from perdure.model.payload import from_json, to_json

T = TypeVar("T")

_OUTPUT = re.compile(r"\.output(?=\.|$)")
_INPUT, _SECRET = "input", "secret"
_SECRET_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FIELDS = ("from", "default")

_SOURCES = (
    "Write '<node>.output', 'input' or 'secret.NAME', the first two optionally with a path; or an "
    "object with 'from' and 'default'"
)
NOT_A_SOURCE = declare("flow.not_a_source", "input {input!r}: {source} is not a source", _SOURCES)
NO_OUTPUT = declare(
    "flow.no_output", "input {input!r}: {source!r} names no output", "Write {correct!r}"
)
INPUT_NAME = declare("flow.input_name", "inputs: the name {name!r} must be a string")
UNKNOWN_FIELD = declare(
    "flow.unknown_input_field",
    "input {input!r}: unknown field {field!r}[; did you mean {nearest:or}?]",
)
UNUSED_DEFAULT = declare(
    "flow.unused_default",
    "input {input!r}: its default has no effect",
    'Set on_missing="default" on the node',
)
INVALID_PATH = declare("flow.invalid_path", "input {input!r}: {reason}")
SECRET_DEFAULT = declare("flow.secret_default", "input {input!r}: a secret has no default")
SECRET_NAME = declare(
    "flow.secret_name",
    "input {input!r}: {secret!r} cannot be the name of a secret",
    "Use letters, digits, '_' and '-', and no path",
)


@dataclass(frozen=True, slots=True)
class Reference:
    """An input as it was told."""

    name: str
    text: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of a node as they were told."""

    references: tuple[Reference, ...] = ()
    on_missing: OnMissing = "error"

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.references]


def inputs_told(options: Mapping[str, Any], refuse: Callable[[str | InvalidInput], None]) -> Inputs:
    """What the options say of inputs; everything that stands against it is told to ``refuse``."""

    def attempt(make: Callable[[], T], instead: T) -> T:
        try:
            return make()
        except InvalidInput as error:
            refuse(error)
            return instead

    policy = options.get("on_missing", "error")
    on_missing: OnMissing = attempt(
        lambda: check.choice(policy, "on_missing", get_args(OnMissing)),
        "default",  # so that no default is refused as unused
    )
    nothing: Mapping[Any, Any] = {}
    told = attempt(lambda: _sources_told(options.get("inputs")), nothing)
    found = [
        # A stand-in, for what names the input not to be refused too.
        attempt(partial(_reference, name, source, on_missing), Reference(str(name), _INPUT))
        for name, source in told.items()
    ]
    return Inputs(tuple(sorted(found, key=lambda each: each.name)), on_missing)


def resolved(reference: Reference, nodes: Container[str]) -> Input:
    """The input that is meant; one of a node that there is not is for the check of the graph."""
    name, text = reference.name, reference.text
    sources = list(_sources(text))
    known = [source for source in sources if source in nodes]
    if not known and (text == _INPUT or text.startswith(f"{_INPUT}.")):
        return _input(reference, "", text.removeprefix(_INPUT))
    if not known and text.startswith(f"{_SECRET}."):
        return Input(name=name, secret=_secret(reference, text.removeprefix(f"{_SECRET}.")))
    if not sources:
        raise _no_source(reference, nodes)
    source = known[-1] if known else sources[0]
    return _input(reference, source, text.removeprefix(f"{source}.output"))


def plain(value: Any, what: str) -> Any:
    """The value as it will be read back from the stored definition."""
    return from_json(to_json(value, what))


def _sources_told(told: Any) -> Mapping[Any, Any]:
    if told is not None and not isinstance(told, Mapping):
        raise check.wrong_type(told, "inputs", 'an object: {"order": "load.output"}')
    return told or {}


def _reference(name: Any, source: Any, on_missing: OnMissing) -> Reference:
    if not isinstance(name, str):
        raise InvalidInput(INPUT_NAME.fault(name=name))
    if isinstance(source, str):
        return Reference(name, source)
    if not isinstance(source, Mapping) or not isinstance(source.get("from"), str):
        raise InvalidInput(NOT_A_SOURCE.fault(input=name, source=safe_repr(source)))
    for key in source:
        if key not in _FIELDS:
            nearest = near(str(key), _FIELDS)
            raise InvalidInput(UNKNOWN_FIELD.fault(input=name, field=key, nearest=nearest))
    if "default" in source and on_missing != "default":
        raise InvalidInput(UNUSED_DEFAULT.fault(input=name))
    default = plain(source.get("default"), f"the default of input {name!r}")
    return Reference(name, source["from"], default)


def _sources(text: str) -> Iterator[str]:
    """Everything that may be the id of a node: ids may have dots, the shortest comes first."""
    for found in _OUTPUT.finditer(text):
        if found.start():
            yield text[: found.start()]


def _input(reference: Reference, source: str, path: str) -> Input:
    try:
        parts = parse_path(path[1:]) if path else ()
    except InvalidInput as error:
        fault = INVALID_PATH.fault(input=reference.name, reason=str(error))
        raise InvalidInput(fault) from error
    return Input(name=reference.name, source=source, path=parts, default=reference.default)


def _secret(reference: Reference, secret: str) -> str:
    if reference.default is not None:
        raise InvalidInput(SECRET_DEFAULT.fault(input=reference.name))
    if not _SECRET_NAME.fullmatch(secret):
        raise InvalidInput(SECRET_NAME.fault(input=reference.name, secret=secret))
    return secret


def _no_source(reference: Reference, nodes: Container[str]) -> InvalidInput:
    name, text = reference.name, reference.text
    parts = text.split(".")
    for count in range(len(parts), 0, -1):
        id = ".".join(parts[:count])
        if id in nodes:
            correct = ".".join([id, "output", *parts[count:]])
            return InvalidInput(NO_OUTPUT.fault(input=name, source=text, correct=correct))
    return InvalidInput(NOT_A_SOURCE.fault(input=name, source=safe_repr(text)))
