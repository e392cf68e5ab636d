"""Inputs by name: how they are told, and which node they mean once all nodes are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from perdure.errors import InvalidInput
from perdure.model.graph import Input, OnMissing
from perdure.model.path import parse_path
from perdure.model.payload import from_json, to_json
from perdure.rules.graph_check import nearest

_OUTPUT = re.compile(r"\.output(?=\.|$)")
_INPUT, _SECRET = "input", "secret"
_SECRET_NAME = re.compile(r"[A-Za-z0-9_-]+")
_FIELDS = ("from", "default")
_WANTED = "write '<node>.output', 'input' or 'secret.NAME', the first two with a path behind"


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


def inputs_told(options: Mapping[str, Any], refuse: Callable[[str], None]) -> Inputs:
    """What the options say of inputs; everything that stands against it is told to ``refuse``."""
    told = options.get("inputs")
    on_missing = options.get("on_missing", "error")
    if on_missing not in get_args(OnMissing):
        refuse(f"on_missing={on_missing!r} must be error, default or skip")
        on_missing = "default"  # so that no default is told to be in vain
    if told is None:
        return Inputs((), on_missing)
    if not isinstance(told, Mapping):
        refuse(f'inputs={told!r} must be an object: {{"order": "load.output"}}')
        return Inputs((), on_missing)
    found: list[Reference] = []
    for name, source in told.items():
        try:
            found.append(_reference(name, source, on_missing))
        except InvalidInput as error:
            refuse(str(error))
            found.append(Reference(str(name), _INPUT))  # for what names it not to be refused too
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
        raise InvalidInput(f"input {name!r}: {text!r} {_lacking(text, nodes)}")
    source = known[-1] if known else sources[0]
    return _input(reference, source, text.removeprefix(f"{source}.output"))


def plain(value: Any, what: str) -> Any:
    """The value as it will be read back from the stored definition."""
    return from_json(to_json(value, what))


def _reference(name: Any, source: Any, on_missing: OnMissing) -> Reference:
    if not isinstance(name, str):
        raise InvalidInput(f"inputs: the name {name!r} must be a text")
    if isinstance(source, str):
        return Reference(name, source)
    if not isinstance(source, Mapping) or not isinstance(source.get("from"), str):
        raise InvalidInput(
            f"input {name!r}: {source!r} is no source; {_WANTED}; or an object with 'from' and "
            "'default'"
        )
    for key in source:
        if key not in _FIELDS:
            raise InvalidInput(f"input {name!r}: there is no {key!r}{nearest(str(key), _FIELDS)}")
    if "default" in source and on_missing != "default":
        raise InvalidInput(
            f'input {name!r}: its default counts only where the node says on_missing="default"'
        )
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
        raise InvalidInput(f"input {reference.name!r}: {error}") from error
    return Input(name=reference.name, source=source, path=parts, default=reference.default)


def _secret(reference: Reference, secret: str) -> str:
    if reference.default is not None:
        raise InvalidInput(f"input {reference.name!r}: a secret has no default")
    if not _SECRET_NAME.fullmatch(secret):
        raise InvalidInput(
            f"input {reference.name!r}: {secret!r} cannot be the name of a secret; it has letters, "
            "digits, '_' and '-', and no path behind it"
        )
    return secret


def _lacking(text: str, nodes: Container[str]) -> str:
    """What a text lacks that names no output."""
    parts = text.split(".")
    for count in range(len(parts), 0, -1):
        id = ".".join(parts[:count])
        if id in nodes:
            return f"names no output; write {'.'.join([id, 'output', *parts[count:]])!r}"
    return f"is no source; {_WANTED}"
