"""SQL lives in ``.sql`` files, as named blocks that can be pasted into a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")


def load_statements(package: str, filename: str, place: Mapping[str, str]) -> Mapping[str, str]:
    """Read ``-- name: x`` blocks into a read-only mapping, in file order.

    ``{schema}`` and the like stand for where the tables are. They are filled in by name rather
    than by search_path, so that a statement also works on a connection that is not ours.
    """
    text = fill(resources.files(package).joinpath(filename).read_text(encoding="utf-8"), place)
    _preamble, *parts = _NAME.split(text)
    names, bodies = parts[::2], [body.strip() for body in parts[1::2]]
    if len(set(names)) != len(names):
        raise ValueError(f"{package}/{filename} names a statement twice")
    return MappingProxyType(dict(zip(names, bodies, strict=True)))


def fill(text: str, place: Mapping[str, str]) -> str:
    for name, identifier in place.items():
        text = text.replace("{" + name + "}", identifier)
    return text


def is_identifier(text: str) -> bool:
    """Whether a text can stand in SQL as a plain name. Nothing else is ever filled in."""
    return _IDENTIFIER.fullmatch(text) is not None
