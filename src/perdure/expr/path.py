"""Paths into JSON values, such as ``order.items.0.price``.

Dots separate the parts. A part of digits is an index in a list and a key in an object. There are
no wildcards, slices or calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal

from perdure.diagnostics import declare
from perdure.errors import InvalidInput, PerdureError
from perdure.model.text import PREVIEW_MAX, preview, type_name

Path = tuple[str | int, ...]

OnMissing = Literal["error", "default", "skip"]
"""What a node does if a path does not exist: fail, continue with null, or be skipped."""

MISSING: Any = object()
"""Marks a missing value, since None is a value."""

_KNOWN_MAX = 12
"""Most keys named in a message."""
_COMPARED_MAX = 200
"""Most keys compared with a missing one to suggest the nearest."""
_INDEX_DIGITS_MAX = 12


INVALID_PATH = declare(
    "path.invalid",
    "{path!r} is not a path: a part of it is empty",
    "Write names with single dots between them, such as order.items.0.price",
)


class MissingKey(PerdureError, LookupError):
    """Part number ``at`` of a path does not exist. The message names keys, but no values."""

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
        # Recorded runs have this wording in their events (tests/rules/logs): do not change it.
        return repr(path_text(self.path[: self.at])) if self.at else "what is given"

    @property
    def missing(self) -> str:
        return preview(str(self.path[self.at]))

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
        raise InvalidInput(INVALID_PATH.fault(path=preview(text)))
    return parts


def path_text(path: Path) -> str:
    """The path as a string, truncated."""
    return ".".join(preview(str(part)) for part in path[:_COMPARED_MAX])


def nested(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs as templates and conditions find them: ``a.b`` is the field ``b`` of ``a``."""
    if not any("." in name for name in inputs):  # the common case
        return inputs
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        *parents, last = name.split(".")
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return found


def look_up(value: Any, path: Path) -> Any:
    """The value at the path; raises ``MissingKey``."""
    at, reached = _follow(value, path)
    if at == len(path):
        return reached
    if isinstance(reached, Mapping):
        raise MissingKey(path=path, at=at, known=_keys(reached, str(path[at])))
    raise MissingKey(path=path, at=at, found=_description(reached))


def value_at(value: Any, path: Path, default: Any = MISSING) -> Any:
    """The value at the path, or the default."""
    at, reached = _follow(value, path)
    return reached if at == len(path) else default


def _follow(value: Any, path: Path) -> tuple[int, Any]:
    """How many parts of the path exist, and the value at the last of them."""
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
    """Some of the keys, those nearest to the missing one first."""
    some = [str(key) for key in islice(value, _COMPARED_MAX)]
    near = _near(missing, some)
    return tuple(preview(key) for key in islice(dict.fromkeys([*near, *some]), _KNOWN_MAX))


def _near(missing: str, keys: Iterable[str]) -> list[str]:
    if len(missing) > PREVIEW_MAX:
        return []
    return get_close_matches(missing, [key for key in keys if len(key) <= PREVIEW_MAX], n=3)


def _description(value: Any) -> str:
    many = f" of {len(value)}" if isinstance(value, list | tuple) else ""
    return f"{type_name(value)}{many}"
