"""Paths into JSON values, as people write them: ``order.items.0.price``.

Dots separate the parts. A part of digits is an index where a list is, and a key where an object
is. Nothing else is understood: no wildcards, no slices, no calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PerdureError
from perdure.model.text import SHOWN_MAX, cut, type_name

Path = tuple[str | int, ...]

OnMissing = Literal["error", "default", "skip"]
"""What a node does about a path that leads nowhere: fail, go on with null, or be skipped."""

MISSING: Any = object()
"""Stands for no value at all, where null is a value like any other."""

_KNOWN_MAX = 12
"""How many keys a message names."""
_COMPARED_MAX = 200
"""How many keys are compared with a missing one, to find the nearest."""
_INDEX_DIGITS_MAX = 12


INVALID_PATH = declare(
    "path.invalid",
    "{path!r} is not a path: a part of it is empty",
    "Write names with single dots between them, such as order.items.0.price",
)


class MissingKey(PerdureError, LookupError):
    """A path leads nowhere: its part number ``at`` is not there. Keys are told, values never."""

    CODE = declare(
        "path.missing",
        "[{holder} is {found}, so ]there is no {missing!r} in {place}"
        "[; did you mean {nearest:or}?][ Known: {listed}][; known: {others}]",
    )
    _derived = ("holder", "missing", "place", "nearest", "listed", "others")
    path: Path
    at: int
    known: tuple[str, ...] = ()
    found: str = ""

    @property
    def holder(self) -> str:
        return repr(path_text(self.path[: self.at])) if self.at else "what is given"

    @property
    def missing(self) -> str:
        return cut(str(self.path[self.at]))

    @property
    def place(self) -> str:
        if self.found:
            return "it"
        return self.holder if self.known else f"{self.holder}, which is empty"

    @property
    def nearest(self) -> tuple[str, ...]:
        return tuple(_near(str(self.path[self.at]), self.known))

    @property
    def listed(self) -> tuple[str, ...]:
        return self.known if self.nearest else ()

    @property
    def others(self) -> tuple[str, ...]:
        return () if self.nearest else self.known


def parse_path(text: str) -> tuple[str, ...]:
    parts = tuple(text.split("."))
    if not all(parts):
        raise InvalidInput(INVALID_PATH.fault(path=cut(text)))
    return parts


def path_text(path: Path) -> str:
    """The path as it is written, shortened where it is very long."""
    return ".".join(cut(str(part)) for part in path[:_COMPARED_MAX])


def look_up(value: Any, path: Path) -> Any:
    """The value that the path leads to; ``MissingKey`` says which part of it is not there."""
    at, reached = _follow(value, path)
    if at == len(path):
        return reached
    if isinstance(reached, Mapping):
        raise MissingKey(path=path, at=at, known=_keys(reached, str(path[at])))
    raise MissingKey(path=path, at=at, found=_description(reached))


def value_at(value: Any, path: Path, default: Any = MISSING) -> Any:
    """The value that the path leads to, or the default."""
    at, reached = _follow(value, path)
    return reached if at == len(path) else default


def _follow(value: Any, path: Path) -> tuple[int, Any]:
    """How many parts of the path are there, and the value at the last of them."""
    for at, part in enumerate(path):
        if isinstance(value, Mapping):
            try:
                value = value[str(part)]
            except KeyError:
                return at, value
        elif isinstance(value, list | tuple):
            index = _index(part)
            if index is None or index >= len(value):
                return at, value
            value = value[index]
        else:
            return at, value
    return len(path), value


def _index(part: str | int) -> int | None:
    text = str(part)
    is_index = text.isascii() and text.isdecimal() and len(text) <= _INDEX_DIGITS_MAX
    return int(text) if is_index else None


def _keys(value: Mapping[Any, Any], missing: str) -> tuple[str, ...]:
    """Some of the keys, the nearest to the missing one first."""
    some = [str(key) for key in islice(value, _COMPARED_MAX)]
    near = _near(missing, some)
    return tuple(cut(key) for key in islice(dict.fromkeys([*near, *some]), _KNOWN_MAX))


def _near(missing: str, keys: Iterable[str]) -> list[str]:
    if len(missing) > SHOWN_MAX:
        return []
    return get_close_matches(missing, [key for key in keys if len(key) <= SHOWN_MAX], n=3)


def _description(value: Any) -> str:
    many = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"{type_name(value)}{many}"
